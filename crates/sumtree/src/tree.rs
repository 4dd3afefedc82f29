//! The tree: levels of atomic sums, updated along the path from a leaf to the top.
#![allow(unsafe_code)] // Calls the inner loops of `write`, which require checked indices.

use std::sync::Arc;

use crate::exclusive::ExclusiveWriter;
use crate::layout::{HEADER_WORDS, Layout, max_weight};
use crate::memory::vec_with_capacity;
use crate::node::{decode_sum, encode_sum};
use crate::path::Path;
use crate::prefetch;
use crate::region::{Cells, Region};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::write::{Atomic, Plain};
use crate::{Index, SumTreeError};

/// Word offsets in the header. Counters for different uses are on different cache lines.
pub(crate) mod header {
    /// Identifies the shape of the tree; 0 before a tree is created here.
    pub const SIGNATURE: usize = 0;
    pub const RESTARTS: usize = 8;
    /// The largest weight ever stored.
    pub const LARGEST: usize = 16;
    /// Number of leaves by size of their weight; the entry of size 0 is not maintained.
    pub const HISTOGRAM: usize = 24;
}

/// A sum tree over `capacity` integer weights, shared by any number of reading and writing threads or processes.
///
/// See the crate documentation for what a concurrent reader may see.
pub struct SumTree {
    pub(crate) layout: Layout,
    pub(crate) path: Path,
    /// The exclusive writer if the tree uses it; `None` if updates are lock-free.
    pub(crate) exclusive: Option<ExclusiveWriter>,
    pub(crate) header: Cells<AtomicU64>,
    pub(crate) leaves: Cells<AtomicU32>,
    /// Level 1, with u32 sums; `None` if level 1 is the top.
    pub(crate) narrow: Option<Cells<AtomicU32>>,
    /// The levels above, with u64 sums, up to the top.
    pub(crate) wide: Vec<Cells<AtomicU64>>,
}

impl std::fmt::Debug for SumTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SumTree")
            .field("capacity", &self.capacity())
            .field("fan_out", &self.fan_out())
            .finish()
    }
}

impl SumTree {
    /// Creates a tree of `capacity` zero weights in private memory.
    ///
    /// # Errors
    /// [`SumTreeError::Capacity`], [`SumTreeError::FanOut`], [`SumTreeError::OutOfMemory`].
    pub fn new(capacity: u64, fan_out: usize) -> Result<Self, SumTreeError> {
        let region = Region::heap(Self::bytes_needed(capacity, fan_out)?)?;
        Self::in_region(&Arc::new(region), 0, capacity, fan_out)
    }

    /// Number of bytes that [`SumTree::in_region`] needs, a multiple of 64.
    ///
    /// # Errors
    /// [`SumTreeError::Capacity`], [`SumTreeError::FanOut`].
    pub fn bytes_needed(capacity: u64, fan_out: usize) -> Result<usize, SumTreeError> {
        Layout::new(capacity, fan_out).map(|layout| layout.bytes)
    }

    /// Opens the tree at byte `offset` of `region`. Zeroed memory is a tree of zero weights. If the memory
    /// already holds a tree of this shape, created by this or another process, that tree is shared.
    ///
    /// # Errors
    /// [`SumTreeError::Capacity`], [`SumTreeError::FanOut`], [`SumTreeError::OutsideRegion`],
    /// [`SumTreeError::OtherLayout`], [`SumTreeError::Path`].
    pub fn in_region(
        region: &Arc<Region>,
        offset: usize,
        capacity: u64,
        fan_out: usize,
    ) -> Result<Self, SumTreeError> {
        let layout = Layout::new(capacity, fan_out)?;
        region.bytes(offset, layout.bytes)?;
        let header = Cells::<AtomicU64>::in_region(region, offset, HEADER_WORDS)?;
        let signature = signature(&layout);
        // AcqRel: a process that finds the signature sees what its writer stored before. That is nothing yet:
        // the levels are zero.
        if let Err(found) =
            header[header::SIGNATURE].compare_exchange(0, signature, Ordering::AcqRel, Ordering::Acquire)
            && found != signature
        {
            return Err(SumTreeError::OtherLayout { offset, capacity: layout.capacity, fan_out });
        }
        let leaves = Cells::in_region(region, offset + layout.levels()[0].offset, layout.levels()[0].stored)?;
        let (mut narrow, mut wide) = (None, Vec::new());
        for level in &layout.levels()[1..] {
            let start = offset + level.offset;
            if level.width == 4 {
                narrow = Some(Cells::in_region(region, start, level.stored)?);
            } else {
                wide.push(Cells::in_region(region, start, level.stored)?);
            }
        }
        Ok(Self { layout, path: Path::from_environment()?, exclusive: None, header, leaves, narrow, wide })
    }

