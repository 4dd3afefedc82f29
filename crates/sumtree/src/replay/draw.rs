//! Sampling: draws slots by weight, follows each window to its end and copies the rows, all under one pin.
#![allow(unsafe_code)] // Reads of columns under a pin.

use super::gather::BatchView;
use super::select::Selection;
use super::settings::setting;
use super::slots::{Pin, Row};
use super::{Replay, ReplayError, TreeWeights, counter};
use crate::memory::{self, vec_of_zeros, vec_with_capacity};
use crate::sync::Ordering;
use crate::{Draws, Rng, SumTreeError};

/// Maximum number of redraws of rows that were overwritten, per batch, and of draws in one redraw.
const REDRAWS_MAX: u32 = 10_000;
/// Maximum number of draws in all redraws of a batch, including draws of rows that the batch already has.
const REDRAW_TRIES_MAX: u32 = 200_000;

/// The arrays of a batch, filled by [`Replay::sample`]. Each has `indices.len()` rows.
pub struct Batch<'a> {
    /// One array per output of [`Replay::outputs`], in order; with steps, of shape (steps, batch, ...).
    pub fields: Vec<&'a mut [u8]>,
    /// Discount of the bootstrapped value: `gamma ** steps`, or 0 after termination.
    pub discounts: &'a mut [f32],
    /// Slots drawn.
    pub indices: &'a mut [u64],
    /// Importance weights.
    pub weights: &'a mut [f32],
    /// Tickets for [`Replay::update`].
    pub tickets: &'a mut [u64],
}

/// Progress in reading a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Open,
    Complete,
    /// The row was closed before it was read, or is newer than the weight with which it was drawn.
    Lost,
}

/// The transition that starts with a row.
#[derive(Clone, Copy)]
pub(super) struct Transition {
    pub row: Row,
    pub last: usize,
    pub next: usize,
    pub reward: f64,
    pub discount: f64,
    pub terminated: bool,
    pub truncated: bool,
    pub progress: Progress,
}

impl Replay {
    /// Returns true if batches have a discount per row: rows are steps of episodes and not sampled as
    /// sequences.
    #[must_use]
    pub fn has_discounts(&self) -> bool {
        self.roles.steps() && self.settings.sequence.is_none()
    }

    /// Samples a batch, by weight ([`Draws`]) or otherwise ([`Selection`]), and copies its rows to `batch`.
    ///
    /// Importance weights are `(probability / smallest probability) ** -beta`. The smallest probability is
    /// that of the batch or a lower bound for all rows, depending on `weight_norm`. The bound is based on the
    /// smallest weight, which is known to within a factor of 2.
    ///
    /// Source: Schaul et al. (2016), "Prioritized Experience Replay", section 3.4.
    ///
    /// # Errors
    /// [`ReplayError::NotSampleable`] if no row has a weight above 0; [`ReplayError::Tree`] if the selection
    /// is not possible, an array has a wrong length, or memory cannot be allocated; [`ReplayError::RowBytes`]
    /// if the array of a field has a wrong length; [`ReplayError::Setting`] if beta is negative or not
    /// finite; [`ReplayError::Row`] if a row is damaged.
    pub fn sample(
        &self,
        selection: impl Into<Selection>,
        beta: f64,
        batch: &mut Batch<'_>,
    ) -> Result<(), ReplayError> {
        let mut drawn = vec_of_zeros(batch.indices.len())?;
        self.sample_drawn(selection.into(), beta, batch, &mut drawn)
    }

