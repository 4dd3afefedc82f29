//! Pixels: masks to palette indices, and what short frames leave behind.
//!
//! Device subset.

use super::collision::span_word;
use super::{
    ALL_OBJECTS, BL, CLOCKS_PER_LINE, HBLANK_CLOCKS, M0, M1, MAX_ROWS, Mask, P0, P1, PF, Tia, WIDTH, bit,
    hidden, objects,
};
use crate::machine::{Board, Machine};

/// CTRLPF: the halves of the playfield take the players' colours; the playfield stands before the players.
const SCORE: u8 = 2;
const PRIORITY: u8 = 4;
/// Places of the colours in `Tia::color`.
const FIELD: usize = 2;
const BACK: usize = 3;
/// Clock of a row after which the HMOVE blank is over.
const BLANK_END: i32 = HBLANK_CLOCKS + 8;
/// Pixels left of the middle.
const LEFT: Mask = [0xFFFF_FFFF, 0xFFFF_FFFF, 0x0000_FFFF, 0, 0];
/// One in every byte.
const EVERY_BYTE: u64 = 0x0101_0101_0101_0101;

/// Eight bits to eight bytes of 0 or 1.
fn spread(bits: u32) -> u64 {
    let lanes: u64 = (bits as u64).wrapping_mul(EVERY_BYTE) & 0x8040_2010_0804_0201;
    (lanes.wrapping_add(0x7F7F_7F7F_7F7F_7F7F) | lanes) >> 7 & EVERY_BYTE
}

/// Pixels of clocks `from..to` of the present row and, if `eager`, what the reference writes ahead of them.
pub fn chunk(m: &mut Machine, board: &mut Board, from: i32, to: i32) {
    let eager: bool = m.eager != 0;
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
            if eager {
                round_up(&m.tia, board, row, a, b);
            }
        }
    }
    if m.tia.blank_pending != 0 && start < BLANK_END {
        let a: i32 = if start < HBLANK_CLOCKS { 0 } else { start - HBLANK_CLOCKS };
        let ahead: i32 = a + BLANK_END - start;
        let drawn: i32 = to - HBLANK_CLOCKS;
        clear(&m.tia, board, row, a, if eager || ahead < drawn { ahead } else { drawn });
    }
}

/// True when the playfield alone is on and takes the score colours in spite of its priority.
fn lonely_score(t: &Tia) -> bool {
    t.ctrlpf & (SCORE | PRIORITY) == SCORE | PRIORITY && t.enabled == bit(PF)
}

/// Where a row begins in its buffer.
fn line_start(row: i32) -> usize {
    row as usize % MAX_ROWS * WIDTH
}

/// Draws pixels `from..to` of a row. Masks are fresh.
fn span(t: &Tia, board: &mut Board, row: i32, from: i32, to: i32) {
    let back: u64 = t.color[BACK] as u64 * EVERY_BYTE;
    let zero: u64 = t.color[P0] as u64;
    let one: u64 = t.color[P1] as u64;
    let field: u64 = t.color[FIELD] as u64;
    let line: usize = line_start(row);
    let buffer: usize = t.buffer as usize;
    let lonely: bool = lonely_score(t);
    let first: usize = (from >> 5) as usize;
    let last: usize = ((to - 1) >> 5) as usize + 1;
    for w in first..last {
        let zeros: u32 = board.masks[P0][w] | board.masks[M0][w];
        let ones: u32 = board.masks[P1][w] | board.masks[M1][w];
        let playfield: u32 = board.masks[PF][w];
        let ball: u32 = board.masks[BL][w];
        let mut c0: u32 = zeros;
        let mut c1: u32 = ones & !zeros;
        let mut cf: u32 = playfield | ball;
        if lonely {
            c0 = playfield & LEFT[w];
            c1 = playfield & !LEFT[w];
            cf = 0;
        } else if t.ctrlpf & PRIORITY != 0 {
            c0 &= !cf;
            c1 &= !cf;
        } else if t.ctrlpf & SCORE != 0 {
            c0 = zeros | playfield & LEFT[w];
            c1 = (ones | playfield & !LEFT[w]) & !c0;
            cf = ball & !c0 & !c1;
        } else {
            cf &= !(c0 | c1);
        }
        let wanted: u32 = span_word(w, from, to);
        for group in 0..4 {
            let shift: usize = 8 * group;
            let keep: u32 = wanted >> shift & 0xFF;
            if keep != 0 {
                let mut pixels: u64 = back;
                if (c0 | c1 | cf) >> shift & 0xFF != 0 {
                    let m0: u64 = spread(c0 >> shift & 0xFF);
                    let m1: u64 = spread(c1 >> shift & 0xFF);
                    let mf: u64 = spread(cf >> shift & 0xFF);
                    pixels &= !((m0 | m1 | mf) * 255);
                    pixels |= m0 * zero | m1 * one | mf * field;
                }
                let at: usize = line + 32 * w + shift;
                for i in 0..8 {
                    if keep >> i & 1 != 0 {
                        board.picture[buffer][at + i] = (pixels >> (8 * i)) as u8;
                    }
                }
            }
        }
    }
}

/// Makes pixels `from..to` of a row 0.
fn clear(t: &Tia, board: &mut Board, row: i32, from: i32, to: i32) {
    let line: usize = line_start(row);
    for x in from..to {
        board.picture[t.buffer as usize][line + x as usize] = 0;
    }
}

/// Pixels that the reference writes ahead when a chunk does not end on a multiple of four: they stay when the frame
/// ends there.
fn round_up(t: &Tia, board: &mut Board, row: i32, from: i32, to: i32) {
    let group: i32 = to & !3;
    if to <= from || to == group || group < from {
        return;
    }
    let on: u8 = t.enabled;
    let score: bool = t.ctrlpf & SCORE != 0;
    let field: bool = board.masks[PF][(group >> 5) as usize] >> (group & 31) & 1 != 0;
    let mut color: u8 = t.color[BACK];
    if on == bit(PF) {
        if field {
            color = t.color[FIELD];
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
        if !(lone || pair || (field_pair && !score)) || near(t, on, group) {
            return;
        }
        if field {
            color = t.color[FIELD];
        }
    }
    let line: usize = line_start(row);
    for x in to..group + 4 {
        board.picture[t.buffer as usize][line + x as usize] = color;
    }
}

/// True when the shape of an enabled object other than the playfield touches pixels `group..group + 4`.
fn near(t: &Tia, on: u8, group: i32) -> bool {
    let mut shapes: u32 = 0;
    let word: usize = (group >> 5) as usize;
    for p in 0..2 {
        if on & bit(P0 + p) != 0 {
            let mask: Mask = objects::player(t, p, 0xFF);
            shapes |= mask[word];
        }
        if on & bit(M0 + p) != 0 {
            let mask: Mask = objects::missile(t, p);
            shapes |= mask[word];
        }
    }
    if on & bit(BL) != 0 {
        let mask: Mask = objects::ball(t);
        shapes |= mask[word];
    }
    shapes >> (group & 31) & 0xF != 0
}

/// The reference dims what an unfinished frame has not reached.
pub fn dim(m: &Machine, board: &mut Board, lines: i32) {
    let first: i32 = m.tia.layout.first_line as i32;
    let from: i32 = if lines > first { lines - first } else { 0 };
    let buffer: usize = m.tia.buffer as usize;
    for row in from..m.tia.layout.height as i32 {
        for x in 0..WIDTH {
            let at: usize = row as usize * WIDTH + x;
            let pixel: u8 = board.picture[buffer][at];
            board.picture[buffer][at] = (pixel & 15) >> 1;
        }
    }
}
