//! Rows of pixels from masks of one bit per pixel, with AVX-512 masks, with AVX2, or with a table of eight
//! pixels. All variants write the same bytes (the tests compare them).

use std::ops::Range;

use crate::machine::tia::paint::{EVERY_BYTE, PRIORITY, SCORE, spread};
use crate::machine::tia::{BL, M0, M1, P0, P1, PF, WIDTH, bit};

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
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// Masks of the objects, enabled or not.
    pub masks: &'a [Wide; 8],
    /// Colors of player 0, player 1, playfield and background.
    pub colors: [u8; 4],
    /// Enabled objects, one bit each.
    pub enabled: u8,
    /// CTRLPF.
    pub ctrlpf: u8,
    /// Only the playfield is enabled, and it takes the score colors in spite of its priority.
    pub playfield_only_score: bool,
}

/// Pixels `from..to` of a row. Those before pixel `blank`, which is 0 or 8, become 0.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub from: u8,
    pub to: u8,
    pub blank: u8,
}

impl Span {
    /// All pixels of a row.
    #[inline(always)]
    pub fn is_whole(self) -> bool {
        self.from == 0 && usize::from(self.to) == WIDTH
    }

    /// The pixels as a range.
    pub fn range(self) -> Range<usize> {
        usize::from(self.from)..usize::from(self.to)
    }

    /// The bits of word `w` of a mask that are in the span.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn bits(self, w: usize) -> u64 {
        let below = |end: u8| {
            let end = usize::from(end).saturating_sub(64 * w);
            if end < 64 { (1 << end) - 1 } else { !0 }
        };
        below(self.to) & !below(self.from)
    }
}

/// Pixels of the left half.
const LEFT: Wide = [!0, 0xFFFF, 0];

impl Scene<'_> {
    /// Masks of 64 pixels with the colors of player 0, player 1 and the playfield. The masks are disjoint.
    #[inline(always)]
    fn layers(&self, w: usize) -> [u64; 3] {
        // SAFETY: a reference can be read. The compiler would make one load of several words of ordinary reads,
        // which would wait until the words that were just stored one by one are in the cache.
        let word = |object: usize| unsafe { (&raw const self.masks[object][w]).read_volatile() };
        let shown = |object: usize| word(object) & 0u64.wrapping_sub(u64::from(self.enabled >> object & 1));
        let (mut zeros, mut ones) = (shown(P0), shown(P1));
        let (playfield, mut ball) = (shown(PF), 0);
        if self.enabled & (bit(M0) | bit(M1) | bit(BL)) != 0 {
            zeros |= shown(M0);
            ones |= shown(M1);
            ball = shown(BL);
        }
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

/// Draws `span` in each row of `rows`, which all look alike.
#[inline(always)]
pub fn draw(level: Level, rows: &mut [u8], span: Span, scene: Scene<'_>) {
    debug_assert!(span.from < span.to && usize::from(span.to) <= WIDTH && span.blank <= 8, "{span:?}");
    match level {
        Level::Plain => draw_plain(rows, span, scene),
        // SAFETY: `level` has checked the processor's features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { draw_avx2(rows, span, scene) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { draw_avx512(rows, span, scene) },
    }
}

#[inline(never)]
fn draw_plain(rows: &mut [u8], span: Span, scene: Scene<'_>) {
    let back = u64::from(scene.colors[3]) * EVERY_BYTE;
    let [zero, one, field] = [0, 1, 2].map(|i| back ^ (u64::from(scene.colors[i]) * EVERY_BYTE));
    let layers = [0, 1, 2].map(|w| scene.layers(w));
    let mut pixels = [0; WIDTH];
    for (group, eight) in pixels.chunks_exact_mut(8).enumerate() {
        let bits = |layer: usize| (layers[group / 8][layer] >> (8 * (group % 8)) & 0xFF) as u32;
        let drawn = spread(bits(0)) & zero ^ spread(bits(1)) & one ^ spread(bits(2)) & field;
        eight.copy_from_slice(&(back ^ drawn).to_le_bytes());
    }
    pixels[..usize::from(span.blank)].fill(0);
    for row in rows.chunks_exact_mut(WIDTH) {
        row[span.range()].copy_from_slice(&pixels[span.range()]);
    }
}

/// # Safety
/// The processor supports AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn draw_avx2(rows: &mut [u8], span: Span, scene: Scene<'_>) {
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
    let part = |word: u64, half: usize| expand((word >> (32 * half)) as u32);
    let count = rows.len() / WIDTH;
    // A macro, since the compiler calls a closure here.
    macro_rules! draw_word {
        ($w:literal) => {
            let wanted = span.bits($w);
            if wanted != 0 {
                let layers = scene.layers($w);
                for half in 0..2 {
                    let mask = (wanted >> (32 * half)) as u32;
                    if mask == 0 {
                        continue;
                    }
                    let pixels = _mm256_blendv_epi8(back, zero, part(layers[0], half));
                    let pixels = _mm256_blendv_epi8(pixels, one, part(layers[1], half));
                    let mut pixels = _mm256_blendv_epi8(pixels, field, part(layers[2], half));
                    if $w == 0 && half == 0 && span.blank != 0 {
                        pixels = _mm256_and_si256(pixels, expand(!0 << (span.blank & 31)));
                    }
                    for y in 0..count {
                        // SAFETY: the span is within the row, and so are the 32 pixels, of which it has some.
                        unsafe {
                            let at = rows.as_mut_ptr().add(y * WIDTH + 64 * $w + 32 * half).cast::<__m256i>();
                            let mut seen = pixels;
                            if mask != !0 {
                                seen = _mm256_blendv_epi8(_mm256_loadu_si256(at), pixels, expand(mask));
                            }
                            _mm256_storeu_si256(at, seen);
                        }
                    }
                }
            }
        };
    }
    draw_word!(0);
    draw_word!(1);
    draw_word!(2);
}

