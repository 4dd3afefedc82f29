//! Programs written for these tests: open frames, waits for the timer, banks selected by stores.

use cule::batch::Settings;
use cule::env::rules::StepRules;
use cule::games::table::UNKNOWN;
use cule::rom;

use crate::pair::{Pair, vary};

/// A program of 4 KiB that begins at $F000.
fn program(text: &[u8]) -> rom::Rom {
    let mut bytes = vec![0xEA; 4096];
    bytes[..text.len()].copy_from_slice(text);
    bytes[0xFFC..].copy_from_slice(&[0x00, 0xF0, 0x00, 0xF0]);
    rom::from_bytes(bytes).unwrap()
}

/// A program that draws lines in different colors in each frame, then runs about 512 * `count` instructions
/// without writes to the TIA and ends the frame. A frame with more than 25,000 instructions is left open.
pub fn painter(count: u8) -> rom::Rom {
    program(&[
        0xA2, 0xFF, 0x9A, // LDX #255, TXS
        0xA0, 0x60, 0xE6, 0x82, 0xA6, 0x82, // LDY #96, INC $82, LDX $82
        0x85, 0x02, 0x86, 0x09, 0xE8, 0x86, 0x0E, 0x86, 0x1B, 0x88, 0xD0,
        0xF4, // WSYNC, COLUBK, PF1, GRP0; DEY, BNE
        0xA9, 0x00, 0x85, 0x81, // LDA #0, STA $81
        0xE6, 0x80, 0xD0, 0xFC, 0xE6, 0x81, 0xA5, 0x81, 0xC9, count, 0xD0,
        0xF4, // INC $80, BNE; INC $81, CMP, BNE
        0xA9, 0x02, 0x85, 0x00, 0x85, 0x02, 0x85, 0x02, 0x85, 0x02, 0xA9, 0x00, 0x85, 0x00, // VSYNC
        0x4C, 0x03, 0xF0,
    ])
}

/// A program that draws lines as [`painter`] does, then waits for the timer, `count` times 1,024 cycles.
fn waiter(count: u8) -> rom::Rom {
    program(&[
        0xA2, 0xFF, 0x9A, // LDX #255, TXS
        0xA0, 0x60, 0xE6, 0x82, 0xA6, 0x82, // LDY #96, INC $82, LDX $82
        0x85, 0x02, 0x86, 0x09, 0xE8, 0x86, 0x0E, 0x88, 0xD0, 0xF6, // WSYNC, COLUBK, PF1; DEY, BNE
        0xA9, count, 0x8D, 0x97, 0x02, // LDA #count, STA T1024T
        0xAD, 0x84, 0x02, 0xD0, 0xFB, // LDA INTIM, BNE
        0x86, 0x09, 0xA9, 0x02, 0x85, 0x00, 0x85, 0x02, 0xA9, 0x00, 0x85, 0x00, // COLUBK; VSYNC
        0x4C, 0x03, 0xF0,
    ])
}

/// A program in a cartridge of 8 KiB whose bank is selected by a store to $3F, an address of the TIA too. Each line
/// has the color that the bank says.
fn switcher() -> rom::Rom {
    let mut bytes = vec![0xEA; 8192];
    for bank in 0..4 {
        bytes[2048 * bank] = 0x1E + 0x20 * bank as u8;
    }
    // Two such stores are the signature of these cartridges.
    bytes[100..102].copy_from_slice(&[0x85, 0x3F]);
    let text = [
        0xA2, 0xFF, 0x9A, // LDX #255, TXS
        0xA0, 0x60, 0xE6, 0x82, // LDY #96, INC $82
        0xA5, 0x82, 0x29, 0x03, 0x85, 0x3F, // LDA $82, AND #3, STA $3F
        0xAD, 0x00, 0xF0, 0x85, 0x02, 0x85, 0x09, // LDA $F000; WSYNC, COLUBK
        0xE6, 0x82, 0x88, 0xD0, 0xEE, // INC $82, DEY, BNE
        0xA9, 0x02, 0x85, 0x00, 0x85, 0x02, 0x85, 0x02, 0x85, 0x02, 0xA9, 0x00, 0x85, 0x00, // VSYNC
        0x4C, 0x03, 0xF8,
    ];
    bytes[6144..6144 + text.len()].copy_from_slice(&text);
    bytes[8188..].copy_from_slice(&[0x00, 0xF8, 0x00, 0xF8]);
    rom::from_bytes(bytes).unwrap()
}

/// Stores to the TIA reach cartridges that respond to the same address.
#[test]
fn banks_that_stores_to_the_tia_select() {
    let given = Settings { noop_max: 0, ..Settings::default() };
    let rom = switcher();
    assert_eq!(rom.scheme, rom::Scheme::T3F);
    let mut pair = Pair::of(&[(rom, UNKNOWN)], 2, &given);
    pair.run(8, "banks selected by stores to $3F");
    // Two banks in the pictures, at least.
    let shown: std::collections::HashSet<u8> = pair.cpu_results.obs.iter().copied().collect();
    assert!(shown.len() > 2, "{shown:?}");
}

/// Iterations that wait for the timer are skipped, and count as instructions of the frame.
#[test]
fn waits_for_the_timer() {
    // 4: a wait that ends within the picture; 90: more than 25,000 instructions, so that the frame is left open.
    for count in [4, 90] {
        let given = Settings { noop_max: 0, ..Settings::default() };
        let mut pair = Pair::of(&[(waiter(count), UNKNOWN)], 2, &given);
        pair.run(8, &format!("waiter {count}"));
    }
}

/// Maze Craze draws its maze in open frames; they begin in the middle of the picture. The program with more kinds
/// of open frames needs no ROMs.
#[test]
fn frames_that_are_left_open() {
    vary("maze_craze", &["maze_craze"], |_| ());
    let row = UNKNOWN;
    // 2: short frames; 60: open frames.
    for count in [2, 60] {
        for (frame_limit, show_last_frame, life_continues) in
            [(27, true, false), (27, false, true), (28, false, false), (28, false, true)]
        {
            let given = Settings { show_last_frame, life_continues, noop_max: 0, ..Settings::default() };
            let rules = StepRules { frame_limit, ..given.rules };
            let mut pair = Pair::of(&[(painter(count), row)], 2, &Settings { rules, ..given });
            pair.run(8, &format!("painter {count}, {frame_limit}, {show_last_frame}, {life_continues}"));
        }
    }
}
