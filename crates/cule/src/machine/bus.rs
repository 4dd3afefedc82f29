//! The 13-bit bus: which chip responds to an address.
//!
//! Device subset.

use super::operations::Cpu;
use super::{Board, Machine, cart, riot, tia};

/// Address bits that select the chip: cartridge, RIOT registers, RIOT.
const DEVICE: u32 = 0x1280;
/// Value of the `DEVICE` bits that selects the console's RAM.
const RAM: u32 = 0x0080;

/// Reads a byte at the processor's current time.
pub fn read(m: &mut Machine, cpu: &mut Cpu, board: &mut Board, rom: &[u8], address: u32) -> u32 {
    let mut value: u32 = 0;
    if address & DEVICE == RAM {
        value = m.riot.ram[(address & 0x7F) as usize] as u32;
    } else if address & 0x1000 != 0 {
        value = cart::read(m, board, rom, address, cpu.cycles);
    } else if m.cart.claims != 0 && cart::is_claimed(&m.cart, address) {
        value = cart::read_claimed(m, board, rom, address, cpu.cycles);
    } else if address & 0x80 == 0 {
        value = tia::read(m, board, address, cpu.cycles);
    } else {
        value = riot::read(m, address, cpu.cycles);
    }
    m.bus = value;
    value
}

/// Writes a byte. `after_write`: the previous bus access was also a write (second and third push of an
/// instruction).
pub fn write(m: &mut Machine, cpu: &mut Cpu, board: &mut Board, address: u32, value: u32, after_write: bool) {
    m.bus = value;
    if address & DEVICE == RAM {
        m.riot.ram[(address & 0x7F) as usize] = value as u8;
        return;
    }
    let mut to_tia: bool = address & 0x1080 == 0;
    if address & 0x1000 != 0 {
        to_tia = cart::write(m, board, address, value, cpu.cycles);
    } else if !to_tia {
        riot::write(&mut m.riot, address, value, cpu.cycles);
    }
    if to_tia {
        let stall: u32 = write_tia(m, board, cpu.cycles, address, value, after_write);
        cpu.cycles = cpu.cycles.wrapping_add(stall);
        if m.tia.stop != 0 {
            cpu.left = 0;
        }
    }
}

/// Writes to the TIA, and to a cartridge that responds to the same address. Returns the cycles for which the
/// processor stalls.
pub fn write_tia(
    m: &mut Machine,
    board: &mut Board,
    cycles: u32,
    address: u32,
    value: u32,
    after_write: bool,
) -> u32 {
    if m.cart.claims != 0 && cart::is_claimed(&m.cart, address) {
        cart::write_claimed(m, address, value);
    }
    tia::write::write(m, board, cycles, address, value, after_write)
}
