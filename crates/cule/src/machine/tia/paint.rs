//! Pixels: masks to palette indices, and the pixels that ale-py writes in frames that end within the picture.
//!
//! Device subset.

use super::collision::span_word;
use super::{
    ALL_OBJECTS, BL, CLOCKS_PER_LINE, HBLANK_CLOCKS, M0, M1, MAX_ROWS, Mask, P0, P1, PF, PICTURE_BYTES, Tia,
    WIDTH, bit, hidden, objects, rows,
};
use crate::machine::{Board, Machine};

/// Bits of CTRLPF: the halves of the playfield take the players' colors; the playfield is drawn over the
/// players.
pub const SCORE: u8 = 2;
pub const PRIORITY: u8 = 4;
/// Value of `drawing_order` if `playfield_only_score` is true.
pub const PLAYFIELD_ONLY_SCORE: u8 = 1;
/// Indices of the colors in `Tia::color`.
pub const PLAYFIELD: usize = 2;
pub const BACKGROUND: usize = 3;
/// Clock of a row at which the HMOVE blank ends.
const BLANK_END: i32 = HBLANK_CLOCKS + 8;
/// Pixels of the left half.
const LEFT: Mask = [0xFFFF_FFFF, 0xFFFF_FFFF, 0x0000_FFFF, 0, 0];
/// The value 1 in every byte.
pub const EVERY_BYTE: u64 = 0x0101_0101_0101_0101;

