//! Loops that wait for the timer: `LDA INTIM` (or LDX, LDY), then BNE or BPL back to it.
//!
//! Device subset. Iterations whose reads cannot end the loop change nothing but the time, so that they can be
//! skipped.

use super::{Machine, cart, riot};

/// LDA, LDX and LDY with an absolute address.
const LOADS: [u32; 3] = [0xAD, 0xAE, 0xAC];
/// The branches, and their offset back to the load.
const BNE: u32 = 0xD0;
const BPL: u32 = 0x10;
const BACK: u32 = 0xFB;
/// Bytes of the loop.
const LENGTH: u32 = 5;
/// Instructions that are left after a skip, at least. A frame that runs out of instructions ends in the middle
/// of its picture.
const RESERVE: u32 = 5000;

/// Returns the number of iterations to skip of the loop that begins at `pc`, and 0 if there is no such loop.
/// Each takes [`period`] cycles and two instructions.
pub fn waiting_rounds(m: &Machine, rom: &[u8], pc: u32, cycles: u32, left: u32) -> u32 {
    let offset: u32 = pc & 0xFFF;
    let plain: bool =
        cart::is_plain(&m.cart, offset) && cart::is_plain(&m.cart, offset + LENGTH - 1) && pc & 0x1000 != 0;
    if !plain || m.cart.claims != 0 || left <= RESERVE + 1000 {
        return 0;
    }
    let load: u32 = cart::read_segment(&m.cart, rom, pc);
    if load != LOADS[0] && load != LOADS[1] && load != LOADS[2] {
        return 0;
    }
    let low: u32 = cart::read_segment(&m.cart, rom, pc + 1);
    let high: u32 = cart::read_segment(&m.cart, rom, pc + 2);
    let branch: u32 = cart::read_segment(&m.cart, rom, pc + 3);
    let back: u32 = cart::read_segment(&m.cart, rom, pc + 4);
    // INTIM: a register of the RIOT with bit 2 set and bit 0 clear.
    let reads_timer: bool = (low | high << 8) & 0x1285 == 0x0284;
    if !reads_timer || (branch != BNE && branch != BPL) || back != BACK {
        return 0;
    }
    let rounds: u32 = riot::waiting_reads(&m.riot, cycles.wrapping_add(4), period(pc), branch == BNE);
    let most: u32 = (left - RESERVE) / 2;
    if rounds < most { rounds } else { most }
}

/// Cycles of an iteration of the loop at `pc`: the load, the branch, and one more if it goes to another page.
pub fn period(pc: u32) -> u32 {
    if (pc + LENGTH) & 0xFF00 == pc & 0xFF00 { 7 } else { 8 }
}

#[cfg(not(device))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{self, Board, Plain, Processor};

    /// A machine whose ROM sets the timer, waits with the load and branch, and stops at `JMP` to itself.
    fn waiting(load: u8, branch: u8, start: u8) -> (Vec<u8>, Machine, Box<Board>) {
        let mut rom = vec![0xEA; 4096];
        let text = [
            0xA9, start, 0x8D, 0x96, 0x02, // LDA #start; STA TIM64T
            load, 0x84, 0x02, branch, 0xFB, // the loop
            0x4C, 0x0A, 0xF0, // JMP to itself
        ];
        rom[..text.len()].copy_from_slice(&text);
        rom[0xFFC..].copy_from_slice(&[0x00, 0xF0, 0x00, 0xF0]);
        let mut board: Box<Board> = bytemuck::zeroed_box();
        let mut machine = machine::new(cart::KIND_4K, 4096, &[0; 128], crate::env::layout(0, false));
        machine::reset(&mut machine, &mut board, &rom, 0);
        (rom, machine, board)
    }

    #[test]
    fn a_skip_gives_the_same_machine() {
        let mut skipped = 0;
        for load in [0xAD, 0xAE, 0xAC] {
            for (branch, start) in [(0xD0, 40), (0xD0, 2), (0xD0, 1), (0x10, 100), (0x10, 200), (0xF0, 40)] {
                let (rom, mut expected, mut board) = waiting(load, branch, start);
                let (mut found, mut other) = (expected, board.clone());
                Plain { rom: &rom }.run(&mut expected, &mut board, 20_000);
                Plain { rom: &rom }.run(&mut found, &mut other, 2);
                let rounds = waiting_rounds(&found, &rom, u32::from(found.cpu.pc), found.cpu.cycles, 19_998);
                skipped += rounds;
                found.cpu.cycles += rounds * period(u32::from(found.cpu.pc));
                Plain { rom: &rom }.run(&mut found, &mut other, 19_998 - 2 * rounds);
                assert_eq!(found, expected, "load {load:02X}, branch {branch:02X}, start {start}");
            }
        }
        assert!(skipped > 500, "only {skipped} iterations were skipped");
    }
}
