//! Class rows: which of four colors each pixel has, in two bits, and the four colors. GPUs draw these
//! (`PartialRow::uses_classes`): 12 words a row instead of 40. Rows are drawn as bytes, as on the CPU, if
//! their colors change within the row, if they are drawn access by access, or if the frame ends within them.
//!
//! Device subset.

use bytemuck::{Pod, Zeroable};

use super::paint::{
    BACKGROUND, PLAYFIELD, PRIORITY, color_masks, drawing_order, line_start, load_eight, store_eight,
};
use super::{
    ALL_OBJECTS, BL, CLOCKS_PER_LINE, HBLANK_CLOCKS, M0, M1, MAX_ROWS, P0, P1, PF, Tia, WIDTH, hidden, objects,
};
use crate::machine::{Board, Machine};

/// A value of `Row::kind`: the row is stored as bytes, in `Board::picture`.
pub const BYTES: u32 = 0;
/// As `BYTES`: colors changed within the row. The next row in its place starts as bytes too, unless it is
/// drawn as a whole.
pub const MIXED: u32 = 1;
/// The row is stored as classes.
pub const CLASSES: u32 = 2;
/// As `CLASSES`, but the first eight pixels are the HMOVE blank.
pub const BLANKED: u32 = 3;
/// Pixels of an HMOVE blank.
const BLANK_PIXELS: i32 = 8;

/// A row of a picture.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Row {
    /// `BYTES`, `MIXED`, `CLASSES` or `BLANKED`.
    pub kind: u32,
    /// The four colors, background in the lowest byte, then player 0, player 1, playfield.
    pub colors: u32,
    /// Classes of 32 pixels each: bit 0 of the classes in the low half, bit 1 in the high half.
    pub classes: [u64; 5],
}

/// The class row that is being drawn and is not complete.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct PartialRow {
    /// Rows are drawn as classes where possible.
    pub uses_classes: u32,
    /// Number of the row plus one, 0 if there is none.
    pub row: u32,
    /// Picture buffer of the row.
    pub buffer: u32,
    /// Number of pixels drawn. The others still belong to the older row in this place.
    pub drawn_pixels: i32,
    /// `Row::kind` of the older row.
    pub kind: u32,
    /// `Row::colors` of the older row.
    pub colors: u32,
}

/// The four lowest bits, one per hexadecimal digit.
pub fn bit_per_digit(bits: u32) -> u32 {
    let pairs: u32 = (bits & 15 | (bits & 15) << 6) & 0x303;
    (pairs | pairs << 3) & 0x1111
}

/// Colors of four pixels from bits 0 and 1 of their classes, the first pixel in the lowest byte.
pub fn four_pixels(colors: u32, low: u32, high: u32) -> u32 {
    let mut pixels: u32 = 0;
    for i in 0..4u32 {
        let class: u32 = low >> i & 1 | (high >> i & 1) << 1;
        pixels |= (colors >> (8 * class) & 0xFF) << (8 * i);
    }
    pixels
}

/// True if a row of this kind is stored as classes.
pub fn has_classes(kind: u32) -> bool {
    kind >= CLASSES
}

/// The four current colors of a row.
fn colors_of(t: &Tia) -> u32 {
    t.color[BACKGROUND] as u32
        | (t.color[P0] as u32) << 8
        | (t.color[P1] as u32) << 16
        | (t.color[PLAYFIELD] as u32) << 24
}

/// Draws clocks `from..to` of the current row as classes. Returns false if the row has become bytes; the
/// caller then draws them as bytes.
#[inline(never)]
pub fn draw(m: &mut Machine, board: &mut Board, from: i32, to: i32) -> bool {
    let number: usize = m.tia.row_start as u32 as usize / CLOCKS_PER_LINE as usize % MAX_ROWS;
    let buffer: usize = m.tia.buffer as usize;
    if m.access_by_access != 0 {
        expand(board, buffer, number);
        return false;
    }
    if to <= HBLANK_CLOCKS {
        return true;
    }
    let a: i32 = if from > HBLANK_CLOCKS { from - HBLANK_CLOCKS } else { 0 };
    let b: i32 = to - HBLANK_CLOCKS;
    let dark: bool = hidden(&m.tia);
    let colors: u32 = if dark { 0 } else { colors_of(&m.tia) };
    let blank: bool = a < BLANK_PIXELS && m.tia.blank_pending != 0;
    if a > 0 {
        let fits: bool = !blank
            && board.partial_row.row == number as u32 + 1
            && board.partial_row.buffer == buffer as u32
            && board.partial_row.drawn_pixels == a
            && board.rows[buffer][number].colors == colors;
        if !fits {
            expand(board, buffer, number);
            if !blank {
                board.rows[buffer][number].kind = MIXED;
            }
            return false;
        }
        if b == WIDTH as i32 {
            board.partial_row.row = 0;
        }
    } else {
        if blank && b < BLANK_PIXELS {
            expand(board, buffer, number);
            return false;
        }
        if b < WIDTH as i32 && board.rows[buffer][number].kind == MIXED {
            return false;
        }
        expand_partial_row(board);
        if b < WIDTH as i32 {
            board.partial_row.row = number as u32 + 1;
            board.partial_row.buffer = buffer as u32;
            board.partial_row.kind = board.rows[buffer][number].kind;
            board.partial_row.colors = board.rows[buffer][number].colors;
        }
        board.rows[buffer][number].kind = if blank { BLANKED } else { CLASSES };
        board.rows[buffer][number].colors = colors;
    }
    board.partial_row.drawn_pixels = b;
    if !dark && m.tia.dirty != 0 {
        objects::refresh(&mut m.tia, board, ALL_OBJECTS);
    }
    let order: u8 = drawing_order(&m.tia);
    let scores: bool = order != 0 && order != PRIORITY;
    // Where the playfield is before the players.
    let before: u32 = if order == PRIORITY { 0xFFFF_FFFF } else { 0 };
    if a == 0 && b == WIDTH as i32 && !scores && !dark {
        draw_whole(board, buffer, number, before);
        return true;
    }
    let first: usize = a as usize / 32;
    let last: usize = (b as usize - 1) / 32;
    let mut wanted: u32 = 0xFFFF_FFFF << (a & 31);
    let to_last: u32 = 0xFFFF_FFFF >> (31 - (b - 1 & 31));
    for w in first..last + 1 {
        let mut classes: (u32, u32) = (0, 0);
        if scores && !dark {
            let (c0, c1, cf): (u32, u32, u32) = color_masks(board, w, order);
            classes = (c0 | cf, c1 | cf);
        } else if !dark {
            classes = usual_classes(board, w, before);
        }
        if w == last {
            wanted &= to_last;
        }
        let old: u64 = board.rows[buffer][number].classes[w];
        let low: u32 = classes.0 & wanted | old as u32 & !wanted;
        let high: u32 = classes.1 & wanted | (old >> 32) as u32 & !wanted;
        board.rows[buffer][number].classes[w] = two_words(low, high);
        wanted = 0xFFFF_FFFF;
    }
    true
}

