//! Node searches with 256-bit vectors: one register holds 8 leaves or 4 sums.
#![allow(unsafe_code)] // Vector loads by inline assembly; the crate documentation explains why they are sound.

use std::arch::asm;
#[allow(clippy::wildcard_imports)] // Every second line uses one of its names.
use std::arch::x86_64::*;

use super::lanes::{self, Scalar};
use super::{Chunk, LOST, Nodes, driver};
use crate::node::SUM_SHIFT;
use crate::top::Top;
use crate::{SumTree, sample};

driver!(target_feature(enable = "avx2,bmi2,popcnt"));

/// Loads 8 u32 or 4 u64 cells, each once, as 8 or 4 relaxed loads would.
///
/// # Safety
/// `start` points to 32 readable bytes on a 32-byte boundary.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_half_line<T>(start: *const T) -> __m256i {
    let half: __m256i;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("vmovdqa {half}, ymmword ptr [{start}]", half = lateout(ymm_reg) half, start = in(reg) start,
            options(readonly, nostack, preserves_flags));
    }
    half
}

/// Loads 4 u64 sums; negative ones read as zero.
///
/// # Safety
/// As [`load_half_line`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_sums(start: *const u64) -> __m256i {
    // SAFETY: the caller's promise.
    let seen = unsafe { load_half_line(start) };
    let clipped = _mm256_andnot_si256(_mm256_cmpgt_epi64(_mm256_setzero_si256(), seen), seen);
    _mm256_srli_epi64::<{ SUM_SHIFT as i32 }>(clipped)
}

/// Inclusive running sums of 8 u32.
#[inline]
#[target_feature(enable = "avx2")]
fn prefix_sums8(mut x: __m256i) -> __m256i {
    x = _mm256_add_epi32(x, _mm256_slli_si256::<4>(x));
    x = _mm256_add_epi32(x, _mm256_slli_si256::<8>(x));
    // The shifts stay within halves: the sum of the lower half must be added to the upper one.
    let lower = _mm256_permutevar8x32_epi32(x, _mm256_set1_epi32(3));
    _mm256_add_epi32(x, _mm256_blend_epi32::<0xf0>(_mm256_setzero_si256(), lower))
}

/// Inclusive running sums of 4 u64.
#[inline]
#[target_feature(enable = "avx2")]
fn prefix_sums4(mut x: __m256i) -> __m256i {
    x = _mm256_add_epi64(x, _mm256_slli_si256::<8>(x));
    let lower = _mm256_permute4x64_epi64::<0x55>(x);
    _mm256_add_epi64(x, _mm256_blend_epi32::<0xf0>(_mm256_setzero_si256(), lower))
}

/// Counts how many of 4 sums are at most `sought`. All are below 2^63, so a signed comparison is correct.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn count_passed4(through: __m256i, sought: __m256i) -> usize {
    let beyond = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(through, sought)));
    4 - beyond.count_ones() as usize
}

/// A zero, followed by the running sums of 16 u32, which start at byte 32, aligned for whole registers.
#[repr(align(32))]
struct Running {
    _cells: [u32; 24],
}

/// Searches 16 u32 with a sum below 2^32. Returns the lane (the number of running sums that are at most
/// `sought`), the running sum before it, and the value of that lane. The latter two are meaningless for lane
/// 16.
#[inline]
#[target_feature(enable = "avx2,bmi2,popcnt")]
fn search16(low: __m256i, high: __m256i, sought: u32) -> (usize, u32, u32) {
    let bound = _mm256_set1_epi32(sought as i32);
    let first = prefix_sums8(low);
    let carry = _mm256_permutevar8x32_epi32(first, _mm256_set1_epi32(7));
    let second = _mm256_add_epi32(prefix_sums8(high), carry);
    // There is no unsigned comparison: a <= b is min(a, b) == a.
    let passed = |through| _mm256_cmpeq_epi32(_mm256_min_epu32(through, bound), through);
    // The order does not matter for counting; each child is two bytes of the packed masks.
    let bytes = _mm256_movemask_epi8(_mm256_packs_epi32(passed(first), passed(second)));
    let lane = bytes.count_ones() as usize / 2;
    let mut running = std::mem::MaybeUninit::<Running>::uninit();
    let start = running.as_mut_ptr().cast::<u32>();
    // SAFETY: word 7 holds a zero, words 8..24 the sums; the two words read are among these.
    unsafe {
        start.add(7).write(0);
        _mm256_store_si256(start.add(8).cast(), first);
        _mm256_store_si256(start.add(16).cast(), second);
        let at = start.add(7 + (lane & 15));
        let (before, through) = (at.read(), at.add(1).read());
        (lane, before, through.wrapping_sub(before))
    }
}

/// Returns true if any bit of `mask` is set in any of the cells.
#[inline]
#[target_feature(enable = "avx2")]
fn any(cells: __m256i, mask: u64) -> bool {
    _mm256_testz_si256(cells, _mm256_set1_epi64x(mask as i64)) == 0
}

