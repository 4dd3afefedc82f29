//! Table lookup of many palette indices at a time. Host only; the arithmetic is that of `observe::gray_row`.

#![allow(unsafe_code, reason = "vector instructions, used after a check of the processor's features")]

use super::WIDTH;

/// True if the processor supports lookups in tables of 128 bytes.
#[cfg(target_arch = "x86_64")]
fn has_wide_tables() -> bool {
    is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512bw")
}

/// `out[i] = table[indices[i]]`.
///
/// # Panics
/// If the lengths differ.
pub fn translate(indices: &[u8], table: &[u8; 256], out: &mut [u8]) {
    assert_eq!(indices.len(), out.len(), "the numbers of pixels and indices differ");
    #[cfg(target_arch = "x86_64")]
    if has_wide_tables() {
        // SAFETY: the processor supports the instructions, and the lengths are equal.
        unsafe { translate_avx512(indices, None, table, out) };
        return;
    }
    // Most runs of eight pixels have a single color.
    let (mut targets, mut sources) = (out.chunks_exact_mut(8), indices.chunks_exact(8));
    for (pixels, indices) in targets.by_ref().zip(sources.by_ref()) {
        if bytemuck::pod_read_unaligned::<u64>(indices) == u64::from(indices[0]) * 0x0101_0101_0101_0101 {
            pixels.fill(table[usize::from(indices[0])]);
        } else {
            translate_plain(indices, table, pixels);
        }
    }
    translate_plain(sources.remainder(), table, targets.into_remainder());
}

fn translate_plain(indices: &[u8], table: &[u8; 256], out: &mut [u8]) {
    for (pixel, &index) in out.iter_mut().zip(indices) {
        *pixel = table[usize::from(index)];
    }
}

/// `out[i]` is the maximum of `table[last[i]]` and `table[before[i]]`.
///
/// # Panics
/// If the lengths differ.
fn translate_brighter(last: &[u8], before: &[u8], table: &[u8; 256], out: &mut [u8]) {
    assert!(last.len() == out.len() && before.len() == out.len(), "the numbers of pixels and indices differ");
    #[cfg(target_arch = "x86_64")]
    if has_wide_tables() {
        // SAFETY: the processor supports the instructions, and the lengths are equal.
        unsafe { translate_avx512(last, Some(before), table, out) };
        return;
    }
    for ((pixel, &a), &b) in out.iter_mut().zip(last).zip(before) {
        *pixel = table[usize::from(a)].max(table[usize::from(b)]);
    }
}

/// Looks up the palette indices of one picture, or of two with their pixel-wise maximum. A row that equals
/// the row above it in all pictures is not written: `rows[y]` is the offset in `out` of the pixels of row y.
///
/// # Panics
/// If a picture or `out` does not have `rows.len()` rows of [`WIDTH`] pixels.
pub fn pool(last: &[u8], before: Option<&[u8]>, table: &[u8; 256], out: &mut [u8], rows: &mut [u32]) {
    let size = rows.len() * WIDTH;
    let fits = last.len() == size && out.len() == size && before.is_none_or(|before| before.len() == size);
    assert!(fits, "a picture or the output does not have {} rows", rows.len());
    #[cfg(target_arch = "x86_64")]
    if has_wide_tables() {
        // SAFETY: the processor supports the instructions, and the lengths are equal.
        unsafe { pool_avx512(last, before.unwrap_or(last), table, out, rows) };
        return;
    }
    pool_plain(last, before, table, out, rows);
}

fn pool_plain(last: &[u8], before: Option<&[u8]>, table: &[u8; 256], out: &mut [u8], rows: &mut [u32]) {
    for y in 0..rows.len() {
        let row = y * WIDTH..(y + 1) * WIDTH;
        let above = |picture: &[u8]| y > 0 && picture[row.clone()] == picture[row.start - WIDTH..row.start];
        if above(last) && before.is_none_or(above) {
            rows[y] = rows[y - 1];
            continue;
        }
        rows[y] = row.start as u32;
        let target = &mut out[row.clone()];
        match before {
            Some(before) if before[row.clone()] != last[row.clone()] => {
                translate_brighter(&last[row.clone()], &before[row], table, target);
            }
            _ => translate(&last[row], table, target),
        }
    }
}

