//! Node searches with 128-bit vectors, generic over the operations of a register ([`Lanes`]): NEON on
//! AArch64, and arrays of integers ([`Scalar`]) on every machine.
//!
//! As in the wider paths, the lane is the number of running sums that are at most the residual. The sum
//! before that lane is read from the stored running sums.
#![allow(unsafe_code)] // Raw pointers into the level arrays; vector loads by inline assembly: see the README.

use crate::sync::{AtomicU32, AtomicU64};

/// 128-bit registers: four u32 or two u64.
pub(super) trait Lanes: Copy {
    type Quad: Copy;
    type Pair: Copy;

    /// Loads four u32 cells, each once, as four relaxed loads would.
    ///
    /// # Safety
    /// `start` points to 16 readable bytes on a 16-byte boundary, and the machine has the registers.
    unsafe fn load_quad(start: *const AtomicU32) -> Self::Quad;
    /// Loads two u64 cells in the same way; cells that are negative as signed numbers read as zero.
    ///
    /// # Safety
    /// As [`Lanes::load_quad`].
    unsafe fn load_pair(start: *const AtomicU64) -> Self::Pair;
    /// The lower and the upper half of four u32, as u64.
    fn widen(quad: Self::Quad) -> [Self::Pair; 2];
    fn quad_of(value: u32) -> Self::Quad;
    fn pair_of(value: u64) -> Self::Pair;
    fn add_quads(a: Self::Quad, b: Self::Quad) -> Self::Quad;
    fn add_pairs(a: Self::Pair, b: Self::Pair) -> Self::Pair;
    /// Inclusive running sums.
    fn run_quad(quad: Self::Quad) -> Self::Quad;
    fn run_pair(pair: Self::Pair) -> Self::Pair;
    /// Copies the last element to all elements.
    fn last_quad(quad: Self::Quad) -> Self::Quad;
    fn last_pair(pair: Self::Pair) -> Self::Pair;
    /// Counts how many elements are at most those of `bound`, unsigned.
    fn passed_quad(quad: Self::Quad, bound: Self::Quad) -> usize;
    fn passed_pair(pair: Self::Pair, bound: Self::Pair) -> usize;
    fn store_quad(quad: Self::Quad, to: &mut [u32; 4]);
    fn store_pair(pair: Self::Pair, to: &mut [u64; 2]);
}

/// Returns the lane of a node of u64 sums that contains the residual, and the residual in it; lane `GROUP` if
/// the residual is beyond all of them.
///
/// # Safety
/// `start` points to `GROUP` u64 cells on a 16-byte boundary; the machine has the registers of `L`.
#[inline(always)]
pub(super) unsafe fn wide<L: Lanes, const GROUP: usize>(
    start: *const AtomicU64,
    residual: u64,
) -> (usize, u64) {
    let bound = L::pair_of(residual);
    let mut through = [[0u64; 2]; 16];
    let mut carry = L::pair_of(0);
    let mut lane = 0;
    for (row, out) in through.iter_mut().take(GROUP / 2).enumerate() {
        // SAFETY: the caller's promise.
        let seen = unsafe { L::load_pair(start.add(2 * row)) };
        let sums = L::add_pairs(L::run_pair(seen), carry);
        L::store_pair(sums, out);
        lane += L::passed_pair(sums, bound);
        carry = L::last_pair(sums);
    }
    (lane, residual - before(through.as_flattened(), lane, GROUP))
}

/// As [`wide`] for u32 sums.
///
/// # Safety
/// As [`wide`].
#[inline(always)]
pub(super) unsafe fn narrow<L: Lanes, const GROUP: usize>(
    start: *const AtomicU32,
    residual: u64,
) -> (usize, u64) {
    let bound = L::pair_of(residual);
    let mut through = [[0u64; 2]; 16];
    let mut carry = L::pair_of(0);
    let mut lane = 0;
    for row in 0..GROUP / 4 {
        // SAFETY: the caller's promise.
        let halves = L::widen(unsafe { L::load_quad(start.add(4 * row)) });
        for (half, seen) in halves.into_iter().enumerate() {
            let sums = L::add_pairs(L::run_pair(seen), carry);
            L::store_pair(sums, &mut through[2 * row + half]);
            lane += L::passed_pair(sums, bound);
            carry = L::last_pair(sums);
        }
    }
    (lane, residual - before(through.as_flattened(), lane, GROUP))
}