/// Expands eight bits to eight bytes of 0 or $FF.
#[rustfmt::skip]
const SPREAD: [u64; 256] = [
    0x0000000000000000, 0x00000000000000FF, 0x000000000000FF00, 0x000000000000FFFF, 0x0000000000FF0000,
    0x0000000000FF00FF, 0x0000000000FFFF00, 0x0000000000FFFFFF, 0x00000000FF000000, 0x00000000FF0000FF,
    0x00000000FF00FF00, 0x00000000FF00FFFF, 0x00000000FFFF0000, 0x00000000FFFF00FF, 0x00000000FFFFFF00,
    0x00000000FFFFFFFF, 0x000000FF00000000, 0x000000FF000000FF, 0x000000FF0000FF00, 0x000000FF0000FFFF,
    0x000000FF00FF0000, 0x000000FF00FF00FF, 0x000000FF00FFFF00, 0x000000FF00FFFFFF, 0x000000FFFF000000,
    0x000000FFFF0000FF, 0x000000FFFF00FF00, 0x000000FFFF00FFFF, 0x000000FFFFFF0000, 0x000000FFFFFF00FF,
    0x000000FFFFFFFF00, 0x000000FFFFFFFFFF, 0x0000FF0000000000, 0x0000FF00000000FF, 0x0000FF000000FF00,
    0x0000FF000000FFFF, 0x0000FF0000FF0000, 0x0000FF0000FF00FF, 0x0000FF0000FFFF00, 0x0000FF0000FFFFFF,
    0x0000FF00FF000000, 0x0000FF00FF0000FF, 0x0000FF00FF00FF00, 0x0000FF00FF00FFFF, 0x0000FF00FFFF0000,
    0x0000FF00FFFF00FF, 0x0000FF00FFFFFF00, 0x0000FF00FFFFFFFF, 0x0000FFFF00000000, 0x0000FFFF000000FF,
    0x0000FFFF0000FF00, 0x0000FFFF0000FFFF, 0x0000FFFF00FF0000, 0x0000FFFF00FF00FF, 0x0000FFFF00FFFF00,
    0x0000FFFF00FFFFFF, 0x0000FFFFFF000000, 0x0000FFFFFF0000FF, 0x0000FFFFFF00FF00, 0x0000FFFFFF00FFFF,
    0x0000FFFFFFFF0000, 0x0000FFFFFFFF00FF, 0x0000FFFFFFFFFF00, 0x0000FFFFFFFFFFFF, 0x00FF000000000000,
    0x00FF0000000000FF, 0x00FF00000000FF00, 0x00FF00000000FFFF, 0x00FF000000FF0000, 0x00FF000000FF00FF,
    0x00FF000000FFFF00, 0x00FF000000FFFFFF, 0x00FF0000FF000000, 0x00FF0000FF0000FF, 0x00FF0000FF00FF00,
    0x00FF0000FF00FFFF, 0x00FF0000FFFF0000, 0x00FF0000FFFF00FF, 0x00FF0000FFFFFF00, 0x00FF0000FFFFFFFF,
    0x00FF00FF00000000, 0x00FF00FF000000FF, 0x00FF00FF0000FF00, 0x00FF00FF0000FFFF, 0x00FF00FF00FF0000,
    0x00FF00FF00FF00FF, 0x00FF00FF00FFFF00, 0x00FF00FF00FFFFFF, 0x00FF00FFFF000000, 0x00FF00FFFF0000FF,
    0x00FF00FFFF00FF00, 0x00FF00FFFF00FFFF, 0x00FF00FFFFFF0000, 0x00FF00FFFFFF00FF, 0x00FF00FFFFFFFF00,
    0x00FF00FFFFFFFFFF, 0x00FFFF0000000000, 0x00FFFF00000000FF, 0x00FFFF000000FF00, 0x00FFFF000000FFFF,
    0x00FFFF0000FF0000, 0x00FFFF0000FF00FF, 0x00FFFF0000FFFF00, 0x00FFFF0000FFFFFF, 0x00FFFF00FF000000,
    0x00FFFF00FF0000FF, 0x00FFFF00FF00FF00, 0x00FFFF00FF00FFFF, 0x00FFFF00FFFF0000, 0x00FFFF00FFFF00FF,
    0x00FFFF00FFFFFF00, 0x00FFFF00FFFFFFFF, 0x00FFFFFF00000000, 0x00FFFFFF000000FF, 0x00FFFFFF0000FF00,
    0x00FFFFFF0000FFFF, 0x00FFFFFF00FF0000, 0x00FFFFFF00FF00FF, 0x00FFFFFF00FFFF00, 0x00FFFFFF00FFFFFF,
    0x00FFFFFFFF000000, 0x00FFFFFFFF0000FF, 0x00FFFFFFFF00FF00, 0x00FFFFFFFF00FFFF, 0x00FFFFFFFFFF0000,
    0x00FFFFFFFFFF00FF, 0x00FFFFFFFFFFFF00, 0x00FFFFFFFFFFFFFF, 0xFF00000000000000, 0xFF000000000000FF,
    0xFF0000000000FF00, 0xFF0000000000FFFF, 0xFF00000000FF0000, 0xFF00000000FF00FF, 0xFF00000000FFFF00,
    0xFF00000000FFFFFF, 0xFF000000FF000000, 0xFF000000FF0000FF, 0xFF000000FF00FF00, 0xFF000000FF00FFFF,
    0xFF000000FFFF0000, 0xFF000000FFFF00FF, 0xFF000000FFFFFF00, 0xFF000000FFFFFFFF, 0xFF0000FF00000000,
    0xFF0000FF000000FF, 0xFF0000FF0000FF00, 0xFF0000FF0000FFFF, 0xFF0000FF00FF0000, 0xFF0000FF00FF00FF,
    0xFF0000FF00FFFF00, 0xFF0000FF00FFFFFF, 0xFF0000FFFF000000, 0xFF0000FFFF0000FF, 0xFF0000FFFF00FF00,
    0xFF0000FFFF00FFFF, 0xFF0000FFFFFF0000, 0xFF0000FFFFFF00FF, 0xFF0000FFFFFFFF00, 0xFF0000FFFFFFFFFF,
    0xFF00FF0000000000, 0xFF00FF00000000FF, 0xFF00FF000000FF00, 0xFF00FF000000FFFF, 0xFF00FF0000FF0000,
    0xFF00FF0000FF00FF, 0xFF00FF0000FFFF00, 0xFF00FF0000FFFFFF, 0xFF00FF00FF000000, 0xFF00FF00FF0000FF,
    0xFF00FF00FF00FF00, 0xFF00FF00FF00FFFF, 0xFF00FF00FFFF0000, 0xFF00FF00FFFF00FF, 0xFF00FF00FFFFFF00,
    0xFF00FF00FFFFFFFF, 0xFF00FFFF00000000, 0xFF00FFFF000000FF, 0xFF00FFFF0000FF00, 0xFF00FFFF0000FFFF,
    0xFF00FFFF00FF0000, 0xFF00FFFF00FF00FF, 0xFF00FFFF00FFFF00, 0xFF00FFFF00FFFFFF, 0xFF00FFFFFF000000,
    0xFF00FFFFFF0000FF, 0xFF00FFFFFF00FF00, 0xFF00FFFFFF00FFFF, 0xFF00FFFFFFFF0000, 0xFF00FFFFFFFF00FF,
    0xFF00FFFFFFFFFF00, 0xFF00FFFFFFFFFFFF, 0xFFFF000000000000, 0xFFFF0000000000FF, 0xFFFF00000000FF00,
    0xFFFF00000000FFFF, 0xFFFF000000FF0000, 0xFFFF000000FF00FF, 0xFFFF000000FFFF00, 0xFFFF000000FFFFFF,
    0xFFFF0000FF000000, 0xFFFF0000FF0000FF, 0xFFFF0000FF00FF00, 0xFFFF0000FF00FFFF, 0xFFFF0000FFFF0000,
    0xFFFF0000FFFF00FF, 0xFFFF0000FFFFFF00, 0xFFFF0000FFFFFFFF, 0xFFFF00FF00000000, 0xFFFF00FF000000FF,
    0xFFFF00FF0000FF00, 0xFFFF00FF0000FFFF, 0xFFFF00FF00FF0000, 0xFFFF00FF00FF00FF, 0xFFFF00FF00FFFF00,
    0xFFFF00FF00FFFFFF, 0xFFFF00FFFF000000, 0xFFFF00FFFF0000FF, 0xFFFF00FFFF00FF00, 0xFFFF00FFFF00FFFF,
    0xFFFF00FFFFFF0000, 0xFFFF00FFFFFF00FF, 0xFFFF00FFFFFFFF00, 0xFFFF00FFFFFFFFFF, 0xFFFFFF0000000000,
    0xFFFFFF00000000FF, 0xFFFFFF000000FF00, 0xFFFFFF000000FFFF, 0xFFFFFF0000FF0000, 0xFFFFFF0000FF00FF,
    0xFFFFFF0000FFFF00, 0xFFFFFF0000FFFFFF, 0xFFFFFF00FF000000, 0xFFFFFF00FF0000FF, 0xFFFFFF00FF00FF00,
    0xFFFFFF00FF00FFFF, 0xFFFFFF00FFFF0000, 0xFFFFFF00FFFF00FF, 0xFFFFFF00FFFFFF00, 0xFFFFFF00FFFFFFFF,
    0xFFFFFFFF00000000, 0xFFFFFFFF000000FF, 0xFFFFFFFF0000FF00, 0xFFFFFFFF0000FFFF, 0xFFFFFFFF00FF0000,
    0xFFFFFFFF00FF00FF, 0xFFFFFFFF00FFFF00, 0xFFFFFFFF00FFFFFF, 0xFFFFFFFFFF000000, 0xFFFFFFFFFF0000FF,
    0xFFFFFFFFFF00FF00, 0xFFFFFFFFFF00FFFF, 0xFFFFFFFFFFFF0000, 0xFFFFFFFFFFFF00FF, 0xFFFFFFFFFFFFFF00,
    0xFFFFFFFFFFFFFFFF,
];