    /// As [`Replay::sample`]. `drawn` receives the weights that the tree held when the rows were drawn.
    ///
    /// # Errors
    /// As [`Replay::sample`].
    pub fn sample_drawn(
        &self,
        selection: impl Into<Selection>,
        beta: f64,
        batch: &mut Batch<'_>,
        drawn: &mut [u32],
    ) -> Result<(), ReplayError> {
        let selection = selection.into();
        if !(0.0..f64::INFINITY).contains(&beta) {
            return Err(setting("beta", beta, "a finite number of at least 0"));
        }
        self.check_batch(batch)?;
        let count = batch.indices.len();
        if drawn.len() != count {
            return Err(
                SumTreeError::Length { what: "drawn weights", got: drawn.len(), expected: count }.into()
            );
        }
        let mut rng = self.next_rng();
        let operation = self.slots.enter()?;
        let pin = operation.pin();
        let then = pin.cleared();
        let probabilities = self.select(&mut rng, selection, batch.indices, drawn)?;
        let mut transitions = self.transitions(&pin, batch.indices, then)?;
        let (mut redrawn, mut tries) = (0, REDRAW_TRIES_MAX);
        let tag = self.ticket_tag();
        for (i, transition) in transitions.iter_mut().enumerate() {
            while transition.progress == Progress::Lost {
                // The row was closed or overwritten after the draw: draw another in its place.
                redrawn += 1;
                if redrawn > REDRAWS_MAX {
                    return Err(self.not_sampleable());
                }
                let then = pin.cleared();
                self.redraw(&mut rng, selection, i, (batch.indices, drawn), &mut tries)?;
                *transition = self.transitions(&pin, &batch.indices[i..=i], then)?[0];
            }
            batch.tickets[i] = transition.row.ticket() ^ tag;
            batch.discounts[i] = transition.discount as f32;
        }
        let goals = self.goals(&pin, &mut rng, &transitions)?;
        let view = BatchView { pin: &pin, transitions: &transitions, goals: &goals };
        self.gather(&view, &mut batch.fields)?;
        drop(pin);
        drop(operation);
        self.importance_weights(&probabilities, (batch.indices, drawn), beta, batch.weights);
        self.count(counter::SAMPLED, count as u64);
        self.count(counter::REDRAWN, u64::from(redrawn));
        Ok(())
    }

