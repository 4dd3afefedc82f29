//! Rows of pixels from layers of one bit per pixel: with masks of AVX-512, with AVX2, or eight pixels at a time from a
//! table. All write the same bytes (tested pairwise).

use crate::machine::tia::WIDTH;
use crate::machine::tia::collision::span_word;
use crate::machine::tia::paint::{EVERY_BYTE, spread};

/// What the processor can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// The best that this processor can do.
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

/// Draws pixels `from..to` of a row: the colours 0, 1 and 2 where the bits of the layers are set, else colour 3. The
/// layers do not overlap.
#[inline(always)]
pub fn blend(
    level: Level,
    row: &mut [u8; WIDTH],
    from: usize,
    to: usize,
    layers: &[[u64; 3]; 3],
    colors: [u8; 4],
) {
    debug_assert!(from < to && to <= WIDTH);
    match level {
        Level::Plain => blend_plain(row, from, to, layers, colors),
        // SAFETY: `level` has seen the processor.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { blend_avx2(row, from, to, layers, colors) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { blend_avx512(row, from, to, layers, colors) },
    }
}

fn blend_plain(row: &mut [u8; WIDTH], from: usize, to: usize, layers: &[[u64; 3]; 3], colors: [u8; 4]) {
    let back = u64::from(colors[3]) * EVERY_BYTE;
    let [zero, one, field] = [0, 1, 2].map(|i| back ^ u64::from(colors[i]) * EVERY_BYTE);
    for group in from / 8..to.div_ceil(8) {
        let bits = |layer: usize| (layers[layer][group / 8] >> (8 * (group % 8)) & 0xFF) as u32;
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

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn blend_avx2(row: &mut [u8; WIDTH], from: usize, to: usize, layers: &[[u64; 3]; 3], colors: [u8; 4]) {
    use std::arch::x86_64::*;
    let bytes = _mm256_setr_epi8(
        0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3,
    );
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201u64 as i64);
    let expand = |bits: u32| {
        let each = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), bytes);
        _mm256_cmpeq_epi8(_mm256_and_si256(each, bit), bit)
    };
    let [zero, one, field, back] = colors.map(|color| _mm256_set1_epi8(color as i8));
    for w in from / 32..to.div_ceil(32) {
        let bits = |layer: usize| (layers[layer][w / 2] >> (32 * (w % 2))) as u32;
        let mut pixels = _mm256_blendv_epi8(back, zero, expand(bits(0)));
        pixels = _mm256_blendv_epi8(pixels, one, expand(bits(1)));
        pixels = _mm256_blendv_epi8(pixels, field, expand(bits(2)));
        // SAFETY: 32 w + 32 is at most 160, the length of the row.
        unsafe {
            let at = row.as_mut_ptr().add(32 * w).cast::<__m256i>();
            if from > 32 * w || to < 32 * w + 32 {
                let span = expand(span_word(w, from as i32, to as i32));
                pixels = _mm256_blendv_epi8(_mm256_loadu_si256(at), pixels, span);
            }
            _mm256_storeu_si256(at, pixels);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn blend_avx512(
    row: &mut [u8; WIDTH],
    from: usize,
    to: usize,
    layers: &[[u64; 3]; 3],
    colors: [u8; 4],
) {
    use std::arch::x86_64::*;
    let [zero, one, field, back] = colors.map(|color| _mm512_set1_epi8(color as i8));
    for w in from / 64..to.div_ceil(64) {
        let below = from.saturating_sub(64 * w);
        let above = (64 * w + 64).saturating_sub(to);
        let span = (!0u64 << below) & (!0u64 >> above);
        let mut pixels = _mm512_mask_mov_epi8(back, layers[0][w], zero);
        pixels = _mm512_mask_mov_epi8(pixels, layers[1][w], one);
        pixels = _mm512_mask_mov_epi8(pixels, layers[2][w], field);
        // SAFETY: `span` keeps to pixels `from..to`, which are in the row.
        unsafe {
            _mm512_mask_storeu_epi8(row.as_mut_ptr().add(64 * w).cast(), span, pixels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_levels_draw_the_same() {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..2000 {
            let [a, b, c]: [[u64; 3]; 3] = std::array::from_fn(|_| [next(), next(), next() & 0xFFFF_FFFF]);
            let layers =
                [a, std::array::from_fn(|w| b[w] & !a[w]), std::array::from_fn(|w| c[w] & !a[w] & !b[w])];
            let (x, y) = (next() as usize % 160, next() as usize % 160);
            let (from, to) = (x.min(y), x.max(y) + 1);
            let colors = (next() as u32).to_le_bytes();
            let before: [u8; WIDTH] = std::array::from_fn(|i| (i * 7) as u8);
            let mut wanted = before;
            for x in from..to {
                let layer = (0..3).find(|&layer| layers[layer][x / 64] >> (x % 64) & 1 != 0).unwrap_or(3);
                wanted[x] = colors[layer];
            }
            let mut levels = vec![Level::Plain];
            #[cfg(target_arch = "x86_64")]
            {
                levels.extend(is_x86_feature_detected!("avx2").then_some(Level::Avx2));
                levels.extend(is_x86_feature_detected!("avx512bw").then_some(Level::Avx512));
            }
            for level in levels {
                let mut row = before;
                blend(level, &mut row, from, to, &layers, colors);
                assert_eq!(row, wanted, "{level:?}, pixels {from} to {to}");
            }
        }
    }
}
