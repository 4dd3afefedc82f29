//! Drawing leaves: each call computes private prefix sums of the top, then descends from there to a leaf for
//! each draw.

use std::cell::RefCell;

use crate::descent::{CHUNK, Chunk, LOST, read_top, walk};
use crate::memory::{out_of_memory, vec_with_capacity};
use crate::node::{Step, Sum, search};
use crate::rng::splitmix64;
use crate::sync::{AtomicU32, Ordering, fence};
use crate::top::Top;
use crate::tree::same_length;
use crate::{Rng, SumTree, SumTreeError};

/// How the draws of one batch depend on each other. In every mode leaf `i` is drawn with probability
/// proportional to its weight, and the batch takes its random numbers from one generator in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Draws {
    /// Each draw is independent of the others.
    Independent,
    /// One draw from each of B strata of equal weight: each leaf is drawn B * w / total times on average,
    /// with less variance than independent draws. The batch is in leaf order.
    #[default]
    Stratified,
    /// As stratified, with one random offset for all strata: each leaf is drawn B * w / total times, rounded
    /// down or up.
    Systematic,
    /// Distinct leaves: each draw is from the leaves not drawn before.
    WithoutReplacement,
    /// Stratified draws for learners that share a tree: the batch of all learners has `learners` times as
    /// many strata, and this caller draws from every `learners`-th of them, starting at `rank`.
    Split {
        /// Index of this learner, from 0.
        rank: u32,
        /// Number of learners.
        learners: u32,
    },
}

/// Attempts to redraw near the target, and attempts in total, before all leaves are scanned. Few under loom,
/// which tries every point at which a writer can be suspended.
const NEAR_RESTARTS: u32 = if cfg!(loom) { 1 } else { 8 };
const RESTARTS_MAX: u32 = if cfg!(loom) { 2 } else { 64 };
/// Rounds of independent draws without replacement before the drawn leaves are excluded from the targets.
const DISTINCT_ROUNDS: usize = 4;
/// A drawn leaf, the weight read from it, and the offset of the target within it.
#[derive(Debug, Clone, Copy)]
struct Drawn {
    leaf: usize,
    weight: u32,
    offset: u64,
}

/// Division by a number that is constant for a batch, as a multiplication and a shift. Source: Granlund &
/// Montgomery (1994), theorem 4.2 with 63-bit numerators.
#[derive(Debug, Clone, Copy)]
struct Divisor {
    by: u64,
    multiplier: u64,
    shift: u32,
}

impl Divisor {
    fn new(by: u64) -> Self {
        let log = if by > 1 { 64 - (by - 1).leading_zeros() } else { 0 };
        let multiplier = ((1u128 << (63 + log)) / u128::from(by) + 1) as u64;
        Self { by, multiplier, shift: 63 + log }
    }

    #[inline(always)]
    fn divide(&self, n: u64) -> u64 {
        debug_assert!(n < 1 << 63);
        ((u128::from(n) * u128::from(self.multiplier)) >> self.shift) as u64
    }
}

/// Generates the targets of a batch: prefix sums in `0..total`.
struct Targets {
    total: u64,
    /// Number of strata, by which points are divided; `None` for independent draws.
    strata: Option<Divisor>,
    /// The next stratum, and the distance to the one after it.
    next: u64,
    step: u64,
    /// The offset that systematic draws share.
    shared_offset: Option<u64>,
}

impl Targets {
    fn new(mode: Draws, batch: usize, total: u64, rng: &mut Rng) -> Self {
        let batch = batch as u64;
        let of = |strata: u64, next, step, shared_offset| Self {
            total,
            strata: Some(Divisor::new(strata.max(1))),
            next,
            step,
            shared_offset,
        };
        match mode {
            Draws::Independent | Draws::WithoutReplacement => {
                Self { total, strata: None, next: 0, step: 0, shared_offset: None }
            }
            Draws::Stratified => of(batch, 0, 1, None),
            Draws::Systematic => of(batch, 0, 1, Some(rng.below(total))),
            Draws::Split { rank, learners } => {
                of(batch * u64::from(learners), u64::from(rank), u64::from(learners), None)
            }
        }
    }

