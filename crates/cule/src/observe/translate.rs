//! Palette indices to values of a table, many at a time. Host only; the arithmetic is `observe::gray_row`'s.

#![allow(unsafe_code, reason = "vector instructions, behind a look at what the processor has")]

/// True when the processor looks up 128 bytes at once.
#[cfg(target_arch = "x86_64")]
fn has_wide_tables() -> bool {
    is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512bw")
}

/// `out[i] = table[indices[i]]`.
///
/// # Panics
/// The lengths differ.
pub fn translate(indices: &[u8], table: &[u8; 256], out: &mut [u8]) {
    assert_eq!(indices.len(), out.len(), "as many pixels as indices");
    #[cfg(target_arch = "x86_64")]
    if has_wide_tables() {
        // SAFETY: the processor has been seen, the lengths are equal.
        unsafe { translate_avx512(indices, None, table, out) };
        return;
    }
    // Most runs of eight pixels have one colour.
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

/// `out[i]` is the larger of `table[last[i]]` and `table[before[i]]`.
///
/// # Panics
/// The lengths differ.
pub fn translate_brighter(last: &[u8], before: &[u8], table: &[u8; 256], out: &mut [u8]) {
    assert!(last.len() == out.len() && before.len() == out.len(), "as many pixels as indices");
    #[cfg(target_arch = "x86_64")]
    if has_wide_tables() {
        // SAFETY: the processor has been seen, the lengths are equal.
        unsafe { translate_avx512(last, Some(before), table, out) };
        return;
    }
    for ((pixel, &a), &b) in out.iter_mut().zip(last).zip(before) {
        *pixel = table[usize::from(a)].max(table[usize::from(b)]);
    }
}

/// Both of the above. The slices are of one length.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn translate_avx512(last: &[u8], before: Option<&[u8]>, table: &[u8; 256], out: &mut [u8]) {
    use std::arch::x86_64::*;
    // SAFETY: loads and stores stay in the table and, by their masks, in the slices.
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
}