/// [`search16`] for a residual that may be larger than 32 bits.
#[inline]
#[target_feature(enable = "avx2,bmi2,popcnt")]
fn search16_below(low: __m256i, high: __m256i, residual: u64) -> (usize, u64) {
    let clipped = residual.min(u64::from(u32::MAX)) as u32;
    let (lane, before, _) = search16(low, high, clipped);
    (lane, residual - u64::from(before))
}

#[repr(align(64))]
struct Sums {
    _cells: [u64; 32],
}

/// # Safety
/// `start` points to `GROUP` u64 cells, on a boundary of 64 bytes or of their size.
#[inline]
#[target_feature(enable = "avx2,bmi2,popcnt")]
unsafe fn wide<const GROUP: usize>(start: *const u64, residual: u64) -> (usize, u64) {
    if GROUP == 16 {
        // SAFETY: the caller's promise.
        let seen = unsafe { [0, 4, 8, 12].map(|at| load_half_line(start.add(at))) };
        let all = _mm256_or_si256(_mm256_or_si256(seen[0], seen[1]), _mm256_or_si256(seen[2], seen[3]));
        // The usual case for sums of few leaves: each is below 2^28 and not negative, so their sum is below
        // 2^32.
        if !any(all, !0 << (28 + SUM_SHIFT)) {
            let low = seen.map(|sums| _mm256_srli_epi64::<{ SUM_SHIFT as i32 }>(sums));
            return search16_below(halves(low[0], low[1]), halves(low[2], low[3]), residual);
        }
        // SAFETY: the caller's promise. A cell that is read again may have changed: the two searches are
        // independent.
        return unsafe { wide_sums::<GROUP>(start, residual) };
    }
    // SAFETY: the caller's promise.
    unsafe { wide_sums::<GROUP>(start, residual) }
}

