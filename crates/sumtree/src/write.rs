//! The inner loops of updates: store a leaf, then update the sums on its path. One generic implementation is
//! compiled for each [`Store`] ([`Atomic`], [`Plain`]), number of levels and instruction set.
#![allow(unsafe_code)] // Unchecked indexing of levels and target features; each block states its invariants.

use std::mem::MaybeUninit;

use crate::layout::{LEVELS_MAX, TOP_MAX};
use crate::node::encode_sum;
#[cfg(all(target_arch = "x86_64", not(loom)))]
use crate::path::Path;
use crate::prefetch;
use crate::region::LINE_BYTES;
use crate::rng::splitmix64;
use crate::stats::HistogramDelta;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::{Index, SumTree};

/// How far ahead cache lines are prefetched: in updates, and for contiguous leaves in leaves.
const PREFETCH_AHEAD: usize = 12;
const RUN_PREFETCH_AHEAD: usize = 128;
/// Updates whose cache lines of sums are claimed together before the additions: as many stores as a core can
/// have in flight.
const BLOCK: usize = 64;
/// Batches shorter than this are stored one update at a time.
const SHORT_BATCH: usize = 16;
/// A batch with at least one update per this many sums of the top accumulates its changes of the top and adds
/// them at the end.
const TOP_SUMS_PER_UPDATE: usize = 2;
const SUMS_PER_LINE: usize = LINE_BYTES / size_of::<u64>();

/// How an update changes cells: the leaf first, then the sums from the bottom up.
pub(crate) trait Store {
    /// True if other threads may store at the same time.
    const IS_CONCURRENT: bool;
    /// Stores a leaf and returns its old weight.
    fn leaf(cell: &AtomicU32, weight: u32) -> u32;
    /// Adds to a sum of level 1.
    fn narrow(cell: &AtomicU32, difference: u32);
    /// Adds to a sum.
    fn wide(cell: &AtomicU64, difference: u64);
}

/// For any number of threads at once: an atomic exchange and atomic additions.
pub(crate) struct Atomic;

impl Store for Atomic {
    const IS_CONCURRENT: bool = true;

    #[inline(always)]
    fn leaf(cell: &AtomicU32, weight: u32) -> u32 {
        // Release: pairs with the Acquire fence that ends a sample call; publishes what the caller wrote
        // before. Acquire: later writes of this thread, for example to the row of a leaf just set to 0, stay
        // after it.
        cell.swap(weight, Ordering::AcqRel)
    }

    #[inline(always)]
    fn narrow(cell: &AtomicU32, difference: u32) {
        // Relaxed: sums may lag their leaves; additions commute, and wrap the same way in u32 and u64.
        cell.fetch_add(difference, Ordering::Relaxed);
    }

    #[inline(always)]
    fn wide(cell: &AtomicU64, difference: u64) {
        cell.fetch_add(encode_sum(difference), Ordering::Relaxed); // Relaxed: as above.
    }
}

/// For one thread at a time: plain loads and stores.
pub(crate) struct Plain;

impl Store for Plain {
    const IS_CONCURRENT: bool = false;

    #[inline(always)]
    fn leaf(cell: &AtomicU32, weight: u32) -> u32 {
        let old = cell.load(Ordering::Relaxed); // Relaxed: the exclusive writer orders threads.
        cell.store(weight, Ordering::Release); // Release: as the exchange above.
        old
    }

    #[inline(always)]
    fn narrow(cell: &AtomicU32, difference: u32) {
        // Relaxed: no other thread writes the sums, and readers need no order between them.
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(difference), Ordering::Relaxed);
    }

    #[inline(always)]
    fn wide(cell: &AtomicU64, difference: u64) {
        // Relaxed: as above.
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(encode_sum(difference)), Ordering::Relaxed);
    }
}

/// The leaves that an inner loop stores.
enum Job<'a, I> {
    /// These leaves, in order.
    Each(&'a [I]),
    /// The contiguous leaves from this one on.
    Run(usize),
}

