//! The descent: a chunk of draws goes down level by level, so that the loads of one draw overlap with the
//! arithmetic of others.
//!
//! One driver uses three sets of node searches ([`lanes`], [`avx2`], [`avx512`]) that return the same lanes
//! and residuals. If a residual is beyond the sum of the children, [`crate::sample::find_child`] handles it. A
//! draw for which that fails too is marked [`LOST`], and the caller redraws it.
//!
//! The crate documentation explains why the vector loads are sound.
#![allow(unsafe_code)] // Raw pointers into the level arrays and target features; each block states its invariants.

#[cfg(all(target_arch = "x86_64", not(loom)))]
pub(crate) mod avx2;
#[cfg(all(target_arch = "x86_64", not(loom)))]
pub(crate) mod avx512;
pub(crate) mod lanes;

use crate::SumTree;
use crate::path::Path;
use crate::prefetch;
use crate::top::Top;

/// Number of draws that descend together: enough to hide the latency of memory, few enough for the L1 cache.
pub(crate) const CHUNK: usize = 128;

/// Residual of a draw after writers emptied a node on its path: larger than any sum, and positive as a signed
/// number.
pub(crate) const LOST: u64 = i64::MAX as u64;

/// Working memory of one chunk.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Entry of each draw in the current level; at the end, its leaf.
    pub entry: [u32; CHUNK],
    /// Residual of each draw in its entry; at the end, its offset in the leaf, or [`LOST`].
    pub residual: [u64; CHUNK],
}

impl Chunk {
    pub fn new() -> Self {
        Self { entry: [0; CHUNK], residual: [0; CHUNK] }
    }
}

/// Finds the leaves of `targets` (at most [`CHUNK`], all below the total of `top`). Stores them in
/// `chunk.entry`, and their weights in `weights`.
pub(crate) fn walk(tree: &SumTree, top: &Top, targets: &[u64], chunk: &mut Chunk, weights: &mut [u32]) {
    assert!(targets.len() <= CHUNK && targets.len() == weights.len());
    match tree.path {
        // SAFETY: the pointers that the drivers compute are in the level arrays: entries of the top come from
        // a search in `top`, which has as many entries as the top level, and a child entry is `entry * group
        // + lane` with `lane < group`, inside `stored` by Layout. The machine has the features:
        // `SumTree.path` was checked.
        Path::Scalar => unsafe { lanes::scalar::walk(tree, top, targets, chunk, weights) },
        #[cfg(all(target_arch = "aarch64", not(loom)))]
        // SAFETY: as above.
        Path::Neon => unsafe { lanes::neon::walk(tree, top, targets, chunk, weights) },
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        // SAFETY: as above.
        Path::Avx2 => unsafe { avx2::walk(tree, top, targets, chunk, weights) },
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        // SAFETY: as above.
        Path::Avx512 => unsafe { avx512::walk(tree, top, targets, chunk, weights) },
        #[allow(unreachable_patterns)] // The paths that this target lacks.
        _ => unreachable!("a path that this machine lacks is refused when the tree is made"),
    }
}

/// Reads the top of the tree into `top`.
pub(crate) fn read_top(tree: &SumTree, top: &mut Top) {
    match tree.path {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        // SAFETY: the path was checked; the top level is stored in whole lines, and `top.fine` has room for
        // `TOP_MAX` entries and 8 more.
        Path::Avx512 => unsafe { avx512::read_top(tree, top) },
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        // SAFETY: as above.
        Path::Avx2 => unsafe { avx2::read_top(tree, top) },
        _ => top.read(tree),
    }
}

/// Address and size of the nodes of a level, for prefetching their cache lines.
#[derive(Clone, Copy)]
pub(crate) struct Nodes {
    start: *const u8,
    bytes: usize,
}

impl Nodes {
    /// Nodes of `level`.
    pub(crate) fn new(tree: &SumTree, level: usize) -> Self {
        let start = match (level, &tree.narrow) {
            (0, _) => tree.leaves.as_ptr().cast(),
            (1, Some(sums)) => sums.as_ptr().cast(),
            _ => tree.wide[tree.wide_at(level)].as_ptr().cast(),
        };
        let shape = &tree.layout.levels()[level];
        Self { start, bytes: shape.group * shape.width }
    }

