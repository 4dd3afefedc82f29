//! The six objects as 160-bit masks, and as 40 cells of four pixels each. 160 = 5 x 32: a pattern that
//! extends beyond word 4 continues in word 0, as positions wrap.
//!
//! Device subset.

use super::{BL, FORM_OFF, FORM_WIDE, M0, Mask, P0, PF, Tia, bit, rows};
use crate::machine::Board;

/// All cells of a row.
pub const ALL_CELLS: u64 = 0xFF_FFFF_FFFF;
/// The 20 bits of the left half of the playfield.
const LEFT_CELLS: u32 = 0xF_FFFF;

/// Offsets in pixels of the copies of a player and its missile, for NUSIZ & 7. 0 after the first means no
/// copy.
pub const COPIES: [[u8; 3]; 8] =
    [[0, 0, 0], [0, 16, 0], [0, 32, 0], [0, 16, 32], [0, 64, 0], [0, 0, 0], [0, 32, 64], [0, 0, 0]];

/// The same, four bits per mode: bits 0 to 2 for copies that are 16, 32 and 64 pixels to the right.
const COPY_BITS: u32 = copy_bits();

const fn copy_bits() -> u32 {
    let mut all: u32 = 0;
    let mut mode: usize = 0;
    while mode < 8 {
        let bits: u32 = (COPIES[mode][1] | COPIES[mode][2]) as u32 >> 4;
        all |= bits << (4 * mode);
        mode += 1;
    }
    all
}

/// The copies that a value of NUSIZ selects, as in `COPY_BITS`.
fn copies_of(nusiz: u8) -> u32 {
    COPY_BITS >> (4 * (nusiz & 7)) & 7
}

/// Repeats every bit four times: playfield bits to pixels.
pub fn stretch(bits: u32) -> u32 {
    // A product by 2^n + 1 is `x | x << n`, since no bits meet.
    let mut x: u32 = bits & 0xFF;
    x = x * 0x1001 & 0x000F_000F;
    x = x * 0x41 & 0x0303_0303;
    x = x * 9 & 0x1111_1111;
    x * 15
}

/// Keeps every second bit: 32 pixels of width 4 become 16 of width 2.
pub fn halve(wide: u32) -> u32 {
    let mut x: u32 = wide & 0x5555_5555;
    x = (x | x >> 1) & 0x3333_3333;
    x = (x | x >> 2) & 0x0F0F_0F0F;
    x = (x | x >> 4) & 0x00FF_00FF;
    (x | x >> 8) & 0x0000_FFFF
}

/// The pixels `first` at `position`, which may exceed the row by up to 160, and `pattern` where `copies` (of `copies_of`) are.
/// With copies, both have up to eight pixels.
#[inline(always)]
fn place(mask: &mut Mask, first: u32, pattern: u32, copies: u32, position: u32) {
    let at: u32 = if position >= 160 { position - 160 } else { position };
    // Words from `position` on, which move by up to 31 pixels.
    let near: u32 = first | if copies & 1 != 0 { pattern << 16 } else { 0 };
    let middle: u32 = if copies & 2 != 0 { pattern } else { 0 };
    let far: u32 = if copies & 4 != 0 { pattern } else { 0 };
    let shift: u32 = at & 31;
    let low: u64 = rows::two_words(near, middle) << shift;
    let high: u64 = rows::two_words(middle, far) << shift;
    let words: [u32; 4] =
        [low as u32, (low >> 32) as u32, (high >> 32) as u32, ((far as u64) << shift >> 32) as u32];
    let mut word: usize = (at >> 5) as usize;
    for k in 0..4usize {
        mask[word] = words[k];
        word = if word == 4 { 0 } else { word + 1 };
    }
    mask[word] = 0;
}

/// Computes the pixels of a player with these graphics (bit 7 leftmost).
#[inline(always)]
pub fn player(t: &Tia, player: usize, graphics: u8, mask: &mut Mask) {
    let mode: u8 = t.nusiz[player] & 7;
    let mut position: u32 = t.position[P0 + player] as u32;
    let pixels: u32 = if t.reflect[player] != 0 { graphics as u32 } else { graphics.reverse_bits() as u32 };
    let mut first: u32 = pixels;
    if mode == 5 || mode == 7 {
        let wide: u32 = stretch(pixels);
        first = if mode == 7 { wide } else { halve(wide) };
        position += 1;
    }
    if t.skip[player] != 0 {
        first = 0;
    }
    place(mask, first, pixels, copies_of(mode), position);
}

/// Computes the pixels of an enabled missile.
#[inline(always)]
pub fn missile(t: &Tia, missile: usize, mask: &mut Mask) {
    let mut size: u8 = t.nusiz[missile] >> 4 & 3;
    if missile == 0 && t.missile0_form == FORM_WIDE {
        size |= 1;
    }
    let mut pattern: u32 = (1 << (1 << size)) - 1;
    if missile == 0 && t.missile0_form == FORM_OFF {
        pattern = 0;
    }
    place(mask, pattern, pattern, copies_of(t.nusiz[missile]), t.position[M0 + missile] as u32);
}