    /// Returns the same tree, searched with the given instruction set instead of the fastest one that this
    /// machine has. Draws are the same.
    ///
    /// # Errors
    /// [`SumTreeError::Path`] if this machine does not support it.
    pub fn with_path(self, path: Path) -> Result<Self, SumTreeError> {
        Ok(Self { path: path.check()?, ..self })
    }

    /// The instruction set that draws of this tree use.
    #[must_use]
    pub fn path(&self) -> Path {
        self.path
    }

    /// Number of leaves.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.layout.capacity
    }

    /// Leaves per node.
    #[must_use]
    pub fn fan_out(&self) -> usize {
        self.layout.fan_out
    }

    /// The largest weight a leaf may hold.
    #[must_use]
    pub fn max_weight(&self) -> u32 {
        max_weight(self.layout.fan_out)
    }

    /// Sum of all weights, exact while no update is running.
    #[must_use]
    pub fn total(&self) -> u64 {
        use crate::node::Sum;
        self.top().iter().map(Sum::load_clamped).sum()
    }

    /// Weight of one leaf.
    ///
    /// # Errors
    /// [`SumTreeError::Index`].
    pub fn get(&self, index: impl Index) -> Result<u32, SumTreeError> {
        let i = self.check_index(index, 0)?;
        // Acquire: pairs with the Release of the exchange that stored the weight.
        Ok(self.leaves[i].load(Ordering::Acquire))
    }

    /// Weights of many leaves.
    ///
    /// # Errors
    /// [`SumTreeError::Index`], [`SumTreeError::Length`].
    pub fn get_many<I: Index>(&self, indices: &[I], weights: &mut [u32]) -> Result<(), SumTreeError> {
        same_length("weights", weights.len(), indices.len())?;
        if !self.check_bounds(indices, &[]).0 {
            self.check_indices(indices)?;
        }
        for (weight, index) in weights.iter_mut().zip(indices) {
            // Acquire: as in `get`.
            *weight = self.leaves[index.to_usize()].load(Ordering::Acquire);
        }
        Ok(())
    }

    /// Weights of the contiguous leaves `first..first + weights.len()`.
    ///
    /// # Errors
    /// [`SumTreeError::Index`] for the first leaf outside.
    pub fn get_range(&self, first: usize, weights: &mut [u32]) -> Result<(), SumTreeError> {
        self.check_range(first, weights.len())?;
        for (weight, leaf) in weights.iter_mut().zip(&self.leaves[first..]) {
            *weight = leaf.load(Ordering::Acquire); // Acquire: as in `get`.
        }
        Ok(())
    }

    /// Sets the weight of one leaf. Memory that the caller wrote before is visible to threads that draw the
    /// leaf.
    ///
    /// # Errors
    /// [`SumTreeError::Index`], [`SumTreeError::Weight`].
    pub fn set(&self, index: impl Index, weight: u32) -> Result<(), SumTreeError> {
        let i = self.check_index(index, 0)?;
        self.check_weights(&[weight])?;
        match &self.exclusive {
            Some(writer) => writer.run(self, || self.store_one::<Plain>(i, weight)),
            None => self.store_one::<Atomic>(i, weight),
        }
        Ok(())
    }

    /// Sets the weights of many leaves, in order: if an index occurs more than once, its last weight counts.
    /// Stores nothing on an error.
    ///
    /// # Errors
    /// [`SumTreeError::Index`], [`SumTreeError::Weight`], [`SumTreeError::Length`].
    pub fn set_many<I: Index>(&self, indices: &[I], weights: &[u32]) -> Result<(), SumTreeError> {
        self.check_batch(indices, weights)?;
        match &self.exclusive {
            // SAFETY: the check returned an error unless all indices are leaves and there is one weight for
            // each.
            Some(writer) => writer.run(self, || unsafe { self.store_each::<Plain, I>(indices, weights) }),
            // SAFETY: as above.
            None => unsafe { self.store_each::<Atomic, I>(indices, weights) },
        }
        Ok(())
    }

    /// Prefetches the leaves `first..first + count`, which the caller is about to set.
    pub(crate) fn prefetch_run(&self, first: usize, count: usize) {
        let cells = (first..first + count).step_by(16).map(|i| self.leaves.as_ptr().wrapping_add(i));
        cells.for_each(prefetch::write);
    }

    /// Sets the contiguous leaves `first..first + weights.len()`, with one addition per node above them.
    ///
    /// # Errors
    /// [`SumTreeError::Index`] for the first leaf outside, [`SumTreeError::Weight`].
    pub fn set_range(&self, first: usize, weights: &[u32]) -> Result<(), SumTreeError> {
        self.check_range(first, weights.len())?;
        self.check_weights(weights)?;
        match &self.exclusive {
            Some(writer) => writer.run(self, || self.store_run::<Plain>(first, weights)),
            None => self.store_run::<Atomic>(first, weights),
        }
        Ok(())
    }

    /// Sets the `count` contiguous leaves from `first` to one weight, with one addition per node above them.
    ///
    /// # Errors
    /// [`SumTreeError::Index`] for the first leaf outside, [`SumTreeError::Weight`].
    pub fn fill_range(&self, first: usize, count: usize, weight: u32) -> Result<(), SumTreeError> {
        self.check_range(first, count)?;
        if count == 0 {
            return Ok(());
        }
        self.check_weights(&[weight])?;
        const PART: usize = 4096;
        let mut part = vec_with_capacity(count.min(PART))?;
        part.resize(count.min(PART), weight);
        for start in (0..count).step_by(PART) {
            self.set_range(first + start, &part[..PART.min(count - start)])?;
        }
        Ok(())
    }

    /// Checks that every inner node equals the sum of its children. Meaningful only while no update is
    /// running.
    ///
    /// # Errors
    /// [`SumTreeError::Inconsistent`] names the first node that differs.
    pub fn verify(&self) -> Result<(), SumTreeError> {
        for level in 1..self.layout.levels().len() {
            for node in 0..self.layout.levels()[level].used {
                let (computed, stored) = (self.sum_children(level, node), self.load_sum(level, node));
                if stored != computed {
                    return Err(SumTreeError::Inconsistent { level, node, stored, computed });
                }
            }
        }
        Ok(())
    }

    /// Returns true if the padding at the end of each level, which fills up cache lines and nodes, is still
    /// 0.
    pub(crate) fn is_padded(&self) -> bool {
        let levels = self.layout.levels().iter().enumerate();
        levels
            .into_iter()
            .all(|(level, shape)| (shape.used..shape.stored).all(|entry| self.load_sum(level, entry) == 0))
    }

    pub(crate) fn load_sum(&self, level: usize, entry: usize) -> u64 {
        // Relaxed: no update is running, so there is nothing to order.
        match (level, &self.narrow) {
            (0, _) => u64::from(self.leaves[entry].load(Ordering::Relaxed)),
            (1, Some(sums)) => u64::from(sums[entry].load(Ordering::Relaxed)),
            _ => decode_sum(self.wide[self.wide_at(level)][entry].load(Ordering::Relaxed)),
        }
    }

    /// The sum of the children of an inner node.
    pub(crate) fn sum_children(&self, level: usize, node: usize) -> u64 {
        let group = self.layout.levels()[level - 1].group;
        let children = node * group..(node + 1) * group;
        children.map(|child| self.load_sum(level - 1, child)).fold(0, u64::wrapping_add)
    }

    /// Sets an inner node to `sum`. No other thread may update the tree during the call.
    pub(crate) fn store_sum(&self, level: usize, entry: usize, sum: u64) {
        // Relaxed: no other thread updates the tree, and readers allow for sums that lag.
        match (level, &self.narrow) {
            (1, Some(sums)) => sums[entry].store(sum as u32, Ordering::Relaxed),
            _ => self.wide[self.wide_at(level)][entry].store(encode_sum(sum), Ordering::Relaxed),
        }
    }

    /// Index of `level` in `self.wide`.
    pub(crate) fn wide_at(&self, level: usize) -> usize {
        level - 1 - usize::from(self.narrow.is_some())
    }

    pub(crate) fn top(&self) -> &[AtomicU64] {
        &self.wide[self.wide.len() - 1][..self.layout.levels()[self.layout.levels().len() - 1].used]
    }

    pub(crate) fn check_index(&self, index: impl Index, position: usize) -> Result<usize, SumTreeError> {
        let i = index.to_usize();
        if i < self.layout.capacity {
            return Ok(i);
        }
        Err(SumTreeError::Index { index: index.to_i128(), position, capacity: self.layout.capacity })
    }

    /// Checks a batch of updates and records its largest weight.
    fn check_batch<I: Index>(&self, indices: &[I], weights: &[u32]) -> Result<(), SumTreeError> {
        same_length("weights", weights.len(), indices.len())?;
        let (inside, largest) = self.check_bounds(indices, weights);
        if !inside {
            self.check_indices(indices)?;
        }
        if largest > self.max_weight() {
            self.check_weights(weights)?;
        }
        self.update_largest(largest);
        Ok(())
    }

    #[cold]
    fn check_indices<I: Index>(&self, indices: &[I]) -> Result<(), SumTreeError> {
        for (position, index) in indices.iter().enumerate() {
            self.check_index(*index, position)?;
        }
        Ok(())
    }

    fn check_range(&self, first: usize, count: usize) -> Result<(), SumTreeError> {
        let capacity = self.layout.capacity;
        if count == 0 || (first < capacity && count <= capacity - first) {
            return Ok(());
        }
        let position = capacity.saturating_sub(first);
        Err(SumTreeError::Index { index: first.max(capacity) as i128, position, capacity })
    }

    fn check_weights(&self, weights: &[u32]) -> Result<(), SumTreeError> {
        let (max, largest) = (self.max_weight(), weights.iter().copied().max().unwrap_or(0));
        if largest <= max {
            self.update_largest(largest);
            return Ok(());
        }
        let position = weights.iter().position(|w| *w > max).unwrap_or(0);
        Err(SumTreeError::Weight { weight: weights[position], position, max })
    }
}

pub(crate) fn same_length(what: &'static str, got: usize, expected: usize) -> Result<(), SumTreeError> {
    if got == expected { Ok(()) } else { Err(SumTreeError::Length { what, got, expected }) }
}

/// A hash of the tree's shape and the version of the layout; never 0.
fn signature(layout: &Layout) -> u64 {
    const VERSION: u64 = 2;
    let mut state = layout.capacity as u64 ^ (layout.fan_out as u64) << 40 ^ VERSION << 48;
    crate::rng::splitmix64(&mut state) | 1
}
