//! Sampling: draw slots by weight, find the end of each window, copy the rows out, all under one pin.
#![allow(unsafe_code)] // Reads of columns under a pin.

use super::select::Selection;
use super::slots::{Pin, Row};
use super::{Leaves, Replay, ReplayError, counter};
use crate::sync::Ordering;
use crate::{Draws, Rng, SumTreeError};

/// Draws of one slot again before giving up, when rows keep being overwritten.
const REDRAWS_MAX: u32 = 10_000;

/// Rows whose first bytes are loaded ahead of the one that is copied.
const PREFETCH_AHEAD: usize = 12;

/// One array of a batch: what it is called and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its name in the batch.
    pub name: String,
    /// As in the settings.
    pub dtype: String,
    /// Shape without the batch.
    pub shape: Vec<usize>,
    /// Bytes per row.
    pub row_bytes: usize,
}

/// Where the bytes of an output come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A field of the row drawn.
    Row(usize),
    /// A field of the last row of the window.
    LastRow(usize),
    /// A field of the row that follows the window.
    NextRow(usize),
    /// The discounted sum of rewards.
    Return(usize),
    /// Whether the window ended by termination, or by truncation.
    Terminated,
    Truncated,
}

/// Arrays to fill, all `indices.len()` rows long.
pub struct Batch<'a> {
    /// One per [`Replay::outputs`], in that order.
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

/// How far a transition is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Open,
    Complete,
    /// The row was closed before it was looked at.
    Lost,
}

/// The transition that starts in a row.
#[derive(Clone, Copy)]
struct Transition {
    row: Row,
    last: usize,
    next: usize,
    reward: f64,
    discount: f64,
    terminated: bool,
    truncated: bool,
    progress: Progress,
}

impl Replay {
    /// The arrays of a batch besides discounts, indices, weights and tickets.
    #[must_use]
    pub fn outputs(&self) -> Vec<Output> {
        self.outputs
            .iter()
            .map(|source| {
                let (field, prefix) = match *source {
                    Source::Row(i) | Source::LastRow(i) | Source::Return(i) => (i, ""),
                    Source::NextRow(i) => (i, "next_"),
                    Source::Terminated => (self.roles.terminated.unwrap_or(0), ""),
                    Source::Truncated => (self.roles.truncated.unwrap_or(0), ""),
                };
                let field = &self.settings.fields[field];
                let name = format!("{prefix}{}", field.name);
                Output {
                    name,
                    dtype: field.dtype.clone(),
                    shape: field.shape.clone(),
                    row_bytes: field.row_bytes,
                }
            })
            .collect()
    }

    /// Whether rows are steps of episodes, so that batches have discounts.
    #[must_use]
    pub fn has_discounts(&self) -> bool {
        self.roles.steps()
    }

    pub(super) fn sources(roles: &super::Roles, fields: usize) -> Vec<Source> {
        if !roles.steps() {
            return (0..fields).map(Source::Row).collect();
        }
        let of = |i| match () {
            () if Some(i) == roles.reward => Source::Return(i),
            () if Some(i) == roles.terminated => Source::Terminated,
            () if Some(i) == roles.truncated => Source::Truncated,
            () if roles.explicit.contains(&i) => Source::LastRow(i),
            () => Source::Row(i),
        };
        (0..fields).map(of).chain(roles.rebuilt.iter().map(|i| Source::NextRow(*i))).collect()
    }

    /// Draws a batch, by weight ([`Draws`]) or otherwise ([`Selection`]), and copies its rows out.
    ///
    /// Importance weights are `(probability / smallest probability) ** -beta`, the smallest of the batch or a bound for
    /// all rows: the smallest weight is known to within a factor of 2.
    ///
    /// # Errors
    /// [`ReplayError::NotSampleable`] when no row has a weight above 0; [`ReplayError::Tree`] for a mode that cannot be
    /// served or arrays of the wrong length.
    pub fn sample(
        &self,
        selection: impl Into<Selection>,
        beta: f64,
        batch: &mut Batch<'_>,
    ) -> Result<(), ReplayError> {
        let mut drawn = vec![0u32; batch.indices.len()];
        self.sample_drawn(selection.into(), beta, batch, &mut drawn)
    }

