//! Node searches with 512-bit vectors: one register holds 16 leaves or 8 sums.
//!
//! Computes running sums by shifts and additions and compares them with the residual; the lane is the
//! population count of the mask.
#![allow(unsafe_code)] // Vector loads by inline assembly; the crate documentation explains why they are sound.

use std::arch::asm;
#[allow(clippy::wildcard_imports)] // Every second line uses one of its names.
use std::arch::x86_64::*;

use super::lanes::{self, Scalar};
use super::{Chunk, LOST, Nodes, driver};
use crate::node::SUM_SHIFT;
use crate::top::Top;
use crate::{SumTree, sample};

driver!(target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt"));

/// Loads 16 u32 or 8 u64 cells, each once, as 16 or 8 relaxed loads would.
///
/// # Safety
/// `start` points to 64 readable bytes on a 64-byte boundary.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_line<T>(start: *const T) -> __m512i {
    let line: __m512i;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("vmovdqa64 {line}, zmmword ptr [{start}]", line = lateout(zmm_reg) line, start = in(reg) start,
            options(readonly, nostack, preserves_flags));
    }
    line
}

/// Loads 8 u32 cells, widened to u64.
///
/// # Safety
/// `start` points to 32 readable bytes on a 32-byte boundary.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_half_line_widened(start: *const u32) -> __m512i {
    let line: __m512i;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("vpmovzxdq {line}, ymmword ptr [{start}]", line = lateout(zmm_reg) line, start = in(reg) start,
            options(readonly, nostack, preserves_flags));
    }
    line
}

/// Loads 8 u64 sums; negative ones read as zero.
///
/// # Safety
/// As [`load_line`].
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_sums(start: *const u64) -> __m512i {
    // SAFETY: the caller's promise.
    let seen = unsafe { load_line(start) };
    _mm512_srli_epi64::<SUM_SHIFT>(_mm512_max_epi64(seen, _mm512_setzero_si512()))
}

/// Inclusive running sums of 16 u32.
#[inline]
#[target_feature(enable = "avx512f")]
fn prefix_sums16(mut x: __m512i) -> __m512i {
    let zero = _mm512_setzero_si512();
    x = _mm512_add_epi32(x, _mm512_alignr_epi32::<15>(x, zero));
    x = _mm512_add_epi32(x, _mm512_alignr_epi32::<14>(x, zero));
    x = _mm512_add_epi32(x, _mm512_alignr_epi32::<12>(x, zero));
    _mm512_add_epi32(x, _mm512_alignr_epi32::<8>(x, zero))
}

/// Inclusive running sums of 8 u64.
#[inline]
#[target_feature(enable = "avx512f")]
fn prefix_sums8(mut x: __m512i) -> __m512i {
    let zero = _mm512_setzero_si512();
    x = _mm512_add_epi64(x, _mm512_alignr_epi64::<7>(x, zero));
    x = _mm512_add_epi64(x, _mm512_alignr_epi64::<6>(x, zero));
    _mm512_add_epi64(x, _mm512_alignr_epi64::<4>(x, zero))
}

/// Entry `at` (modulo 16) of two concatenated registers: cheaper than through memory.
#[inline]
#[target_feature(enable = "avx512f")]
fn pick(low: __m512i, high: __m512i, at: usize) -> u64 {
    let chosen = _mm512_permutex2var_epi64(low, _mm512_set1_epi64(at as i64), high);
    _mm_cvtsi128_si64(_mm512_castsi512_si128(chosen)) as u64
}

/// Exclusive running sums of up to 32 children, for looking up the one that was chosen.
#[repr(align(64))]
struct Sums {
    _cells: [u64; 32],
}