/// Returns the lane of the leaf, the offset of the residual in it, and its weight.
///
/// # Safety
/// As [`wide`].
#[inline(always)]
pub(super) unsafe fn leaf<L: Lanes, const GROUP: usize>(
    start: *const AtomicU32,
    residual: u64,
) -> (usize, u64, u32) {
    // The leaves of a node sum to less than 2^32, so a residual beyond u32 is beyond the node too.
    let clipped = residual.min(u64::from(u32::MAX)) as u32;
    let bound = L::quad_of(clipped);
    let mut through = [[0u32; 4]; 16];
    let mut carry = L::quad_of(0);
    let mut lane = 0;
    for (row, out) in through.iter_mut().take(GROUP / 4).enumerate() {
        // SAFETY: the caller's promise.
        let seen = unsafe { L::load_quad(start.add(4 * row)) };
        let sums = L::add_quads(L::run_quad(seen), carry);
        L::store_quad(sums, out);
        lane += L::passed_quad(sums, bound);
        carry = L::last_quad(sums);
    }
    if lane == GROUP {
        return (GROUP, 0, 0);
    }
    let sums = through.as_flattened();
    let start_of = if lane == 0 { 0 } else { sums[lane - 1] };
    (lane, u64::from(clipped - start_of), sums[lane] - start_of)
}

/// The sum before a lane; 0 for the first lane, and for lane `group`, whose residual is not used.
#[inline(always)]
fn before(through: &[u64], lane: usize, group: usize) -> u64 {
    if lane == 0 || lane == group { 0 } else { through[lane - 1] }
}

/// Arrays of integers. The compiler may or may not vectorize the code.
#[derive(Clone, Copy)]
pub(super) struct Scalar;

impl Lanes for Scalar {
    type Quad = [u32; 4];
    type Pair = [u64; 2];

    #[inline(always)]
    unsafe fn load_quad(start: *const AtomicU32) -> [u32; 4] {
        // SAFETY: the caller's promise.
        let cells = unsafe { std::slice::from_raw_parts(start, 4) };
        // Relaxed: a batch of draws ends with an Acquire fence.
        std::array::from_fn(|k| cells[k].load(crate::sync::Ordering::Relaxed))
    }

    #[inline(always)]
    unsafe fn load_pair(start: *const AtomicU64) -> [u64; 2] {
        use crate::node::Sum;
        // SAFETY: as above.
        let cells = unsafe { std::slice::from_raw_parts(start, 2) };
        std::array::from_fn(|k| cells[k].load_clamped())
    }

    #[inline(always)]
    fn widen(q: [u32; 4]) -> [[u64; 2]; 2] {
        [[q[0].into(), q[1].into()], [q[2].into(), q[3].into()]]
    }

    #[inline(always)]
    fn quad_of(value: u32) -> [u32; 4] {
        [value; 4]
    }

    #[inline(always)]
    fn pair_of(value: u64) -> [u64; 2] {
        [value; 2]
    }

    #[inline(always)]
    fn add_quads(a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        std::array::from_fn(|k| a[k].wrapping_add(b[k]))
    }

    #[inline(always)]
    fn add_pairs(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
        std::array::from_fn(|k| a[k].wrapping_add(b[k]))
    }

    #[inline(always)]
    fn run_quad(q: [u32; 4]) -> [u32; 4] {
        // By shifts of one and of two places, as with registers.
        let q = Self::add_quads(q, [0, q[0], q[1], q[2]]);
        Self::add_quads(q, [0, 0, q[0], q[1]])
    }

