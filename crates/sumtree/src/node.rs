//! One node: K sums side by side, and the lane in which a residual falls.

use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A sum of u64 lies in memory this many bits higher. So its lowest byte is 0 and stays so, and a writer may store
/// that 0 to take the cache line ahead of the add: see [`crate::prefetch::claim`].
pub(crate) const RAISED: u32 = 8;

/// The sum, or difference of sums, as it lies in memory.
#[inline(always)]
pub(crate) fn raised(sum: u64) -> u64 {
    sum << RAISED
}

/// The sum that lies in memory as `cell`; one below zero for a moment has its upper bits set.
#[inline(always)]
pub(crate) fn lowered(cell: u64) -> u64 {
    (cell as i64 >> RAISED) as u64
}

/// Where a residual falls among siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// `residual` counts from the start of child `lane`, and is below its sum as seen.
    Child { lane: usize, residual: u64 },
    /// The residual reaches beyond the `sum` of all children as seen: writers were at work above.
    Beyond { sum: u64 },
}

/// A number that a level stores.
pub(crate) trait Sum {
    /// The sum as seen; one that writers have driven below zero for a moment counts as zero.
    fn seen(&self) -> u64;
}

impl Sum for AtomicU32 {
    #[inline(always)]
    fn seen(&self) -> u64 {
        // Relaxed: a batch of draws ends with an Acquire fence.
        u64::from(self.load(Relaxed))
    }
}

impl Sum for AtomicU64 {
    #[inline(always)]
    fn seen(&self) -> u64 {
        // Relaxed: as above.
        (self.load(Relaxed) as i64).max(0) as u64 >> RAISED
    }
}

/// Scans siblings left to right. Strictly below: a child of sum zero is never entered.
#[inline(always)]
pub(crate) fn search<S: Sum>(siblings: &[S], mut residual: u64) -> Step {
    let mut sum = 0;
    for (lane, child) in siblings.iter().enumerate() {
        let seen = child.seen();
        if residual < seen {
            return Step::Child { lane, residual };
        }
        residual -= seen;
        sum += seen;
    }
    Step::Beyond { sum }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// Sums 0, 3, 0, 2: residuals 0..3 fall in lane 1, 3..5 in lane 3, 5 and more beyond. Lanes of sum 0 are never
    /// entered, not even with residual 0 (fault 3).
    #[test]
    fn scan_is_strict() {
        let node = [0, 3, 0, 2].map(AtomicU32::new);
        let lane = |r| match search(&node, r) {
            Step::Child { lane, residual } => (lane, residual),
            Step::Beyond { sum } => (99, sum),
        };
        assert_eq!(
            (0..7).map(lane).collect::<Vec<_>>(),
            [(1, 0), (1, 1), (1, 2), (3, 0), (3, 1), (99, 5), (99, 5)]
        );
    }

    #[test]
    fn a_sum_below_zero_counts_as_zero() {
        let node = [AtomicU64::new(raised(-5i64 as u64)), AtomicU64::new(raised(2))];
        assert_eq!(lowered(node[0].load(Relaxed)), -5i64 as u64);
        assert_eq!(search(&node, 1), Step::Child { lane: 1, residual: 1 });
        assert_eq!(search(&node, 2), Step::Beyond { sum: 2 });
    }
}
