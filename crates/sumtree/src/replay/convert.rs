//! Conversion of a replay into one that stores an observation in another form, such as the output of a network
//! in place of a picture. Rows are converted while other threads add and sample; the last step copies the rest.
//!
//! Both replays have the same ring, so rows keep their slots, laps and tickets.
#![allow(unsafe_code)] // Reads of columns under a pin or behind the gate, writes of a replay that no other thread has.

use super::settings::{Field, STACK_MAX, setting};
use super::slots::{self, STATE_WORDS, word};
use super::{Padding, Replay, ReplayError, Settings, counter};
use crate::SumTreeError;
use crate::memory::vec_of_zeros;
use crate::sync::Ordering;

/// A conversion in progress.
pub struct Conversion {
    to: Replay,
    field: usize,
    /// Per slot, 1 + the sequence number of the row whose converted bytes `to` holds; 0: none.
    done: Vec<u64>,
    /// Sequence number from which [`Conversion::read`] continues.
    next: u64,
}

impl Conversion {
    /// Starts a conversion of `from` in which the field of the same name becomes `field`, without a stack.
    ///
    /// # Errors
    /// [`ReplayError::Setting`] if `from` is not in private memory, or `field` has a stack;
    /// [`ReplayError::Field`] if there is no such field, or settings need it as it is; [`ReplayError::Tree`]
    /// if memory cannot be allocated.
    pub fn new(from: &Replay, field: Field) -> Result<Self, ReplayError> {
        if from.region.name().is_some() || from.region.path().is_some() {
            return Err(setting("memory", "shared", "private, to convert a replay"));
        }
        if field.stack != 1 {
            return Err(setting("frame_stack", field.stack, "1 for a converted field"));
        }
        let mut settings: Settings = from.settings.clone();
        let index = settings.fields.iter().position(|other| other.name == field.name);
        let index = index.ok_or_else(|| ReplayError::Field {
            name: field.name.clone(),
            reason: "is not a field of the replay".to_owned(),
        })?;
        settings.fields[index] = field;
        settings.extra_rows = from.settings.history_rows();
        let to = Replay::heap(settings)?;
        debug_assert_eq!(to.layout.ring, from.layout.ring);
        let done = vec_of_zeros(from.layout.ring.slots)?;
        Ok(Self { to, field: index, done, next: 0 })
    }

    /// Bytes of one row of the field to be converted, with all frames of its stack.
    #[must_use]
    pub fn stack_bytes(&self, from: &Replay) -> usize {
        let field = &from.settings.fields[self.field];
        field.row_bytes * field.stack
    }

    /// Number of rows that [`Conversion::read`] has not passed yet.
    #[must_use]
    pub fn left(&self, from: &Replay) -> u64 {
        let reserved = from.slots.words[word::RESERVED].load(Ordering::Relaxed);
        reserved - self.oldest(from, reserved).max(self.next).min(reserved)
    }

    fn oldest(&self, from: &Replay, reserved: u64) -> u64 {
        let first = from.counters[counter::FIRST].load(Ordering::Relaxed);
        reserved.saturating_sub(from.settings.capacity as u64).max(first)
    }

    /// Lets [`Conversion::read`] begin again with the oldest row; it skips rows that are converted.
    pub fn restart(&mut self) {
        self.next = 0;
    }

    /// Copies the next published rows that are not converted to `stacks`, and their sequence numbers to
    /// `numbers`. Returns their number, less than `numbers.len()` only if the newest row was reached. A row
    /// that is being written, or whose earlier frames are gone, is passed.
    ///
    /// # Errors
    /// [`ReplayError::RowBytes`] if the lengths do not fit, [`ReplayError::Closed`], [`ReplayError::Row`] if a
    /// compressed row is damaged.
    pub fn read(
        &mut self,
        from: &Replay,
        stacks: &mut [u8],
        numbers: &mut [u64],
    ) -> Result<usize, ReplayError> {
        let field = &from.settings.fields[self.field];
        let (column, frames) = (&from.columns[self.field], field.stack);
        let bytes = field.row_bytes * frames;
        from.check_row_bytes(&field.name, bytes, numbers.len(), stacks.len())?;
        let operation = from.slots.enter()?;
        let pin = operation.pin();
        let horizon = from.layout.ring.horizon(pin.marked());
        let reserved = from.slots.words[word::RESERVED].load(Ordering::Relaxed);
        let mut count = 0;
        self.next = self.next.max(self.oldest(from, reserved)).min(reserved);
        while self.next < reserved && count < numbers.len() {
            let sequence = self.next;
            self.next += 1;
            let row = from.layout.ring.row(sequence);
            let is_whole = || from.history.has_whole_stack(horizon, sequence, frames);
            if self.done[row.slot] == sequence + 1
                || sequence < horizon
                || !pin.is_open(row)
                || (frames > 1 && !is_whole())
            {
                continue;
            }
            let mut stack = [row.slot; STACK_MAX];
            let there =
                if frames == 1 { 1 } else { from.history.stack(horizon, sequence, &mut stack[..frames]) };
            let out = &mut stacks[count * bytes..(count + 1) * bytes];
            for (k, frame) in out.chunks_exact_mut(field.row_bytes.max(1)).rev().enumerate() {
                if k >= there && from.settings.stack_padding == Padding::Zero {
                    frame.fill(0);
                    continue;
                }
                // SAFETY: the row was seen open under `pin`; those before it are not older than its horizon.
                unsafe { column.read(stack[k.min(there - 1)], frame) };
            }
            numbers[count] = sequence;
            count += 1;
        }
        drop(pin);
        drop(operation);
        match column.packed.as_ref().and_then(super::compress::Packed::damaged) {
            Some(slot) => Err(ReplayError::Row { name: field.name.clone(), slot }),
            None => Ok(count),
        }
    }

