//! Operations on the whole tree: loading all weights, recomputing the sums from the leaves, finding the
//! largest weights. Loading and recomputing run in parallel for trees that are large enough.

use rayon::prelude::*;

use crate::layout::max_weight;
use crate::memory::vec_with_capacity;
use crate::stats::{SIZES, count_sizes};
use crate::sync::Ordering::Relaxed;
use crate::tree::same_length;
use crate::{SumTree, SumTreeError};

/// Nodes per parallel task: some thousand cache lines, so that starting a task pays off.
const NODES_PER_TASK: usize = 4096;

impl SumTree {
    /// Sets all weights at once, one per leaf, and computes all sums from them. Much faster than storing them
    /// one by one. For a tree that no other thread uses yet: concurrent draws may fail and concurrent updates
    /// may be lost.
    ///
    /// # Errors
    /// [`SumTreeError::Length`] unless there is one weight per leaf; [`SumTreeError::Weight`]. Stores nothing
    /// on an error.
    pub fn load(&self, weights: &[u32]) -> Result<(), SumTreeError> {
        same_length("weights", weights.len(), self.capacity())?;
        let max = max_weight(self.fan_out());
        if let Some(position) =
            weights.par_iter().with_min_len(1 << 16).position_first(|weight| *weight > max)
        {
            return Err(SumTreeError::Weight { weight: weights[position], position, max });
        }
        let leaves = &self.leaves[..weights.len()];
        leaves.par_iter().zip(weights).with_min_len(1 << 16).for_each(|(leaf, weight)| {
            leaf.store(*weight, Relaxed); // Relaxed: no other thread uses the tree; joining the tasks orders the rest.
        });
        self.restore_sums();
        Ok(())
    }

    /// Recomputes every sum and the histogram from the leaves, after a process died between storing a leaf
    /// and updating its path. No other thread may update the tree during the call.
    pub fn restore_sums(&self) {
        for level in 1..self.layout.levels().len() {
            let nodes = 0..self.layout.levels()[level].used;
            let tasks = nodes.into_par_iter().with_min_len(NODES_PER_TASK);
            tasks.for_each(|node| self.store_sum(level, node, self.sum_children(level, node)));
        }
        let counts = self.count_leaves();
        self.set_histogram(&counts);
        let largest = (0..SIZES).rev().find(|size| counts[*size] > 0).unwrap_or(0);
        let all = self.leaves.par_iter().with_min_len(1 << 16);
        if largest > 0 {
            self.update_largest(all.map(|leaf| leaf.load(Relaxed)).max().unwrap_or(0)); // Relaxed: as above.
        }
    }

    /// As [`SumTree::restore_sums`] in this thread alone: the threads of a pool do not exist after a fork. The largest
    /// weight was recorded before it was stored.
    #[cold]
    pub(crate) fn restore_sums_alone(&self) {
        for level in 1..self.layout.levels().len() {
            for node in 0..self.layout.levels()[level].used {
                self.store_sum(level, node, self.sum_children(level, node));
            }
        }
        let leaves = &self.leaves[..self.capacity()];
        self.set_histogram(&count_sizes(leaves.iter().map(|leaf| leaf.load(Relaxed)))); // Relaxed: as in `load`.
    }

    /// Checks that the histogram matches the leaves. Meaningful only while no update is running.
    ///
    /// # Errors
    /// [`SumTreeError::Histogram`] names the first size that is miscounted.
    pub fn verify_histogram(&self) -> Result<(), SumTreeError> {
        let (stored, counted) = (self.histogram(), self.count_leaves());
        match (0..SIZES).find(|size| stored[*size] != counted[*size]) {
            None => Ok(()),
            Some(bits) => Err(SumTreeError::Histogram { bits, stored: stored[bits], counted: counted[bits] }),
        }
    }

    fn count_leaves(&self) -> [u64; SIZES] {
        let leaves = &self.leaves[..self.capacity()];
        leaves
            .par_chunks(1 << 16)
            .map(|part| count_sizes(part.iter().map(|leaf| leaf.load(Relaxed)))) // Relaxed: as in `load`.
            .reduce(|| [0; SIZES], |a, b| std::array::from_fn(|size| a[size] + b[size]))
    }