/// # Safety
/// `start` points to `GROUP` u64 cells, on a line boundary if there are at least 8.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt")]
unsafe fn wide<const GROUP: usize>(start: *const u64, residual: u64) -> (usize, u64) {
    if GROUP < 8 {
        // SAFETY: the caller's promise.
        return unsafe { lanes::wide::<Scalar, GROUP>(start.cast(), residual) };
    }
    let sought = _mm512_set1_epi64(residual as i64);
    if GROUP <= 16 {
        // SAFETY: the caller's promise.
        let first = unsafe { load_sums(start) };
        let through = prefix_sums8(first);
        let (passed, before) = (_mm512_cmple_epu64_mask(through, sought), _mm512_sub_epi64(through, first));
        if GROUP == 8 {
            let lane = passed.count_ones() as usize;
            return (lane, residual - pick(before, before, lane));
        }
        // SAFETY: the caller's promise.
        let second = unsafe { load_sums(start.add(8)) };
        // The running sums of the second half do not wait for those of the first.
        let carry = _mm512_permutexvar_epi64(_mm512_set1_epi64(7), through);
        let beyond = _mm512_add_epi64(prefix_sums8(second), carry);
        let both = u32::from(passed) | u32::from(_mm512_cmple_epu64_mask(beyond, sought)) << 8;
        let lane = both.count_ones() as usize;
        return (lane, residual - pick(before, _mm512_sub_epi64(beyond, second), lane));
    }
    let mut before = std::mem::MaybeUninit::<Sums>::uninit();
    let sums = before.as_mut_ptr().cast::<u64>();
    let mut carry = _mm512_setzero_si512();
    let mut passed = 0;
    for row in 0..GROUP / 8 {
        // SAFETY: the caller's promise.
        let seen = unsafe { load_sums(start.add(8 * row)) };
        let through = _mm512_add_epi64(prefix_sums8(seen), carry);
        // SAFETY: `Sums` holds GROUP <= 32 entries.
        unsafe { _mm512_store_si512(sums.add(8 * row).cast(), _mm512_sub_epi64(through, seen)) };
        passed += _mm512_cmple_epu64_mask(through, sought).count_ones();
        carry = _mm512_permutexvar_epi64(_mm512_set1_epi64(7), through);
    }
    let lane = passed as usize;
    // SAFETY: the first GROUP entries were stored above.
    (lane, residual - unsafe { sums.add(lane & (GROUP - 1)).read() })
}

/// # Safety
/// `start` points to `GROUP` u32 cells, on a boundary of 64 bytes or of their size.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt")]
unsafe fn narrow<const GROUP: usize>(start: *const u32, residual: u64) -> (usize, u64) {
    if GROUP < 8 {
        // SAFETY: the caller's promise.
        return unsafe { lanes::narrow::<Scalar, GROUP>(start.cast(), residual) };
    }
    let sought = _mm512_set1_epi64(residual as i64);
    let mut before = std::mem::MaybeUninit::<Sums>::uninit();
    let sums = before.as_mut_ptr().cast::<u64>();
    let mut passed = 0;
    if GROUP == 8 {
        // SAFETY: the caller's promise.
        let seen = unsafe { load_half_line_widened(start) };
        let through = prefix_sums8(seen);
        let before = _mm512_sub_epi64(through, seen);
        let lane = _mm512_cmple_epu64_mask(through, sought).count_ones() as usize;
        return (lane, residual - pick(before, before, lane));
    }
    // A line of 16 u32 is 8 pairs: the lower halves of its u64 are the even children, the upper halves the odd ones.
    if GROUP == 16 {
        // SAFETY: the caller's promise.
        let line = unsafe { load_line(start) };
        let odd = _mm512_srli_epi64::<32>(line);
        let even = _mm512_and_si512(line, _mm512_set1_epi64(0xffff_ffff));
        let through_odd = prefix_sums8(_mm512_add_epi64(even, odd));
        let through_even = _mm512_sub_epi64(through_odd, odd);
        let both = u32::from(_mm512_cmple_epu64_mask(through_even, sought))
            | u32::from(_mm512_cmple_epu64_mask(through_odd, sought)) << 8;
        let lane = both.count_ones() as usize;
        // The sums before even children come first, then those before odd ones.
        let place = (lane & 15) / 2 + 8 * (lane & 1);
        return (lane, residual - pick(_mm512_sub_epi64(through_even, even), through_even, place));
    }
    let mut carry = _mm512_setzero_si512();
    for row in 0..GROUP / 16 {
        // SAFETY: the caller's promise.
        let line = unsafe { load_line(start.add(16 * row)) };
        let even = _mm512_and_si512(line, _mm512_set1_epi64(0xffff_ffff));
        let odd = _mm512_srli_epi64::<32>(line);
        let through_odd = _mm512_add_epi64(prefix_sums8(_mm512_add_epi64(even, odd)), carry);
        let through_even = _mm512_sub_epi64(through_odd, odd);
        // The sums before even children, then those before odd ones. SAFETY: `Sums` holds GROUP <= 32
        // entries.
        unsafe {
            _mm512_store_si512(sums.add(16 * row).cast(), _mm512_sub_epi64(through_even, even));
            _mm512_store_si512(sums.add(16 * row + 8).cast(), through_even);
        }
        passed += _mm512_cmple_epu64_mask(through_even, sought).count_ones()
            + _mm512_cmple_epu64_mask(through_odd, sought).count_ones();
        carry = _mm512_permutexvar_epi64(_mm512_set1_epi64(7), through_odd);
    }
    let lane = passed as usize;
    let at = lane & (GROUP - 1);
    let place = (at & !15) + 8 * (at & 1) + (at & 15) / 2;
    // SAFETY: the first GROUP entries were stored above.
    (lane, residual - unsafe { sums.add(place).read() })
}

