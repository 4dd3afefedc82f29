//! Class rows: which of four colors each pixel has, in two bits, and the four colors. GPUs draw these
//! (`CurrentRow::uses_classes`): 12 words a row instead of 40. Rows are drawn as bytes, as on the CPU, if
//! a color that they show changes within the row, if they are drawn access by access, or if the frame ends within them.
//!
//! Device subset.

use bytemuck::{Pod, Zeroable};

use super::collision::span_word;
use super::paint::{PRIORITY, color_masks, drawing_order, line_start, load_eight, spread, store_eight};
use super::{
    ALL_OBJECTS, BL, CLOCKS_PER_LINE, COLOR_WORDS, HBLANK_CLOCKS, M0, M1, MAX_ROWS, P0, P1, PF, Tia, WIDTH,
    hidden, objects, word_of,
};
use crate::machine::{Board, Machine};

/// A value of `Row::kind`: the row is stored as bytes, in `Board::picture`.
pub const BYTES: u32 = 0;
/// As `BYTES`: a color that it shows changed within the row. The next row in its place starts as bytes too, unless it is
/// drawn as a whole.
pub const MIXED: u32 = 1;
/// The row is stored as classes.
pub const CLASSES: u32 = 2;
/// As `CLASSES`, but the first eight pixels are the HMOVE blank.
pub const BLANKED: u32 = 3;
/// The missiles and the ball.
const SMALL_OBJECTS: u8 = 1 << M0 | 1 << M1 | 1 << BL;
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

/// The class row that was drawn last. It is stored in `Board::rows` when it is complete.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct CurrentRow {
    /// Rows are drawn as classes where possible.
    pub uses_classes: u32,
    /// Number of the row plus one, 0 if there is none.
    pub number: u32,
    /// Picture buffer of the row.
    pub buffer: u32,
    /// Number of pixels drawn. The others are those of the older row in this place.
    pub drawn_pixels: i32,
    /// The row, of which the drawn pixels count.
    pub row: Row,
}

/// Bytes of `low` (numbers 0 to 3) and `high` (4 to 7), selected by the lowest four hexadecimal digits of `digits`, the first in
/// the lowest byte. Digits are less than 8.
pub fn select_bytes(low: u32, high: u32, digits: u32) -> u32 {
    let both: u64 = low as u64 | (high as u64) << 32;
    let mut selected: u32 = 0;
    for i in 0..4u32 {
        selected |= ((both >> (8 * (digits >> (4 * i) & 7))) as u32 & 0xFF) << (8 * i);
    }
    selected
}

/// Values of 32 pixels of a class row, four in a word, the first in the lowest byte. `values` are those of the four classes.
#[inline(always)]
pub fn fours_of_classes(classes: u64, values: u32, fours: &mut [u32; 8]) {
    let low: u32 = classes as u32;
    let high: u32 = (classes >> 32) as u32;
    // The classes of every second pixel, two bits each: two of them in a digit.
    let even: u32 = low & 0x5555_5555 | (high & 0x5555_5555) << 1;
    let odd: u32 = low >> 1 & 0x5555_5555 | high & 0xAAAA_AAAA;
    // The lower two bits of a digit select a value, and the third one does not matter: the values are there twice.
    let digits: [u32; 4] =
        [even & 0x7777_7777, odd & 0x7777_7777, even >> 2 & 0x7777_7777, odd >> 2 & 0x7777_7777];
    for half in 0..2usize {
        // Pixels k, k + 4, k + 8 and k + 12.
        let shift: u32 = 16 * half as u32;
        let a: u32 = select_bytes(values, values, digits[0] >> shift);
        let b: u32 = select_bytes(values, values, digits[1] >> shift);
        let c: u32 = select_bytes(values, values, digits[2] >> shift);
        let d: u32 = select_bytes(values, values, digits[3] >> shift);
        let first: [u32; 2] = [select_bytes(a, b, 0x5140), select_bytes(a, b, 0x7362)];
        let second: [u32; 2] = [select_bytes(c, d, 0x5140), select_bytes(c, d, 0x7362)];
        for k in 0..2usize {
            fours[4 * half + 2 * k] = select_bytes(first[k], second[k], 0x5410);
            fours[4 * half + 2 * k + 1] = select_bytes(first[k], second[k], 0x7632);
        }
    }
}

/// True if a row of this kind is stored as classes.
pub fn has_classes(kind: u32) -> bool {
    kind >= CLASSES
}

/// The four current colors of a row.
pub fn colors_of(t: &Tia) -> u32 {
    // COLUP0 is the last byte of the first word, COLUP1, COLUPF and COLUBK are the first ones of the second.
    select_bytes(word_of(t, COLOR_WORDS[0]), word_of(t, COLOR_WORDS[1]), 0x5436)
}