/// Expands eight bits to eight bytes of 0 or $FF.
pub fn spread(bits: u32) -> u64 {
    SPREAD[(bits & 0xFF) as usize]
}

/// As `spread`, by multiplication: faster than a table lookup on a GPU.
pub fn spread_by_products(bits: u32) -> u64 {
    // Bits 0 to 3 move to the lowest bits of four bytes; no other bit of the product falls on them.
    let low: u32 = ((bits & 0xF).wrapping_mul(0x0020_4081) & 0x0101_0101).wrapping_mul(0xFF);
    let high: u32 = ((bits >> 4 & 0xF).wrapping_mul(0x0020_4081) & 0x0101_0101).wrapping_mul(0xFF);
    low as u64 | (high as u64) << 32
}

/// Writes eight pixels in one store, at a multiple of eight.
pub fn store_eight(board: &mut Board, buffer: usize, at: usize, pixels: u64) {
    if at > PICTURE_BYTES - 8 {
        return;
    }
    for i in 0..8 {
        board.picture[buffer][at + i] = (pixels >> (8 * i)) as u8;
    }
}

/// Reads eight pixels in one load, at a multiple of eight.
pub fn load_eight(board: &Board, buffer: usize, at: usize) -> u64 {
    if at > PICTURE_BYTES - 8 {
        return 0;
    }
    let mut pixels: u64 = 0;
    for i in 0..8 {
        pixels |= (board.picture[buffer][at + i] as u64) << (8 * i);
    }
    pixels
}

