//! Rows of pictures as classes: which of four colors each pixel has, in two bits, and which four they are. A GPU draws them
//! so (`Front::on`): 12 words a row where bytes are 40. Rows for which this does not hold are bytes, as on the CPU: those
//! whose colors change within them, those that are drawn access by access, and those of a frame that ends within them.
//!
//! Device subset.

use bytemuck::{Pod, Zeroable};

use super::collision::span_word;
use super::paint::{BACK, FIELD, eight, line_start, order_of, put, shown};
use super::{ALL_OBJECTS, CLOCKS_PER_LINE, HBLANK_CLOCKS, MAX_ROWS, P0, P1, Tia, WIDTH, hidden, objects};
use crate::machine::{Board, Machine};

/// A value of `Row::kind`: the row is bytes, in `Board::picture`.
pub const BYTES: u32 = 0;
/// As `BYTES`: colors changed within it. The next one in its place begins as bytes too, unless it is drawn at a stroke.
pub const MIXED: u32 = 1;
/// The row is classes.
pub const CLASSES: u32 = 2;
/// As `CLASSES`, but the first eight pixels are those of an HMOVE blank.
pub const BLANKED: u32 = 3;
/// Pixels of an HMOVE blank.
const BLANK_PIXELS: i32 = 8;

/// A row of a picture.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Row {
    /// `BYTES`, `MIXED`, `CLASSES` or `BLANKED`.
    pub kind: u32,
    /// The four colors: background, player 0, player 1, playfield; the first lowest.
    pub colors: u32,
    /// Classes of 32 pixels each: their bits 0 in the low half, their bits 1 in the high half.
    pub classes: [u64; 5],
}

/// What there is of the row that is being drawn as classes, while it is not complete.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Front {
    /// Rows are drawn as classes where they can be.
    pub on: u32,
    /// Its number plus one, 0 when there is none.
    pub row: u32,
    /// Its picture.
    pub buffer: u32,
    /// Its pixels that have been drawn. Behind them the row is what it was:
    pub to: i32,
    /// its kind,
    pub kind: u32,
    /// and its colors.
    pub colors: u32,
}

/// Four pixels from the bits 0 and 1 of their classes, the first lowest.
pub fn four(colors: u32, low: u32, high: u32) -> u32 {
    let mut pixels: u32 = 0;
    for i in 0..4u32 {
        let class: u32 = low >> i & 1 | (high >> i & 1) << 1;
        pixels |= (colors >> (8 * class) & 0xFF) << (8 * i);
    }
    pixels
}

/// True when a row of this kind is classes.
pub fn has_classes(kind: u32) -> bool {
    kind >= CLASSES
}

/// The four colors of a row.
fn colors_of(t: &Tia) -> u32 {
    t.color[BACK] as u32
        | (t.color[P0] as u32) << 8
        | (t.color[P1] as u32) << 16
        | (t.color[FIELD] as u32) << 24
}