    /// Prefetches the cache lines of one node.
    #[inline(always)]
    pub(crate) fn prefetch(self, node: usize) {
        let first = self.start.wrapping_add(node * self.bytes);
        prefetch::read(first);
        // Nodes are one or two lines at the usual fan-outs: branches are cheaper than a loop.
        if self.bytes > 64 {
            prefetch::read(first.wrapping_add(64));
            if self.bytes > 128 {
                (128..self.bytes).step_by(64).for_each(|at| prefetch::read(first.wrapping_add(at)));
            }
        }
    }
}

/// Defines the driver once per instruction set, so that the searches are inlined into loops compiled for it.
macro_rules! driver {
    ($($attribute:meta)?) => {
        /// See [`crate::descent::walk`].
        ///
        /// # Safety
        /// The machine has the instructions of this module; `targets` are below the total of `top`, which was
        /// read from this tree; `targets` and `weights` have the same length, at most [`CHUNK`].
        $(#[$attribute])?
        pub(crate) unsafe fn walk(
            tree: &SumTree,
            top: &Top,
            targets: &[u64],
            chunk: &mut Chunk,
            weights: &mut [u32],
        ) {
            let levels = tree.layout.levels();
            let n = targets.len();
            let (entries, residuals) = (&mut chunk.entry[..n], &mut chunk.residual[..n]);
            let below = Nodes::new(tree, levels.len() - 2);
            for ((target, entry), residual) in targets.iter().zip(entries.iter_mut()).zip(residuals.iter_mut()) {
                let (at, left) = find_top(top, *target);
                below.prefetch(at);
                *entry = at as u32;
                *residual = left;
            }
            for level in (1..levels.len() - 1).rev() {
                let below = Nodes::new(tree, level - 1);
                // One loop per width of node, so that the width is a constant.
                macro_rules! level {
                    ($search:ident, $group:literal, $sums:expr) => {{
                        let sums = $sums;
                        for (entry, residual) in entries.iter_mut().zip(residuals.iter_mut()) {
                            let first = *entry as usize * $group;
                            debug_assert!(first + $group <= sums.len());
                            // SAFETY: `first + $group` is inside the level (see `descent::walk`).
                            let start = unsafe { sums.as_ptr().add(first) };
                            // SAFETY: `start` has $group cells, aligned to their size or to a line; this
                            // function has the same features.
                            let (mut lane, mut left) = unsafe { $search::<$group>(start.cast(), *residual) };
                            if lane == $group {
                                (lane, left) = sample::find_child(&sums[first..first + $group], *residual)
                                    .unwrap_or((0, LOST));
                            }
                            below.prefetch(first + lane);
                            *entry = (first + lane) as u32;
                            *residual = left;
                        }
                    }};
                }
                match (level, &tree.narrow, levels[level].group) {
                    (1, Some(sums), 4) => level!(narrow, 4, sums),
                    (1, Some(sums), 8) => level!(narrow, 8, sums),
                    (1, Some(sums), 16) => level!(narrow, 16, sums),
                    (1, Some(sums), 32) => level!(narrow, 32, sums),
                    (_, _, 4) => level!(wide, 4, &tree.wide[tree.wide_at(level)]),
                    (_, _, 8) => level!(wide, 8, &tree.wide[tree.wide_at(level)]),
                    (_, _, 16) => level!(wide, 16, &tree.wide[tree.wide_at(level)]),
                    (_, _, 32) => level!(wide, 32, &tree.wide[tree.wide_at(level)]),
                    (_, _, other) => unreachable!("inner nodes have 4 to 32 children, not {other}"),
                }
            }
            macro_rules! leaves {
                ($group:literal) => {{
                    let leaves = &tree.leaves;
                    let items = entries.iter_mut().zip(residuals.iter_mut()).zip(weights.iter_mut());
                    for ((entry, residual), weight) in items {
                        let first = *entry as usize * $group;
                        debug_assert!(first + $group <= leaves.len());
                        // SAFETY: as above.
                        let start = unsafe { leaves.as_ptr().add(first) };
                        // SAFETY: as above.
                        let (mut lane, mut left, mut seen) = unsafe { leaf::<$group>(start.cast(), *residual) };
                        if lane == $group {
                            (lane, left, seen) =
                                sample::find_leaf_child(&leaves[first..first + $group], *residual)
                                    .unwrap_or((0, LOST, 0));
                        }
                        *entry = (first + lane) as u32;
                        *residual = left;
                        *weight = seen;
                    }
                }};
            }
            match tree.layout.fan_out {
                4 => leaves!(4),
                8 => leaves!(8),
                16 => leaves!(16),
                32 => leaves!(32),
                64 => leaves!(64),
                other => unreachable!("fan-out {other} is refused when the tree is made"),
            }
        }
    };
}
use driver;