/// Returns the lane, the offset of the residual in that leaf, and the leaf's weight.
///
/// # Safety
/// As [`narrow`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt")]
unsafe fn leaf<const GROUP: usize>(start: *const u32, residual: u64) -> (usize, u64, u32) {
    if GROUP < 16 {
        // SAFETY: the caller's promise.
        return unsafe { lanes::leaf::<Scalar, GROUP>(start.cast(), residual) };
    }
    // The leaves of a node sum to less than 2^32, so a residual beyond u32 is beyond the node too.
    let clipped = residual.min(u64::from(u32::MAX)) as u32;
    let sought = _mm512_set1_epi32(clipped as i32);
    if GROUP == 16 {
        // SAFETY: the caller's promise.
        let seen = unsafe { load_line(start) };
        let through = prefix_sums16(seen);
        let lane = _mm512_cmple_epu32_mask(through, sought).count_ones() as usize;
        // The index is taken modulo 16; a lane of 16 is beyond the node, and its values are not used.
        let at = _mm512_set1_epi32(lane as i32);
        let start_of =
            _mm512_cvtsi512_si32(_mm512_permutexvar_epi32(at, _mm512_sub_epi32(through, seen))) as u32;
        let weight = _mm512_cvtsi512_si32(_mm512_permutexvar_epi32(at, seen)) as u32;
        return (lane, u64::from(clipped.wrapping_sub(start_of)), weight);
    }
    let mut before = std::mem::MaybeUninit::<[Sums; 2]>::uninit();
    let sums = before.as_mut_ptr().cast::<u32>();
    let mut carry = _mm512_setzero_si512();
    let mut passed = 0;
    for row in 0..GROUP / 16 {
        // SAFETY: the caller's promise.
        let seen = unsafe { load_line(start.add(16 * row)) };
        let through = _mm512_add_epi32(prefix_sums16(seen), carry);
        // SAFETY: 128 u32 hold the running sums and the weights of GROUP <= 64 leaves.
        unsafe {
            _mm512_store_si512(sums.add(16 * row).cast(), _mm512_sub_epi32(through, seen));
            _mm512_store_si512(sums.add(GROUP + 16 * row).cast(), seen);
        }
        passed += _mm512_cmple_epu32_mask(through, sought).count_ones();
        carry = _mm512_permutexvar_epi32(_mm512_set1_epi32(15), through);
    }
    let lane = passed as usize;
    let at = lane & (GROUP - 1);
    // SAFETY: the first 2 * GROUP entries were stored above.
    let (start_of, weight) = unsafe { (sums.add(at).read(), sums.add(GROUP + at).read()) };
    (lane, u64::from(clipped.wrapping_sub(start_of)), weight)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt")]
fn find_top(top: &Top, target: u64) -> (usize, u64) {
    let sought = _mm512_set1_epi64(target as i64);
    // Counts how many of 8 entries are at most the target.
    let passed = |eight: &[u64]| {
        // SAFETY: the slice has at least 8 entries, in private memory.
        let seen = unsafe { _mm512_loadu_si512(eight[..8].as_ptr().cast()) };
        _mm512_cmple_epu64_mask(seen, sought).count_ones() as usize
    };
    let mut coarse = passed(&top.coarse);
    if top.entries > 512 {
        coarse += passed(&top.coarse[8..]);
    }
    let middle = 8 * coarse + passed(&top.middle[8 * coarse..]);
    let entry = 8 * middle + passed(&top.fine[8 * middle + 1..]);
    (entry, target - top.fine[entry])
}

/// See [`super::read_top`].
///
/// # Safety
/// The machine has AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt")]
pub(crate) unsafe fn read_top(tree: &SumTree, top: &mut Top) {
    let sums = tree.top();
    let mut carry = _mm512_setzero_si512();
    top.fine[0] = 0;
    for first in (0..sums.len()).step_by(8) {
        // SAFETY: the top is stored in whole lines from a line boundary; entries beyond the last one are zero.
        let seen = unsafe { load_sums(sums.as_ptr().add(first).cast()) };
        let through = _mm512_add_epi64(prefix_sums8(seen), carry);
        let out = &mut top.fine[first + 1..first + 9];
        // SAFETY: `out` has 8 entries.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), through) };
        carry = _mm512_permutexvar_epi64(_mm512_set1_epi64(7), through);
    }
    top.build_index(sums.len());
}
