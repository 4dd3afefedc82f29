//! Records of the GPU's interpreter. A record is the decoded instruction at an address of the ROM, in 8 bytes.
//!
//! Device subset.

use super::cart::{self, Cart};
use super::record_tables::{BYTES, CYCLES, CYCLES_AT, HANDLERS, KINDS};

/// Returns the record of the instruction at `at`. The first word: operand, and cycles and an instruction as the block
/// counts them. The second: handler. The operand of a branch is the ROM offset to which it goes, that of a read of the
/// bank that executes is the byte there.
pub fn record(rom: &[u8], at: usize, cart: &Cart) -> u64 {
    let opcode: usize = rom[at] as usize;
    let kind: u8 = KINDS[opcode];
    let bytes: u32 = BYTES[opcode] as u32;
    let bank: u32 = cart::bank_bytes(cart.kind);
    let begin: u32 = at as u32 & !(bank - 1);
    let offset: u32 = at as u32 - begin;
    let mut end: u32 = bank;
    if (cart.plain_high as u32) < 0x1000 && (at as u32 | bank - 1) & 0xFFF == 0xFFF {
        end = cart.plain_high as u32 & (bank - 1);
    }
    let mut operand: u32 = 0;
    if bytes > 1 && at + 1 < rom.len() {
        operand = rom[at + 1] as u32;
    }
    if bytes > 2 && at + 2 < rom.len() {
        operand |= (rom[at + 2] as u32) << 8;
    }
    let mut handler: u8 = HANDLERS[opcode][0];
    match kind {
        1 => {
            if operand < 0x80 {
                handler = HANDLERS[opcode][1];
            } else {
                operand &= 0x7F;
            }
        }
        2 => {
            let fills_window: bool = bank > cart::SEGMENT_BYTES;
            if operand & 0x1000 != 0 && fills_window {
                handler = 0;
                let read_at: usize = (begin | operand & (bank - 1)) as usize;
                if cart::is_plain(cart, operand & 0xFFF) && read_at < rom.len() {
                    handler = HANDLERS[opcode][2];
                    operand = rom[read_at] as u32;
                }
            } else if operand & 0x1000 != 0 {
                handler = HANDLERS[opcode][3];
            } else if operand & 0x1280 == 0x80 {
                operand &= 0x7F;
            } else if operand & 0x80 == 0 {
                handler = HANDLERS[opcode][1];
            } else if operand & 0x1285 == 0x284 && cart.claims == 0 && !waits(rom, at) {
                handler = HANDLERS[opcode][4];
            } else {
                handler = 0;
            }
        }
        3 => {
            if operand < 0x80 || operand == 0xFF {
                handler = 0;
            }
            operand &= 0x7F;
        }
        4 => {
            let next: u32 = offset + bytes;
            let target: u32 = next.wrapping_add(operand as u8 as i8 as i32 as u32);
            if target & 0xFF00 != next & 0xFF00 {
                handler = HANDLERS[opcode][1];
            }
            operand = begin.wrapping_add(target);
            // A target below plain ROM or in another bank, or one that 16 bits do not hold.
            if target < cart.plain_low as u32 & (bank - 1) || target >= end || operand > 0xFFFF {
                handler = 0;
                operand = 0;
            }
        }
        5 => {
            if operand & 0x1280 != 0x80 || operand & 0x7F == 0x7F {
                handler = 0;
            }
            operand &= 0x7F;
        }
        6 => {
            let fills_window: bool = bank > cart::SEGMENT_BYTES;
            if fills_window && operand & 0x1000 != 0 && cart::is_plain(cart, operand & 0xFFF) {
                handler = HANDLERS[opcode][1];
            }
        }
        _ => {}
    }
    // After the last instruction of a bank, another one may follow only if that is where a jump goes.
    let jumps: bool = kind >= 5;
    if offset + bytes > end || (offset + bytes == end && !jumps) || at + 1 == rom.len() {
        handler = 0;
    }
    let first: u32 = operand | 1 << 16 | (CYCLES[opcode] as u32) << CYCLES_AT;
    (handler as u64) << 32 | first as u64
}

/// True if a branch back to the instruction of three bytes at `at` follows it: `polls` skips iterations of such loops.
fn waits(rom: &[u8], at: usize) -> bool {
    at + 4 < rom.len() && (rom[at + 3] == 0xD0 || rom[at + 3] == 0x10) && rom[at + 4] == 0xFB
}