/// Copies the row above into the current row.
pub fn repeat_row(m: &Machine, board: &mut Board) {
    let line: usize = line_start(m.tia.row_start / CLOCKS_PER_LINE);
    let above: usize = line_start(m.tia.row_start / CLOCKS_PER_LINE - 1);
    let buffer: usize = m.tia.buffer as usize;
    if board.line.current_row.uses_classes != 0 && rows::repeat(board, buffer, above / WIDTH, line / WIDTH) {
        return;
    }
    for group in 0..WIDTH / 8 {
        let pixels: u64 = load_eight(board, buffer, above + 8 * group);
        store_eight(board, buffer, line + 8 * group, pixels);
    }
}

/// Draws the pixels of clocks `from..to` of the current row and, if `access_by_access`, those that ale-py
/// writes ahead of them.
pub fn draw_clocks(m: &mut Machine, board: &mut Board, from: i32, to: i32) {
    if board.line.current_row.uses_classes != 0 && rows::draw(m, board, from, to) {
        return;
    }
    let access_by_access: bool = m.access_by_access != 0;
    let row: i32 = m.tia.row_start / CLOCKS_PER_LINE;
    let mut start: i32 = HBLANK_CLOCKS;
    if from >= HBLANK_CLOCKS {
        start = from;
    } else if to < HBLANK_CLOCKS {
        start = to;
    }
    if to > start {
        let a: i32 = start - HBLANK_CLOCKS;
        let b: i32 = to - HBLANK_CLOCKS;
        if hidden(&m.tia) {
            clear(&m.tia, board, row, a, b);
        } else {
            if m.tia.dirty != 0 {
                objects::refresh(&mut m.tia, board, ALL_OBJECTS);
            }
            span(&m.tia, board, row, a, b);
            if access_by_access {
                draw_ahead(&m.tia, board, row, a, b);
            }
        }
    }
    if m.tia.blank_pending != 0 && start < BLANK_END {
        let a: i32 = if start < HBLANK_CLOCKS { 0 } else { start - HBLANK_CLOCKS };
        let ahead: i32 = a + BLANK_END - start;
        let drawn: i32 = to - HBLANK_CLOCKS;
        clear(&m.tia, board, row, a, if access_by_access || ahead < drawn { ahead } else { drawn });
    }
}

/// True if only the playfield is enabled, and it takes the score colors in spite of its priority.
pub fn playfield_only_score(t: &Tia) -> bool {
    t.ctrlpf & (SCORE | PRIORITY) == SCORE | PRIORITY && t.enabled == bit(PF)
}

/// Index of the first pixel of a row in its buffer.
pub fn line_start(row: i32) -> usize {
    row as usize % MAX_ROWS * WIDTH
}

/// Drawing order of the objects: 0, or one of `PLAYFIELD_ONLY_SCORE`, `PRIORITY` and `SCORE`.
pub fn drawing_order(t: &Tia) -> u8 {
    if playfield_only_score(t) {
        PLAYFIELD_ONLY_SCORE
    } else if t.ctrlpf & PRIORITY != 0 {
        PRIORITY
    } else {
        t.ctrlpf & SCORE
    }
}

/// Masks of the 32 pixels of word `w` that have the color of player 0, player 1 and the playfield. Requires
/// up-to-date masks.
#[inline(always)]
pub fn color_masks(board: &Board, w: usize, order: u8) -> (u32, u32, u32) {
    let zeros: u32 = board.line.masks[P0][w] | board.line.masks[M0][w];
    let ones: u32 = board.line.masks[P1][w] | board.line.masks[M1][w];
    let playfield: u32 = board.line.masks[PF][w];
    let ball: u32 = board.line.masks[BL][w];
    let mut c0: u32 = zeros;
    let mut c1: u32 = ones & !zeros;
    let mut cf: u32 = playfield | ball;
    if order == PLAYFIELD_ONLY_SCORE {
        c0 = playfield & LEFT[w];
        c1 = playfield & !LEFT[w];
        cf = 0;
    } else if order == PRIORITY {
        c0 &= !cf;
        c1 &= !cf;
    } else if order == SCORE {
        c0 = zeros | playfield & LEFT[w];
        c1 = (ones | playfield & !LEFT[w]) & !c0;
        cf = ball & !c0 & !c1;
    } else {
        cf &= !(c0 | c1);
    }
    (c0, c1, cf)
}

