//! Draws that are not, or only in part, proportional to weight: uniform draws among leaves with a weight
//! above zero, mixtures with shares of uniform and of newest leaves, and draws of leaves to evict.

use std::ops::Range;

use crate::memory::{collect, vec_with_capacity};
use crate::sync::{Ordering, fence};
use crate::tree::same_length;
use crate::{Draws, Rng, SumTree, SumTreeError};

/// Uniform attempts before the leaves with a weight above zero are listed instead. If one leaf in 16 has
/// weight, all attempts fail with probability (15/16)^64 = 2 %.
const UNIFORM_ATTEMPTS: u32 = 64;

/// Shares of a batch that are not drawn by weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixture {
    /// Share drawn uniformly among the leaves of `live` with a weight above zero.
    pub uniform: f64,
    /// Share drawn uniformly among the newest leaves with a weight above zero.
    pub newest: f64,
    /// Leaves in use.
    pub live: Range<usize>,
    /// First of the newest leaves. They continue at the start of `live` after its end.
    pub newest_from: usize,
    /// Number of newest leaves, at most the length of `live`.
    pub newest_count: usize,
    /// True if all leaves outside `live` have weight 0, so that those in it need not be counted.
    pub live_is_all: bool,
}

/// Probabilities of the leaves in one draw of a mixture, for the tree as read by the drawing call.
#[derive(Debug, Clone, PartialEq)]
pub struct MixtureProbabilities {
    total: u64,
    mixture: Mixture,
    /// Number of leaves with a weight above zero, among all live leaves and among the newest.
    live_positive: u64,
    newest_positive: u64,
}

impl MixtureProbabilities {
    /// Sum of all weights.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// A lower bound of the probability of live leaves of at least this weight.
    #[must_use]
    pub fn lower_bound(&self, weight: u32) -> f64 {
        let Mixture { uniform, newest, .. } = self.mixture;
        (1.0 - uniform - newest) * f64::from(weight) / self.total as f64
            + uniform / self.live_positive.max(1) as f64
    }

    /// Probability of a leaf of this weight: `(1 - uniform - newest) * w / total + uniform / live + newest /
    /// newest leaves`, where only leaves with a weight above zero are counted.
    #[must_use]
    pub fn probability(&self, leaf: usize, weight: u32) -> f64 {
        let Mixture { uniform, newest, live, .. } = &self.mixture;
        let mut p = (1.0 - uniform - newest) * f64::from(weight) / self.total as f64;
        // At least 1: the leaf itself had a weight above zero when it was drawn, whatever the count.
        if *uniform > 0.0 && live.contains(&leaf) {
            p += uniform / self.live_positive.max(1) as f64;
        }
        if *newest > 0.0 && self.mixture.newest_ranges().iter().any(|run| run.contains(&leaf)) {
            p += newest / self.newest_positive.max(1) as f64;
        }
        p
    }
}

impl Mixture {
    fn check(&self, capacity: usize) -> Result<(), SumTreeError> {
        let share = |share: f64| (0.0..=1.0).contains(&share);
        if !share(self.uniform) || !share(self.newest) || self.uniform + self.newest > 1.0 {
            return Err(SumTreeError::Shares { uniform: self.uniform, newest: self.newest });
        }
        check_range(&self.live, capacity)?;
        let newest = self.newest > 0.0;
        if newest && !self.live.contains(&self.newest_from) {
            let index = self.newest_from as i128;
            return Err(SumTreeError::Index { index, position: 0, capacity: self.live.end });
        }
        if newest && !(1..=self.live.len()).contains(&self.newest_count) {
            let (got, expected) = (self.newest_count, self.live.len());
            return Err(SumTreeError::Length { what: "newest leaves", got, expected });
        }
        Ok(())
    }

    /// The newest leaves as at most two contiguous ranges.
    fn newest_ranges(&self) -> [Range<usize>; 2] {
        let end = self.newest_from + self.newest_count;
        let over = end.saturating_sub(self.live.end);
        [self.newest_from..end.min(self.live.end), self.live.start..self.live.start + over]
    }
}

fn check_range(range: &Range<usize>, capacity: usize) -> Result<(), SumTreeError> {
    if range.start < range.end && range.end <= capacity {
        return Ok(());
    }
    Err(SumTreeError::Index { index: range.end as i128, position: 0, capacity })
}

