//! Cells of four pixels that objects cover: a cheap test that two objects cannot overlap.

use super::masks::REVERSED;
use crate::machine::tia::objects::playfield_cells;
use crate::machine::tia::paint::{PRIORITY, SCORE};
use crate::machine::tia::{BL, CLOCKS_PER_LINE, FORM_WIDE, HBLANK_CLOCKS, P0, Tia, objects};

/// Cells of the playfield. If the next row will reverse it, the cells of both forms.
pub fn field_cells(t: &Tia) -> u64 {
    let cells = playfield_cells(t.playfield, t.mirror);
    let mirror = t.ctrlpf & 1;
    if mirror == t.mirror { cells } else { cells | playfield_cells(t.playfield, mirror) }
}

/// Playfield bits after a write to PF0, PF1 or PF2; equal to `write::next_playfield`.
#[inline(always)]
pub fn next_playfield(old: u32, part: u32, value: u8) -> u32 {
    match part {
        0 => old & !0xF | u32::from(value) >> 4,
        1 => old & !0xFF0 | u32::from(REVERSED[usize::from(value)]) << 4,
        _ => old & !0xF_F000 | u32::from(value) << 12,
    }
}

/// Cells of a change in the playfield bits of PF0, PF1 or PF2; equal to `objects::playfield_cells`.
#[inline(always)]
pub fn cells_of_part(part: u32, change: u32, mirror: u8) -> u64 {
    let mut right = change;
    if mirror != 0 {
        let reversed = |bits: u32| u32::from(REVERSED[(bits & 0xFF) as usize]);
        right = match part {
            0 => reversed(change << 4) << 16,
            1 => reversed(change >> 4) << 8,
            _ => reversed(change >> 12),
        };
    }
    u64::from(change) | u64::from(right) << 20
}

/// Cells of a player relative to the cell of its position, by NUSIZ & 7 and the position within its cell.
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

/// As `PLAYER_CELLS` for missiles and the ball, whose sizes are 1, 2, 4 and 8 pixels.
const MISSILE_CELLS: [[[u64; 4]; 4]; 8] = missile_cells();

const fn missile_cells() -> [[[u64; 4]; 4]; 8] {
    let mut table = [[[0; 4]; 4]; 8];
    let mut mode = 0;
    while mode < 8 {
        let mut at = 0;
        while at < 16 {
            let (size, within) = (at >> 2, at & 3);
            let mut copy = 0;
            while copy < 3 {
                let first = within + objects::COPIES[mode][copy] as usize;
                let mut cell = first >> 2;
                while cell <= (first + (1 << size) - 1) >> 2 {
                    table[mode][size][within] |= 1 << cell;
                    cell += 1;
                }
                copy += 1;
            }
            at += 1;
        }
        mode += 1;
    }
    table
}

/// Cells of a movable object; equal to `objects::cells`.
#[inline(always)]
pub fn cells(t: &Tia, object: usize) -> u64 {
    cells_at(t, object, t.position[object])
}

/// Cells of a movable object at `position`; equal to `objects::cells_at`.
#[inline(always)]
pub fn cells_at(t: &Tia, object: usize, position: u8) -> u64 {
    let within = usize::from(position & 3);
    let number = object & 1;
    let pattern = if object <= P0 + 1 {
        PLAYER_CELLS[usize::from(t.nusiz[number] & 7)][within]
    } else if object == BL {
        MISSILE_CELLS[0][usize::from(t.ctrlpf >> 4 & 3)][within]
    } else {
        let mut size = t.nusiz[number] >> 4 & 3;
        if number == 0 && t.star_field | t.missile0_form != 0 {
            if t.star_field != 0 {
                return objects::ALL_CELLS;
            }
            size |= u8::from(t.missile0_form == FORM_WIDE);
        }
        MISSILE_CELLS[usize::from(t.nusiz[number] & 7)][usize::from(size)][within]
    };
    let all = pattern << (position >> 2);
    (all | all >> 40) & objects::ALL_CELLS
}

/// True if none of `cells` lies between the beam and `target`: a change of them is not visible there.
#[inline(always)]
pub fn is_elsewhere(t: &Tia, target: i32, cells: u64) -> bool {
    let to = target.min(t.window_end) - t.base - t.row_start;
    // With both bits, the colors of the playfield depend on whether it is the only enabled object.
    if to > CLOCKS_PER_LINE || t.ctrlpf & (SCORE | PRIORITY) == SCORE | PRIORITY {
        return false;
    }
    let from = (t.beam - t.row_start).max(HBLANK_CLOCKS) - HBLANK_CLOCKS;
    let to = to.max(HBLANK_CLOCKS) - HBLANK_CLOCKS;
    let ahead = (1u64 << ((to + 3) >> 2)) - 1;
    let behind = (1u64 << (from >> 2)) - 1;
    cells & ahead & !behind == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tia::write;

    #[test]
    fn parts_of_the_playfield_cover_the_cells_of_its_bits() {
        for part in 0..3 {
            for value in 0..=255u8 {
                for old in [0, 0xF_FFFF, 0x5_A3C9] {
                    let new = next_playfield(old, part, value);
                    assert_eq!(new, write::next_playfield(old, part, u32::from(value)));
                    for mirror in [0, 1] {
                        let cells = playfield_cells(old ^ new, mirror);
                        assert_eq!(
                            cells_of_part(part, old ^ new, mirror),
                            cells,
                            "PF{part} {value} {mirror}"
                        );
                    }
                }
            }
        }
    }
}
