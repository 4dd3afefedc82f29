//! Which rows a batch holds, how likely each was, and so how much it weighs.

use super::slots::{Pin, word};
use super::{Leaves, Replay, ReplayError, WeightNorm};
use crate::memory::vec_of_zeros;
use crate::sync::Ordering;
use crate::{Draws, Mixture, Odds, Rng, SumTreeError};

/// By what the rows of a batch are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Selection {
    /// By weight.
    Weighted(Draws),
    /// Uniformly and independently among the rows that have weight. All importance weights are 1.
    Uniform,
    /// The rows of largest weight, largest first. All importance weights are 1. Reads all weights.
    Largest,
    /// A share drawn uniformly, a share uniformly among the newest rows, the rest by weight.
    Mixture {
        /// Share of uniform draws, from 0 to 1.
        uniform: f64,
        /// Share of draws of the newest rows, from 0 to 1; at most 1 together with `uniform`.
        newest: f64,
        /// How many rows count as newest. More do while none of them can be drawn.
        newest_rows: usize,
    },
}

impl From<Draws> for Selection {
    fn from(mode: Draws) -> Self {
        Self::Weighted(mode)
    }
}

/// How likely each row of a batch was.
pub(super) enum Chances {
    ByWeight,
    Equal,
    Mixed(Box<Odds>),
}

impl Replay {
    /// Draws slots with the weights that the tree held.
    pub(super) fn select(
        &self,
        rng: &mut Rng,
        selection: Selection,
        indices: &mut [u64],
        drawn: &mut [u32],
    ) -> Result<Chances, ReplayError> {
        let tree = self.tree();
        let chances = match selection {
            Selection::Weighted(mode) => tree.sample(rng, mode, indices, drawn).map(|_| Chances::ByWeight),
            Selection::Uniform => {
                tree.sample_uniform(rng, 0..self.slots_used(), indices, drawn).map(|()| Chances::Equal)
            }
            Selection::Largest => tree.largest(indices, drawn).map(|()| Chances::Equal),
            Selection::Mixture { uniform, newest, newest_rows } => self
                .mixture(rng, (uniform, newest, newest_rows), indices, drawn)
                .map(|odds| Chances::Mixed(Box::new(odds))),
        };
        chances.map_err(|error| match error {
            SumTreeError::Empty => self.not_sampleable(),
            other => other.into(),
        })
    }

    /// Slots that have been reserved so far.
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
    ) -> Result<Odds, SumTreeError> {
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
            // The newest rows wait for the end of their windows.
            match self.tree().sample_mixture(rng, &mixture, indices, drawn) {
                Err(SumTreeError::Empty) if newest > 0.0 && newest_count < most => {
                    newest_count = (2 * newest_count).min(most);
                }
                other => return other,
            }
        }
    }

    /// Importance weights: (probability of the row / smallest probability) ** -beta, the smallest of the batch or a
    /// lower bound for all rows.
    pub(super) fn importance(
        &self,
        chances: &Chances,
        (indices, drawn): (&[u64], &[u32]),
        beta: f64,
        weights: &mut [f32],
    ) {
        let probability = |slot: u64, weight: u32| match chances {
            Chances::ByWeight => f64::from(weight.max(1)),
            Chances::Equal => 1.0,
            Chances::Mixed(odds) => odds.probability(slot as usize, weight.max(1)),
        };
        if beta == 0.0 || matches!(chances, Chances::Equal) {
            return weights.fill(1.0);
        }
        let rows = || indices.iter().zip(drawn).map(|(slot, weight)| probability(*slot, *weight));
        let mut smallest = rows().fold(f64::INFINITY, f64::min);
        if self.settings.weight_norm == WeightNorm::Global
            && let Some(bound) = self.tree().smallest_at_least()
        {
            // No row is less likely than one of the smallest weight that is not new.
            smallest = smallest.min(match chances {
                Chances::Mixed(odds) => odds.least(bound),
                _ => f64::from(bound),
            });
        }
        for (weight, row) in weights.iter_mut().zip(rows()) {
            *weight = (smallest / row).powf(beta) as f32;
        }
    }

    /// Takes up to `count` rows out of circulation, for prioritized eviction: distinct ones, each drawn with probability
    /// proportional to one over its weight. They are never drawn again and their tickets are stale; their slots are
    /// used again when the ring comes round, and transitions of other rows whose windows reach over them stay whole.
    /// Returns how many rows it were: fewer if others closed some of them first.
    ///
    /// # Errors
    /// [`ReplayError::Tree`] when fewer rows can be drawn or there is no memory for as many, [`ReplayError::Closed`].
    pub fn evict(&self, count: usize) -> Result<usize, ReplayError> {
        let live = 0..self.slots_used();
        if count > live.len() {
            let positive = self.tree().positive() as usize;
            return Err(SumTreeError::TooFewLeaves { asked: count, positive }.into());
        }
        let (mut indices, mut drawn) = (vec_of_zeros(count)?, vec_of_zeros(count)?);
        let mut rng = self.next_rng();
        self.mend()?;
        let member = self.slots.enter()?.change();
        self.touch();
        let pin: Pin<'_, Leaves> = member.pin();
        self.tree().sample_eviction(&mut rng, live, &mut indices, &mut drawn)?;
        let closed = indices.iter().filter(|slot| pin.evict(**slot as usize)).count();
        Ok(closed)
    }
}