/// Draws clocks `from..to` of the current row as classes. Returns false if the row has become bytes; the
/// caller then draws them as bytes.
#[inline(never)]
pub fn draw(m: &mut Machine, board: &mut Board, from: i32, to: i32) -> bool {
    // Below `MAX_ROWS`, as the beam is within the picture.
    let number: usize = m.tia.row_start as u32 as usize / CLOCKS_PER_LINE as usize;
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
        let continues: bool = is_current(board, buffer, number)
            && board.line.current_row.drawn_pixels == a
            && (a >= BLANK_PIXELS || blank == (board.line.current_row.row.kind == BLANKED));
        let fits: bool = continues
            && (board.line.current_row.row.colors == colors || shows_no_other_color(board, a, colors));
        if !fits {
            expand(board, buffer, number);
            if !blank {
                board.rows[buffer][number].kind = MIXED;
            }
            return false;
        }
    } else {
        if b < WIDTH as i32 && board.rows[buffer][number].kind == MIXED {
            return false;
        }
        expand_incomplete_row(board);
        board.line.current_row.number = number as u32 + 1;
        board.line.current_row.buffer = buffer as u32;
        board.line.current_row.row.kind = if blank { BLANKED } else { CLASSES };
    }
    board.line.current_row.row.colors = colors;
    board.line.current_row.drawn_pixels = b;
    if !dark && m.tia.dirty != 0 {
        objects::refresh(&mut m.tia, board, ALL_OBJECTS);
    }
    let order: u8 = drawing_order(&m.tia);
    let usual: bool = !dark && (order == 0 || order == PRIORITY);
    // Where the playfield is before the players.
    let before: u32 = if order == PRIORITY { 0xFFFF_FFFF } else { 0 };
    // Pixels after the last one may change: they do not count.
    if a == 0 && usual {
        if m.tia.enabled & SMALL_OBJECTS != 0 {
            draw_whole(board, before, true);
        } else {
            draw_whole(board, before, false);
        }
    } else {
        let first: usize = (a >> 5) as usize;
        let last: usize = ((b + 31) >> 5) as usize;
        let mut keep: u32 = (1 << (a & 31)) - 1;
        for w in first..last {
            let mut classes: (u32, u32) = (0, 0);
            if usual {
                classes = usual_classes(board, w, before, true);
            } else if !dark {
                let (c0, c1, cf): (u32, u32, u32) = color_masks(board, w, order);
                classes = (c0 | cf, c1 | cf);
            }
            let old: u64 = board.line.current_row.row.classes[w];
            let low: u32 = classes.0 & !keep | old as u32 & keep;
            let high: u32 = classes.1 & !keep | (old >> 32) as u32 & keep;
            board.line.current_row.row.classes[w] = two_words(low, high);
            keep = 0;
        }
    }
    if b == WIDTH as i32 {
        board.rows[buffer][number] = board.line.current_row.row;
    }
    true
}

/// True if this is the row that was drawn last.
#[inline(always)]
fn is_current(board: &Board, buffer: usize, number: usize) -> bool {
    board.line.current_row.number == number as u32 + 1 && board.line.current_row.buffer == buffer as u32
}

/// True if no pixel before pixel `to` of the current row has one of the colors that are replaced by `colors`.
#[inline(never)]
fn shows_no_other_color(board: &Board, to: i32, colors: u32) -> bool {
    let from: i32 = if board.line.current_row.row.kind == BLANKED { BLANK_PIXELS } else { 0 };
    let mut shown: [u32; 4] = [0; 4];
    for w in 0..5usize {
        let inside: u32 = span_word(w, from, to);
        let low: u32 = board.line.current_row.row.classes[w] as u32;
        let high: u32 = (board.line.current_row.row.classes[w] >> 32) as u32;
        shown[0] |= inside & !(low | high);
        shown[1] |= inside & low & !high;
        shown[2] |= inside & high & !low;
        shown[3] |= inside & low & high;
    }
    let changed: u32 = board.line.current_row.row.colors ^ colors;
    let mut differs: u32 = 0;
    for class in 0..4usize {
        if shown[class] != 0 {
            differs |= changed & 0xFF << (8 * class);
        }
    }
    differs == 0
}