    /// As [`Replay::sample`]; `drawn` gets the weights of the tree with which the rows came up.
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
        self.check_batch(batch)?;
        let count = batch.indices.len();
        if drawn.len() != count {
            return Err(
                SumTreeError::Length { what: "drawn weights", got: drawn.len(), expected: count }.into()
            );
        }
        let mut rng = self.next_rng();
        let member = self.slots.enter()?;
        let pin = member.pin();
        let chances = self.select(&mut rng, selection, batch.indices, drawn)?;
        let mut transitions = self.transitions(&pin, batch.indices);
        let mut redrawn = 0;
        for (i, transition) in transitions.iter_mut().enumerate() {
            while transition.progress == Progress::Lost {
                // Its writer closed the row between the draw and now: draw another in its place.
                redrawn += 1;
                if redrawn > REDRAWS_MAX {
                    return Err(self.not_sampleable());
                }
                self.redraw(&mut rng, selection, i, batch.indices, drawn)?;
                *transition = self.transitions(&pin, &batch.indices[i..=i])[0];
            }
            batch.tickets[i] = transition.row.ticket();
            batch.discounts[i] = transition.discount as f32;
        }
        for (source, out) in self.outputs.iter().zip(&mut batch.fields) {
            self.gather(&pin, *source, &transitions, out);
        }
        drop(pin);
        drop(member);
        self.importance(&chances, (batch.indices, drawn), beta, batch.weights);
        self.count(counter::SAMPLED, count as u64);
        self.count(counter::REDRAWN, u64::from(redrawn));
        Ok(())
    }

    /// The generator of one call: a function of the seed and of the number of calls before, whoever made them.
    pub(super) fn next_rng(&self) -> Rng {
        let call = self.counters[counter::DRAWS].fetch_add(1, Ordering::Relaxed);
        let seed = self.counters[counter::SEED].load(Ordering::Relaxed);
        let start = Rng::new(seed).next_u64();
        // Any odd multiplier that is not SplitMix64's own keeps the calls' streams apart.
        Rng::new(start ^ call.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn redraw(
        &self,
        rng: &mut Rng,
        selection: Selection,
        i: usize,
        indices: &mut [u64],
        drawn: &mut [u32],
    ) -> Result<(), ReplayError> {
        let distinct =
            matches!(selection, Selection::Largest | Selection::Weighted(Draws::WithoutReplacement));
        let again = match selection {
            Selection::Weighted(_) | Selection::Largest => Selection::Weighted(Draws::Independent),
            other => other,
        };
        for _ in 0..REDRAWS_MAX {
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

    /// The transitions from the slots drawn. One step of all windows at a time, so that their cache misses overlap.
    fn transitions(&self, pin: &Pin<'_, Leaves>, slots: &[u64]) -> Vec<Transition> {
        slots.iter().for_each(|slot| pin.prefetch(*slot as usize));
        let mut transitions: Vec<_> = slots.iter().map(|slot| self.start(pin, *slot as usize)).collect();
        if !self.roles.steps() {
            return transitions;
        }
        let read = [self.roles.reward, self.roles.terminated, self.roles.truncated];
        for step in 1..=self.settings.n_step {
            let is_open = |t: &&mut Transition| t.progress == Progress::Open;
            for t in transitions.iter_mut().filter(is_open) {
                pin.prefetch(t.last);
                read.into_iter().flatten().for_each(|field| self.columns[field].prefetch(t.last));
            }
            for t in transitions.iter_mut().filter(is_open) {
                self.step(pin, t, step == self.settings.n_step);
            }
        }
        transitions
    }

    fn start(&self, pin: &Pin<'_, Leaves>, slot: usize) -> Transition {
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

    /// Takes the row `t.last` into a transition and finds the next one, or the one after the window.
    fn step(&self, pin: &Pin<'_, Leaves>, t: &mut Transition, is_last: bool) {
        t.reward += t.discount * self.reward(t.last);
        t.discount *= self.settings.gamma;
        t.terminated = self.flag(self.roles.terminated, t.last);
        t.truncated = !t.terminated && self.flag(self.roles.truncated, t.last);
        let next = pin.next(t.last);
        let ends = t.terminated || t.truncated || is_last;
        if ends {
            t.progress = Progress::Complete;
            // Nothing is bootstrapped after termination; the last observation stands in for the final one.
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
        let column = &self.columns[self.roles.reward.unwrap_or(0)];
        let mut bytes = [0; 8];
        // SAFETY: the row was seen open under the pin of the caller, itself or through links from one that was.
        unsafe { column.read(slot, &mut bytes[..column.row_bytes]) };
        match column.row_bytes {
            4 => f64::from(f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
            _ => f64::from_ne_bytes(bytes),
        }
    }

    fn flag(&self, field: Option<usize>, slot: usize) -> bool {
        let Some(field) = field else { return false };
        let mut byte = [0];
        // SAFETY: as in `reward`.
        unsafe { self.columns[field].read(slot, &mut byte) };
        byte[0] != 0
    }

    fn gather(&self, _pin: &Pin<'_, Leaves>, source: Source, transitions: &[Transition], out: &mut [u8]) {
        let copy = |field: usize, out: &mut [u8], slot: fn(&Transition) -> usize| {
            let column = &self.columns[field];
            for (i, (row, t)) in out.chunks_exact_mut(column.row_bytes).zip(transitions).enumerate() {
                if let Some(ahead) = transitions.get(i + PREFETCH_AHEAD) {
                    column.prefetch(slot(ahead));
                }
                // SAFETY: as in `reward`; the pin is still held.
                unsafe { column.read(slot(t), row) };
            }
        };
        match source {
            Source::Row(field) => copy(field, out, |t| t.row.slot),
            Source::LastRow(field) => copy(field, out, |t| t.last),
            Source::NextRow(field) => copy(field, out, |t| t.next),
            Source::Return(field) if self.columns[field].row_bytes == 4 => {
                for (row, t) in out.chunks_exact_mut(4).zip(transitions) {
                    row.copy_from_slice(&(t.reward as f32).to_ne_bytes());
                }
            }
            Source::Return(_) => {
                for (row, t) in out.chunks_exact_mut(8).zip(transitions) {
                    row.copy_from_slice(&t.reward.to_ne_bytes());
                }
            }
            Source::Terminated => {
                out.iter_mut().zip(transitions).for_each(|(b, t)| *b = u8::from(t.terminated))
            }
            Source::Truncated => {
                out.iter_mut().zip(transitions).for_each(|(b, t)| *b = u8::from(t.truncated))
            }
        }
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
        for (output, bytes) in self.outputs().iter().zip(&batch.fields) {
            let expected = count * output.row_bytes;
            if bytes.len() != expected {
                let (name, got) = (output.name.clone(), bytes.len());
                return Err(ReplayError::RowBytes { name, got, expected, rows: count });
            }
        }
        Ok(())
    }
}