/// # Safety
/// The processor supports AVX-512 with bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn draw_avx512(rows: &mut [u8], span: Span, scene: Scene<'_>) {
    use std::arch::x86_64::*;
    let [zero, one, field, back] = scene.colors.map(|color| _mm512_set1_epi8(color as i8));
    // A macro, since the compiler calls a closure here.
    macro_rules! pixels {
        ($w:literal) => {{
            let layers = scene.layers($w);
            let pixels = _mm512_mask_mov_epi8(back, layers[0], zero);
            let pixels = _mm512_mask_mov_epi8(pixels, layers[1], one);
            _mm512_mask_mov_epi8(pixels, layers[2], field)
        }};
    }
    let unblanked = !0 << (span.blank & 63);
    if span.is_whole() {
        let first = _mm512_maskz_mov_epi8(unblanked, pixels!(0));
        let (second, third) = (pixels!(1), pixels!(2));
        for row in rows.chunks_exact_mut(WIDTH) {
            // SAFETY: the row has 160 bytes.
            unsafe {
                let at = row.as_mut_ptr();
                _mm512_storeu_si512(at.cast(), first);
                _mm512_storeu_si512(at.add(64).cast(), second);
                _mm256_storeu_si256(at.add(128).cast(), _mm512_castsi512_si256(third));
            }
        }
        return;
    }
    let count = rows.len() / WIDTH;
    macro_rules! draw_word {
        ($w:literal) => {
            let wanted = span.bits($w);
            if wanted != 0 {
                let mut pixels = pixels!($w);
                if $w == 0 {
                    pixels = _mm512_maskz_mov_epi8(unblanked, pixels);
                }
                for y in 0..count {
                    // SAFETY: the mask has no bits beyond the 160 bytes of the row.
                    unsafe {
                        let at = rows.as_mut_ptr().add(y * WIDTH + 64 * $w);
                        _mm512_mask_storeu_epi8(at.cast(), wanted, pixels);
                    }
                }
            }
        };
    }
    draw_word!(0);
    draw_word!(1);
    draw_word!(2);
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
            levels.extend((level() == Level::Avx512).then_some(Level::Avx512));
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
            let (count, blank) = (1 + next() as usize % 3, 8 * (next() as usize & 1));
            let span = Span { from: from as u8, to: to as u8, blank: blank as u8 };
            let before: Vec<u8> = (0..count * WIDTH).map(|i| (i * 7) as u8).collect();
            let mut wanted = before.clone();
            for (i, pixel) in wanted.iter_mut().enumerate() {
                let x = i % WIDTH;
                if (from..to).contains(&x) {
                    *pixel = if x < blank { 0 } else { color(&scene, x) };
                }
            }
            for &level in &levels {
                let mut rows = before.clone();
                draw(level, &mut rows, span, scene);
                assert_eq!(rows, wanted, "{level:?}, {span:?}, {count} rows");
            }
        }
    }
}
