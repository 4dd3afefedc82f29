//! Scores that are not a sum of numbers in RAM, and rewards that are not the increase of the score.
//!
//! Device subset.

use crate::games::evaluate::sum_of;
use crate::games::row::{Game, Special};
use crate::games::{bcd1, bcd2, byte, digits};

/// The score that RAM shows.
pub fn score(row: &Game, ram: &[u8; 128], cart_ram: &[u8; 128]) -> i32 {
    match row.special {
        Special::Blackjack => {
            if is_bust(ram) {
                0
            } else {
                bcd2(ram, 0x89, 0x86)
            }
        }
        Special::Boxing => boxing_points(ram, 0x92) - boxing_points(ram, 0x93),
        Special::DemonAttack => {
            // RAM holds the letters of the title in place of the score.
            if byte(ram, 0x81) == 0xAB && byte(ram, 0x83) == 0xCD && byte(ram, 0x85) == 0xEA {
                0
            } else {
                sum_of(&row.score, ram)
            }
        }
        Special::Enduro => enduro(ram),
        // Score and counters are in cartridge RAM.
        Special::Klax => {
            digits(cart_ram[0x34]) + 100 * digits(cart_ram[0x35]) + 10000 * digits(cart_ram[0x36])
        }
        Special::WizardOfWor => {
            let score: i32 = bcd2(ram, 0x86, 0x88);
            100 * if score >= 8000 { score - 8000 } else { score }
        }
        _ => sum_of(&row.score, ram),
    }
}

/// Blackjack: the player has no money left.
pub fn is_bust(ram: &[u8; 128]) -> bool {
    byte(ram, 0x86) == 11 && byte(ram, 0x89) == 187
}

/// Boxing: RAM shows KO for 100 points.
pub fn boxing_points(ram: &[u8; 128], address: i32) -> i32 {
    if byte(ram, address) == 192 { 100 } else { bcd1(ram, address) }
}

/// Enduro: cars passed, computed from the day and the cars left to pass.
fn enduro(ram: &[u8; 128]) -> i32 {
    let day: i32 = byte(ram, 0xAD);
    let left: i32 = bcd2(ram, 0xAB, 0xAC);
    if day == 0 {
        0
    } else if day == 1 {
        200 - left
    } else {
        200 + 300 * (day - 1) - left
    }
}

/// The reward of a frame in which the score increased by `growth`.
pub fn earned(row: &Game, growth: i32) -> i32 {
    match row.special {
        // The initial balance is not a reward.
        Special::JourneyEscape => {
            if growth == 50000 {
                0
            } else {
                growth
            }
        }
        _ => growth,
    }
}

/// The score with which the next frame's score is compared.
pub fn kept(row: &Game, score: i32, ended: bool) -> i32 {
    match row.special {
        Special::Tetris => {
            if ended {
                0
            } else {
                score
            }
        }
        _ => score,
    }
}