    /// Stores the converted bytes of rows that [`Conversion::read`] returned.
    ///
    /// # Errors
    /// [`ReplayError::RowBytes`] if the length does not fit; [`ReplayError::Tree`] if a number is not one of a
    /// row, or memory cannot be allocated.
    pub fn write(&mut self, numbers: &[u64], rows: &[u8]) -> Result<(), ReplayError> {
        let (column, name) = (&self.to.columns[self.field], &self.to.settings.fields[self.field].name);
        self.to.check_row_bytes(name, column.row_bytes, numbers.len(), rows.len())?;
        if let Some(number) = numbers.iter().find(|number| **number >= self.next) {
            let (index, capacity) = (i128::from(*number), self.next as usize);
            return Err(SumTreeError::Index { index, position: 0, capacity }.into());
        }
        for (i, number) in numbers.iter().enumerate() {
            let slot = self.to.layout.ring.row(*number).slot;
            let row = &rows[i * column.row_bytes..(i + 1) * column.row_bytes];
            match &column.packed {
                // SAFETY: no other thread has `to`.
                None => unsafe { column.write(slot, row) },
                Some(packed) => {
                    let blobs = packed.pack(1, std::iter::once(row))?;
                    // SAFETY: as above.
                    unsafe { packed.write(std::iter::once(slot), blobs) };
                }
            }
            self.done[slot] = number + 1;
        }
        Ok(())
    }

    /// Copies everything else and returns the new replay, with the same rows, priorities, tickets, incomplete
    /// windows and generator. Rows that are not converted cannot be sampled in it. Adds and updates of `from`
    /// wait meanwhile; those made later are not in the new replay.
    ///
    /// # Errors
    /// [`ReplayError::Closed`]; [`ReplayError::Tree`] if memory cannot be allocated.
    pub fn finish(self, from: &Replay) -> Result<Replay, ReplayError> {
        let Self { to, field, done, .. } = self;
        let gate = from.shut_and_repair()?;
        let reserved = from.slots.words[word::RESERVED].load(Ordering::Relaxed);
        let used = reserved.min(from.layout.ring.slots as u64) as usize;
        let mut weights = vec_of_zeros(used)?;
        from.tree().get_range(0, &mut weights)?;
        let mut ready = 0;
        for (slot, weight) in weights.iter_mut().enumerate() {
            let mut state = from.slots.state_words(slot);
            // The newest sequence number of the slot.
            let last = reserved - 1 - (reserved - 1 - slot as u64) % from.layout.ring.slots as u64;
            if slots::is_open(state) && done[slot] != last + 1 {
                let (row, next) = (from.layout.ring.row(last), state[slots::LINK].checked_sub(1));
                state = slots::relocated_state(state, row, next.map(|next| next as usize), false);
                *weight = 0;
            }
            ready += u64::from(slots::is_ready(state));
            let cells = &to.slots.states[slot * STATE_WORDS..][..STATE_WORDS];
            cells.iter().zip(state).for_each(|(cell, word)| cell.store(word, Ordering::Relaxed));
        }
        to.tree().set_range(0, &weights)?;
        for (cell, other) in to.counters.iter().zip(from.counters.iter()) {
            cell.store(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for at in [word::RESERVED, word::MARKED, word::CLEARED, word::REAPED] {
            to.slots.words[at].store(from.slots.words[at].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        to.slots.words[word::READY].store(ready, Ordering::Relaxed);
        for (cell, other) in to.tails.words().iter().zip(from.tails.words()) {
            cell.store(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        to.tails.unlock_all();
        if to.layout.back_words > 0 {
            for (cell, other) in to.history.back.iter().zip(from.history.back.iter()) {
                cell.store(other.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        let mut row = Vec::new();
        for (i, (column, other)) in to.columns.iter().zip(&from.columns).enumerate() {
            match (&column.packed, &other.packed) {
                _ if i == field => {}
                (Some(packed), Some(others)) => {
                    for slot in 0..used {
                        // SAFETY: the gate is shut, so no thread writes rows.
                        packed.take_packed(slot, unsafe { others.packed(slot) }, &mut row)?;
                    }
                }
                // SAFETY: as above; no other thread has `to`.
                _ => unsafe { column.write(0, other.rows(0, used)) },
            }
        }
        drop(gate);
        Ok(to)
    }
}