impl SumTree {
    /// Draws uniformly and independently among the leaves of `range` with a weight above zero. Stores the
    /// drawn leaves in `indices` and their weights in `weights`.
    ///
    /// # Errors
    /// [`SumTreeError::Index`] for an empty range or one beyond the tree; [`SumTreeError::Empty`] if all
    /// leaves in it have weight 0; [`SumTreeError::Length`].
    pub fn sample_uniform(
        &self,
        rng: &mut Rng,
        range: Range<usize>,
        indices: &mut [u64],
        weights: &mut [u32],
    ) -> Result<(), SumTreeError> {
        same_length("weights", weights.len(), indices.len())?;
        check_range(&range, self.capacity())?;
        self.sample_uniform_in(rng, &[range, 0..0], indices, weights)
    }

    /// Draws a batch of three parts, in this order: from the newest leaves, uniform, and by weight
    /// (stratified). The sizes of the parts are random; on average they are the shares of `mixture`.
    /// [`MixtureProbabilities::probability`] is the probability of a leaf in one draw of the mixture, for
    /// importance weights. Reads the newest leaves once to count those with a weight above zero, and the live
    /// leaves too if `uniform` is above zero, unless `live_is_all`.
    ///
    /// # Errors
    /// [`SumTreeError::Shares`]; [`SumTreeError::Index`] and [`SumTreeError::Length`] for bad ranges and
    /// slices; [`SumTreeError::Empty`] if all weights of the tree, of the live or of the newest leaves are
    /// zero.
    pub fn sample_mixture(
        &self,
        rng: &mut Rng,
        mixture: &Mixture,
        indices: &mut [u64],
        weights: &mut [u32],
    ) -> Result<MixtureProbabilities, SumTreeError> {
        let n = indices.len();
        same_length("weights", weights.len(), n)?;
        mixture.check(self.capacity())?;
        // One random number rounds both shares and their sum, so that each of the three parts is exact on average.
        let random = rng.unit();
        let draws = |share: f64| ((share * n as f64 + random) as usize).min(n);
        let newest = draws(mixture.newest);
        let uniform = draws(mixture.newest + mixture.uniform) - newest;
        let runs = mixture.newest_ranges();
        let whole = mixture.live_is_all || mixture.live == (0..self.capacity());
        let live_positive = match mixture.uniform > 0.0 {
            false => 0,
            true if whole => self.positive(),
            true => self.count_positive_in(&[mixture.live.clone(), 0..0]),
        };
        let newest_positive = if mixture.newest > 0.0 { self.count_positive_in(&runs) } else { 0 };
        let (a, rest) = indices.split_at_mut(newest);
        let (b, c) = rest.split_at_mut(uniform);
        let (wa, rest) = weights.split_at_mut(newest);
        let (wb, wc) = rest.split_at_mut(uniform);
        self.sample_uniform_in(rng, &runs, a, wa)?;
        self.sample_uniform_in(rng, &[mixture.live.clone(), 0..0], b, wb)?;
        let total = self.sample(rng, Draws::Stratified, c, wc)?;
        if total == 0 {
            return Err(SumTreeError::Empty);
        }
        Ok(MixtureProbabilities { total, mixture: mixture.clone(), live_positive, newest_positive })
    }

    /// Draws distinct leaves of `range` for prioritized eviction, one after the other, each from the leaves
    /// not drawn before with probability proportional to 1 / weight. Reads the range once.
    ///
    /// Source: Efraimidis & Spirakis (2006), "Weighted random sampling with a reservoir", with exponential keys.
    ///
    /// # Errors
    /// [`SumTreeError::Index`] for an empty range or one beyond the tree; [`SumTreeError::TooFewLeaves`] if
    /// fewer leaves in it have a weight above zero; [`SumTreeError::Length`].
    pub fn sample_eviction(
        &self,
        rng: &mut Rng,
        range: Range<usize>,
        indices: &mut [u64],
        weights: &mut [u32],
    ) -> Result<(), SumTreeError> {
        let asked = indices.len();
        same_length("weights", weights.len(), asked)?;
        check_range(&range, self.capacity())?;
        if asked == 0 {
            return Ok(());
        }
        if asked > range.len() {
            let positive = self.count_positive_in(&[range, 0..0]) as usize;
            return Err(SumTreeError::TooFewLeaves { asked, positive });
        }
        let drawn = self.smallest_keys(rng, range, asked, |_| true, |weight| weight)?;
        fence(Ordering::Acquire); // Acquire: pairs with the Release exchanges that stored the weights.
        if drawn.len() < asked {
            return Err(SumTreeError::TooFewLeaves { asked, positive: drawn.len() });
        }
        for ((index, weight), (_, leaf, seen)) in indices.iter_mut().zip(weights).zip(drawn) {
            (*index, *weight) = (leaf, seen);
        }
        Ok(())
    }

