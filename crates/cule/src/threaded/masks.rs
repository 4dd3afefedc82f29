//! The six objects as masks of a row, in 64-bit words: what `machine::tia::objects` gives in 32-bit ones.

use super::pixels::Wide;
use crate::machine::tia::{BL, FORM_OFF, FORM_WIDE, M0, P0, Tia, WIDTH, objects};

/// Bits of the last word of a row.
const LAST_WORD: u64 = 0xFFFF_FFFF;

/// Up to 32 pixels at `position`, which may be up to 160 too large. All in registers: a mask that is put together in
/// memory would be read before it is written.
#[inline(always)]
fn place(pattern: u32, position: u32) -> Wide {
    let at = if position >= WIDTH as u32 { position - WIDTH as u32 } else { position };
    let pair = u128::from(pattern) << (at & 63);
    let (low, high) = (pair as u64, (pair >> 64) as u64);
    let word = at >> 6;
    let when = |wanted: u32| 0u64.wrapping_sub(u64::from(word == wanted));
    let last = low & when(2) | high & when(1);
    // What leaves the row on the right comes in on the left.
    [low & when(0) | last >> 32, low & when(1) | high & when(0), last & LAST_WORD]
}

/// One to three copies. The mask is written where it stays: a copy of what has just been written would wait for it.
#[inline(always)]
fn copies(pattern: u32, position: u32, mode: usize, first: bool, mask: &mut Wide) {
    let [_, second, third] = objects::COPIES[mode & 7];
    let mut all: Wide = [0; 3];
    let mut add = |pixels: Wide| {
        for w in 0..3 {
            all[w] |= pixels[w];
        }
    };
    if first {
        add(place(pattern, position));
    }
    if second != 0 {
        add(place(pattern, position + u32::from(second)));
        if third != 0 {
            add(place(pattern, position + u32::from(third)));
        }
    }
    *mask = all;
}

/// Pixels of a player.
pub fn player_mask(t: &Tia, player: usize, mask: &mut Wide) {
    let graphics = t.graphics[player];
    let mode = t.nusiz[player] & 7;
    let position = u32::from(t.position[P0 + player]);
    let first = t.skip[player] == 0;
    let pixels = u32::from(if t.reflect[player] != 0 { graphics } else { graphics.reverse_bits() });
    if mode == 5 || mode == 7 {
        let wide = objects::stretch(pixels);
        let pattern = if mode == 7 { wide } else { objects::halve(wide) };
        copies(pattern, position + 1, 0, first, mask);
    } else {
        copies(pixels, position, usize::from(mode), first, mask);
    }
}

/// Pixels of a missile, whether it shows or not.
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
    copies((1 << (1 << size)) - 1, position, usize::from(t.nusiz[missile]), true, mask);
}

/// Pixels of the ball, whether it shows or not.
pub fn ball_mask(t: &Tia, mask: &mut Wide) {
    copies((1 << (1 << (t.ctrlpf >> 4 & 3))) - 1, u32::from(t.position[BL]), 0, true, mask);
}

/// Playfield bits as four pixels each.
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
    let right = if t.mirror != 0 { left.reverse_bits() >> 12 } else { left };
    let wide = |bits: u32| u64::from(STRETCHED[(bits & 0xFF) as usize]);
    let middle = wide(right >> 8);
    *mask = [
        wide(left) | wide(left >> 8) << 32,
        wide(left >> 16 & 0xF) | wide(right) << 16 | middle << 48,
        middle >> 16 | wide(right >> 16 & 0xF) << 16,
    ];
}
