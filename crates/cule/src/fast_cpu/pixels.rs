//! Rows of pixels from masks of one bit per pixel, with AVX-512 masks, with AVX2, or with a table of eight
//! pixels. All variants write the same bytes (the tests compare them).

use crate::machine::tia::paint::{EVERY_BYTE, PRIORITY, SCORE, spread};
use crate::machine::tia::{BL, M0, M1, P0, P1, PF, WIDTH};

/// Instruction set that is used for drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// The highest level that this processor supports.
pub fn level() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512bw") {
            return Level::Avx512;
        }
        if is_x86_feature_detected!("avx2") {
            return Level::Avx2;
        }
    }
    Level::Plain
}

/// 160 pixels, one bit each; bit i of word w is pixel 64 w + i.
pub type Wide = [u64; 3];

/// The objects of a row, and their drawing order.
pub struct Scene<'a> {
    /// Masks of the objects, enabled or not.
    pub masks: &'a [Wide; 8],
    /// Enabled objects, one bit each.
    pub enabled: u8,
    /// CTRLPF.
    pub ctrlpf: u8,
    /// Only the playfield is enabled, and it takes the score colors in spite of its priority.
    pub playfield_only_score: bool,
    /// Colors of player 0, player 1, playfield and background.
    pub colors: [u8; 4],
}

/// Pixels of the left half.
const LEFT: [u64; 3] = [!0, 0xFFFF, 0];

impl Scene<'_> {
    /// Masks of 64 pixels with the colors of player 0, player 1 and the playfield. The masks are disjoint.
    #[inline(always)]
    fn layers(&self, w: usize) -> [u64; 3] {
        let shown =
            |object: usize| self.masks[object][w] & 0u64.wrapping_sub(u64::from(self.enabled >> object & 1));
        let zeros = shown(P0) | shown(M0);
        let ones = shown(P1) | shown(M1);
        let (playfield, ball) = (shown(PF), shown(BL));
        if self.ctrlpf & (PRIORITY | SCORE) == 0 {
            return [zeros, ones & !zeros, (playfield | ball) & !(zeros | ones)];
        }
        if self.playfield_only_score {
            return [playfield & LEFT[w], playfield & !LEFT[w], 0];
        }
        if self.ctrlpf & PRIORITY != 0 {
            let field = playfield | ball;
            return [zeros & !field, ones & !zeros & !field, field];
        }
        let first = zeros | playfield & LEFT[w];
        let second = (ones | playfield & !LEFT[w]) & !first;
        [first, second, ball & !first & !second]
    }
}

/// Draws pixels `from..to` of a row.
#[inline(always)]
pub fn draw(level: Level, row: &mut [u8; WIDTH], from: usize, to: usize, scene: &Scene<'_>) {
    debug_assert!(from < to && to <= WIDTH);
    match level {
        Level::Plain => draw_plain(row, from, to, scene),
        // SAFETY: `level` has checked the processor's features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { draw_avx2(row, from, to, scene) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { draw_avx512(row, from, to, scene) },
    }
}

fn draw_plain(row: &mut [u8; WIDTH], from: usize, to: usize, scene: &Scene<'_>) {
    let back = u64::from(scene.colors[3]) * EVERY_BYTE;
    let [zero, one, field] = [0, 1, 2].map(|i| back ^ (u64::from(scene.colors[i]) * EVERY_BYTE));
    for w in from / 64..to.div_ceil(64) {
        let layers = scene.layers(w);
        for group in (from / 8).max(8 * w)..to.div_ceil(8).min(8 * w + 8) {
            let bits = |layer: usize| (layers[layer] >> (8 * (group % 8)) & 0xFF) as u32;
            let pixels = back ^ spread(bits(0)) & zero ^ spread(bits(1)) & one ^ spread(bits(2)) & field;
            let eight = &mut row[8 * group..8 * group + 8];
            if from <= 8 * group && to >= 8 * group + 8 {
                eight.copy_from_slice(&pixels.to_le_bytes());
            } else {
                for (i, pixel) in eight.iter_mut().enumerate() {
                    if (from..to).contains(&(8 * group + i)) {
                        *pixel = (pixels >> (8 * i)) as u8;
                    }
                }
            }
        }
    }
}

