//! RESPx strobes by table; equal to `machine::tia::position::player_strobe`.

use crate::machine::tia::{HBLANK_CLOCKS, Tia, WIDTH, objects};

/// Kinds of RESPx strobes: a copy is about to be drawn and none is being drawn; a copy is being drawn;
/// neither.
pub const STARTS: u8 = 1;
pub const DISPLAYS: u8 = 2;
const NEITHER: u8 = 0;

/// Kind by NUSIZ & 7 and the distance from the old to the new position; equal to `position::player_strobe`.
const STROBES: [[u8; WIDTH]; 8] = strobes();

const fn strobes() -> [[u8; WIDTH]; 8] {
    let mut table = [[NEITHER; WIDTH]; 8];
    let mut mode = 0;
    while mode < 8 {
        let width = match mode {
            5 => 16,
            7 => 32,
            _ => 8,
        };
        let mut distance = 0;
        while distance < WIDTH {
            let mut copy = 0;
            while copy < 3 {
                let offset = objects::COPIES[mode][copy] as usize;
                if (copy == 0 || offset != 0) && distance >= offset {
                    let into = distance - offset;
                    if into >= 4 && into < 4 + width {
                        table[mode][distance] = DISPLAYS;
                    } else if into < 4 && table[mode][distance] == NEITHER {
                        table[mode][distance] = STARTS;
                    }
                }
                copy += 1;
            }
            distance += 1;
        }
        mode += 1;
    }
    table
}

/// Effect of a RESPx strobe.
pub struct Strobe {
    /// New position of the player.
    pub new: u8,
    /// The position does not change.
    pub same: bool,
    /// `STARTS`, `DISPLAYS` or `NEITHER`.
    pub kind: u8,
}

/// Effect of a RESPx strobe at clock `h` of a line; equal to `position::player_strobe`.
#[inline(always)]
pub fn strobe(t: &Tia, h: i32, player: usize) -> Strobe {
    let right = h - 63;
    let wrapped = if right >= WIDTH as i32 { right - WIDTH as i32 } else { right };
    let new = if h < HBLANK_CLOCKS { 3 } else { wrapped };
    let from = i32::from(t.position[player]);
    let distance = if new < from { new - from + WIDTH as i32 } else { new - from };
    let kind = STROBES[usize::from(t.nusiz[player] & 7)][distance as usize % WIDTH];
    Strobe { new: new as u8, same: distance == 0, kind }
}
