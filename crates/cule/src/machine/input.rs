//! Controllers and switches: port pins, console switches, triggers and paddle resistances. Constant during a
//! frame.
//!
//! Device subset.

use bytemuck::{Pod, Zeroable};

/// Resistance at the paddle pins when a joystick is connected.
pub const INFINITE: i32 = -1;
/// SWCHB with nothing pressed and both difficulty switches at B.
pub const SWITCHES_IDLE: u8 = 0x3F;
/// Bit of SWCHB that the RESET switch pulls down.
pub const SWITCH_RESET: u8 = 0x01;
/// Bit of SWCHB that the SELECT switch pulls down.
pub const SWITCH_SELECT: u8 = 0x02;

/// All inputs as the chips see them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Input {
    /// INPT0..INPT3: resistance in ohms, 0 = always charged, `INFINITE` = never.
    pub resistance: [i32; 4],
    /// SWCHA: left port in bits 7-4, right port in bits 3-0; 0 = pressed.
    pub port_a: u8,
    /// SWCHB.
    pub switches: u8,
    /// INPT4 and INPT5: bit 7 clear while pressed.
    pub trigger: [u8; 2],
}

/// Returns the inputs of two joysticks with nothing pressed.
pub fn idle() -> Input {
    Input {
        resistance: [INFINITE, INFINITE, INFINITE, INFINITE],
        port_a: 0xFF,
        switches: SWITCHES_IDLE,
        trigger: [0x80, 0x80],
    }
}

/// CPU cycles until a paddle input with this resistance (ohms) reads as charged.
pub fn charge_cycles(resistance: i32) -> u32 {
    (resistance as u64 * 1904 / 100_000) as u32
}