    /// Stratum j of S contains the points `j * total..(j + 1) * total` of a scale S times as fine as the
    /// weights. The target is a point divided by S. Each unit of weight has exactly S points, so there is no
    /// rounding error.
    #[inline(always)]
    fn next(&mut self, rng: &mut Rng) -> u64 {
        let Some(strata) = &self.strata else { return rng.below(self.total) };
        let offset = self.shared_offset.unwrap_or_else(|| rng.below(self.total));
        let stratum = self.next;
        self.next += self.step;
        match stratum.checked_mul(self.total).and_then(|point| point.checked_add(offset)) {
            Some(point) if point < 1 << 63 => strata.divide(point),
            _ => {
                let point = u128::from(stratum) * u128::from(self.total) + u128::from(offset);
                (point / u128::from(strata.by)) as u64
            }
        }
    }

    /// Fills `out` with the next targets.
    fn fill(&mut self, rng: &mut Rng, out: &mut [u64]) {
        let strata = match (&self.strata, self.shared_offset) {
            (Some(strata), None) => strata,
            _ => return out.iter_mut().for_each(|target| *target = self.next(rng)),
        };
        let after = self.step.checked_mul(out.len() as u64).and_then(|far| self.next.checked_add(far));
        // All points are below the start of the stratum after the last one.
        let end = after.and_then(|after| after.checked_add(1)?.checked_mul(self.total));
        if end.is_none_or(|end| end >= 1 << 63) {
            return out.iter_mut().for_each(|target| *target = self.next(rng));
        }
        // As `next`, without its checks.
        let (mut start, stride) = (self.next * self.total, self.step * self.total);
        for target in out.iter_mut() {
            *target = strata.divide(start + rng.below(self.total));
            start += stride;
        }
        self.next += self.step * out.len() as u64;
    }

    /// Weight of one stratum: the largest distance by which a restarted draw may move.
    fn window(&self) -> u64 {
        self.strata.map_or(self.total, |s| self.total / s.by).max(1)
    }
}

impl SumTree {
    /// Fills `indices` and `weights` with a batch of draws. Returns the sum of all weights as read by this
    /// call, so that `weights[j] / total` is the probability of draw `j`.
    ///
    /// At some moment of the call, every returned leaf had exactly the returned weight, which is above zero.
    /// What its writer wrote before storing that weight is visible to the caller. Never waits for a writer.
    ///
    /// # Errors
    /// [`SumTreeError::Empty`] when every weight is zero; [`SumTreeError::TooFewLeaves`] if fewer leaves have
    /// a weight above zero than distinct leaves are requested; [`SumTreeError::Rank`];
    /// [`SumTreeError::Length`].
    pub fn sample(
        &self,
        rng: &mut Rng,
        mode: Draws,
        indices: &mut [u64],
        weights: &mut [u32],
    ) -> Result<u64, SumTreeError> {
        same_length("weights", weights.len(), indices.len())?;
        if let Draws::Split { rank, learners } = mode
            && rank >= learners
        {
            return Err(SumTreeError::Rank { rank, learners });
        }
        let batch = indices.len();
        with_scratch(|Scratch { top, chunk, targets }| {
            read_top(self, top);
            let total = top.total();
            if batch == 0 {
                return Ok(total);
            }
            if total == 0 {
                return Err(SumTreeError::Empty);
            }
            if mode == Draws::WithoutReplacement {
                self.sample_distinct(top, chunk, rng, indices, weights)?;
            } else {
                let mut source = Targets::new(mode, batch, total, rng);
                let window = source.window();
                for (indices, weights) in indices.chunks_mut(CHUNK).zip(weights.chunks_mut(CHUNK)) {
                    let targets = &mut targets[..indices.len()];
                    source.fill(rng, targets);
                    self.walk_all(top, targets, window, chunk, weights)?;
                    indices.iter_mut().zip(&chunk.entry).for_each(|(index, leaf)| *index = u64::from(*leaf));
                }
            }
            // Acquire: the relaxed loads above and this fence pair with the Release exchanges that stored the weights.
            fence(Ordering::Acquire);
            Ok(total)
        })
    }