    /// Finds the `indices.len()` leaves of largest weight, largest first; of equal weights the lower leaf
    /// comes first. Reads every leaf once: O(capacity).
    ///
    /// # Errors
    /// [`SumTreeError::TooFewLeaves`] if fewer leaves have a weight above zero; [`SumTreeError::Length`].
    pub fn largest(&self, indices: &mut [u64], weights: &mut [u32]) -> Result<(), SumTreeError> {
        let asked = indices.len();
        same_length("weights", weights.len(), asked)?;
        if asked == 0 {
            return Ok(());
        }
        if asked > self.capacity() {
            return Err(SumTreeError::TooFewLeaves { asked, positive: self.positive() as usize });
        }
        // The histogram gives a lower bound of the weights to find. Writers may have changed them since: if
        // too few leaves reach the bound, search again without it.
        let mut counts = self.histogram().into_iter().enumerate().skip(1).rev();
        let mut above = 0;
        let size = counts.find(|(_, count)| {
            above += count;
            above >= asked as u64
        });
        let bound = size.map_or(1, |(bits, _)| 1 << (bits - 1));
        let mut best = self.largest_from(bound, asked)?;
        if best.len() < asked && bound > 1 {
            best = self.largest_from(1, asked)?;
        }
        if best.len() < asked {
            return Err(SumTreeError::TooFewLeaves { asked, positive: best.len() });
        }
        for ((index, weight), (w, i)) in indices.iter_mut().zip(weights).zip(best) {
            (*index, *weight) = (i, w);
        }
        Ok(())
    }

    /// Returns at most `asked` leaves of weight `bound` or more, largest first. Runs in this thread alone:
    /// the threads of a pool do not exist after a fork, and reading the leaves is bound by memory bandwidth.
    fn largest_from(&self, bound: u32, asked: usize) -> Result<Vec<(u32, u64)>, SumTreeError> {
        let order = |a: &(u32, u64), b: &(u32, u64)| b.0.cmp(&a.0).then(a.1.cmp(&b.1));
        let (mut best, mut bound) = (vec_with_capacity(2 * asked)?, bound);
        for (i, leaf) in self.leaves[..self.capacity()].iter().enumerate() {
            // Acquire: pairs with the Release of the exchange that stored the weight.
            let weight = leaf.load(crate::sync::Ordering::Acquire);
            if weight < bound {
                continue;
            }
            best.push((weight, i as u64));
            if best.len() == 2 * asked {
                best.select_nth_unstable_by(asked - 1, order);
                best.truncate(asked);
                bound = best[asked - 1].0;
            }
        }
        best.sort_unstable_by(order);
        best.truncate(asked);
        Ok(best)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::Rng;
    use crate::sync::Ordering;

    fn weights(n: usize, fan_out: usize, seed: u64) -> Vec<u32> {
        let mut rng = Rng::new(seed);
        (0..n).map(|_| (rng.below(u64::from(max_weight(fan_out)) + 1) >> rng.below(29)) as u32).collect()
    }

    #[test]
    fn load_is_the_same_as_storing_one_by_one() {
        for (n, fan_out) in [(1usize, 4), (999, 16), (70_001, 8), (200_003, 32), (150_000, 64)] {
            let model = weights(n, fan_out, 3);
            let (a, b) = (SumTree::new(n as u64, fan_out).unwrap(), SumTree::new(n as u64, fan_out).unwrap());
            a.fill_range(0, n, 5).unwrap();
            a.load(&model).unwrap();
            b.set_range(0, &model).unwrap();
            a.verify().unwrap();
            a.verify_histogram().unwrap();
            assert_eq!((a.total(), a.histogram()), (b.total(), b.histogram()));
            assert_eq!(a.largest_ever(), *model.iter().max().unwrap().max(&5));
        }
        let tree = SumTree::new(5, 16).unwrap();
        assert!(matches!(tree.load(&[1; 4]), Err(SumTreeError::Length { .. })));
        let error = tree.load(&[1, 1, u32::MAX, 1, 1]).unwrap_err();
        assert!(matches!(error, SumTreeError::Weight { position: 2, .. }));
        assert_eq!(tree.total(), 0);
    }

    #[test]
    fn sums_lost_halfway_are_restored() {
        let tree = SumTree::new(40_000, 16).unwrap();
        tree.load(&weights(40_000, 16, 9)).unwrap();
        tree.leaves[17].store(123_456, Ordering::Relaxed);
        tree.leaves[39_999].store(0, Ordering::Relaxed);
        assert!(tree.verify().is_err());
        tree.restore_sums();
        tree.verify().unwrap();
        tree.verify_histogram().unwrap();
    }

    #[test]
    fn largest_agrees_with_sorting() {
        let n = 200_001;
        let mut model = weights(n, 16, 5);
        model[150_000] = (1 << 28) - 1;
        model[70_000] = (1 << 28) - 1;
        let tree = SumTree::new(n as u64, 16).unwrap();
        tree.load(&model).unwrap();
        let mut sorted: Vec<(u32, u64)> = model.iter().copied().zip(0..).filter(|(w, _)| *w > 0).collect();
        sorted.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        for k in [0, 1, 2, 1000, 66_000] {
            let (mut indices, mut found) = (vec![0; k], vec![0; k]);
            tree.largest(&mut indices, &mut found).unwrap();
            assert!(found.iter().copied().zip(indices).eq(sorted[..k].iter().copied()), "k = {k}");
        }
        let asked = sorted.len() + 1;
        let error = tree.largest(&mut vec![0; asked], &mut vec![0; asked]).unwrap_err();
        assert_eq!(error, SumTreeError::TooFewLeaves { asked, positive: asked - 1 });
    }
}
