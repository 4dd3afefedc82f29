//! Making the sums of a tree again from its leaves, after a process died between a leaf and its path.

use crate::SumTree;
use crate::stats::count_sizes;
use crate::sync::Ordering;

impl SumTree {
    /// Makes every inner node the sum of its children, and the histogram that of the leaves. Nobody else may update
    /// meanwhile. In this thread alone, unlike `restore_sums`: a pool's threads do not come along into a fork.
    pub(super) fn rebuild(&self) {
        let levels = self.layout.levels();
        for level in 1..levels.len() {
            let group = levels[level - 1].group;
            for node in 0..levels[level].used {
                let children = node * group..(node + 1) * group;
                let sum = children.map(|child| self.entry(level - 1, child)).fold(0, u64::wrapping_add);
                // Relaxed: nobody updates, and a reader may see sums lag at any time.
                match (level, &self.narrow) {
                    (1, Some(sums)) => sums[node].store(sum as u32, Ordering::Relaxed),
                    _ => self.wide[self.wide_at(level)][node].store(sum, Ordering::Relaxed),
                }
            }
        }
        let leaves = &self.leaves[..self.capacity()];
        // Relaxed: as above.
        self.set_histogram(&count_sizes(leaves.iter().map(|leaf| leaf.load(Ordering::Relaxed))));
    }

    fn entry(&self, level: usize, entry: usize) -> u64 {
        // Relaxed: as above; the gate's Acquire came before.
        match (level, &self.narrow) {
            (0, _) => u64::from(self.leaves[entry].load(Ordering::Relaxed)),
            (1, Some(sums)) => u64::from(sums[entry].load(Ordering::Relaxed)),
            _ => self.wide[self.wide_at(level)][entry].load(Ordering::Relaxed),
        }
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rebuilds_what_a_death_between_leaf_and_path_leaves() {
        for (capacity, fan_out) in [(5, 4), (1000, 16), (100_000, 16), (70_000, 64), (300, 32)] {
            let tree = SumTree::new(capacity, fan_out).unwrap();
            for i in 0..capacity {
                tree.set(i, (i * 7 % 1000) as u32).unwrap();
            }
            let total = tree.total();
            tree.leaves[3].store(5000, Ordering::Relaxed); // The leaf, not its path.
            assert!(tree.verify().is_err());
            tree.rebuild();
            tree.verify().unwrap();
            tree.verify_histogram().unwrap();
            assert_eq!(tree.total(), total + 5000 - 21);
        }
    }
}
