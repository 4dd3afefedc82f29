//! Ends of episodes that need more than comparisons of bytes.
//!
//! Device subset.

use super::scores::{boxing_points, is_bust};
use crate::games::evaluate::{CHANGED, IDLE, LAST, STARTED, is_end};
use crate::games::row::{Game, Special};
use crate::games::{Rules, bcd1, byte};

/// True if the episode ends in this frame.
pub fn ended(s: &mut Rules, row: &Game, score: i32, ram: &[u8; 128], cart_ram: &[u8; 128]) -> bool {
    match row.special {
        Special::Blackjack => is_bust(ram) || score >= 1000,
        Special::Boxing => {
            boxing_points(ram, 0x92) == 100
                || boxing_points(ram, 0x93) == 100
                || byte(ram, 0x90) >> 4 == 0 && byte(ram, 0x91) == 0
        }
        // Ends when no lives are left, but only after lives were shown.
        Special::Breakout => {
            if byte(ram, 0xB9) == 5 {
                s.aux[STARTED] = 1;
            }
            s.aux[STARTED] != 0 && is_end(&row.end, score, ram)
        }
        Special::ChopperCommand => {
            if byte(ram, 0xC2) & 1 != 0 {
                s.aux[STARTED] = 1;
            }
            s.aux[STARTED] != 0 && is_end(&row.end, score, ram)
        }
        // Directly after a mode selection, RAM looks like the end of a game.
        Special::DemonAttack => {
            let changed: bool = s.aux[CHANGED] != 0;
            s.aux[CHANGED] = 0;
            !changed && is_end(&row.end, score, ram)
        }
        Special::DoubleDunk => (bcd1(ram, 0xF6) >= 24 || bcd1(ram, 0xF7) >= 24) && byte(ram, 0xFE) == 231,
        Special::Klax => klax(ram, cart_ram),
        // Ends after more than 50 frames in a row in which the program does not wait for input.
        Special::Othello => {
            s.aux[IDLE] = if byte(ram, 0xC0) == 0 { s.aux[IDLE] + 1 } else { 0 };
            s.aux[IDLE] > 50
        }
        Special::Qbert => byte(ram, 0x88) == 254 || byte(ram, 0x88) == 2 && s.aux[LAST] == -1,
        Special::Riverraid => byte(ram, 0xC0) == 0x58 && s.aux[LAST] == 0x59,
        Special::RoadRunner => is_end(&row.end, score, ram) && byte(ram, 0xB9) | byte(ram, 0xBD) != 0,
        Special::Surround => bcd1(ram, 0xF6) == 10 || bcd1(ram, 0xF7) == 10,
        _ => is_end(&row.end, score, ram),
    }
}

/// Klax: ends when a wave is lost, the bin is full, or all waves are done.
fn klax(ram: &[u8; 128], cart_ram: &[u8; 128]) -> bool {
    let mut filled: i32 = 0;
    for a in 0xB3..0xCC {
        let tile: i32 = byte(ram, a);
        if !(tile == 0 || tile == 2 || tile == 6 || tile == 10 || tile == 14) {
            filled += 1;
        }
    }
    cart_ram[0x69] > 0 && cart_ram[0x6E] == cart_ram[0x69]
        || byte(ram, 0xA8) == 4 && filled == 25
        || cart_ram[0x1D] == 0x99
}
