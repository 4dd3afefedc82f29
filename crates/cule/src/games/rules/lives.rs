//! Lives that are not a bit field in RAM.
//!
//! Device subset.

use crate::games::evaluate::{LAST, STARTED};
use crate::games::row::{Game, Special};
use crate::games::{Rules, byte, signed};

/// Updates the lives after a frame.
pub fn count(s: &mut Rules, row: &Game, ram: &[u8; 128]) {
    let mask: i32 = row.lives.mask as i32;
    let mut shown: i32 = s.lives;
    if mask != 0 {
        shown = ((byte(ram, row.lives.address as i32) & mask) >> mask.trailing_zeros()) + row.lives.more;
    }
    match row.special {
        Special::BeamRider => {
            // A life counts as lost when the next one begins.
            let left: i32 = byte(ram, 0x85) + 1;
            if left != s.lives - 1 || byte(ram, 0x8C) == 1 {
                s.lives = left;
            }
        }
        Special::Et => s.lives = signed(byte(ram, 0xE5) + 1),
        // One bit per carrot.
        Special::Gopher => s.lives = (byte(ram, 0xB4) & 7).count_ones() as i32,
        Special::Gravitar => s.lives = if byte(ram, 0x81) == 0 { 6 } else { shown },
        Special::Pitfall => {
            s.lives = match byte(ram, 0x80) >> 4 {
                10 => 3,
                8 => 2,
                _ => 1,
            };
        }
        Special::Qbert => {
            let left: i32 = signed(byte(ram, 0x88));
            if s.aux[LAST] - 1 == left {
                s.lives -= 1;
            }
            s.aux[LAST] = left;
        }
        Special::Riverraid => {
            s.aux[LAST] = byte(ram, 0xC0);
            s.lives = match s.aux[LAST] {
                0x58 => 4,
                0x59 => 1,
                _ => s.aux[LAST] / 8 + 1,
            };
        }
        Special::StarGunner => {
            if byte(ram, 0x87) == 5 {
                s.aux[STARTED] = 1;
            }
            s.lives = if s.aux[STARTED] != 0 { shown } else { 5 };
        }
        Special::TimePilot => {
            if byte(ram, 0x80) & 15 == 2 {
                s.lives = shown;
            }
        }
        Special::Trondead => s.lives = 5 - byte(ram, 0xC8),
        Special::VideoPinball => s.lives = 4 + (byte(ram, 0xA8) & 1) - (byte(ram, 0x99) & 7),
        Special::WizardOfWor => {
            if byte(ram, 0xD7) & 1 == 0 {
                s.lives = shown;
            }
        }
        _ => s.lives = shown,
    }
}