/// The words as the low and the high half of a number.
#[inline(always)]
fn two_words(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Bits 0 and 1 of the classes of the 32 pixels of word `w`. The playfield is drawn over the players where `before` is 1. Requires
/// up-to-date masks.
#[inline(always)]
fn usual_classes(board: &Board, w: usize, before: u32) -> (u32, u32) {
    let zeros: u32 = board.masks[P0][w] | board.masks[M0][w];
    let ones: u32 = board.masks[P1][w] | board.masks[M1][w];
    let field: u32 = board.masks[PF][w] | board.masks[BL][w];
    (zeros | field & !(ones & !before), (ones | field) & !(zeros & !(field & before)))
}

/// Draws a row of usual classes.
#[inline(always)]
fn draw_whole(board: &mut Board, buffer: usize, number: usize, before: u32) {
    for w in 0..5usize {
        let (low, high): (u32, u32) = usual_classes(board, w, before);
        board.rows[buffer][number].classes[w] = two_words(low, high);
    }
}

/// Copies the class row above. Returns false if that row is stored as bytes.
pub fn repeat(board: &mut Board, buffer: usize, above: usize, number: usize) -> bool {
    if !has_classes(board.rows[buffer][above].kind) {
        board.rows[buffer][number].kind = BYTES;
        return false;
    }
    board.rows[buffer][number] = board.rows[buffer][above];
    true
}

/// Eight pixels of a class row.
fn pixels(row: &Row, kind: u32, colors: u32, group: usize) -> u64 {
    if kind == BLANKED && group == 0 {
        return 0;
    }
    let classes: u64 = row.classes[group / 4] >> (8 * (group & 3));
    let low: u32 = classes as u32;
    let high: u32 = (classes >> 32) as u32;
    four_pixels(colors, low, high) as u64 | (four_pixels(colors, low >> 4, high >> 4) as u64) << 32
}

/// Converts a class row to bytes.
#[inline(never)]
pub fn expand(board: &mut Board, buffer: usize, number: usize) {
    let row: Row = board.rows[buffer][number];
    if !has_classes(row.kind) {
        return;
    }
    let mut to: usize = WIDTH;
    let mut groups: usize = WIDTH / 8;
    if board.partial_row.row == number as u32 + 1 && board.partial_row.buffer == buffer as u32 {
        to = board.partial_row.drawn_pixels as usize;
        board.partial_row.row = 0;
        if !has_classes(board.partial_row.kind) {
            // The older pixels are stored as bytes already.
            groups = (to + 7) / 8;
        }
    }
    let line: usize = line_start(number as i32);
    for group in 0..groups {
        let at: usize = line + 8 * group;
        let mut new: u64 = pixels(&row, row.kind, row.colors, group);
        if to < 8 * group + 8 {
            // The older pixels are kept after the drawn ones.
            let mut old: u64 = load_eight(board, buffer, at);
            if has_classes(board.partial_row.kind) {
                old = pixels(&row, board.partial_row.kind, board.partial_row.colors, group);
            }
            let drawn: u64 = if to > 8 * group { (1u64 << (8 * (to - 8 * group))) - 1 } else { 0 };
            new = new & drawn | old & !drawn;
        }
        store_eight(board, buffer, at, new);
    }
    board.rows[buffer][number].kind = BYTES;
}

/// Converts the first `count` rows of a picture to bytes.
#[inline(never)]
pub fn expand_all(board: &mut Board, buffer: usize, count: usize) {
    for number in 0..count {
        expand(board, buffer, number);
    }
}

/// Converts the incomplete row to bytes: it is not continued, or an older row is read.
pub fn expand_partial_row(board: &mut Board) {
    if board.partial_row.row != 0 {
        let buffer: usize = board.partial_row.buffer as usize;
        let number: usize = board.partial_row.row as usize - 1;
        expand(board, buffer, number);
    }
}

/// Marks all rows as bytes, after the pictures were written as bytes.
#[inline(never)]
pub fn mark_all_as_bytes(board: &mut Board) {
    board.partial_row.row = 0;
    for number in 0..MAX_ROWS {
        board.rows[0][number].kind = BYTES;
        board.rows[1][number].kind = BYTES;
    }
}

#[cfg(not(device))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_placed_one_per_digit() {
        for bits in 0..64 {
            let expected = (0..4).fold(0, |digits, i| digits | (bits >> i & 1) << (4 * i));
            assert_eq!(bit_per_digit(bits), expected, "{bits:06b}");
        }
    }
}