/// Bits of word `w` that are in pixels `from..to`; there is at least one.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn span(w: usize, from: usize, to: usize) -> u64 {
    let below = from.saturating_sub(64 * w);
    let above = (64 * w + 64).saturating_sub(to);
    (!0u64 << below) & (!0u64 >> above)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn draw_avx2(row: &mut [u8; WIDTH], from: usize, to: usize, scene: &Scene<'_>) {
    use std::arch::x86_64::*;
    let bytes = _mm256_setr_epi8(
        0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3,
    );
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201u64 as i64);
    let expand = |bits: u32| {
        let each = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), bytes);
        _mm256_cmpeq_epi8(_mm256_and_si256(each, bit), bit)
    };
    let [zero, one, field, back] = scene.colors.map(|color| _mm256_set1_epi8(color as i8));
    for w in from / 64..to.div_ceil(64) {
        let layers = scene.layers(w);
        let span = span(w, from, to);
        for half in 0..2 {
            let wanted = (span >> (32 * half)) as u32;
            if wanted == 0 {
                continue;
            }
            let bits = |layer: usize| (layers[layer] >> (32 * half)) as u32;
            let mut pixels = _mm256_blendv_epi8(back, zero, expand(bits(0)));
            pixels = _mm256_blendv_epi8(pixels, one, expand(bits(1)));
            pixels = _mm256_blendv_epi8(pixels, field, expand(bits(2)));
            // SAFETY: at least one pixel from 32 (2 w + half) on is drawn, so all 32 of them are in the row.
            unsafe {
                let at = row.as_mut_ptr().add(64 * w + 32 * half).cast::<__m256i>();
                if wanted != !0 {
                    pixels = _mm256_blendv_epi8(_mm256_loadu_si256(at), pixels, expand(wanted));
                }
                _mm256_storeu_si256(at, pixels);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn draw_avx512(row: &mut [u8; WIDTH], from: usize, to: usize, scene: &Scene<'_>) {
    use std::arch::x86_64::*;
    let [zero, one, field, back] = scene.colors.map(|color| _mm512_set1_epi8(color as i8));
    let end = (to + 63) >> 6;
    let mut w = from >> 6;
    while w < end {
        let layers = scene.layers(w);
        let mut pixels = _mm512_mask_mov_epi8(back, layers[0], zero);
        pixels = _mm512_mask_mov_epi8(pixels, layers[1], one);
        pixels = _mm512_mask_mov_epi8(pixels, layers[2], field);
        // SAFETY: `span` limits the store to pixels `from..to`, which are in the row.
        unsafe {
            _mm512_mask_storeu_epi8(row.as_mut_ptr().add(64 * w).cast(), span(w, from, to), pixels);
        }
        w += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The color of a pixel, computed object by object.
    fn color(scene: &Scene<'_>, x: usize) -> u8 {
        let shown = |object: usize| {
            scene.enabled >> object & 1 != 0 && scene.masks[object][x / 64] >> (x % 64) & 1 != 0
        };
        let side = usize::from(x >= 80);
        let score = scene.ctrlpf & SCORE != 0;
        let first = scene.ctrlpf & PRIORITY != 0;
        if scene.playfield_only_score {
            return scene.colors[if shown(PF) { side } else { 3 }];
        }
        if first && (shown(PF) || shown(BL)) {
            return scene.colors[2];
        }
        // With score colors, each half of the playfield has the priority of its player.
        let field = |half: usize| score && !first && shown(PF) && side == half;
        if shown(P0) || shown(M0) || field(0) {
            return scene.colors[0];
        }
        if shown(P1) || shown(M1) || field(1) {
            return scene.colors[1];
        }
        scene.colors[if shown(PF) || shown(BL) { 2 } else { 3 }]
    }

    #[test]
    fn all_levels_draw_the_same() {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let mut levels = vec![Level::Plain];
        #[cfg(target_arch = "x86_64")]
        {
            levels.extend(is_x86_feature_detected!("avx2").then_some(Level::Avx2));
            levels.extend(is_x86_feature_detected!("avx512bw").then_some(Level::Avx512));
        }
        for _ in 0..2000 {
            let masks: [Wide; 8] =
                std::array::from_fn(|_| [next() & next(), next() & next(), next() & 0xFFFF_FFFF]);
            let enabled = next() as u8 & 0x3F;
            let ctrlpf = next() as u8;
            let playfield_only_score = ctrlpf & (PRIORITY | SCORE) == PRIORITY | SCORE && enabled == 1 << PF;
            let colors = (next() as u32).to_le_bytes();
            let scene = Scene { masks: &masks, enabled, ctrlpf, playfield_only_score, colors };
            let (x, y) = (next() as usize % 160, next() as usize % 160);
            let (from, to) = (x.min(y), x.max(y) + 1);
            let before: [u8; WIDTH] = std::array::from_fn(|i| (i * 7) as u8);
            let mut wanted = before;
            for (x, pixel) in wanted.iter_mut().enumerate().take(to).skip(from) {
                *pixel = color(&scene, x);
            }
            for &level in &levels {
                let mut row = before;
                draw(level, &mut row, from, to, &scene);
                assert_eq!(row, wanted, "{level:?}, pixels {from} to {to}");
            }
        }
    }
}
