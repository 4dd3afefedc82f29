//! The private prefix sums of the top that each sample call computes, and the search in them.

use crate::SumTree;
use crate::layout::TOP_MAX;
use crate::node::Sum;

/// Larger than any sum, and positive as a signed number.
const ABOVE_ALL_SUMS: u64 = i64::MAX as u64;

/// Prefix sums of the top as read by one call, with two coarser copies so that a search compares 8 at a time.
///
/// `fine[i]` is the sum of the entries before `i`; `middle[k]` that of the first `8 * (k + 1)` entries,
/// `coarse[k]` that of the first `64 * (k + 1)`. Elements beyond the last entry are [`ABOVE_ALL_SUMS`].
#[derive(Debug)]
pub(crate) struct Top {
    pub fine: [u64; TOP_MAX + 16],
    pub middle: [u64; TOP_MAX / 8 + 16],
    pub coarse: [u64; TOP_MAX / 64 + 16],
    pub entries: usize,
}

impl Top {
    pub fn new() -> Self {
        Self {
            fine: [0; TOP_MAX + 16],
            middle: [0; TOP_MAX / 8 + 16],
            coarse: [0; TOP_MAX / 64 + 16],
            entries: 0,
        }
    }

    /// Reads the top of the tree and computes its prefix sums.
    pub fn read(&mut self, tree: &SumTree) {
        let mut sum = 0;
        let top = tree.top();
        self.fine[0] = 0;
        for (after, entry) in self.fine[1..].iter_mut().zip(top) {
            sum += entry.load_clamped();
            *after = sum;
        }
        self.build_index(top.len());
    }

    /// Fills the coarser copies from `fine[..=entries]`.
    pub fn build_index(&mut self, entries: usize) {
        self.entries = entries;
        // A search in whole groups of 8 may read these.
        self.fine[entries + 1..].iter_mut().take(8).for_each(|p| *p = ABOVE_ALL_SUMS);
        let eighths = entries.div_ceil(8);
        for k in 0..eighths {
            self.middle[k] = self.fine[(8 * (k + 1)).min(entries)];
        }
        self.middle[eighths..].iter_mut().take(8).for_each(|p| *p = ABOVE_ALL_SUMS);
        let parts = eighths.div_ceil(8);
        for k in 0..parts {
            self.coarse[k] = self.fine[(64 * (k + 1)).min(entries)];
        }
        self.coarse[parts..].iter_mut().for_each(|p| *p = ABOVE_ALL_SUMS);
    }

    pub fn total(&self) -> u64 {
        self.fine[self.entries]
    }

    /// Returns the entry that contains `target < total`, and the residual in it.
    #[inline(always)]
    pub fn find(&self, target: u64) -> (usize, u64) {
        let (mut before, mut left) = (0, self.entries);
        while left > 1 {
            let half = left / 2;
            before =
                std::hint::select_unpredictable(self.fine[before + half] <= target, before + half, before);
            left -= half;
        }
        (before, target - self.fine[before])
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn find_is_strict_for_every_size() {
        for entries in [1usize, 2, 7, 8, 9, 63, 64, 65, 100, 1000, 1024] {
            let mut top = Top::new();
            // Every third entry is empty.
            for i in 0..entries {
                top.fine[i + 1] = top.fine[i] + if i % 3 == 1 { 0 } else { 2 };
            }
            top.build_index(entries);
            let starts: Vec<u64> = top.fine[..=entries].to_vec();
            for target in 0..top.total() {
                let (entry, residual) = top.find(target);
                assert!(entry < entries && starts[entry] + residual == target && target < starts[entry + 1]);
                assert_eq!(target, starts[entry] + residual);
            }
        }
    }
}
