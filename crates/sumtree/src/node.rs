//! One node: K adjacent sums, and the search for the lane that contains a residual (what remains of a prefix
//! sum).

use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// u64 sums are stored shifted left by this many bits. Their lowest byte is therefore always 0, and a writer
/// can store that 0 to get the cache line ahead of the addition: see [`crate::prefetch::claim`].
pub(crate) const SUM_SHIFT: u32 = 8;

/// Encodes a sum, or a difference of sums, for storage.
#[inline(always)]
pub(crate) fn encode_sum(sum: u64) -> u64 {
    sum << SUM_SHIFT
}

/// Decodes a stored sum. A temporarily negative sum has its upper bits set.
#[inline(always)]
pub(crate) fn decode_sum(cell: u64) -> u64 {
    (cell as i64 >> SUM_SHIFT) as u64
}

/// Result of searching for a residual among siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Child `lane` contains the residual. `residual` counts from the start of the child and is below the sum
    /// read from it.
    Child { lane: usize, residual: u64 },
    /// The residual is at least `sum`, the sum read from all children, because writers are updating the path.
    Beyond { sum: u64 },
}

/// A sum or leaf as a level stores it.
pub(crate) trait Sum {
    /// Reads the sum. A sum that writers have made temporarily negative reads as zero.
    fn load_clamped(&self) -> u64;
}

impl Sum for AtomicU32 {
    #[inline(always)]
    fn load_clamped(&self) -> u64 {
        // Relaxed: a batch of draws ends with an Acquire fence.
        u64::from(self.load(Relaxed))
    }
}

impl Sum for AtomicU64 {
    #[inline(always)]
    fn load_clamped(&self) -> u64 {
        // Relaxed: as above.
        (self.load(Relaxed) as i64).max(0) as u64 >> SUM_SHIFT
    }
}

/// Searches siblings from left to right for the first whose sum is strictly above the residual, so that a
/// child with sum zero is never entered.
#[inline(always)]
pub(crate) fn search<S: Sum>(siblings: &[S], mut residual: u64) -> Step {
    let mut sum = 0;
    for (lane, child) in siblings.iter().enumerate() {
        let seen = child.load_clamped();
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

    /// Sums 0, 3, 0, 2: residuals 0..3 fall in lane 1, 3..5 in lane 3, 5 and more beyond. Lanes of sum 0 are
    /// never entered, not even with residual 0.
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
        let node = [AtomicU64::new(encode_sum(-5i64 as u64)), AtomicU64::new(encode_sum(2))];
        assert_eq!(decode_sum(node[0].load(Relaxed)), -5i64 as u64);
        assert_eq!(search(&node, 1), Step::Child { lane: 1, residual: 1 });
        assert_eq!(search(&node, 2), Step::Beyond { sum: 2 });
    }
}