/// The words as the low and the high half of a number.
#[inline(always)]
pub fn two_words(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Bits 0 and 1 of the classes of the 32 pixels of word `w`. The playfield is drawn over the players where `before` is 1. Requires
/// up-to-date masks. `with_small`: missiles or the ball are enabled.
#[inline(always)]
fn usual_classes(board: &Board, w: usize, before: u32, with_small: bool) -> (u32, u32) {
    let mut zeros: u32 = board.line.masks[P0][w];
    let mut ones: u32 = board.line.masks[P1][w];
    let mut field: u32 = board.line.masks[PF][w];
    if with_small {
        zeros |= board.line.masks[M0][w];
        ones |= board.line.masks[M1][w];
        field |= board.line.masks[BL][w];
    }
    (zeros | field & !(ones & !before), (ones | field) & !(zeros & !(field & before)))
}

/// Draws a row of usual classes.
#[inline(always)]
fn draw_whole(board: &mut Board, before: u32, with_small: bool) {
    for w in 0..5usize {
        let (low, high): (u32, u32) = usual_classes(board, w, before, with_small);
        board.line.current_row.row.classes[w] = two_words(low, high);
    }
}

/// Copies the class row above. Returns false if that row is stored as bytes.
pub fn repeat(board: &mut Board, buffer: usize, above: usize, number: usize) -> bool {
    if is_current(board, buffer, above) && board.line.current_row.drawn_pixels == WIDTH as i32 {
        board.rows[buffer][number] = board.line.current_row.row;
        board.line.current_row.number = number as u32 + 1;
        return true;
    }
    if !has_classes(board.rows[buffer][above].kind) {
        if is_current(board, buffer, number) {
            board.line.current_row.number = 0;
        }
        board.rows[buffer][number].kind = BYTES;
        return false;
    }
    board.rows[buffer][number] = board.rows[buffer][above];
    true
}

/// Pixels of word `word` of a class row of this kind and these colors.
#[inline(always)]
fn pixels(classes: u64, kind: u32, colors: u32, word: usize, fours: &mut [u32; 8]) {
    fours_of_classes(classes, colors, fours);
    if kind == BLANKED && word == 0 {
        fours[0] = 0;
        fours[1] = 0;
    }
}

/// Stores those of 32 pixels in the picture that `wanted` selects. `at` is the place of the first, a multiple of 32.
#[inline(always)]
pub fn store_pixels(board: &mut Board, buffer: usize, at: usize, fours: &[u32; 8], wanted: u32) {
    for group in 0..4usize {
        let keep: u32 = wanted >> (8 * group) & 0xFF;
        if keep != 0 {
            let mut eight: u64 = two_words(fours[2 * group], fours[2 * group + 1]);
            if keep != 0xFF {
                let new: u64 = spread(keep);
                eight = eight & new | load_eight(board, buffer, at + 8 * group) & !new;
            }
            store_eight(board, buffer, at + 8 * group, eight);
        }
    }
}

/// Stores the pixels `from..to` of a class row as bytes.
#[inline(never)]
fn store_row(board: &mut Board, buffer: usize, number: usize, row: &Row, from: i32, to: i32) {
    let line: usize = line_start(number as i32);
    for word in 0..5usize {
        let wanted: u32 = span_word(word, from, to);
        if wanted != 0 {
            let mut fours: [u32; 8] = [0; 8];
            pixels(row.classes[word], row.kind, row.colors, word, &mut fours);
            store_pixels(board, buffer, line + 32 * word, &fours, wanted);
        }
    }
}

/// Converts a class row to bytes.
#[inline(never)]
pub fn expand(board: &mut Board, buffer: usize, number: usize) {
    if !is_current(board, buffer, number) {
        expand_complete(board, buffer, number);
        return;
    }
    let row: Row = board.line.current_row.row;
    let drawn: i32 = board.line.current_row.drawn_pixels;
    board.line.current_row.number = 0;
    store_row(board, buffer, number, &row, 0, drawn);
    // The other pixels belong to the older row.
    let older: Row = board.rows[buffer][number];
    if has_classes(older.kind) {
        store_row(board, buffer, number, &older, drawn, WIDTH as i32);
    }
    board.rows[buffer][number].kind = BYTES;
}

/// Converts a class row that is complete to bytes. Any thread may call this when no frame is open.
#[inline(never)]
pub fn expand_complete(board: &mut Board, buffer: usize, number: usize) {
    let row: Row = board.rows[buffer][number];
    if has_classes(row.kind) {
        store_row(board, buffer, number, &row, 0, WIDTH as i32);
        board.rows[buffer][number].kind = BYTES;
    }
}

/// Converts the first `count` rows of a picture to bytes.
#[inline(never)]
pub fn expand_all(board: &mut Board, buffer: usize, count: usize) {
    for number in 0..count {
        expand(board, buffer, number);
    }
}

/// Converts the current row to bytes if it is incomplete: it is not continued, or an older row is read.
pub fn expand_incomplete_row(board: &mut Board) {
    if board.line.current_row.number != 0 && board.line.current_row.drawn_pixels < WIDTH as i32 {
        let buffer: usize = board.line.current_row.buffer as usize;
        let number: usize = board.line.current_row.number as usize - 1;
        expand(board, buffer, number);
    }
}

/// Marks all rows as bytes, after the pictures were written as bytes.
#[inline(never)]
pub fn mark_all_as_bytes(board: &mut Board) {
    board.line.current_row.number = 0;
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
    fn classes_select_values() {
        let mut draws = 1u64;
        for _ in 0..100 {
            draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let classes = draws ^ draws >> 32;
            let values = draws.wrapping_mul(0x9E37_79B9_7F4A_7C15) as u32;
            let mut fours = [0; 8];
            fours_of_classes(classes, values, &mut fours);
            for pixel in 0..32 {
                let class = classes >> pixel & 1 | (classes >> (pixel + 32) & 1) << 1;
                let found = fours[pixel / 4].to_le_bytes()[pixel % 4];
                assert_eq!(found, values.to_le_bytes()[class as usize], "pixel {pixel} of {classes:X}");
            }
        }
    }
}