    /// The random number generator of one call, from the seed and the number of earlier calls in all
    /// processes.
    pub(super) fn next_rng(&self) -> Rng {
        let call = self.counters[counter::DRAWS].fetch_add(1, Ordering::Relaxed);
        let seed = self.counters[counter::SEED].load(Ordering::Relaxed);
        let start = Rng::new(seed).next_u64();
        // Any odd multiplier other than that of SplitMix64 keeps the streams of the calls distinct.
        Rng::new(start ^ call.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn redraw(
        &self,
        rng: &mut Rng,
        selection: Selection,
        i: usize,
        (indices, drawn): (&mut [u64], &mut [u32]),
        tries: &mut u32,
    ) -> Result<(), ReplayError> {
        let distinct =
            matches!(selection, Selection::Largest | Selection::Weighted(Draws::WithoutReplacement));
        let again = match selection {
            Selection::Weighted(_) | Selection::Largest => Selection::Weighted(Draws::Independent),
            other => other,
        };
        for _ in 0..REDRAWS_MAX.min(*tries) {
            *tries -= 1;
            let (mut index, mut weight) = ([0], [0]);
            self.select(rng, again, &mut index, &mut weight).map_err(|_| self.not_sampleable())?;
            let taken = distinct && indices.iter().enumerate().any(|(j, other)| j != i && *other == index[0]);
            if !taken {
                (indices[i], drawn[i]) = (index[0], weight[0]);
                return Ok(());
            }
        }
        Err(self.not_sampleable())
    }

    pub(super) fn not_sampleable(&self) -> ReplayError {
        let (rows, sampleable) = (self.len(), self.sampleable());
        ReplayError::NotSampleable { rows, sampleable, n_step: self.settings.n_step }
    }

    /// Reads the transitions that start in `slots`, which were drawn after [`Pin::cleared`] returned `then`.
    /// Advances all windows by one step at a time, so that their cache misses overlap.
    fn transitions(
        &self,
        pin: &Pin<'_, TreeWeights>,
        slots: &[u64],
        then: u64,
    ) -> Result<Vec<Transition>, ReplayError> {
        let read = [self.roles.reward, self.roles.terminated, self.roles.truncated, self.roles.discount];
        let load = |slot: usize| {
            pin.prefetch(slot);
            if self.roles.steps() {
                read.into_iter().flatten().for_each(|field| self.columns[field].prefetch(slot));
            }
        };
        slots.iter().for_each(|slot| load(*slot as usize));
        let mut transitions = vec_with_capacity(slots.len())?;
        transitions.extend(slots.iter().map(|slot| self.start(pin, *slot as usize)));
        let now = pin.cleared();
        if now != then {
            // The weight drawn may be that of the previous row of the slot.
            for t in transitions.iter_mut().filter(|t| self.slots.ring.is_among(t.row.slot, then..now)) {
                t.progress = Progress::Lost;
            }
        }
        if !self.roles.steps() {
            return Ok(transitions);
        }
        // The next slot of a window is known only after a step. What that slot needs is prefetched while the
        // other windows take their steps, a few cache lines at a time.
        for step in 1..=self.settings.n_step {
            for t in transitions.iter_mut().filter(|t| t.progress == Progress::Open) {
                self.step(pin, t, step == self.settings.n_step);
                if t.progress == Progress::Open {
                    load(t.last);
                }
            }
        }
        self.check_stacks(pin, &mut transitions);
        Ok(transitions)
    }

    /// Marks transitions whose earlier frames were overwritten as lost, so that they are redrawn.
    fn check_stacks(&self, pin: &Pin<'_, TreeWeights>, transitions: &mut [Transition]) {
        let frames = self.settings.stack_rows();
        if frames == 1 {
            return;
        }
        let horizon = self.history.ring.horizon(pin.marked());
        for t in transitions.iter_mut().filter(|t| t.progress == Progress::Complete) {
            if !self.history.has_whole_stack(horizon, self.history.sequence(pin, t.row), frames) {
                t.progress = Progress::Lost;
            }
        }
    }

    fn start(&self, pin: &Pin<'_, TreeWeights>, slot: usize) -> Transition {
        let row = pin.sampleable(slot);
        Transition {
            row: row.unwrap_or(Row { slot, lap: 0 }),
            last: slot,
            next: slot,
            reward: 0.0,
            discount: 1.0,
            terminated: false,
            truncated: false,
            progress: if row.is_some() { Progress::Open } else { Progress::Lost },
        }
    }

    /// Adds the row `t.last` to a transition and finds the next row, or the row after the window.
    fn step(&self, pin: &Pin<'_, TreeWeights>, t: &mut Transition, is_last: bool) {
        t.reward += t.discount * self.reward(t.last);
        t.discount *= self.settings.gamma * self.row_discount(t.last);
        t.terminated = self.flag(self.roles.terminated, t.last);
        t.truncated = self.flag(self.roles.truncated, t.last);
        let next = pin.next(t.last);
        let ends = t.terminated || t.truncated || is_last;
        if ends {
            t.progress = Progress::Complete;
            // After termination no value is bootstrapped, so the last observation can replace the final one.
            let may_lack = t.terminated || self.roles.rebuilt.is_empty();
            t.next = next.unwrap_or(t.last);
            if next.is_none() && !may_lack {
                t.progress = Progress::Lost;
            }
            if t.terminated {
                t.discount = 0.0;
            }
        } else {
            match next {
                Some(next) => t.last = next,
                None => t.progress = Progress::Lost,
            }
        }
    }

    fn reward(&self, slot: usize) -> f64 {
        self.real(self.roles.reward.unwrap_or(0), slot)
    }

    /// Discount of one row, without gamma.
    #[inline(always)]
    pub(super) fn row_discount(&self, slot: usize) -> f64 {
        self.roles.discount.map_or(1.0, |field| self.real(field, slot))
    }

    fn real(&self, field: usize, slot: usize) -> f64 {
        let column = &self.columns[field];
        let mut bytes = [0; 8];
        // SAFETY: the row was seen open under the caller's pin, or reached through links from such a row.
        unsafe { column.read(slot, &mut bytes[..column.row_bytes]) };
        match column.row_bytes {
            4 => f64::from(f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
            _ => f64::from_ne_bytes(bytes),
        }
    }

    pub(super) fn flag(&self, field: Option<usize>, slot: usize) -> bool {
        let Some(field) = field else { return false };
        let mut byte = [0];
        // SAFETY: as in `real`.
        unsafe { self.columns[field].read(slot, &mut byte) };
        byte[0] != 0
    }

    fn check_batch(&self, batch: &Batch<'_>) -> Result<(), ReplayError> {
        let count = batch.indices.len();
        let length = |what, got, expected| {
            if got == expected { Ok(()) } else { Err(SumTreeError::Length { what, got, expected }) }
        };
        length("weights", batch.weights.len(), count)?;
        length("tickets", batch.tickets.len(), count)?;
        length("discounts", batch.discounts.len(), count)?;
        length("batch fields", batch.fields.len(), self.outputs.len())?;
        let mut total = 0usize;
        for (i, (row_bytes, bytes)) in self.row_bytes.iter().zip(&batch.fields).enumerate() {
            let expected = count.saturating_mul(*row_bytes).saturating_mul(self.steps[i].max(1));
            if bytes.len() != expected {
                let (name, got) = (self.outputs()[i].name.clone(), bytes.len());
                return Err(ReplayError::RowBytes { name, got, expected, rows: count });
            }
            total = total.saturating_add(expected);
        }
        Ok(memory::check(total)?)
    }
}
