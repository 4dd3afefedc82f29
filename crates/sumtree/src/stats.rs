//! Statistics of a tree: number of weights of each size, largest weight ever stored, number of restarted
//! draws. They can be read at any time and are updated once per batch, so that no update waits for a counter.

use crate::SumTree;
use crate::sync::Ordering::Relaxed;
use crate::tree::header;

/// Number of sizes of weights: 0, and one for each number of significant bits up to 32.
pub const SIZES: usize = 33;

/// Significant bits of a weight: 0 for 0, 1 for 1, 2 for 2 and 3, 3 for 4 to 7.
#[inline(always)]
fn significant_bits(weight: u32) -> usize {
    (u32::BITS - weight.leading_zeros()) as usize
}

/// Changes of the histogram by one batch of updates.
pub(crate) struct HistogramDelta {
    /// New weights by size. Separate from the old weights, `removed`, so that counting an update does not
    /// wait for its own store.
    added: [u32; SIZES],
    removed: [u32; SIZES],
}

impl HistogramDelta {
    pub fn new() -> Self {
        Self { added: [0; SIZES], removed: [0; SIZES] }
    }

    #[inline(always)]
    pub fn count(&mut self, old: u32, new: u32) {
        self.removed[significant_bits(old)] += 1;
        self.added[significant_bits(new)] += 1;
    }

    /// Counts a single update directly in the tree's counters.
    #[inline(always)]
    pub fn count_one(tree: &SumTree, old: u32, new: u32) {
        let (from, to) = (significant_bits(old), significant_bits(new));
        if from == to || cfg!(loom) {
            return;
        }
        // Relaxed: counters, which order nothing.
        if from > 0 {
            tree.header[header::HISTOGRAM + from].fetch_sub(1, Relaxed);
        }
        if to > 0 {
            tree.header[header::HISTOGRAM + to].fetch_add(1, Relaxed);
        }
    }

    /// Adds the changes to the tree's counters. Does nothing under loom, where these additions would multiply
    /// the interleavings; they are like those of the sums.
    pub fn flush(&self, tree: &SumTree) {
        if cfg!(loom) {
            return;
        }
        for (size, (added, removed)) in self.added.iter().zip(&self.removed).enumerate().skip(1) {
            if added != removed {
                let change = u64::from(*added).wrapping_sub(u64::from(*removed));
                tree.header[header::HISTOGRAM + size].fetch_add(change, Relaxed); // A counter: orders nothing.
            }
        }
    }
}

impl SumTree {
    /// Number of leaves by the size of their weight: entry 0 counts zeros, entry k the weights of `k`
    /// significant bits, `2^(k-1) <= weight < 2^k`. Exact while no update is running.
    #[must_use]
    pub fn histogram(&self) -> [u64; SIZES] {
        let mut counts = [0; SIZES];
        for (size, count) in counts.iter_mut().enumerate().skip(1) {
            // Relaxed: a counter. Temporarily negative while updates overlap.
            *count = (self.header[header::HISTOGRAM + size].load(Relaxed) as i64).max(0) as u64;
        }
        counts[0] = (self.capacity() as u64).saturating_sub(counts.iter().sum());
        counts
    }

    /// Number of leaves with a weight above zero. Exact while no update is running.
    #[must_use]
    pub fn positive(&self) -> u64 {
        self.capacity() as u64 - self.histogram()[0]
    }

    /// The largest power of two that is not above the smallest positive weight. `None` if every weight is
    /// zero. Exact while no update is running.
    #[must_use]
    pub fn smallest_weight_floor(&self) -> Option<u32> {
        (1..SIZES).find(|size| self.histogram()[*size] > 0).map(|size| 1 << (size - 1))
    }

    /// The largest weight ever stored since the tree was made.
    #[must_use]
    pub fn largest_ever(&self) -> u32 {
        self.header[header::LARGEST].load(Relaxed) as u32 // A counter: orders nothing.
    }

    pub(crate) fn update_largest(&self, weight: u32) {
        // A plain load first: threads write this cache line only when the maximum grows.
        if !cfg!(loom) && u64::from(weight) > self.header[header::LARGEST].load(Relaxed) {
            self.header[header::LARGEST].fetch_max(u64::from(weight), Relaxed); // A counter: orders nothing.
        }
    }

    pub(crate) fn set_histogram(&self, counts: &[u64; SIZES]) {
        for (size, count) in counts.iter().enumerate().skip(1) {
            self.header[header::HISTOGRAM + size].store(*count, Relaxed); // Relaxed: no other thread writes during the call.
        }
    }

    /// Number of restarted draws: a writer had emptied a node on their path.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.header[header::RESTARTS].load(Relaxed) // A counter: orders nothing.
    }

    pub(crate) fn count_restart(&self) {
        self.header[header::RESTARTS].fetch_add(1, Relaxed); // A counter: orders nothing.
    }
}

/// Counts `weights` by size.
pub(crate) fn count_sizes(weights: impl Iterator<Item = u32>) -> [u64; SIZES] {
    let mut counts = [0; SIZES];
    weights.for_each(|weight| counts[significant_bits(weight)] += 1);
    counts
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn histogram_follows_every_kind_of_update() {
        let tree = SumTree::new(3000, 16).unwrap();
        let mut rng = Rng::new(1);
        for round in 0..50 {
            let any = |rng: &mut Rng| (rng.below(1 << 28) >> rng.below(29)) as u32;
            tree.set(rng.below(3000), any(&mut rng)).unwrap();
            let indices: Vec<u64> = (0..100).map(|_| rng.below(200)).collect();
            let weights: Vec<u32> = (0..100).map(|_| any(&mut rng)).collect();
            tree.set_many(&indices, &weights).unwrap();
            tree.set_range(rng.below(2900) as usize, &weights).unwrap();
            tree.fill_range(rng.below(2000) as usize, 1000, any(&mut rng) * (round % 2)).unwrap();
            let mut leaves = vec![0; 3000];
            tree.get_range(0, &mut leaves).unwrap();
            assert_eq!(tree.histogram(), count_sizes(leaves.iter().copied()));
            assert_eq!(tree.positive(), leaves.iter().filter(|w| **w > 0).count() as u64);
            let least = leaves.iter().copied().filter(|w| *w > 0).min();
            let bound = tree.smallest_weight_floor();
            assert_eq!(bound.is_some(), least.is_some());
            assert!(bound.zip(least).is_none_or(|(b, w)| b <= w && w < 2 * b));
        }
    }

    #[test]
    fn largest_ever_stays() {
        let tree = SumTree::new(100, 16).unwrap();
        assert_eq!((tree.largest_ever(), tree.smallest_weight_floor()), (0, None));
        tree.set(1u32, 77).unwrap();
        tree.set_many(&[2u32, 3], &[99, 98]).unwrap();
        tree.fill_range(0, 100, 0).unwrap();
        assert_eq!((tree.largest_ever(), tree.positive()), (99, 0));
    }
}
