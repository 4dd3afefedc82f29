//! Recomputing the sums of a tree from its leaves, after a process died between changing a leaf and the sums
//! above it.

use crate::SumTree;
use crate::stats::count_sizes;
use crate::sync::Ordering;

impl SumTree {
    /// Sets every inner node to the sum of its children, and recomputes the histogram from the leaves. No
    /// other thread may update the tree during the call. Uses only this thread, unlike `restore_sums`,
    /// because the threads of a pool do not exist in a forked process.
    pub(super) fn rebuild_sums(&self) {
        let levels = self.layout.levels();
        for level in 1..levels.len() {
            let group = levels[level - 1].group;
            for node in 0..levels[level].used {
                let children = node * group..(node + 1) * group;
                let sum = children.map(|child| self.load_sum(level - 1, child)).fold(0, u64::wrapping_add);
                self.store_sum(level, node, sum);
            }
        }
        let leaves = &self.leaves[..self.capacity()];
        // Relaxed: no thread updates, and the gate's Acquire came before.
        self.set_histogram(&count_sizes(leaves.iter().map(|leaf| leaf.load(Ordering::Relaxed))));
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_changed_without_its_sums_is_repaired() {
        for (capacity, fan_out) in [(5, 4), (1000, 16), (100_000, 16), (70_000, 64), (300, 32)] {
            let tree = SumTree::new(capacity, fan_out).unwrap();
            for i in 0..capacity {
                tree.set(i, (i * 7 % 1000) as u32).unwrap();
            }
            let total = tree.total();
            tree.leaves[3].store(5000, Ordering::Relaxed); // The leaf, not the sums above it.
            assert!(tree.verify().is_err());
            tree.rebuild_sums();
            tree.verify().unwrap();
            tree.verify_histogram().unwrap();
            assert_eq!(tree.total(), total + 5000 - 21);
        }
    }
}