/// Draws clocks `from..to` of the present row as classes; false where the row has become bytes, and they are to be drawn
/// as such.
#[inline(never)]
pub fn draw(m: &mut Machine, board: &mut Board, from: i32, to: i32) -> bool {
    let number: usize = (m.tia.row_start / CLOCKS_PER_LINE) as usize % MAX_ROWS;
    let buffer: usize = m.tia.buffer as usize;
    if m.eager != 0 {
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
    let blank: bool = m.tia.blank_pending != 0 && a < BLANK_PIXELS;
    let here: bool = board.front.row == number as u32 + 1 && board.front.buffer == buffer as u32;
    let mut fits: bool = !blank || b >= BLANK_PIXELS;
    if a > 0 {
        fits = !blank && here && board.front.to == a && board.rows[buffer][number].colors == colors;
    }
    if !fits {
        expand(board, buffer, number);
        if a > 0 && !blank {
            board.rows[buffer][number].kind = MIXED;
        }
        return false;
    }
    if a == 0 {
        if b < WIDTH as i32 && board.rows[buffer][number].kind == MIXED {
            return false;
        }
        close(board);
        if b < WIDTH as i32 {
            board.front.row = number as u32 + 1;
            board.front.buffer = buffer as u32;
            board.front.kind = board.rows[buffer][number].kind;
            board.front.colors = board.rows[buffer][number].colors;
        }
        board.rows[buffer][number].kind = if blank { BLANKED } else { CLASSES };
        board.rows[buffer][number].colors = colors;
    } else if b == WIDTH as i32 {
        board.front.row = 0;
    }
    board.front.to = b;
    if !dark && m.tia.dirty != 0 {
        objects::refresh(&mut m.tia, board, ALL_OBJECTS);
    }
    let order: u8 = order_of(&m.tia);
    let first: usize = (a >> 5) as usize;
    let last: usize = ((b - 1) >> 5) as usize + 1;
    for w in first..last {
        let mut classes: u64 = 0;
        if !dark {
            let (c0, c1, cf): (u32, u32, u32) = shown(board, w, order);
            classes = (c0 | cf) as u64 | ((c1 | cf) as u64) << 32;
        }
        let wanted: u32 = span_word(w, a, b);
        if wanted != 0xFFFF_FFFF {
            let all: u64 = wanted as u64 | (wanted as u64) << 32;
            classes = classes & all | board.rows[buffer][number].classes[w] & !all;
        }
        board.rows[buffer][number].classes[w] = classes;
    }
    true
}

/// Makes a row of classes like the one above it; false where that one is bytes.
pub fn repeat(board: &mut Board, buffer: usize, above: usize, number: usize) -> bool {
    if !has_classes(board.rows[buffer][above].kind) {
        board.rows[buffer][number].kind = BYTES;
        return false;
    }
    board.rows[buffer][number] = board.rows[buffer][above];
    true
}

/// Eight pixels of a row of classes.
fn pixels(row: &Row, kind: u32, colors: u32, group: usize) -> u64 {
    if kind == BLANKED && group == 0 {
        return 0;
    }
    let classes: u64 = row.classes[group / 4] >> (8 * (group & 3));
    let low: u32 = classes as u32;
    let high: u32 = (classes >> 32) as u32;
    four(colors, low, high) as u64 | (four(colors, low >> 4, high >> 4) as u64) << 32
}

/// Makes a row bytes.
#[inline(never)]
pub fn expand(board: &mut Board, buffer: usize, number: usize) {
    let row: Row = board.rows[buffer][number];
    if !has_classes(row.kind) {
        return;
    }
    let mut to: usize = WIDTH;
    let mut groups: usize = WIDTH / 8;
    if board.front.row == number as u32 + 1 && board.front.buffer == buffer as u32 {
        to = board.front.to as usize;
        board.front.row = 0;
        if !has_classes(board.front.kind) {
            // What is older is bytes already.
            groups = (to + 7) / 8;
        }
    }
    let line: usize = line_start(number as i32);
    for group in 0..groups {
        let at: usize = line + 8 * group;
        let mut new: u64 = pixels(&row, row.kind, row.colors, group);
        if to < 8 * group + 8 {
            // What is older stays behind the front.
            let mut old: u64 = eight(board, buffer, at);
            if has_classes(board.front.kind) {
                old = pixels(&row, board.front.kind, board.front.colors, group);
            }
            let drawn: u64 = if to > 8 * group { (1u64 << (8 * (to - 8 * group))) - 1 } else { 0 };
            new = new & drawn | old & !drawn;
        }
        put(board, buffer, at, new);
    }
    board.rows[buffer][number].kind = BYTES;
}

/// Makes the first rows of a picture bytes.
#[inline(never)]
pub fn expand_all(board: &mut Board, buffer: usize, count: usize) {
    for number in 0..count {
        expand(board, buffer, number);
    }
}

/// A row that is not complete becomes bytes: it is not continued, or an older one is wanted.
pub fn close(board: &mut Board) {
    if board.front.row != 0 {
        let buffer: usize = board.front.buffer as usize;
        let number: usize = board.front.row as usize - 1;
        expand(board, buffer, number);
    }
}

/// The pictures have been written to as bytes.
#[inline(never)]
pub fn forget(board: &mut Board) {
    board.front.row = 0;
    for number in 0..MAX_ROWS {
        board.rows[0][number].kind = BYTES;
        board.rows[1][number].kind = BYTES;
    }
}