    /// Finds the leaves that contain the given prefix sums, and their weights. Prefix sums are in leaf order
    /// and start at 0, which is in the first leaf with a weight above zero. Returns the total as read by this
    /// call.
    ///
    /// # Errors
    /// [`SumTreeError::Empty`]; [`SumTreeError::Prefix`] for a prefix sum at or beyond the total;
    /// [`SumTreeError::Length`].
    pub fn find(
        &self,
        prefix_sums: &[u64],
        indices: &mut [u64],
        weights: &mut [u32],
    ) -> Result<u64, SumTreeError> {
        same_length("indices", indices.len(), prefix_sums.len())?;
        self.find_with(indices, weights, |position, total| match prefix_sums[position] {
            prefix if prefix < total => Ok(prefix),
            prefix => Err(SumTreeError::Prefix { prefix, position, total }),
        })
    }

    /// As [`SumTree::find`], for the prefix sums that `target(position, total)` returns. `total` is the total
    /// as read by this call, so that `target` can check a prefix sum against it or compute one from it.
    /// Targets at or beyond the total find the last leaf with a weight above zero.
    ///
    /// # Errors
    /// [`SumTreeError::Empty`]; [`SumTreeError::Length`]; errors of `target`.
    pub fn find_with<E: From<SumTreeError>>(
        &self,
        indices: &mut [u64],
        weights: &mut [u32],
        mut target: impl FnMut(usize, u64) -> Result<u64, E>,
    ) -> Result<u64, E> {
        same_length("weights", weights.len(), indices.len())?;
        with_scratch(|Scratch { top, chunk, targets }| {
            read_top(self, top);
            let total = top.total();
            if indices.is_empty() {
                return Ok(total);
            }
            if total == 0 {
                return Err(SumTreeError::Empty.into());
            }
            let parts = indices.chunks_mut(CHUNK).zip(weights.chunks_mut(CHUNK)).enumerate();
            for (part, (indices, weights)) in parts {
                let targets = &mut targets[..indices.len()];
                for (j, at) in targets.iter_mut().enumerate() {
                    *at = target(part * CHUNK + j, total)?.min(total - 1);
                }
                self.walk_all(top, targets, 1, chunk, weights)?;
                indices.iter_mut().zip(&chunk.entry).for_each(|(index, leaf)| *index = u64::from(*leaf));
            }
            fence(Ordering::Acquire); // Acquire: as in `sample`.
            Ok(total)
        })
    }

    /// Finds the leaves of a chunk of targets. Redraws the targets for which no leaf was found.
    fn walk_all(
        &self,
        top: &Top,
        targets: &[u64],
        window: u64,
        chunk: &mut Chunk,
        weights: &mut [u32],
    ) -> Result<(), SumTreeError> {
        walk(self, top, targets, chunk, weights);
        let n = targets.len();
        if chunk.residual[..n].contains(&LOST) {
            self.redraw_lost(top.total(), targets, window, chunk, weights)?;
        }
        Ok(())
    }

    #[cold]
    fn redraw_lost(
        &self,
        total: u64,
        targets: &[u64],
        window: u64,
        chunk: &mut Chunk,
        weights: &mut [u32],
    ) -> Result<(), SumTreeError> {
        for j in 0..targets.len() {
            if chunk.residual[j] == LOST {
                let drawn = self.restart(targets[j], total, window)?;
                (chunk.entry[j], chunk.residual[j], weights[j]) =
                    (drawn.leaf as u32, drawn.offset, drawn.weight);
            }
        }
        Ok(())
    }

    /// Descends from an entry of the top to a leaf. `None` if writers emptied a node on the way.
    fn descend(&self, mut entry: usize, mut residual: u64) -> Option<Drawn> {
        let levels = self.layout.levels();
        for level in (1..levels.len() - 1).rev() {
            let group = levels[level].group;
            let siblings = entry * group..(entry + 1) * group;
            let (lane, below) = match (level, &self.narrow) {
                (1, Some(sums)) => find_child(&sums[siblings], residual)?,
                _ => find_child(&self.wide[self.wide_at(level)][siblings], residual)?,
            };
            (entry, residual) = (entry * group + lane, below);
        }
        let group = levels[0].group;
        let (lane, within, weight) =
            find_leaf_child(&self.leaves[entry * group..(entry + 1) * group], residual)?;
        Some(Drawn { leaf: entry * group + lane, weight, offset: within })
    }