/// Draws pixels `from..to` of a row. Requires up-to-date masks.
fn span(t: &Tia, board: &mut Board, row: i32, from: i32, to: i32) {
    let colors: u32 = rows::colors_of(t);
    let line: usize = line_start(row);
    let buffer: usize = t.buffer as usize;
    let order: u8 = drawing_order(t);
    let first: usize = (from >> 5) as usize;
    let last: usize = ((to - 1) >> 5) as usize + 1;
    for w in first..last {
        let (c0, c1, cf): (u32, u32, u32) = color_masks(board, w, order);
        let mut fours: [u32; 8] = [0; 8];
        rows::fours_of_classes(rows::two_words(c0 | cf, c1 | cf), colors, &mut fours);
        rows::store_pixels(board, buffer, line + 32 * w, &fours, span_word(w, from, to));
    }
}

/// Sets pixels `from..to` of a row to 0.
fn clear(t: &Tia, board: &mut Board, row: i32, from: i32, to: i32) {
    let line: usize = line_start(row);
    let mut x: i32 = from;
    while x < to {
        if x & 7 == 0 && to - x >= 8 {
            store_eight(board, t.buffer as usize, line + x as usize, 0);
            x += 8;
        } else {
            board.picture[t.buffer as usize][line + x as usize] = 0;
            x += 1;
        }
    }
}

/// Draws the pixels that ale-py writes ahead when a chunk does not end at a multiple of four. They remain
/// visible if the frame ends there.
fn draw_ahead(t: &Tia, board: &mut Board, row: i32, from: i32, to: i32) {
    let group: i32 = to & !3;
    if to <= from || to == group || group < from {
        return;
    }
    let on: u8 = t.enabled;
    let score: bool = t.ctrlpf & SCORE != 0;
    let field: bool = board.line.masks[PF][(group >> 5) as usize] >> (group & 31) & 1 != 0;
    let mut color: u8 = t.color[BACKGROUND];
    if on == bit(PF) {
        if field {
            color = t.color[PLAYFIELD];
            if score {
                color = if group < 80 { t.color[P0] } else { t.color[P1] };
            }
        }
    } else {
        let field_pair: bool = on == bit(PF) | bit(P0) || on == bit(PF) | bit(P1) || on == bit(PF) | bit(BL);
        let lone: bool = on != 0 && on & on.wrapping_sub(1) == 0;
        let pair: bool = on == bit(P0) | bit(P1)
            || on == bit(M0) | bit(M1)
            || on == bit(BL) | bit(M0)
            || on == bit(BL) | bit(M1)
            || on == bit(BL) | bit(P1);
        if !(lone || pair || (field_pair && !score)) || is_touched(t, on, group) {
            return;
        }
        if field {
            color = t.color[PLAYFIELD];
        }
    }
    let line: usize = line_start(row);
    for x in to..group + 4 {
        board.picture[t.buffer as usize][line + x as usize] = color;
    }
}

/// True if an enabled object other than the playfield touches pixels `group..group + 4`.
fn is_touched(t: &Tia, on: u8, group: i32) -> bool {
    let mut shapes: u32 = 0;
    let word: usize = (group >> 5) as usize;
    let mut mask: Mask = [0, 0, 0, 0, 0];
    for p in 0..2 {
        if on & bit(P0 + p) != 0 {
            objects::player(t, p, 0xFF, &mut mask);
            shapes |= mask[word];
        }
        if on & bit(M0 + p) != 0 {
            objects::missile(t, p, &mut mask);
            shapes |= mask[word];
        }
    }
    if on & bit(BL) != 0 {
        objects::ball(t, &mut mask);
        shapes |= mask[word];
    }
    shapes >> (group & 31) & 0xF != 0
}

/// Dims the rows that an unfinished frame has not reached, as ale-py does.
pub fn dim(m: &Machine, board: &mut Board, lines: i32) {
    let first: i32 = m.tia.layout.first_line as i32;
    let from: i32 = if lines > first { lines - first } else { 0 };
    let buffer: usize = m.tia.buffer as usize;
    for row in from..m.tia.layout.height as i32 {
        rows::expand(board, buffer, row as usize);
        for x in 0..WIDTH {
            let at: usize = row as usize * WIDTH + x;
            let pixel: u8 = board.picture[buffer][at];
            board.picture[buffer][at] = (pixel & 15) >> 1;
        }
    }
}

#[cfg(not(device))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_spread_as_the_table_does() {
        for bits in 0..256 {
            assert_eq!(spread_by_products(bits), spread(bits), "{bits:08b}");
        }
    }
}
