//! Where objects can be, in cells of four pixels: what tells in a few instructions that two cannot meet.

use crate::machine::tia::objects::playfield_cells;
use crate::machine::tia::paint::{PRIORITY, SCORE};
use crate::machine::tia::{CLOCKS_PER_LINE, HBLANK_CLOCKS, P0, Tia, objects};

/// Cells of the playfield, of both its forms while the next row will turn it.
pub fn field_cells(t: &Tia) -> u64 {
    let cells = playfield_cells(t.playfield, t.mirror);
    let mirror = t.ctrlpf & 1;
    if mirror == t.mirror { cells } else { cells | playfield_cells(t.playfield, mirror) }
}

/// Cells of players, from that of their position on, by NUSIZ & 7 and the place of the position in its cell.
const PLAYER_CELLS: [[u64; 4]; 8] = player_cells();

const fn player_cells() -> [[u64; 4]; 8] {
    let mut table = [[0; 4]; 8];
    let mut mode = 0;
    while mode < 8 {
        let (start, width) = match mode {
            5 => (1, 16),
            7 => (1, 32),
            _ => (0, 8),
        };
        let mut within = 0;
        while within < 4 {
            let mut copy = 0;
            while copy < 3 {
                let offset = objects::COPIES[mode][copy] as usize;
                let first = within + start + offset;
                let mut cell = first >> 2;
                while cell <= (first + width - 1) >> 2 {
                    table[mode][within] |= 1 << cell;
                    cell += 1;
                }
                copy += 1;
            }
            within += 1;
        }
        mode += 1;
    }
    table
}

/// Cells of a movable object; as `objects::cells`.
#[inline(always)]
pub fn cells(t: &Tia, object: usize) -> u64 {
    if object > P0 + 1 {
        return objects::cells(t, object);
    }
    let position = t.position[object];
    let pattern = PLAYER_CELLS[usize::from(t.nusiz[object] & 7)][usize::from(position & 3)];
    let all = pattern << (position >> 2);
    (all | all >> 40) & objects::ALL_CELLS
}

/// True when none of `cells` lies between the beam and `target`: what changes there is not in the way.
#[inline(always)]
pub fn is_elsewhere(t: &Tia, target: i32, cells: u64) -> bool {
    let to = target.min(t.window_end) - t.base - t.row_start;
    // With both bits the colors of the playfield depend on whether it is alone, wherever the others are.
    if to > CLOCKS_PER_LINE || t.ctrlpf & (SCORE | PRIORITY) == SCORE | PRIORITY {
        return false;
    }
    let from = (t.beam - t.row_start).max(HBLANK_CLOCKS) - HBLANK_CLOCKS;
    let to = to.max(HBLANK_CLOCKS) - HBLANK_CLOCKS;
    let ahead = (1u64 << ((to + 3) >> 2)) - 1;
    let behind = (1u64 << (from >> 2)) - 1;
    cells & ahead & !behind == 0
}