    /// Redraws a target after writers emptied a node on its path: near the target first (a stratified draw
    /// stays close to its stratum), then anywhere, then by a scan of the leaves. So the call ends whatever
    /// writers do.
    #[cold]
    fn restart(&self, target: u64, total: u64, window: u64) -> Result<Drawn, SumTreeError> {
        let mut state = target ^ total.rotate_left(32);
        let mut top = Box::new(Top::new());
        for attempt in 0..RESTARTS_MAX {
            self.count_restart();
            top.read(self);
            if top.total() == 0 {
                break;
            }
            let random = splitmix64(&mut state);
            let near = ((u128::from(random) * u128::from(window)) >> 64) as u64;
            let anywhere = ((u128::from(random) * u128::from(top.total())) >> 64) as u64;
            let target = if attempt < NEAR_RESTARTS { (target + near) % top.total() } else { anywhere };
            let (entry, residual) = top.find(target);
            if let Some(drawn) = self.descend(entry, residual) {
                return Ok(drawn);
            }
        }
        self.scan(&mut Rng::new(state)).ok_or(SumTreeError::Empty)
    }

    /// Draws a leaf by weight, in a single pass over all leaves. `None` if all of them are zero.
    #[cold]
    fn scan(&self, rng: &mut Rng) -> Option<Drawn> {
        let mut sum = 0;
        let mut drawn = None;
        for (leaf, cell) in self.leaves.iter().enumerate() {
            let weight = cell.load_clamped();
            if weight > 0 {
                sum += weight;
                if rng.below(sum) < weight {
                    drawn = Some(Drawn { leaf, weight: weight as u32, offset: 0 });
                }
            }
        }
        drawn
    }

    /// Draws distinct leaves. Draws independently in rounds and drops repeated leaves, which is equivalent to
    /// drawing each leaf from those not drawn before. If that stalls (a few leaves hold nearly all the
    /// weight, or most leaves are asked for), draws from the prefix sums that the taken leaves do not cover, or
    /// from all other leaves in one pass if that takes less time.
    fn sample_distinct(
        &self,
        top: &Top,
        chunk: &mut Chunk,
        rng: &mut Rng,
        indices: &mut [u64],
        weights: &mut [u32],
    ) -> Result<(), SumTreeError> {
        let (asked, total) = (indices.len(), top.total());
        if asked > self.capacity() {
            return Err(SumTreeError::TooFewLeaves { asked, positive: self.positive() as usize });
        }
        let mut taken = DrawnLeaves::with_capacity(asked)?;
        for _ in 0..DISTINCT_ROUNDS {
            let missing = asked - taken.len();
            for first in (0..missing).step_by(CHUNK) {
                let (mut targets, mut seen) = ([0; CHUNK], [0; CHUNK]);
                let n = CHUNK.min(missing - first);
                targets[..n].iter_mut().for_each(|target| *target = rng.below(total));
                self.walk_all(top, &targets[..n], total, chunk, &mut seen[..n])?;
                for j in 0..n {
                    let (leaf, within) = (chunk.entry[j] as usize, chunk.residual[j]);
                    let at = taken.len();
                    if taken.insert(Drawn { leaf, weight: seen[j], offset: within }, targets[j]) {
                        (indices[at], weights[at]) = (leaf as u64, seen[j]);
                    }
                }
            }
        }
        taken.sort();
        let mut failures = 0;
        while taken.len() < asked {
            let (at, left) = (taken.len(), total.saturating_sub(taken.total_weight));
            let steps = at.saturating_mul(asked - at); // Each draw below looks at the ranges of the taken leaves.
            if left == 0 || failures == RESTARTS_MAX || steps > self.capacity() {
                return self.sample_rest(&taken, rng, indices, weights);
            }
            let target = taken.uncovered_prefix(rng.below(left)).min(total - 1);
            let (entry, residual) = top.find(target);
            match self.descend(entry, residual) {
                Some(drawn) if taken.insert_sorted(drawn, target) => {
                    (indices[at], weights[at]) = (drawn.leaf as u64, drawn.weight);
                }
                _ => failures += 1,
            }
        }
        Ok(())
    }

