//! The six objects as masks of a row in 64-bit words; equal to `machine::tia::objects`, which has 32-bit
//! words.

use super::pixels::Wide;
use crate::machine::tia::{BL, FORM_OFF, FORM_WIDE, M0, P0, Tia, WIDTH, objects};

/// Bits of the last word of a row.
const LAST_WORD: u64 = 0xFFFF_FFFF;

/// For NUSIZ & 7, with and without the first copy: the copies within 64 pixels as a factor, and 1 if there is
/// a copy at an offset of 64 pixels.
const COPIES: [[(u64, u64); 8]; 2] = [copies_table(true), copies_table(false)];

const fn copies_table(first: bool) -> [(u64, u64); 8] {
    let mut table = [(0, 0); 8];
    let mut mode = 0;
    while mode < 8 {
        let mut copy = 0;
        while copy < 3 {
            let offset = objects::COPIES[mode][copy];
            if copy == 0 {
                table[mode].0 |= first as u64;
            } else if offset == 64 {
                table[mode].1 = 1;
            } else if offset != 0 {
                table[mode].0 |= 1 << offset;
            }
            copy += 1;
        }
        mode += 1;
    }
    table
}

/// Places up to 72 pixels, 64 in `low` and the others in `high`, at `position`, which may exceed the row by
/// up to 160. All values stay in registers: a mask assembled in memory would be read before its stores have
/// completed.
#[inline(always)]
fn place(low: u64, high: u64, position: u32, mask: &mut Wide) {
    let at = if position >= WIDTH as u32 { position - WIDTH as u32 } else { position };
    let (shift, word) = (at & 63, at >> 6);
    let over = |pixels: u64| pixels >> 1 >> (63 - shift);
    let (a, b, c) = (low << shift, high << shift | over(low), over(high));
    let when = |wanted: u32| 0u64.wrapping_sub(u64::from(word == wanted));
    let (zero, one, two) = (when(0), when(1), when(2));
    // Pixels beyond the right edge continue on the left.
    *mask = [
        a & zero | (b >> 32 | c << 32) & one | (a >> 32 | b << 32) & two,
        b & zero | a & one | (b >> 32 | c << 32) & two,
        (c & zero | b & one | a & two) & LAST_WORD,
    ];
}

/// One to three copies of a pattern of eight pixels.
#[inline(always)]
fn copies(pattern: u32, position: u32, mode: u8, first: bool, mask: &mut Wide) {
    let (near, far) = COPIES[usize::from(!first)][usize::from(mode & 7)];
    place(u64::from(pattern) * near, u64::from(pattern) * far, position, mask);
}

/// Bytes with reversed bits.
pub const REVERSED: [u8; 256] = reversed();

const fn reversed() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).reverse_bits();
        byte += 1;
    }
    table
}

/// Pixels of a player.
pub fn player_mask(t: &Tia, player: usize, mask: &mut Wide) {
    let graphics = t.graphics[player];
    let mode = t.nusiz[player] & 7;
    let position = u32::from(t.position[P0 + player]);
    let first = t.skip[player] == 0;
    let pixels = u32::from(if t.reflect[player] != 0 { graphics } else { REVERSED[usize::from(graphics)] });
    if mode == 5 || mode == 7 {
        let wide = objects::stretch(pixels);
        let pattern = if mode == 7 { wide } else { objects::halve(wide) };
        place(if first { u64::from(pattern) } else { 0 }, 0, position + 1, mask);
    } else {
        copies(pixels, position, mode, first, mask);
    }
}

/// Pixels of a missile, enabled or not.
pub fn missile_mask(t: &Tia, missile: usize, mask: &mut Wide) {
    let mut size = t.nusiz[missile] >> 4 & 3;
    if missile == 0 && t.missile0_form == FORM_OFF {
        *mask = [0; 3];
        return;
    }
    if missile == 0 && t.missile0_form == FORM_WIDE {
        size |= 1;
    }
    let position = u32::from(t.position[M0 + missile]);
    copies((1 << (1 << size)) - 1, position, t.nusiz[missile], true, mask);
}

/// Pixels of the ball, enabled or not.
pub fn ball_mask(t: &Tia, mask: &mut Wide) {
    copies((1 << (1 << (t.ctrlpf >> 4 & 3))) - 1, u32::from(t.position[BL]), 0, true, mask);
}

/// Playfield bits, expanded to four pixels each.
const STRETCHED: [u32; 256] = stretched();

const fn stretched() -> [u32; 256] {
    let mut table = [0; 256];
    let mut bits = 0;
    while bits < 256 {
        let mut i = 0;
        while i < 8 {
            table[bits] |= ((bits as u32 >> i & 1) * 15) << (4 * i);
            i += 1;
        }
        bits += 1;
    }
    table
}

/// Pixels of the playfield.
pub fn playfield_mask(t: &Tia, mask: &mut Wide) {
    let left = t.playfield;
    let reversed = |bits: u32| u32::from(REVERSED[(bits & 0xFF) as usize]);
    let right = if t.mirror != 0 {
        reversed(left >> 12) | reversed(left >> 4) << 8 | reversed(left << 4) << 16
    } else {
        left
    };
    let wide = |bits: u32| u64::from(STRETCHED[(bits & 0xFF) as usize]);
    let middle = wide(right >> 8);
    *mask = [
        wide(left) | wide(left >> 8) << 32,
        wide(left >> 16 & 0xF) | wide(right) << 16 | middle << 48,
        middle >> 16 | wide(right >> 16 & 0xF) << 16,
    ];
}

/// Mask of pixels `from..to`.
pub fn span(from: i32, to: i32) -> [u64; 3] {
    std::array::from_fn(|w| {
        let base = 64 * w as i32;
        let low = (from - base).clamp(0, 64) as u32;
        let high = (to - base).clamp(0, 64) as u32;
        let below = |end: u32| if end == 64 { !0 } else { (1u64 << end) - 1 };
        below(high) & !below(low)
    })
}