/// Computes the pixels of the enabled ball.
#[inline(always)]
pub fn ball(t: &Tia, mask: &mut Mask) {
    let pattern: u32 = (1 << (1 << (t.ctrlpf >> 4 & 3))) - 1;
    place(mask, pattern, 0, 0, t.position[BL] as u32);
}

/// Pixels of the playfield.
pub fn playfield(t: &Tia) -> Mask {
    let left: u32 = t.playfield;
    let right: u32 = if t.mirror != 0 { left.reverse_bits() >> 12 } else { left };
    [
        stretch(left & 0xFF),
        stretch(left >> 8 & 0xFF),
        stretch(left >> 16 & 0xF) | stretch(right & 0xF) << 16,
        stretch(right >> 4 & 0xFF),
        stretch(right >> 12 & 0xFF),
    ]
}

/// Cells of the playfield bits, or of a change in them.
pub fn playfield_cells(bits: u32, mirror: u8) -> u64 {
    let right: u32 = if mirror != 0 { bits.reverse_bits() >> 12 } else { bits };
    (bits & LEFT_CELLS) as u64 | ((right & LEFT_CELLS) as u64) << 20
}

/// Cells of `width` pixels from `start` on, with the copies that NUSIZ selects.
fn copied_cells(start: u32, width: u32, mode: u8) -> u64 {
    let first: u32 = start >> 2;
    let last: u32 = (start + width - 1) >> 2;
    let one: u64 = ((2u64 << (last - first)) - 1) << first;
    let copies: u32 = copies_of(mode);
    let all: u64 = one | one << (4 * (copies & 1)) | one << (4 * (copies & 2)) | one << (4 * (copies & 4));
    (all | all >> 40) & ALL_CELLS
}

/// Cells of a player.
pub fn player_cells(position: u8, nusiz: u8) -> u64 {
    let mode: u8 = nusiz & 7;
    let start: u32 = position as u32;
    if mode == 5 {
        return copied_cells(start + 1, 16, mode);
    }
    if mode == 7 {
        return copied_cells(start + 1, 32, mode);
    }
    copied_cells(start, 8, mode)
}

/// Cells of a missile with this NUSIZ.
pub fn missile_cells(position: u8, nusiz: u8) -> u64 {
    copied_cells(position as u32, 1 << (nusiz >> 4 & 3), nusiz & 7)
}

/// Cells of the ball.
pub fn ball_cells(position: u8, ctrlpf: u8) -> u64 {
    copied_cells(position as u32, 1 << (ctrlpf >> 4 & 3), 0)
}

/// Cells that a movable object could cover at `position`, enabled or not.
pub fn cells_at(t: &Tia, object: usize, position: u8) -> u64 {
    if object == BL {
        return ball_cells(position, t.ctrlpf);
    }
    let number: usize = object & 1;
    let nusiz: u8 = t.nusiz[number];
    if object == P0 + number {
        return player_cells(position, nusiz);
    }
    if number == 0 {
        if t.star_field != 0 {
            return ALL_CELLS;
        }
        if t.missile0_form == FORM_WIDE {
            return missile_cells(position, nusiz | 0x10);
        }
    }
    missile_cells(position, nusiz)
}

/// Cells that an object could cover at its current position, enabled or not.
pub fn cells(t: &Tia, object: usize) -> u64 {
    if object == PF {
        return playfield_cells(t.playfield, t.mirror);
    }
    cells_at(t, object, t.position[object])
}

/// Recomputes the cells of all objects.
pub fn refresh_cells(t: &Tia, board: &mut Board) {
    for object in 0..6 {
        board.line.cells[object] = cells(t, object);
    }
}

/// Recomputes the masks of those `objects` that have changed.
pub fn refresh(t: &mut Tia, board: &mut Board, objects: u8) {
    let dirty: u8 = t.dirty & objects;
    t.dirty &= !objects;
    for p in 0..2 {
        if dirty & bit(P0 + p) != 0 {
            if t.graphics[p] != 0 {
                player(t, p, t.graphics[p], &mut board.line.masks[P0 + p]);
            } else {
                board.line.masks[P0 + p] = [0, 0, 0, 0, 0];
            }
        }
        if dirty & bit(M0 + p) != 0 {
            if t.enabled & bit(M0 + p) != 0 {
                missile(t, p, &mut board.line.masks[M0 + p]);
            } else {
                board.line.masks[M0 + p] = [0, 0, 0, 0, 0];
            }
        }
    }
    if dirty & bit(BL) != 0 {
        if t.enabled & bit(BL) != 0 {
            ball(t, &mut board.line.masks[BL]);
        } else {
            board.line.masks[BL] = [0, 0, 0, 0, 0];
        }
    }
    if dirty & bit(PF) != 0 {
        board.line.masks[PF] = playfield(t);
    }
}
