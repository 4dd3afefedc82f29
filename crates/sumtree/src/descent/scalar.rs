//! Node searches in plain integer instructions.
#![allow(unsafe_code)] // As in the parent module.

use super::{Chunk, LOST, Nodes, driver};
use crate::node::Sum;
use crate::sync::{AtomicU32, AtomicU64};
use crate::top::Top;
use crate::{SumTree, sample};

driver!();

#[inline(always)]
fn find_top(top: &Top, target: u64) -> (usize, u64) {
    top.find(target)
}

/// Counts the children whose running sum is at most the residual; no branch depends on the sums.
///
/// # Safety
/// `start` points to `GROUP` cells that live as long as the call.
#[inline(always)]
pub(super) unsafe fn count<S: Sum, const GROUP: usize>(start: *const S, residual: u64) -> (usize, u64) {
    // SAFETY: the caller's promise.
    let siblings = unsafe { std::slice::from_raw_parts(start, GROUP) };
    let (mut sum, mut lane, mut before) = (0, 0, 0);
    for child in siblings {
        sum += child.load_clamped();
        let passed = sum <= residual;
        lane += usize::from(passed);
        before = std::hint::select_unpredictable(passed, sum, before);
    }
    (lane, residual - before)
}

/// # Safety
/// As [`count`].
#[inline(always)]
unsafe fn narrow<const GROUP: usize>(start: *const u32, residual: u64) -> (usize, u64) {
    // SAFETY: the caller's promise; the cells are atomics (the driver casts them away for the vector searches).
    unsafe { count::<AtomicU32, GROUP>(start.cast(), residual) }
}

/// # Safety
/// As [`count`].
#[inline(always)]
unsafe fn wide<const GROUP: usize>(start: *const u64, residual: u64) -> (usize, u64) {
    // SAFETY: as in `narrow`.
    unsafe { count::<AtomicU64, GROUP>(start.cast(), residual) }
}

/// Returns the lane, the offset of the residual in that leaf, and the leaf's weight.
///
/// # Safety
/// As [`count`].
#[inline(always)]
pub(super) unsafe fn leaf<const GROUP: usize>(start: *const u32, residual: u64) -> (usize, u64, u32) {
    // SAFETY: the caller's promise, and as in `narrow`.
    let siblings = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU32>(), GROUP) };
    let (mut sum, mut lane, mut before, mut after) = (0, 0, 0, 0);
    for leaf in siblings {
        // `after` is the running sum up to and including the first leaf that is not passed.
        let open = sum <= residual;
        sum += leaf.load_clamped();
        let passed = sum <= residual;
        after = std::hint::select_unpredictable(open, sum, after);
        lane += usize::from(passed);
        before = std::hint::select_unpredictable(passed, sum, before);
    }
    (lane, residual - before, (after - before) as u32)
}