/// As [`pool`], with each row and the row above it in registers. All slices have `rows.len()` rows.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn pool_avx512(last: &[u8], before: &[u8], table: &[u8; 256], out: &mut [u8], rows: &mut [u32]) {
    use std::arch::x86_64::*;
    // SAFETY: loads and stores stay within the table and within the rows, in parts of 64, 64 and 32 pixels.
    unsafe {
        let quarter = |i: usize| _mm512_loadu_si512(table.as_ptr().add(64 * i).cast());
        let [a, b, c, d] = [0, 1, 2, 3].map(quarter);
        let look_up = |indices: __m512i| {
            let low = _mm512_permutex2var_epi8(a, indices, b);
            let high = _mm512_permutex2var_epi8(c, indices, d);
            _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(indices), high)
        };
        let load = |picture: &[u8], at: usize| {
            let from = picture.as_ptr().add(at);
            [
                _mm512_loadu_si512(from.cast()),
                _mm512_loadu_si512(from.add(64).cast()),
                _mm512_zextsi256_si512(_mm256_loadu_si256(from.add(128).cast())),
            ]
        };
        let differ = |a: [__m512i; 3], b: [__m512i; 3]| {
            let parts: [__m512i; 3] = std::array::from_fn(|i| _mm512_xor_si512(a[i], b[i]));
            _mm512_or_si512(_mm512_or_si512(parts[0], parts[1]), parts[2])
        };
        let is_zero = |bits: __m512i| _mm512_test_epi64_mask(bits, bits) == 0;
        let mut above = [[_mm512_setzero_si512(); 3]; 2];
        let mut place = 0;
        for (y, row) in rows.iter_mut().enumerate() {
            let at = y * WIDTH;
            let now = [load(last, at), load(before, at)];
            let changed = _mm512_or_si512(differ(now[0], above[0]), differ(now[1], above[1]));
            if y == 0 || !is_zero(changed) {
                above = now;
                place = at as u32;
                let mut pixels = now[0].map(look_up);
                if !is_zero(differ(now[0], now[1])) {
                    let other = now[1].map(look_up);
                    pixels = std::array::from_fn(|i| _mm512_max_epu8(pixels[i], other[i]));
                }
                let to = out.as_mut_ptr().add(at);
                _mm512_storeu_si512(to.cast(), pixels[0]);
                _mm512_storeu_si512(to.add(64).cast(), pixels[1]);
                _mm256_storeu_si256(to.add(128).cast(), _mm512_castsi512_si256(pixels[2]));
            }
            *row = place;
        }
    }
}

/// Implements `translate` and `translate_brighter`. All slices have the same length.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn translate_avx512(last: &[u8], before: Option<&[u8]>, table: &[u8; 256], out: &mut [u8]) {
    use std::arch::x86_64::*;
    // SAFETY: loads and stores stay within the table and, by their masks, within the slices.
    unsafe {
        let quarter = |i: usize| _mm512_loadu_si512(table.as_ptr().add(64 * i).cast());
        let [a, b, c, d] = [0, 1, 2, 3].map(quarter);
        let look_up = |indices: __m512i| {
            let low = _mm512_permutex2var_epi8(a, indices, b);
            let high = _mm512_permutex2var_epi8(c, indices, d);
            _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(indices), high)
        };
        for at in (0..out.len()).step_by(64) {
            let mask = !0u64 >> (64 - (out.len() - at).min(64));
            let mut pixels = look_up(_mm512_maskz_loadu_epi8(mask, last.as_ptr().add(at).cast()));
            if let Some(before) = before {
                let other = look_up(_mm512_maskz_loadu_epi8(mask, before.as_ptr().add(at).cast()));
                pixels = _mm512_max_epu8(pixels, other);
            }
            _mm512_mask_storeu_epi8(out.as_mut_ptr().add(at).cast(), mask, pixels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_every_index() {
        let table: [u8; 256] = std::array::from_fn(|i| (i * 37 + 11) as u8);
        for length in [0, 1, 7, 8, 63, 64, 65, 128, 160, 255, 256, 600] {
            let last: Vec<u8> = (0..length).map(|i| (i * 5 / 3) as u8).collect();
            let before: Vec<u8> = (0..length).map(|i| (i * 91 + 7) as u8).collect();
            let mut out = vec![0; length];
            translate(&last, &table, &mut out);
            assert!((0..length).all(|i| out[i] == table[usize::from(last[i])]), "{length} pixels");
            translate_brighter(&last, &before, &table, &mut out);
            let brighter = |i: usize| table[usize::from(last[i])].max(table[usize::from(before[i])]);
            assert!((0..length).all(|i| out[i] == brighter(i)), "{length} pixels of two");
        }
    }

    #[test]
    fn rows_like_the_one_above_are_made_once() {
        let table: [u8; 256] = std::array::from_fn(|i| (i * 37 + 11) as u8);
        let mut random = crate::random::seeded(3);
        let mut next = |below: u32| crate::random::draw(&mut random) % below;
        for height in [0, 1, 2, 210] {
            for _ in 0..20 {
                let mut picture = |base: Option<&[u8]>| {
                    let mut picture = base.map_or_else(|| vec![0; height * WIDTH], <[u8]>::to_vec);
                    for y in 0..height {
                        if y > 0 && next(3) > 0 {
                            picture.copy_within((y - 1) * WIDTH..y * WIDTH, y * WIDTH);
                        }
                        if next(2) == 0 {
                            picture[y * WIDTH + next(WIDTH as u32) as usize] = next(256) as u8;
                        }
                    }
                    picture
                };
                let last = picture(None);
                let before = picture(Some(&last));
                for before in [None, Some(&before[..]), Some(&last[..])] {
                    let (mut out, mut rows) = (vec![0; height * WIDTH], vec![9; height]);
                    pool(&last, before, &table, &mut out, &mut rows);
                    let (mut plain, mut plain_rows) = (vec![0; height * WIDTH], vec![9; height]);
                    pool_plain(&last, before, &table, &mut plain, &mut plain_rows);
                    assert_eq!(rows, plain_rows);
                    for (y, &row) in rows.iter().enumerate() {
                        assert!(row as usize <= y * WIDTH);
                        for x in 0..WIDTH {
                            let at = y * WIDTH + x;
                            let other = before.map_or(0, |before| table[usize::from(before[at])]);
                            assert_eq!(out[row as usize + x], table[usize::from(last[at])].max(other));
                            assert_eq!(plain[row as usize + x], out[row as usize + x]);
                        }
                    }
                }
            }
        }
    }
}