/// The lower 32 bits of 8 u64, in order.
#[inline]
#[target_feature(enable = "avx2")]
fn halves(a: __m256i, b: __m256i) -> __m256i {
    let picked = _mm256_shuffle_ps::<0x88>(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
    _mm256_permute4x64_epi64::<0xd8>(_mm256_castps_si256(picked))
}

/// [`wide`] for sums of any size.
///
/// # Safety
/// As [`wide`].
#[inline]
#[target_feature(enable = "avx2,bmi2,popcnt")]
unsafe fn wide_sums<const GROUP: usize>(start: *const u64, residual: u64) -> (usize, u64) {
    let sought = _mm256_set1_epi64x(residual as i64);
    let mut before = std::mem::MaybeUninit::<Sums>::uninit();
    let sums = before.as_mut_ptr().cast::<u64>();
    let mut carry = _mm256_setzero_si256();
    let mut lane = 0;
    for row in 0..GROUP / 4 {
        // SAFETY: the caller's promise.
        let seen = unsafe { load_sums(start.add(4 * row)) };
        let through = _mm256_add_epi64(prefix_sums4(seen), carry);
        // SAFETY: `Sums` holds GROUP <= 32 entries.
        unsafe { _mm256_store_si256(sums.add(4 * row).cast(), _mm256_sub_epi64(through, seen)) };
        lane += count_passed4(through, sought);
        carry = _mm256_permute4x64_epi64::<0xff>(through);
    }
    // SAFETY: the first GROUP entries were stored above.
    (lane, residual - unsafe { sums.add(lane & (GROUP - 1)).read() })
}

/// # Safety
/// `start` points to `GROUP` u32 cells, on a boundary of 64 bytes or of their size.
#[inline]
#[target_feature(enable = "avx2,bmi2,popcnt")]
unsafe fn narrow<const GROUP: usize>(start: *const u32, residual: u64) -> (usize, u64) {
    if GROUP < 8 {
        // SAFETY: the caller's promise.
        return unsafe { lanes::narrow::<Scalar, GROUP>(start.cast(), residual) };
    }
    if GROUP == 16 {
        // SAFETY: the caller's promise.
        let (low, high) = unsafe { (load_half_line(start), load_half_line(start.add(8))) };
        if !any(_mm256_or_si256(low, high), 0xf000_0000_f000_0000) {
            return search16_below(low, high, residual);
        }
    }
    let sought = _mm256_set1_epi64x(residual as i64);
    let mut before = std::mem::MaybeUninit::<Sums>::uninit();
    let sums = before.as_mut_ptr().cast::<u64>();
    let mut carry = _mm256_setzero_si256();
    let mut lane = 0;
    // 8 u32 are 4 pairs: the lower halves of the u64 are the even children, the upper halves the odd ones.
    for row in 0..GROUP / 8 {
        // SAFETY: the caller's promise.
        let half = unsafe { load_half_line(start.add(8 * row)) };
        let even = _mm256_and_si256(half, _mm256_set1_epi64x(0xffff_ffff));
        let odd = _mm256_srli_epi64::<32>(half);
        let through_odd = _mm256_add_epi64(prefix_sums4(_mm256_add_epi64(even, odd)), carry);
        let through_even = _mm256_sub_epi64(through_odd, odd);
        // SAFETY: `Sums` holds GROUP <= 32 entries.
        unsafe {
            _mm256_store_si256(sums.add(8 * row).cast(), _mm256_sub_epi64(through_even, even));
            _mm256_store_si256(sums.add(8 * row + 4).cast(), through_even);
        }
        lane += count_passed4(through_even, sought) + count_passed4(through_odd, sought);
        carry = _mm256_permute4x64_epi64::<0xff>(through_odd);
    }
    let at = lane & (GROUP - 1);
    let place = (at & !7) + 4 * (at & 1) + (at & 7) / 2;
    // SAFETY: the first GROUP entries were stored above.
    (lane, residual - unsafe { sums.add(place).read() })
}

/// Returns the lane, the offset of the residual in that leaf, and the leaf's weight.
///
/// # Safety
/// As [`narrow`].
#[inline]
#[target_feature(enable = "avx2,bmi2,popcnt")]
unsafe fn leaf<const GROUP: usize>(start: *const u32, residual: u64) -> (usize, u64, u32) {
    if GROUP < 8 {
        // SAFETY: the caller's promise.
        return unsafe { lanes::leaf::<Scalar, GROUP>(start.cast(), residual) };
    }
    // The leaves of a node sum to less than 2^32, so a residual beyond u32 is beyond the node too.
    let clipped = residual.min(u64::from(u32::MAX)) as u32;
    if GROUP == 16 {
        // SAFETY: the caller's promise.
        let (low, high) = unsafe { (load_half_line(start), load_half_line(start.add(8))) };
        let (lane, before, weight) = search16(low, high, clipped);
        return (lane, u64::from(clipped.wrapping_sub(before)), weight);
    }
    let sought = _mm256_set1_epi32(clipped as i32);
    let mut before = std::mem::MaybeUninit::<[Sums; 2]>::uninit();
    let sums = before.as_mut_ptr().cast::<u32>();
    let mut carry = _mm256_setzero_si256();
    let mut lane = 0;
    for row in 0..GROUP / 8 {
        // SAFETY: the caller's promise.
        let seen = unsafe { load_half_line(start.add(8 * row)) };
        let through = _mm256_add_epi32(prefix_sums8(seen), carry);
        // SAFETY: 128 u32 hold the running sums and the weights of GROUP <= 64 leaves.
        unsafe {
            _mm256_store_si256(sums.add(8 * row).cast(), _mm256_sub_epi32(through, seen));
            _mm256_store_si256(sums.add(GROUP + 8 * row).cast(), seen);
        }
        // There is no unsigned comparison: a <= b is min(a, b) == a.
        let passed = _mm256_cmpeq_epi32(_mm256_min_epu32(through, sought), through);
        lane += _mm256_movemask_ps(_mm256_castsi256_ps(passed)).count_ones() as usize;
        carry = _mm256_permutevar8x32_epi32(through, _mm256_set1_epi32(7));
    }
    let at = lane & (GROUP - 1);
    // SAFETY: the first 2 * GROUP entries were stored above.
    let (start_of, weight) = unsafe { (sums.add(at).read(), sums.add(GROUP + at).read()) };
    (lane, u64::from(clipped.wrapping_sub(start_of)), weight)
}

#[inline]
#[target_feature(enable = "avx2,bmi2,popcnt")]
fn find_top(top: &Top, target: u64) -> (usize, u64) {
    let sought = _mm256_set1_epi64x(target as i64);
    let passed = |eight: &[u64]| {
        let start = eight[..8].as_ptr();
        // SAFETY: the slice has at least 8 entries, in private memory.
        let (low, high) =
            unsafe { (_mm256_loadu_si256(start.cast()), _mm256_loadu_si256(start.add(4).cast())) };
        let beyond = |sums| _mm256_castsi256_ps(_mm256_cmpgt_epi64(sums, sought));
        // One bit per sum.
        let bits = _mm256_movemask_ps(_mm256_shuffle_ps::<0x88>(beyond(low), beyond(high)));
        8 - bits.count_ones() as usize
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
/// The machine has AVX2.
#[target_feature(enable = "avx2,bmi2,popcnt")]
pub(crate) unsafe fn read_top(tree: &SumTree, top: &mut Top) {
    let sums = tree.top();
    let mut carry = _mm256_setzero_si256();
    top.fine[0] = 0;
    for first in (0..sums.len()).step_by(4) {
        // SAFETY: the top is stored in whole lines from a line boundary; entries beyond the last one are zero.
        let seen = unsafe { load_sums(sums.as_ptr().add(first).cast()) };
        let through = _mm256_add_epi64(prefix_sums4(seen), carry);
        let out = &mut top.fine[first + 1..first + 5];
        // SAFETY: `out` has 4 entries.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), through) };
        carry = _mm256_permute4x64_epi64::<0xff>(through);
    }
    top.build_index(sums.len());
}
