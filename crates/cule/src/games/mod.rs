//! Games as data: what a game's cartridge needs, and how score, lives and the end are read from its RAM.
//!
//! Device subset.

#![allow(
    missing_docs,
    clippy::precedence,
    clippy::needless_range_loop,
    clippy::manual_range_contains,
    clippy::manual_memcpy,
    clippy::assign_op_pattern,
    clippy::collapsible_match,
    clippy::needless_return,
    clippy::needless_late_init,
    clippy::manual_range_patterns,
    clippy::unnecessary_cast,
    clippy::nonminimal_bool,
    clippy::manual_is_multiple_of,
    clippy::too_many_arguments,
    unused_parens,
    unused_assignments,
    reason = "the device subset has no ranges, iterators or methods; constants are named as in the chips' manuals"
)]

pub mod evaluate;
#[cfg(not(device))]
pub mod names;
pub mod rows;
pub mod rules_a_f;
pub mod rules_g_p;
pub mod rules_p_z;
pub mod select;

use bytemuck::{Pod, Zeroable};

use evaluate::AUX_COUNT;
use rows::{KOOLAID, LIVES_ONE, LIVES_RAW, LIVES_STD, LIVES_ZERO, ROWS};

/// The variables of a game's rule.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Rules {
    /// What the last frame earned.
    pub reward: i32,
    /// Score at the previous evaluation.
    pub previous: i32,
    /// Lives as the game counts them.
    pub lives: i32,
    /// Mode for the following resets.
    pub mode: u32,
    /// Variables that only some games have.
    pub aux: [i32; AUX_COUNT],
    /// The episode has ended.
    pub over: u8,
    /// Keeps the size a multiple of four.
    pub unused: [u8; 3],
}

/// Before the first evaluation.
pub fn new(mode: u32) -> Rules {
    Rules { reward: 0, previous: 0, lives: 0, mode, aux: [0; AUX_COUNT], over: 0, unused: [0, 0, 0] }
}

/// The lives a program is told.
pub fn lives(s: &Rules, game: usize) -> i32 {
    let alive: i32 = if s.over != 0 { 0 } else { 1 };
    match ROWS[game].lives {
        LIVES_STD => alive * s.lives,
        LIVES_RAW => s.lives,
        LIVES_ZERO => 0,
        LIVES_ONE => 1,
        _ => alive,
    }
}

/// The address that a game's rule reads last: it stays on the data bus, where code that runs in the TIA's addresses
/// can see it.
///
/// Unsure: known only for the game under whose name random programs were compared. No game depends on it.
pub fn last_read(game: usize) -> i32 {
    if game == KOOLAID { 0xD1 } else { 0xFF }
}

/// RAM byte at bus address $80-$FF.
pub fn byte(ram: &[u8; 128], address: i32) -> i32 {
    ram[(address & 0x7F) as usize] as i32
}

/// Two decimal digits; nibbles above 9 count as they are.
pub fn digits(value: u8) -> i32 {
    10 * (value >> 4) as i32 + (value & 15) as i32
}

fn bcd1(ram: &[u8; 128], low: i32) -> i32 {
    digits(byte(ram, low) as u8)
}

fn bcd2(ram: &[u8; 128], low: i32, high: i32) -> i32 {
    bcd1(ram, low) + 100 * bcd1(ram, high)
}

fn bcd3(ram: &[u8; 128], low: i32, middle: i32, high: i32) -> i32 {
    bcd2(ram, low, middle) + 10000 * bcd1(ram, high)
}

fn least(a: i32, b: i32) -> i32 {
    if a < b { a } else { b }
}

fn most(a: i32, b: i32) -> i32 {
    if a > b { a } else { b }
}

fn signed(value: i32) -> i32 {
    value as u8 as i8 as i32
}

fn ones(value: i32) -> i32 {
    (value as u32).count_ones() as i32
}

/// Ten stands for a blank digit.
fn blank_zero(digit: i32) -> i32 {
    if digit == 10 { 0 } else { digit }
}

/// Alien: digits times eight, $80 is blank.
fn alien_digit(ram: &[u8; 128], address: i32) -> i32 {
    if byte(ram, address) == 0x80 { 0 } else { byte(ram, address) >> 3 }
}

/// River Raid: digits times eight, anything else is blank.
fn eighth(ram: &[u8; 128], address: i32) -> i32 {
    let v: i32 = byte(ram, address);
    if v & 7 == 0 && v <= 72 { v / 8 } else { 0 }
}