/// The leaves and the levels above them: a level of u32 sums if `NARROW`, then `WIDE` levels of u64 sums. If
/// `WIDE` is 0, their number is read at run time.
struct Levels<'a, const NARROW: bool, const WIDE: usize> {
    tree: &'a SumTree,
    leaves: &'a [AtomicU32],
    narrow: &'a [AtomicU32],
    narrow_shift: u32,
    wide: [(&'a [AtomicU64], u32); WIDE],
}

impl<'a, const NARROW: bool, const WIDE: usize> Levels<'a, NARROW, WIDE> {
    #[inline(always)]
    fn new(tree: &'a SumTree) -> Self {
        let levels = tree.layout.levels();
        let above = &levels[levels.len() - tree.wide.len()..];
        debug_assert!(NARROW == tree.narrow.is_some() && (WIDE == 0 || WIDE == tree.wide.len()));
        Self {
            tree,
            leaves: &tree.leaves,
            narrow: tree.narrow.as_deref().unwrap_or_default(),
            narrow_shift: levels[1].shift,
            wide: std::array::from_fn(|k| (&*tree.wide[k], above[k].shift)),
        }
    }

    /// # Safety
    /// `i` is below the capacity of the tree.
    #[inline(always)]
    unsafe fn leaf(&self, i: usize) -> &AtomicU32 {
        debug_assert!(i < self.leaves.len());
        // SAFETY: every leaf below the capacity is stored.
        unsafe { self.leaves.get_unchecked(i) }
    }

    /// Prefetches the cache lines of a leaf and of the narrow sum above it, which are the ones that miss the
    /// cache.
    #[inline(always)]
    fn prefetch(&self, i: usize) {
        prefetch::write(self.leaves.as_ptr().wrapping_add(i));
        if NARROW {
            prefetch::write(self.narrow.as_ptr().wrapping_add(i >> self.narrow_shift));
        }
    }

    /// Adds to the narrow sum above a leaf, if there is one.
    ///
    /// # Safety
    /// `i` is below the capacity of the tree.
    #[inline(always)]
    unsafe fn climb_narrow<S: Store>(&self, i: usize, difference: u64) {
        if NARROW {
            let at = i >> self.narrow_shift;
            debug_assert!(at < self.narrow.len());
            // SAFETY: a level has an entry above each leaf, `i >> shift` (Layout).
            S::narrow(unsafe { self.narrow.get_unchecked(at) }, difference as u32);
        }
    }

    /// Adds to the sums on the path of a leaf.
    ///
    /// # Safety
    /// `i` is below the capacity of the tree.
    #[inline(always)]
    unsafe fn climb<S: Store>(&self, i: usize, difference: u64) {
        // SAFETY: the caller's promise.
        unsafe { self.climb_narrow::<S>(i, difference) };
        for (sums, shift) in &self.wide {
            debug_assert!(i >> shift < sums.len());
            // SAFETY: as above.
            S::wide(unsafe { sums.get_unchecked(i >> shift) }, difference);
        }
        if WIDE == 0 {
            let levels = self.tree.layout.levels();
            for (sums, level) in self.tree.wide.iter().zip(&levels[levels.len() - self.tree.wide.len()..]) {
                S::wide(&sums[i >> level.shift], difference);
            }
        }
    }

    /// # Safety
    /// All indices are below the capacity of the tree; there are as many as weights.
    #[inline(always)]
    unsafe fn store_each<S: Store, I: Index>(&self, indices: &[I], weights: &[u32]) {
        if S::IS_CONCURRENT && WIDE > 0 && indices.len() >= SHORT_BATCH {
            // SAFETY: the caller's promise.
            return unsafe { self.store_each_shared::<S, I>(indices, weights) };
        }
        let mut histogram_delta = HistogramDelta::new();
        indices.iter().take(PREFETCH_AHEAD).for_each(|index| self.prefetch(index.to_usize()));
        for (j, (index, weight)) in indices.iter().zip(weights).enumerate() {
            if let Some(ahead) = indices.get(j + PREFETCH_AHEAD) {
                self.prefetch(ahead.to_usize());
            }
            let i = index.to_usize();
            // SAFETY: the caller's promise.
            let old = S::leaf(unsafe { self.leaf(i) }, *weight);
            histogram_delta.count(old, *weight);
            if old != *weight {
                // SAFETY: as above.
                unsafe { self.climb::<S>(i, u64::from(*weight).wrapping_sub(u64::from(old))) };
            }
        }
        histogram_delta.flush(self.tree);
    }

    /// As [`Levels::store_each`], with as little waiting as possible for the cache lines of wide sums. These
    /// lines are few, so another core often holds them.
    ///
    /// # Safety
    /// As [`Levels::store_each`].
    #[inline(always)]
    unsafe fn store_each_shared<S: Store, I: Index>(&self, indices: &[I], weights: &[u32]) {
        let top = self.tree.top();
        let mut histogram_delta = HistogramDelta::new();
        let start = batch_start(indices);
        let parts = [start..indices.len(), 0..start].map(|part| (&indices[part.clone()], &weights[part]));
        if indices.len() * TOP_SUMS_PER_UPDATE < top.len() {
            for (indices, weights) in parts {
                // SAFETY: the caller's promise.
                unsafe {
                    self.store_each_claimed::<S, I>(
                        indices,
                        weights,
                        &self.wide,
                        &mut histogram_delta,
                        |_, _| (),
                    )
                };
            }
            return histogram_delta.flush(self.tree);
        }
        // Only as long as the top: writing the whole array would take longer than a small batch.
        let mut gathered = [const { MaybeUninit::uninit() }; TOP_MAX];
        let gathered = &mut gathered[..top.len()];
        gathered.iter_mut().for_each(|sum| {
            sum.write(0u64);
        });
        // SAFETY: every element was just written.
        let gathered = unsafe { &mut *(std::ptr::from_mut(gathered) as *mut [u64]) };
        let (below, shift) = (&self.wide[..WIDE - 1], self.wide[WIDE - 1].1);
        for (indices, weights) in parts {
            // SAFETY: the caller's promise; the top has an entry above each leaf.
            unsafe {
                self.store_each_claimed::<S, I>(
                    indices,
                    weights,
                    below,
                    &mut histogram_delta,
                    |i, difference| {
                        let sum = gathered.get_unchecked_mut(i >> shift);
                        *sum = sum.wrapping_add(difference);
                    },
                );
            }
        }
        histogram_delta.flush(self.tree);
        for (line, differences) in top.chunks(SUMS_PER_LINE).zip(gathered.chunks(SUMS_PER_LINE)) {
            if differences.iter().fold(0, |any, difference| any | difference) != 0 {
                prefetch::claim(&line[0]);
            }
        }
        for (sum, difference) in top.iter().zip(&*gathered) {
            if *difference != 0 {
                S::wide(sum, *difference);
            }
        }
    }

    /// As [`Levels::store_each`], [`BLOCK`] updates at a time: stores their leaves and narrow sums, then
    /// claims the cache lines of their `wide` sums, then adds to these. Calls `gather` with every leaf and
    /// difference.
    ///
    /// # Safety
    /// As [`Levels::store_each`].
    #[inline(always)]
    unsafe fn store_each_claimed<S: Store, I: Index>(
        &self,
        indices: &[I],
        weights: &[u32],
        wide: &[(&[AtomicU64], u32)],
        histogram_delta: &mut HistogramDelta,
        mut gather: impl FnMut(usize, u64),
    ) {
        let mut differences = [0u64; BLOCK];
        indices.iter().take(PREFETCH_AHEAD).for_each(|index| self.prefetch(index.to_usize()));
        for (part, (block, weights)) in indices.chunks(BLOCK).zip(weights.chunks(BLOCK)).enumerate() {
            let ahead = indices.get(part * BLOCK + PREFETCH_AHEAD..).unwrap_or_default();
            for (k, (index, weight)) in block.iter().zip(weights).enumerate() {
                if let Some(ahead) = ahead.get(k) {
                    self.prefetch(ahead.to_usize());
                }
                let i = index.to_usize();
                // SAFETY: the caller's promise.
                let old = S::leaf(unsafe { self.leaf(i) }, *weight);
                histogram_delta.count(old, *weight);
                let difference = u64::from(*weight).wrapping_sub(u64::from(old));
                differences[k] = difference;
                gather(i, difference);
                if old != *weight {
                    // SAFETY: as above.
                    unsafe { self.climb_narrow::<S>(i, difference) };
                }
            }
            for (sums, shift) in wide {
                for index in block {
                    // SAFETY: as in `climb`.
                    prefetch::claim(unsafe { sums.get_unchecked(index.to_usize() >> shift) });
                }
            }
            for (sums, shift) in wide {
                for (index, difference) in block.iter().zip(&differences) {
                    if *difference != 0 {
                        // SAFETY: as in `climb`.
                        S::wide(unsafe { sums.get_unchecked(index.to_usize() >> shift) }, *difference);
                    }
                }
            }
        }
    }

    /// Stores the contiguous leaves from `first` on. Accumulates the differences of each node and adds them
    /// when the run leaves it.
    ///
    /// # Safety
    /// `first + weights.len()` is at most the capacity of the tree.
    #[inline(always)]
    unsafe fn store_run<S: Store>(&self, first: usize, weights: &[u32]) {
        let levels = self.tree.layout.levels();
        let mut gathered = [0u64; LEVELS_MAX];
        let mut histogram_delta = HistogramDelta::new();
        let end = first + weights.len();
        (first..end.min(first + RUN_PREFETCH_AHEAD))
            .step_by(16)
            .for_each(|i| prefetch::write(self.leaves.as_ptr().wrapping_add(i)));
        let mut i = first;
        while i < end {
            let block_end = (((i >> levels[1].shift) + 1) << levels[1].shift).min(end);
            let (from, to) = (i - first, block_end - first);
            prefetch::write(self.leaves.as_ptr().wrapping_add(i + RUN_PREFETCH_AHEAD));
            let mut difference = 0u64;
            for (k, weight) in weights[from..to].iter().enumerate() {
                // SAFETY: `i + k < block_end <= end`, and the caller's promise.
                let old = S::leaf(unsafe { self.leaf(i + k) }, *weight);
                difference = difference.wrapping_add(u64::from(*weight)).wrapping_sub(u64::from(old));
                histogram_delta.count(old, *weight);
            }
            for (above, level) in levels.iter().enumerate().skip(1) {
                gathered[above] = gathered[above].wrapping_add(difference);
                let entry = i >> level.shift;
                if block_end != end && block_end >> level.shift == entry {
                    break; // The run stays in this node, and so in those above.
                }
                difference = std::mem::take(&mut gathered[above]);
                if difference != 0 {
                    match (above, &self.tree.narrow) {
                        (1, Some(sums)) => S::narrow(&sums[entry], difference as u32),
                        _ => S::wide(&self.tree.wide[self.tree.wide_at(above)][entry], difference),
                    }
                }
            }
            i = block_end;
        }
        histogram_delta.flush(self.tree);
    }

    /// # Safety
    /// As [`Levels::store_each`] or [`Levels::store_run`], depending on `job`.
    #[inline(always)]
    unsafe fn run_job<S: Store, I: Index>(&self, job: Job<'_, I>, weights: &[u32]) {
        match job {
            // SAFETY: the caller's promise.
            Job::Each(indices) => unsafe { self.store_each::<S, I>(indices, weights) },
            // SAFETY: as above.
            Job::Run(first) => unsafe { self.store_run::<S>(first, weights) },
        }
    }
}

/// Position at which to start a batch. A batch sorted by leaf, such as the updates for stratified draws,
/// starts at a random position: threads that all start at the same end would follow each other, and wait for
/// cache lines that the first has just written. Equal indices stay together and in order. 0 for unsorted
/// batches.
#[inline(always)]
fn batch_start<I: Index>(indices: &[I]) -> usize {
    if !indices.is_sorted_by(|a, b| a.to_usize() <= b.to_usize()) {
        return 0;
    }
    // The indices were drawn at random, so they serve as random numbers.
    let mut state =
        indices.iter().step_by(8).fold(0, |mixed: u64, i| mixed.rotate_left(7) ^ i.to_usize() as u64);
    let near = ((u128::from(splitmix64(&mut state)) * indices.len() as u128) >> 64) as usize;
    let differ = |i: &usize| indices[i - 1].to_usize() != indices[*i].to_usize();
    (near.max(1)..indices.len()).find(differ).unwrap_or(0)
}

/// # Safety
/// As [`Levels::run_job`].
#[inline(always)]
unsafe fn store_by_shape<S: Store, I: Index>(tree: &SumTree, job: Job<'_, I>, weights: &[u32]) {
    // SAFETY: the caller's promise.
    unsafe {
        match (&job, tree.narrow.is_some(), tree.wide.len()) {
            // The shapes of fan-out 16 up to 2^28 leaves. Runs update sums too rarely to gain from this.
            (Job::Each(_), true, 1) => Levels::<true, 1>::new(tree).run_job::<S, I>(job, weights),
            (Job::Each(_), true, 2) => Levels::<true, 2>::new(tree).run_job::<S, I>(job, weights),
            (Job::Each(_), true, 3) => Levels::<true, 3>::new(tree).run_job::<S, I>(job, weights),
            (Job::Each(_), true, 4) => Levels::<true, 4>::new(tree).run_job::<S, I>(job, weights),
            // Up to 2^14 leaves.
            (Job::Each(_), false, 1) => Levels::<false, 1>::new(tree).run_job::<S, I>(job, weights),
            (_, true, _) => Levels::<true, 0>::new(tree).run_job::<S, I>(job, weights),
            (_, false, _) => Levels::<false, 0>::new(tree).run_job::<S, I>(job, weights),
        }
    }
}

/// # Safety
/// As [`Levels::run_job`], and the machine has the instructions of [`Path::Avx2`].
#[cfg(all(target_arch = "x86_64", not(loom)))]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn store_by_shape_avx2<S: Store, I: Index>(tree: &SumTree, job: Job<'_, I>, weights: &[u32]) {
    // SAFETY: the caller's promise.
    unsafe { store_by_shape::<S, I>(tree, job, weights) }
}