    /// Draws the rest of a batch of distinct leaves, after those already taken, in one pass over all leaves.
    #[cold]
    fn sample_rest(
        &self,
        taken: &DrawnLeaves,
        rng: &mut Rng,
        indices: &mut [u64],
        weights: &mut [u32],
    ) -> Result<(), SumTreeError> {
        let (first, asked) = (taken.len(), indices.len());
        let all = 0..self.capacity();
        let rest =
            self.smallest_keys(rng, all, asked - first, |leaf| !taken.contains(leaf), |weight| 1.0 / weight)?;
        if rest.len() < asked - first {
            return Err(SumTreeError::TooFewLeaves { asked, positive: first + rest.len() });
        }
        let outputs = indices[first..].iter_mut().zip(&mut weights[first..]);
        for ((index, weight), (_, leaf, seen)) in outputs.zip(rest) {
            (*index, *weight) = (leaf, seen);
        }
        Ok(())
    }
}

/// Finds the child for a residual. A residual beyond the sum of the children is taken modulo that sum, once.
/// `None` if the children are zero or the second search fails too.
#[inline(always)]
pub(crate) fn find_child<S: Sum>(siblings: &[S], residual: u64) -> Option<(usize, u64)> {
    let mut left = residual;
    for _ in 0..2 {
        match search(siblings, left) {
            Step::Child { lane, residual } => return Some((lane, residual)),
            Step::Beyond { sum } => left = wrap_residual(left, sum)?,
        }
    }
    None
}

/// As [`find_child`] for leaves. Also returns the weight that was compared with the residual; it is not read
/// again.
#[inline(always)]
pub(crate) fn find_leaf_child(siblings: &[AtomicU32], residual: u64) -> Option<(usize, u64, u32)> {
    let mut within = residual;
    for _ in 0..2 {
        let (mut left, mut sum) = (within, 0);
        for (lane, leaf) in siblings.iter().enumerate() {
            let seen = leaf.load_clamped();
            if left < seen {
                return Some((lane, left, seen as u32));
            }
            left -= seen;
            sum += seen;
        }
        within = wrap_residual(within, sum)?;
    }
    None
}

/// Returns `residual` modulo `sum`; `None` if `sum` is zero or the draw was lost before.
fn wrap_residual(residual: u64, sum: u64) -> Option<u64> {
    if residual == LOST { None } else { residual.checked_rem(sum) }
}

/// Working memory of a call, kept per thread: clearing it each time would cost more than a small batch of draws.
struct Scratch {
    top: Top,
    chunk: Chunk,
    targets: [u64; CHUNK],
}

impl Scratch {
    fn boxed() -> Box<Self> {
        Box::new(Self { top: Top::new(), chunk: Chunk::new(), targets: [0; CHUNK] })
    }
}

fn with_scratch<R>(f: impl FnOnce(&mut Scratch) -> R) -> R {
    thread_local! {
        static SCRATCH: RefCell<Box<Scratch>> = RefCell::new(Scratch::boxed());
    }
    // Threads of a loom model are coroutines of one thread and would share it.
    if cfg!(loom) {
        return f(&mut Scratch::boxed());
    }
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => f(&mut scratch),
        // The caller's function, to which `find_with` passes totals, draws itself.
        Err(_) => f(&mut Scratch::boxed()),
    })
}

/// Leaves already drawn in a call without replacement, with the range of prefix sums that each covers.
struct DrawnLeaves {
    leaves: std::collections::HashSet<usize>,
    /// (start, weight) of each range, sorted by start after [`DrawnLeaves::sort`].
    ranges: Vec<(u64, u64)>,
    total_weight: u64,
}

impl DrawnLeaves {
    fn with_capacity(n: usize) -> Result<Self, SumTreeError> {
        let mut leaves = std::collections::HashSet::new();
        leaves.try_reserve(n).map_err(|error| out_of_memory(n.saturating_mul(size_of::<usize>()), &error))?;
        Ok(Self { leaves, ranges: vec_with_capacity(n)?, total_weight: 0 })
    }

    fn len(&self) -> usize {
        self.leaves.len()
    }

    fn contains(&self, leaf: usize) -> bool {
        self.leaves.contains(&leaf)
    }

    /// Adds a leaf. Returns false if it was taken before.
    fn insert(&mut self, drawn: Drawn, target: u64) -> bool {
        self.insert_at(self.ranges.len(), drawn, target)
    }

