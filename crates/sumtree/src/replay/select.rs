//! Choosing the rows of a batch, with their probabilities and importance weights.

use super::slots::{Pin, word};
use super::{Replay, ReplayError, TreeWeights, WeightNorm};
use crate::memory::vec_of_zeros;
use crate::sync::Ordering;
use crate::{Draws, Mixture, MixtureProbabilities, Rng, SumTreeError};

/// How the rows of a batch are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Selection {
    /// In proportion to their weights.
    Weighted(Draws),
    /// Uniformly and independently among the rows with a weight above 0. All importance weights are 1.
    Uniform,
    /// The rows of largest weight, largest first. All importance weights are 1. Reads all weights.
    Largest,
    /// A share is drawn uniformly, a share uniformly among the newest rows, and the rest in proportion to the
    /// weights.
    Mixture {
        /// Share of uniform draws, from 0 to 1.
        uniform: f64,
        /// Share of draws among the newest rows, from 0 to 1; at most 1 together with `uniform`.
        newest: f64,
        /// Number of rows that count as newest. It is doubled as long as none of them can be sampled.
        newest_rows: usize,
    },
}

impl From<Draws> for Selection {
    fn from(mode: Draws) -> Self {
        Self::Weighted(mode)
    }
}

/// The probabilities of the rows of a batch.
pub(super) enum RowProbabilities {
    ByWeight,
    Equal,
    Mixed(Box<MixtureProbabilities>),
}

impl Replay {
    /// Draws slots into `indices`, and the weights that the tree held into `drawn`.
    pub(super) fn select(
        &self,
        rng: &mut Rng,
        selection: Selection,
        indices: &mut [u64],
        drawn: &mut [u32],
    ) -> Result<RowProbabilities, ReplayError> {
        let tree = self.tree();
        let probabilities = match selection {
            Selection::Weighted(mode) => {
                tree.sample(rng, mode, indices, drawn).map(|_| RowProbabilities::ByWeight)
            }
            Selection::Uniform => tree
                .sample_uniform(rng, 0..self.slots_used(), indices, drawn)
                .map(|()| RowProbabilities::Equal),
            Selection::Largest => tree.largest(indices, drawn).map(|()| RowProbabilities::Equal),
            Selection::Mixture { uniform, newest, newest_rows } => self
                .mixture(rng, (uniform, newest, newest_rows), indices, drawn)
                .map(|probabilities| RowProbabilities::Mixed(Box::new(probabilities))),
        };
        probabilities.map_err(|error| match error {
            SumTreeError::Empty => self.not_sampleable(),
            other => other.into(),
        })
    }

    /// Number of slots that have been reserved so far, at least 1.
    fn slots_used(&self) -> usize {
        let reserved = self.slots.words[word::RESERVED].load(Ordering::Relaxed);
        reserved.clamp(1, self.layout.ring.slots as u64) as usize
    }

    fn mixture(
        &self,
        rng: &mut Rng,
        (uniform, newest, newest_rows): (f64, f64, usize),
        indices: &mut [u64],
        drawn: &mut [u32],
    ) -> Result<MixtureProbabilities, SumTreeError> {
        let reserved = self.slots.words[word::RESERVED].load(Ordering::Relaxed);
        let live = 0..reserved.clamp(1, self.layout.ring.slots as u64) as usize;
        let most = live.len().min(self.settings.capacity);
        let mut newest_count = newest_rows.clamp(1, most);
        loop {
            let first = self.layout.ring.row(reserved.saturating_sub(newest_count as u64));
            let mixture = Mixture {
                uniform,
                newest,
                live: live.clone(),
                newest_from: first.slot,
                newest_count,
                live_is_all: true,
            };
            // The newest rows may have no weight yet, because their windows are not complete.
            match self.tree().sample_mixture(rng, &mixture, indices, drawn) {
                Err(SumTreeError::Empty) if newest > 0.0 && newest_count < most => {
                    newest_count = (2 * newest_count).min(most);
                }
                other => return other,
            }
        }
    }

    /// Importance weights: `(probability of the row / smallest probability) ** -beta`. The smallest
    /// probability is that of the batch or a lower bound for all rows ([`WeightNorm`]).
    pub(super) fn importance_weights(
        &self,
        probabilities: &RowProbabilities,
        (indices, drawn): (&[u64], &[u32]),
        beta: f64,
        weights: &mut [f32],
    ) {
        let probability = |slot: u64, weight: u32| match probabilities {
            RowProbabilities::ByWeight => f64::from(weight.max(1)),
            RowProbabilities::Equal => 1.0,
            RowProbabilities::Mixed(probabilities) => probabilities.probability(slot as usize, weight.max(1)),
        };
        if beta == 0.0 || matches!(probabilities, RowProbabilities::Equal) {
            return weights.fill(1.0);
        }
        let rows = || indices.iter().zip(drawn).map(|(slot, weight)| probability(*slot, *weight));
        let mut smallest = rows().fold(f64::INFINITY, f64::min);
        if self.settings.weight_norm == WeightNorm::Global
            && let Some(bound) = self.tree().smallest_weight_floor()
        {
            // The least likely row has the smallest weight and is not among the newest.
            smallest = smallest.min(match probabilities {
                RowProbabilities::Mixed(probabilities) => probabilities.lower_bound(bound),
                _ => f64::from(bound),
            });
        }
        for (weight, row) in weights.iter_mut().zip(rows()) {
            *weight = (smallest / row).powf(beta) as f32;
        }
    }

    /// Evicts up to `count` distinct rows before they are overwritten (prioritized eviction), each drawn with
    /// probability proportional to 1 / weight. Evicted rows are never sampled again and their tickets are
    /// stale. Their slots are reused when the ring reaches them; until then, windows of other rows that
    /// include them stay complete. Returns the number of evicted rows, which is below `count` if other
    /// threads close some of them first.
    ///
    /// # Errors
    /// [`ReplayError::Tree`] if fewer than `count` rows can be sampled or memory cannot be allocated,
    /// [`ReplayError::Closed`].
    pub fn evict(&self, count: usize) -> Result<usize, ReplayError> {
        let live = 0..self.slots_used();
        if count > live.len() {
            let positive = self.tree().positive() as usize;
            return Err(SumTreeError::TooFewLeaves { asked: count, positive }.into());
        }
        let (mut indices, mut drawn) = (vec_of_zeros(count)?, vec_of_zeros(count)?);
        let mut rng = self.next_rng();
        self.repair()?;
        let operation = self.slots.enter()?.begin_changes();
        self.mark_dirty();
        let pin: Pin<'_, TreeWeights> = operation.pin();
        self.tree().sample_eviction(&mut rng, live, &mut indices, &mut drawn)?;
        let closed = indices.iter().filter(|slot| pin.evict(**slot as usize)).count();
        Ok(closed)
    }
}