#[inline(always)]
unsafe fn dispatch<S: Store, I: Index>(tree: &SumTree, job: Job<'_, I>, weights: &[u32]) {
    match tree.path {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        // SAFETY: the caller's promise; the path was checked when the tree was made, and AVX-512 includes AVX2.
        Path::Avx2 | Path::Avx512 => unsafe { store_by_shape_avx2::<S, I>(tree, job, weights) },
        // SAFETY: the caller's promise.
        _ => unsafe { store_by_shape::<S, I>(tree, job, weights) },
    }
}

/// Returns whether all indices are below `capacity`, and the largest weight. Has no branches, so that it is
/// compiled to vector instructions.
#[inline(always)]
fn check_bounds<I: Index>(indices: &[I], weights: &[u32], capacity: usize) -> (bool, u32) {
    // An index beyond the last one, or with the highest bit set, sets the highest bit of `seen`.
    let last = capacity - 1;
    let seen = indices.iter().map(|i| i.to_usize()).fold(0, |seen, i| seen | i | last.wrapping_sub(i));
    (seen >> (usize::BITS - 1) == 0, weights.iter().fold(0, |largest, weight| largest.max(*weight)))
}

/// # Safety
/// The machine has the instructions of [`Path::Avx2`].
#[cfg(all(target_arch = "x86_64", not(loom)))]
#[target_feature(enable = "avx2")]
unsafe fn check_bounds_avx2<I: Index>(indices: &[I], weights: &[u32], capacity: usize) -> (bool, u32) {
    check_bounds(indices, weights, capacity)
}

