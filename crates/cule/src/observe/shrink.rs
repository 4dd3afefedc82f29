//! One row of an 84 x 84 picture with 512-bit vectors. Host only; equal to `observe::shrink_84` and
//! `observe::round_84`.

#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "vector instructions, used after a check of the processor's features")]

use std::arch::x86_64::*;

use super::{ACROSS, ODD_TARGETS, ROW_84, WEIGHT_84, WIDTH};

/// Target pixels per vector of 16-bit numbers.
const LANES: usize = 32;
/// First columns of the two source vectors that a vector of targets is computed from.
const SOURCES: [[usize; 2]; 3] = [[0, 32], [60, 92], [96, 128]];

/// For each vector of targets and each of a target's three source columns: the index in the two source
/// vectors.
const PLACES: [[[u16; LANES]; 3]; 3] = tables().0;
/// And the weight in 40ths.
const WEIGHTS: [[[u16; LANES]; 3]; 3] = tables().1;

type Tables = [[[u16; LANES]; 3]; 3];

const fn tables() -> (Tables, Tables) {
    let mut places = [[[0; LANES]; 3]; 3];
    let mut weights = [[[0; LANES]; 3]; 3];
    let mut d = 0;
    while d < 84 {
        let (group, r) = (d / 21, d % 21);
        let late = r >= ODD_TARGETS;
        // One more than the first source column, which is -1 for the first target.
        let first = 40 * group + 2 * r - late as usize;
        let mut term = 0;
        while term < 3 {
            let weight = ACROSS[late as usize][term][if late { r - ODD_TARGETS } else { r }];
            if weight > 0 {
                let [low, high] = SOURCES[d / LANES];
                let column = first + term - 1;
                let place = if column < low + LANES { column - low } else { LANES + column - high };
                assert!(column >= low && place < 2 * LANES);
                places[d / LANES][term][d % LANES] = place as u16;
                weights[d / LANES][term][d % LANES] = weight;
            }
            term += 1;
        }
        d += 1;
    }
    (places, weights)
}

/// True if the processor supports the instructions of [`row_84`].
pub fn is_supported() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// Computes the sums plus 100, in 200ths, and the pixels of a row from three source rows with `weights` in
/// fifths. Returns true if a sum is halfway between two pixels.
///
/// # Safety
/// [`is_supported`] returned true.
#[target_feature(enable = "avx512f,avx512bw")]
pub unsafe fn row_84(
    rows: [&[u8; WIDTH]; 3],
    weights: [u16; 3],
    sums: &mut [u16; ROW_84],
    pixels: &mut [u8; ROW_84],
) -> bool {
    const LAST: u32 = (1 << (84 - 2 * LANES)) - 1;
    let fifths = weights.map(|weight| _mm512_set1_epi16(weight as i16));
    // SAFETY: columns up to 128 + 32 of 160 are read; the tables and results are as long as the vectors.
    unsafe {
        let columns = |from: usize| {
            let parts: [__m512i; 3] = std::array::from_fn(|i| {
                let bytes = _mm256_loadu_si256(rows[i].as_ptr().add(from).cast());
                _mm512_mullo_epi16(_mm512_cvtepu8_epi16(bytes), fifths[i])
            });
            _mm512_add_epi16(_mm512_add_epi16(parts[0], parts[1]), parts[2])
        };
        let table = |table: &[u16; LANES]| _mm512_loadu_si512(table.as_ptr().cast());
        let mut ties = 0;
        for block in 0..3 {
            let [low, high] = SOURCES[block].map(columns);
            let mut sum = _mm512_set1_epi16(100);
            for term in 0..3 {
                let picked = _mm512_permutex2var_epi16(low, table(&PLACES[block][term]), high);
                sum = _mm512_add_epi16(sum, _mm512_mullo_epi16(picked, table(&WEIGHTS[block][term])));
            }
            let scaled = _mm512_mulhi_epu16(_mm512_srli_epi16::<3>(sum), _mm512_set1_epi16(20_972));
            let quotient = _mm512_srli_epi16::<3>(scaled);
            let whole = _mm512_mullo_epi16(quotient, _mm512_set1_epi16(WEIGHT_84 as i16));
            let tied = _mm512_cmpeq_epi16_mask(sum, whole);
            ties |= if block == 2 { tied & LAST } else { tied };
            _mm512_storeu_si512(sums.as_mut_ptr().add(LANES * block).cast(), sum);
            _mm256_storeu_si256(
                pixels.as_mut_ptr().add(LANES * block).cast(),
                _mm512_cvtepi16_epi8(quotient),
            );
        }
        ties != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{round_84, rows_84, shrink_84};

    #[test]
    fn rows_equal_the_plain_form() {
        if !is_supported() {
            return;
        }
        let mut random = crate::random::seeded(5);
        for round in 0..400 {
            let mut row = || -> [u8; WIDTH] {
                let most = [256, 3, 1][round % 3];
                std::array::from_fn(|_| (crate::random::draw(&mut random) % most * 85) as u8)
            };
            let rows = [row(), row(), row()];
            let (_, weights) = rows_84(round);
            let (mut even, mut odd) = ([0; 104], [0; 104]);
            let (mut sums, mut pixels) = ([0; ROW_84], [0; ROW_84]);
            shrink_84(&rows[0], &rows[1], &rows[2], weights, &mut even, &mut odd, &mut sums);
            let ties = sums[..84].iter().any(|&sum| u32::from(sum) % WEIGHT_84 == 0);
            round_84(&sums, &mut pixels);
            let (mut wide_sums, mut wide_pixels) = ([0; ROW_84], [0; ROW_84]);
            // SAFETY: the processor supports the instructions.
            let wide_ties = unsafe { row_84(rows.each_ref(), weights, &mut wide_sums, &mut wide_pixels) };
            assert_eq!((wide_ties, &wide_sums[..84]), (ties, &sums[..84]), "round {round}");
            assert_eq!(wide_pixels[..84], pixels[..84], "round {round}");
        }
    }
}