    #[inline(always)]
    fn run_pair(p: [u64; 2]) -> [u64; 2] {
        [p[0], p[0].wrapping_add(p[1])]
    }

    #[inline(always)]
    fn last_quad(q: [u32; 4]) -> [u32; 4] {
        [q[3]; 4]
    }

    #[inline(always)]
    fn last_pair(p: [u64; 2]) -> [u64; 2] {
        [p[1]; 2]
    }

    #[inline(always)]
    fn passed_quad(q: [u32; 4], bound: [u32; 4]) -> usize {
        (0..4).map(|k| usize::from(q[k] <= bound[k])).sum()
    }

    #[inline(always)]
    fn passed_pair(p: [u64; 2], bound: [u64; 2]) -> usize {
        (0..2).map(|k| usize::from(p[k] <= bound[k])).sum()
    }

    #[inline(always)]
    fn store_quad(q: [u32; 4], to: &mut [u32; 4]) {
        *to = q;
    }

    #[inline(always)]
    fn store_pair(p: [u64; 2], to: &mut [u64; 2]) {
        *to = p;
    }
}

/// The functions that the driver calls, for one implementation of [`Lanes`]. NEON is part of AArch64, so no
/// feature needs to be enabled.
macro_rules! searches {
    ($lanes:ty) => {
        #[inline(always)]
        fn find_top(top: &Top, target: u64) -> (usize, u64) {
            top.find(target)
        }

        /// # Safety
        /// As [`super::narrow`].
        #[inline(always)]
        unsafe fn narrow<const GROUP: usize>(start: *const AtomicU32, residual: u64) -> (usize, u64) {
            // SAFETY: the caller's promise; groups of four lie on a boundary of 16 bytes.
            unsafe { super::narrow::<$lanes, GROUP>(start, residual) }
        }

        /// # Safety
        /// As [`super::wide`].
        #[inline(always)]
        unsafe fn wide<const GROUP: usize>(start: *const AtomicU64, residual: u64) -> (usize, u64) {
            // SAFETY: as above.
            unsafe { super::wide::<$lanes, GROUP>(start, residual) }
        }

        /// # Safety
        /// As [`super::leaf`].
        #[inline(always)]
        unsafe fn leaf<const GROUP: usize>(start: *const AtomicU32, residual: u64) -> (usize, u64, u32) {
            // SAFETY: as above.
            unsafe { super::leaf::<$lanes, GROUP>(start, residual) }
        }
    };
}
use searches;

/// The driver over arrays of integers.
pub(crate) mod scalar {
    use super::super::{Chunk, LOST, Nodes, driver};
    use super::Scalar;
    use crate::sync::{AtomicU32, AtomicU64};
    use crate::top::Top;
    use crate::{SumTree, sample};

    super::searches!(Scalar);
    driver!();
}

/// The driver over NEON registers.
#[cfg(all(target_arch = "aarch64", not(loom)))]
pub(crate) mod neon {
    use super::super::{Chunk, LOST, Nodes, driver};
    use crate::sync::{AtomicU32, AtomicU64};
    use crate::top::Top;
    use crate::{SumTree, sample};

    use super::neon_lanes::Neon;

    super::searches!(Neon);
    driver!();
}

#[cfg(all(target_arch = "aarch64", not(loom)))]
mod neon_lanes {
    #[allow(clippy::wildcard_imports)] // Every second line uses one of its names.
    use std::arch::aarch64::*;
    use std::arch::asm;

    use super::Lanes;
    use crate::node::SUM_SHIFT;
    use crate::sync::{AtomicU32, AtomicU64};

    /// NEON registers.
    #[derive(Clone, Copy)]
    pub(super) struct Neon;

    macro_rules! load {
        ($start:expr) => {{
            let line;
            // SAFETY: the caller's promise of a readable, aligned address.
            unsafe {
                asm!("ldr {line:q}, [{start}]", line = lateout(vreg) line, start = in(reg) $start,
                    options(readonly, nostack, preserves_flags));
            }
            line
        }};
    }