impl SumTree {
    /// Returns whether all indices are leaves, and the largest weight.
    pub(crate) fn check_bounds<I: Index>(&self, indices: &[I], weights: &[u32]) -> (bool, u32) {
        match self.path {
            #[cfg(all(target_arch = "x86_64", not(loom)))]
            // SAFETY: the path was checked when the tree was made.
            Path::Avx2 | Path::Avx512 => unsafe { check_bounds_avx2(indices, weights, self.capacity()) },
            _ => check_bounds(indices, weights, self.capacity()),
        }
    }

    /// Stores many weights in order, with `S`.
    ///
    /// # Safety
    /// All indices are below the capacity; there are as many as weights.
    pub(crate) unsafe fn store_each<S: Store, I: Index>(&self, indices: &[I], weights: &[u32]) {
        debug_assert!(indices.len() == weights.len() && self.check_bounds(indices, weights).0);
        // SAFETY: the caller's promise; `Index` is implemented by this crate alone, for integers.
        unsafe { dispatch::<S, I>(self, Job::Each(indices), weights) }
    }

    /// Stores the weights of the contiguous leaves from `first` on. Panics if a leaf is outside the tree.
    pub(crate) fn store_run<S: Store>(&self, first: usize, weights: &[u32]) {
        assert!(first <= self.capacity() && weights.len() <= self.capacity() - first);
        // SAFETY: the assertion checks it.
        unsafe { dispatch::<S, u32>(self, Job::Run(first), weights) }
    }