    /// Draws at most `asked` of the allowed leaves of `range`, one after the other, each with probability proportional
    /// to 1 / `mean(weight)` among those not drawn before. Returns key, leaf and weight of each.
    pub(crate) fn smallest_keys(
        &self,
        rng: &mut Rng,
        range: Range<usize>,
        asked: usize,
        allowed: impl Fn(usize) -> bool,
        mean: impl Fn(f64) -> f64,
    ) -> Result<Vec<(u64, u64, u32)>, SumTreeError> {
        // The `asked` smallest keys so far, the largest of them on top. Keys are not negative, so their bits
        // have the same order as their values.
        let mut kept = std::collections::BinaryHeap::from(vec_with_capacity(asked + 1)?);
        let mut bound = f64::INFINITY;
        for leaf in range {
            let weight = self.leaves[leaf].load(Ordering::Relaxed); // Relaxed: the caller's fence.
            if weight == 0 || !allowed(leaf) {
                continue;
            }
            // An exponential variable of this mean: the leaf with the smallest one is drawn first. -ln(u) >= 1 -
            // u, which is cheaper and excludes most leaves.
            let (u, mean) = (1.0 - rng.unit(), mean(f64::from(weight)));
            if kept.len() == asked && mean * (1.0 - u) >= bound {
                continue;
            }
            let key = -u.ln() * mean;
            if kept.len() < asked || key < bound {
                kept.push((key.to_bits(), leaf as u64, weight));
                if kept.len() > asked {
                    kept.pop();
                }
                bound = kept.peek().map_or(bound, |last| f64::from_bits(last.0));
            }
        }
        Ok(kept.into_sorted_vec())
    }

    fn count_positive_in(&self, runs: &[Range<usize>; 2]) -> u64 {
        let count = |run: &Range<usize>| {
            // Relaxed: a count; which leaves are drawn is decided by later loads.
            self.leaves[run.clone()].iter().filter(|leaf| leaf.load(Ordering::Relaxed) > 0).count() as u64
        };
        runs.iter().map(count).sum()
    }

    /// Draws uniformly among the leaves of two ranges with a weight above zero: by trying random leaves, or,
    /// if such leaves are rare, from a list of them.
    fn sample_uniform_in(
        &self,
        rng: &mut Rng,
        runs: &[Range<usize>; 2],
        indices: &mut [u64],
        weights: &mut [u32],
    ) -> Result<(), SumTreeError> {
        let among = (runs[0].len() + runs[1].len()) as u64;
        let mut listed: Option<Vec<(usize, u32)>> = None;
        for (index, weight) in indices.iter_mut().zip(weights.iter_mut()) {
            let try_one = |rng: &mut Rng| {
                let nth = rng.below(among) as usize;
                let leaf = runs[0]
                    .len()
                    .checked_sub(nth + 1)
                    .map_or_else(|| runs[1].start + nth - runs[0].len(), |_| runs[0].start + nth);
                (leaf, self.leaves[leaf].load(Ordering::Relaxed)) // Relaxed: the fence below.
            };
            let tries = if listed.is_some() { 0 } else { UNIFORM_ATTEMPTS };
            let found = (0..tries).map(|_| try_one(rng)).find(|(_, w)| *w > 0);
            let (leaf, seen) = match found {
                Some(found) => found,
                None => {
                    let all = match &mut listed {
                        Some(all) => all,
                        none => {
                            let leaves = runs.iter().cloned().flatten();
                            let seen = leaves.map(|leaf| (leaf, self.leaves[leaf].load(Ordering::Relaxed)));
                            none.insert(collect(seen.filter(|(_, w)| *w > 0))?)
                        }
                    };
                    if all.is_empty() {
                        return Err(SumTreeError::Empty);
                    }
                    all[rng.below(all.len() as u64) as usize]
                }
            };
            (*index, *weight) = (leaf as u64, seen);
        }
        // Acquire: pairs with the Release exchanges that stored the weights.
        fence(Ordering::Acquire);
        Ok(())
    }
}