    // SAFETY of the intrinsics below: every AArch64 target of Rust with an operating system has NEON.
    impl Lanes for Neon {
        type Quad = uint32x4_t;
        type Pair = uint64x2_t;

        #[inline(always)]
        unsafe fn load_quad(start: *const AtomicU32) -> uint32x4_t {
            load!(start)
        }

        #[inline(always)]
        unsafe fn load_pair(start: *const AtomicU64) -> uint64x2_t {
            let seen: uint64x2_t = load!(start);
            // SAFETY: as above.
            unsafe {
                let below_zero = vcltzq_s64(vreinterpretq_s64_u64(seen));
                vshrq_n_u64::<{ SUM_SHIFT as i32 }>(vbicq_u64(seen, below_zero))
            }
        }

        #[inline(always)]
        fn widen(quad: uint32x4_t) -> [uint64x2_t; 2] {
            // SAFETY: as above.
            unsafe { [vmovl_u32(vget_low_u32(quad)), vmovl_high_u32(quad)] }
        }

        #[inline(always)]
        fn quad_of(value: u32) -> uint32x4_t {
            // SAFETY: as above.
            unsafe { vdupq_n_u32(value) }
        }

        #[inline(always)]
        fn pair_of(value: u64) -> uint64x2_t {
            // SAFETY: as above.
            unsafe { vdupq_n_u64(value) }
        }

        #[inline(always)]
        fn add_quads(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
            // SAFETY: as above.
            unsafe { vaddq_u32(a, b) }
        }

        #[inline(always)]
        fn add_pairs(a: uint64x2_t, b: uint64x2_t) -> uint64x2_t {
            // SAFETY: as above.
            unsafe { vaddq_u64(a, b) }
        }

        #[inline(always)]
        fn run_quad(quad: uint32x4_t) -> uint32x4_t {
            // SAFETY: as above.
            unsafe {
                let zero = vdupq_n_u32(0);
                let quad = vaddq_u32(quad, vextq_u32::<3>(zero, quad));
                vaddq_u32(quad, vextq_u32::<2>(zero, quad))
            }
        }

        #[inline(always)]
        fn run_pair(pair: uint64x2_t) -> uint64x2_t {
            // SAFETY: as above.
            unsafe { vaddq_u64(pair, vextq_u64::<1>(vdupq_n_u64(0), pair)) }
        }

        #[inline(always)]
        fn last_quad(quad: uint32x4_t) -> uint32x4_t {
            // SAFETY: as above.
            unsafe { vdupq_laneq_u32::<3>(quad) }
        }

        #[inline(always)]
        fn last_pair(pair: uint64x2_t) -> uint64x2_t {
            // SAFETY: as above.
            unsafe { vdupq_laneq_u64::<1>(pair) }
        }

        #[inline(always)]
        fn passed_quad(quad: uint32x4_t, bound: uint32x4_t) -> usize {
            // SAFETY: as above. A true lane is all ones: minus one.
            unsafe { 0u32.wrapping_sub(vaddvq_u32(vcleq_u32(quad, bound))) as usize }
        }

        #[inline(always)]
        fn passed_pair(pair: uint64x2_t, bound: uint64x2_t) -> usize {
            // SAFETY: as above.
            unsafe { 0u64.wrapping_sub(vaddvq_u64(vcleq_u64(pair, bound))) as usize }
        }

        #[inline(always)]
        fn store_quad(quad: uint32x4_t, to: &mut [u32; 4]) {
            // SAFETY: as above; `to` has room for four.
            unsafe { vst1q_u32(to.as_mut_ptr(), quad) }
        }

        #[inline(always)]
        fn store_pair(pair: uint64x2_t, to: &mut [u64; 2]) {
            // SAFETY: as above; `to` has room for two.
            unsafe { vst1q_u64(to.as_mut_ptr(), pair) }
        }
    }
}