    /// Stores one weight. Panics if the leaf is outside the tree.
    #[inline]
    pub(crate) fn store_one<S: Store>(&self, i: usize, weight: u32) {
        assert!(i < self.capacity());
        let old = S::leaf(&self.leaves[i], weight);
        if old != weight {
            // SAFETY: the assertion checks it.
            unsafe { self.climb_one::<S>(i, u64::from(weight).wrapping_sub(u64::from(old))) };
            HistogramDelta::count_one(self, old, weight);
        }
    }

    #[inline(always)]
    unsafe fn climb_one<S: Store>(&self, i: usize, difference: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            match (self.narrow.is_some(), self.wide.len()) {
                (true, 1) => Levels::<true, 1>::new(self).climb::<S>(i, difference),
                (true, 2) => Levels::<true, 2>::new(self).climb::<S>(i, difference),
                (true, 3) => Levels::<true, 3>::new(self).climb::<S>(i, difference),
                (true, _) => Levels::<true, 0>::new(self).climb::<S>(i, difference),
                (false, _) => Levels::<false, 0>::new(self).climb::<S>(i, difference),
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::Path;
    use std::cell::Cell;

    thread_local! {
        static STORES: Cell<(u64, u64, u64)> = const { Cell::new((0, 0, 0)) };
    }

    /// Counts what a run stores: leaves, sums of level 1, sums above.
    struct Counting;

    impl Store for Counting {
        const IS_CONCURRENT: bool = true;

        fn leaf(cell: &AtomicU32, weight: u32) -> u32 {
            STORES.set((STORES.get().0 + 1, STORES.get().1, STORES.get().2));
            Plain::leaf(cell, weight)
        }

        fn narrow(cell: &AtomicU32, difference: u32) {
            STORES.set((STORES.get().0, STORES.get().1 + 1, STORES.get().2));
            Plain::narrow(cell, difference);
        }

        fn wide(cell: &AtomicU64, difference: u64) {
            STORES.set((STORES.get().0, STORES.get().1, STORES.get().2 + 1));
            Plain::wide(cell, difference);
        }
    }

    /// A run adds once to each node above it, however many of its leaves changed.
    #[test]
    fn a_run_adds_once_to_each_parent() {
        // Levels of a tree of 2^18 leaves at fan-out 16: 16,384 u32 sums, 1,024 u64 sums.
        for path in Path::ALL.into_iter().filter(|path| path.is_supported()) {
            let tree = SumTree::new(1 << 18, 16).unwrap().with_path(path).unwrap();
            for (first, count) in
                [(0, 1), (0, 16), (5, 11), (5, 12), (100, 1000), (250, 12), (4096, 4096), (7, 70_000)]
            {
                STORES.set((0, 0, 0));
                let weights: Vec<u32> =
                    (0..count).map(|k| 1 + (first + k) as u32 % 7 + count as u32).collect();
                tree.store_run::<Counting>(first, &weights);
                let nodes = |shift: u32| ((first + count - 1) >> shift) as u64 - (first >> shift) as u64 + 1;
                assert_eq!(STORES.get(), (count as u64, nodes(4), nodes(8)), "{first} {count}");
                tree.verify().unwrap();
            }
        }
    }
}