    /// Sorts the ranges, after which leaves are added with [`DrawnLeaves::insert_sorted`].
    fn sort(&mut self) {
        self.ranges.reverse(); // Of equal starts the last one comes first.
        self.ranges.sort_by_key(|range| range.0);
    }

    fn insert_sorted(&mut self, drawn: Drawn, target: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.0 < range_start(drawn, target));
        self.insert_at(at, drawn, target)
    }

    fn insert_at(&mut self, at: usize, drawn: Drawn, target: u64) -> bool {
        if !self.leaves.insert(drawn.leaf) {
            return false;
        }
        self.ranges.insert(at, (range_start(drawn, target), u64::from(drawn.weight)));
        self.total_weight += u64::from(drawn.weight);
        true
    }

    /// The prefix sum of the `nth` unit of weight that no taken leaf covers.
    fn uncovered_prefix(&self, nth: u64) -> u64 {
        let mut target = nth;
        for (start, weight) in &self.ranges {
            if target < *start {
                break;
            }
            target += weight;
        }
        target
    }
}

/// The first prefix sum that a leaf drawn for `target` covers.
fn range_start(drawn: Drawn, target: u64) -> u64 {
    target.saturating_sub(drawn.offset)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn divisor_is_exact() {
        let mut rng = Rng::new(5);
        for by in (1..300).chain([1 << 20, (1 << 20) + 1, u64::from(u32::MAX), 1 << 40]) {
            let divisor = Divisor::new(by);
            let edges = [0, 1, by - 1, by, by + 1, (1 << 63) - 1, ((1 << 63) - 1) / by * by];
            for n in edges.into_iter().chain((0..200).map(|_| rng.next_u64() >> (1 + rng.below(60)))) {
                assert_eq!(divisor.divide(n), n / by, "{n} / {by}");
            }
        }
    }

    /// Every offset of every stratum, for totals smaller and larger than the batch: each unit of weight is the target
    /// of exactly B of the B * total equally likely points, and strata come in order.
    #[test]
    fn strata_cover_each_unit_equally() {
        for (batch, total) in [(1u64, 7u64), (3, 5), (5, 3), (8, 8), (7, 40), (4, 1)] {
            let mut hits = vec![0; total as usize];
            for offset in 0..total {
                let mut targets = Targets::new(Draws::Stratified, batch as usize, total, &mut Rng::new(0));
                targets.shared_offset = Some(offset);
                let drawn: Vec<u64> = (0..batch).map(|_| targets.next(&mut Rng::new(0))).collect();
                assert!(drawn.is_sorted());
                drawn.iter().for_each(|u| hits[*u as usize] += 1);
            }
            assert!(hits.iter().all(|h| *h == batch), "{batch} {total} {hits:?}");
        }
    }

    /// `fill` returns the same targets as `next`, also for totals that need the long division.
    #[test]
    fn filled_targets_are_the_same() {
        for total in [1, 7, 1000, (1 << 40) + 3, 1 << 57, (1 << 62) + 5] {
            for mode in [
                Draws::Independent,
                Draws::Stratified,
                Draws::Systematic,
                Draws::Split { rank: 1, learners: 3 },
            ] {
                let (mut a, mut b) = (Rng::new(total), Rng::new(total));
                let mut one = Targets::new(mode, 100, total, &mut a);
                let mut many = Targets::new(mode, 100, total, &mut b);
                let expected: Vec<u64> = (0..100).map(|_| one.next(&mut a)).collect();
                let mut filled = vec![0; 100];
                filled.chunks_mut(33).for_each(|part| many.fill(&mut b, part));
                assert_eq!(filled, expected, "{mode:?} {total}");
                assert_eq!((a.state(), one.next), (b.state(), many.next));
            }
        }
    }

    /// Learners' strata together are the strata of one large batch.
    #[test]
    fn split_strata_are_those_of_the_large_batch() {
        let at = |mode, batch| {
            let mut rng = Rng::new(0);
            let mut targets = Targets::new(mode, batch, 1000, &mut rng);
            targets.shared_offset = Some(500);
            (0..batch).map(|_| targets.next(&mut rng)).collect::<Vec<_>>()
        };
        let whole = at(Draws::Stratified, 12);
        let mut parts: Vec<u64> = (0..3).flat_map(|rank| at(Draws::Split { rank, learners: 3 }, 4)).collect();
        parts.sort_unstable();
        assert_eq!(parts, whole);
    }

    #[test]
    fn points_too_large_for_63_bits_take_the_long_division() {
        let total = (1 << 62) + 12_345;
        let mut targets = Targets::new(Draws::Stratified, 10, total, &mut Rng::new(0));
        targets.shared_offset = Some(total - 1);
        for j in 0..10u128 {
            let expected = ((j + 1) * u128::from(total) - 1) / 10;
            assert_eq!(u128::from(targets.next(&mut Rng::new(0))), expected);
        }
    }

    /// A writer is between the exchange of a leaf and its additions, so the sums above are larger than the
    /// leaves. A draw takes its residual modulo the sum that it read, or restarts, and never returns an empty
    /// leaf.
    #[test]
    fn stale_sums_never_draw_an_empty_leaf() {
        let paths = crate::Path::ALL.into_iter().filter(|path| path.is_supported());
        for (path, fan_out) in paths.flat_map(|path| crate::FAN_OUTS.map(|k| (path, k))) {
            let tree = SumTree::new(100_000, fan_out).unwrap().with_path(path).unwrap();
            tree.set_range(0, &[1000; 100]).unwrap();
            tree.fill_range(50_000, 100, 3).unwrap();
            (0..100).for_each(|i| tree.leaves[i].store(0, Ordering::Relaxed));
            tree.leaves[70].store(1, Ordering::Relaxed);
            let (mut indices, mut weights) = ([0; 64], [0; 64]);
            for mode in [Draws::Independent, Draws::Stratified, Draws::WithoutReplacement] {
                tree.sample(&mut Rng::new(1), mode, &mut indices, &mut weights).unwrap();
                for (i, w) in indices.iter().zip(&weights) {
                    assert!((*i == 70 && *w == 1) || ((50_000..50_100).contains(i) && *w == 3), "{i} {w}");
                }
            }
            assert!(tree.restarts() > 0);
        }
    }

    #[test]
    fn a_target_may_be_drawn_from_another_tree() {
        let (tree, other) = (SumTree::new(100, 16).unwrap(), SumTree::new(10, 16).unwrap());
        tree.fill_range(0, 100, 1).unwrap();
        other.set(7u32, 1).unwrap();
        let (mut indices, mut weights) = ([0; 3], [0; 3]);
        let found = tree.find_with(&mut indices, &mut weights, |_, total| {
            let (mut drawn, mut weight) = ([0], [0]);
            other.sample(&mut Rng::new(1), Draws::Independent, &mut drawn, &mut weight)?;
            Ok::<_, SumTreeError>(drawn[0] + total / 2)
        });
        assert_eq!((found, indices), (Ok(100), [57; 3]));
    }

    /// Sums 2, 0, 3: a residual of 5 and more is taken modulo 5, and nothing is found where all sums are 0.
    #[test]
    fn a_residual_beyond_the_sum_is_taken_modulo_the_sum() {
        let node = [2, 0, 3].map(AtomicU32::new);
        let expected = [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)];
        for residual in 0..15 {
            assert_eq!(find_child(&node, residual), Some(expected[residual as usize % 5]), "{residual}");
        }
        assert_eq!(find_child(&node, LOST), None);
        assert_eq!(find_child(&[0, 0].map(AtomicU32::new), 0), None);
    }

    /// All leaves are zero while the sums are not: an error after a bounded number of attempts.
    #[test]
    fn sums_without_leaves_end_in_an_error() {
        let tree = SumTree::new(5000, 16).unwrap();
        tree.fill_range(0, 5000, 9).unwrap();
        tree.leaves.iter().for_each(|leaf| leaf.store(0, Ordering::Relaxed));
        for mode in [Draws::Stratified, Draws::WithoutReplacement] {
            let drawn = tree.sample(&mut Rng::new(1), mode, &mut [0; 4], &mut [0; 4]);
            assert_eq!(drawn, Err(SumTreeError::Empty));
        }
        assert_eq!(tree.find(&[44], &mut [0], &mut [0]), Err(SumTreeError::Empty));
    }
}
