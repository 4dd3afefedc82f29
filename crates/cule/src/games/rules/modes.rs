//! Modes that RAM does not show as one number, and rule variables that a mode selection changes.
//!
//! Device subset.

use crate::games::evaluate::CHANGED;
use crate::games::row::{Game, Select, Special};
use crate::games::{Rules, byte, digits};

/// True if RAM shows mode `m`.
pub fn reached(row: &Game, m: i32, ram: &[u8; 128], cart_ram: &[u8; 128]) -> bool {
    match row.special {
        Special::HumanCannonball => (byte(ram, 0xB6) - 1) & 0xFF == m && byte(ram, 0xB7) == 1,
        Special::Jamesbond => byte(ram, 0x8C) == m || byte(ram, 0x8C) == m + 0x48,
        Special::Kangaroo => byte(ram, 0xBA) == m || byte(ram, 0xBA) == m + 0x80,
        Special::Klax => cart_ram[0x6A] as i32 == m,
        Special::MsPacman => {
            byte(ram, 0x99) == if m == 0 { 1 } else { m } && byte(ram, 0xA1) == (m == 0) as i32
        }
        Special::Pacman => (byte(ram, 0xCC) - 1) & 0xFF == m && byte(ram, 0xE6) == 0,
        Special::SpaceWar => digits(byte(ram, 0xA7) as u8) == m,
        Special::VideoCheckers => byte(ram, 0xF6) == if m >= 11 { m + 6 } else { m },
        Special::VideoCube => byte(ram, 0xFB) & 0x1F == cube_variant(m),
        _ => shows(&row.select, m, ram),
    }
}

/// True if RAM shows mode `m` as the row describes, or if there is no selection.
fn shows(select: &Select, m: i32, ram: &[u8; 128]) -> bool {
    let shown: i32 = (byte(ram, select.address as i32) - select.less as i32) & 0xFF;
    select.frames == 0 || shown == select.scale * m + select.more
}

/// Video Cube: the number that RAM shows for variant `m` mod 100.
fn cube_variant(m: i32) -> i32 {
    match m % 100 {
        0 => 0,
        1 => 2,
        _ => 8,
    }
}

/// Sets the rule variables after the mode has been reached.
pub fn on_reached(s: &mut Rules, row: &Game, pressed: bool, ram: &[u8; 128]) {
    match row.special {
        Special::Alien => s.lives = byte(ram, 0xC0) & 15,
        Special::Gravitar => {
            s.lives = match s.mode {
                1 => 15,
                3 => 100,
                4 => 25,
                _ => 6,
            };
        }
        Special::DemonAttack => {
            if pressed {
                s.aux[CHANGED] = 1;
            }
        }
        _ => {}
    }
}
