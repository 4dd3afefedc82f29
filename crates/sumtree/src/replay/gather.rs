//! Gathering: the arrays of a batch, and copying rows to them, in several threads for large batches.
#![allow(unsafe_code)] // Reads of columns under a pin, writes of rows that no two threads share.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use super::columns::end_of_stream;
use super::compress::{Compression, Packed};
use super::draw::Transition;
use super::settings::{Padding, STACK_MAX, has_role};
use super::slots::Pin;
use super::{Replay, ReplayError, Roles, TreeWeights, threads};
use crate::SumTreeError;
use crate::memory::{vec_of_zeros, vec_with_capacity};
use crate::sync::Ordering;

/// Number of rows that the prefetch runs ahead of the copy.
const PREFETCH_AHEAD: usize = 12;
/// Number of bytes that are worth one more thread (`THREAD_BYTES`; waking one takes as long as copying a
/// third of this), and that a thread copies at a time (`BLOCK_BYTES`), so that frames that several outputs
/// share are still in its cache. Measured with `benches/python/replay_gather.py`.
const THREAD_BYTES: usize = 1536 << 10;
const BLOCK_BYTES: usize = 256 << 10;
/// Batches of this many bytes bypass the caches when written, because they would not stay there anyway.
const STREAM_BYTES: usize = 6 << 20;

/// Description of one array of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Name in the batch.
    pub name: String,
    /// Data type, as in the settings.
    pub dtype: String,
    /// Shape of one row, without the dimensions of batch and steps.
    pub shape: Vec<usize>,
    /// Bytes per row and step.
    pub row_bytes: usize,
    /// Number of steps, for an array of shape (steps, batch, ...); 0 for an array without steps.
    pub steps: usize,
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
    /// Stack of the frames of the row drawn and of those before it.
    Stack(usize),
    /// Stack of the frames of the row that follows the window and of those before it.
    NextStack(usize),
    /// The discounted sum of rewards.
    Return(usize),
    /// Whether the window ended by termination, or by truncation.
    Terminated,
    Truncated,
    /// A field of each step of a sequence.
    Steps(usize),
    /// An observation of each step of a sequence and of the row that follows.
    StepsAndNext(usize),
    /// The discount of each step of a sequence.
    StepDiscounts,
    /// Which steps of a sequence exist; the rest is padding.
    Mask,
    /// The achieved goal that replaces the desired one.
    Goal(usize),
    /// Whether the row has such a goal.
    Relabelled,
}

impl Roles {
    /// Sources of the arrays of a batch.
    pub(super) fn sources(&self, settings: &super::Settings) -> Vec<Source> {
        let fields = 0..settings.fields.len();
        if !self.steps() {
            return fields.map(Source::Row).collect();
        }
        let stacked = |i: usize| settings.fields[i].stack > 1;
        if settings.sequence.is_some() {
            let of = |i: usize| match () {
                () if has_role(&settings.fields[i].name, "state") => Source::Row(i),
                () if self.rebuilt.contains(&i) => Source::StepsAndNext(i),
                () => Source::Steps(i),
            };
            return fields
                .filter(|i| Some(*i) != self.discount)
                .map(of)
                .chain([Source::StepDiscounts, Source::Mask])
                .collect();
        }
        let of = |i| match () {
            () if Some(i) == self.reward => Source::Return(i),
            () if Some(i) == self.terminated => Source::Terminated,
            () if Some(i) == self.truncated => Source::Truncated,
            () if self.stored_next.contains(&i) => Source::LastRow(i),
            () if stacked(i) => Source::Stack(i),
            () => Source::Row(i),
        };
        let next = |i: &usize| if stacked(*i) { Source::NextStack(*i) } else { Source::NextRow(*i) };
        let goals = self.achieved.map(|i| [Source::Goal(i), Source::Relabelled]);
        fields
            .filter(|i| Some(*i) != self.discount)
            .map(of)
            .chain(self.rebuilt.iter().map(next))
            .chain(goals.into_iter().flatten())
            .collect()
    }
}

/// The transitions of a batch that is being gathered.
pub(super) struct BatchView<'a> {
    pub pin: &'a Pin<'a, TreeWeights>,
    pub transitions: &'a [Transition],
    /// Per transition the slot of the row whose goal it gets, if goals are relabeled.
    pub goals: &'a [Option<usize>],
}

/// An array that several threads fill. No two of them write the same row.
struct Rows {
    start: *mut u8,
    rows: usize,
    row_bytes: usize,
}

// SAFETY: only a pointer; the contract of `row` says which thread may write which row.
unsafe impl Sync for Rows {}

impl Rows {
    /// Row `i`, for writing.
    ///
    /// # Safety
    /// No other thread uses row `i`, and the array outlives the slice.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // The memory belongs to the caller's array, not to self.
    unsafe fn row(&self, i: usize) -> &mut [u8] {
        assert!(i < self.rows, "row outside a batch");
        // SAFETY: in bounds by the assertion; not shared, by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(i * self.row_bytes), self.row_bytes) }
    }
}

impl Rows {
    /// Fills the rows of `range`, which no other thread uses.
    #[inline(always)]
    fn each(&self, range: Range<usize>, fill: impl Fn(usize, &mut [u8])) {
        // SAFETY: only called by `fill`, whose ranges are disjoint.
        range.for_each(|i| fill(i, unsafe { self.row(i) }));
    }
}

/// The steps of the sequences of some transitions, as slots.
struct SequenceSlots {
    /// Slots, `steps + 1` per transition.
    slots: Vec<usize>,
    /// Number of steps of each transition.
    lengths: Vec<usize>,
}

impl Replay {
    /// Describes the arrays of a batch, except discounts, indices, weights and tickets.
    #[must_use]
    pub fn outputs(&self) -> Vec<Output> {
        self.outputs.iter().map(|source| self.output(*source)).collect()
    }

    fn output(&self, source: Source) -> Output {
        let length = self.settings.n_step;
        let plain = |name: &str, dtype: &str, row_bytes, steps| Output {
            name: name.to_owned(),
            dtype: dtype.to_owned(),
            shape: Vec::new(),
            row_bytes,
            steps,
        };
        let (i, prefix, stacked, steps) = match source {
            Source::Row(i) | Source::LastRow(i) | Source::Return(i) => (i, "", false, 0),
            Source::NextRow(i) => (i, "next_", false, 0),
            Source::Stack(i) => (i, "", true, 0),
            Source::NextStack(i) => (i, "next_", true, 0),
            Source::Terminated => (self.roles.terminated.unwrap_or(0), "", false, 0),
            Source::Truncated => (self.roles.truncated.unwrap_or(0), "", false, 0),
            Source::Steps(i) => (i, "", false, length),
            Source::StepsAndNext(i) => (i, "", self.settings.fields[i].stack > 1, length + 1),
            Source::StepDiscounts => return plain("discount", "<f4", 4, length),
            Source::Mask => return plain("mask", "|b1", 1, length),
            Source::Relabelled => return plain("relabelled", "|b1", 1, 0),
            Source::Goal(i) => {
                let name = "hindsight_goal".to_owned();
                return Output { name, ..self.output(Source::Row(i)) };
            }
        };
        let field = &self.settings.fields[i];
        let mut shape = field.shape.clone();
        if stacked {
            shape.insert(0, field.stack);
        }
        Output {
            name: format!("{prefix}{}", field.name),
            dtype: field.dtype.clone(),
            shape,
            row_bytes: field.row_bytes * if stacked { field.stack } else { 1 },
            steps,
        }
    }

    /// Copies the rows of a batch to its arrays, whose lengths have been checked.
    ///
    /// # Errors
    /// [`ReplayError::Tree`] if memory cannot be allocated, [`ReplayError::Row`] if a row is damaged.
    pub(super) fn gather(&self, view: &BatchView<'_>, fields: &mut [&mut [u8]]) -> Result<(), ReplayError> {
        let count = view.transitions.len();
        let rows: Vec<_> = self
            .row_bytes
            .iter()
            .zip(fields)
            .map(|(row_bytes, field)| Rows {
                start: field.as_mut_ptr(),
                rows: field.len().checked_div(*row_bytes).unwrap_or(0),
                row_bytes: *row_bytes,
            })
            .collect();
        let bytes: usize = rows.iter().map(|rows| rows.rows * rows.row_bytes).sum();
        let streams = bytes >= STREAM_BYTES;
        if bytes <= BLOCK_BYTES {
            self.fill(view, &rows, 0..count, streams)?;
            return self.check_unpacked();
        }
        let block = (BLOCK_BYTES / (bytes / count).max(1)).max(1);
        let (next, failed) = (AtomicUsize::new(0), OnceLock::new());
        let work = || {
            loop {
                // Relaxed: only distributes rows to threads.
                let start = next.fetch_add(block, Ordering::Relaxed);
                if start >= count {
                    if streams {
                        end_of_stream();
                    }
                    return;
                }
                if let Err(error) = self.fill(view, &rows, start..(start + block).min(count), streams) {
                    let _ = failed.set(error); // The first error is the one to report.
                }
            }
        };
        threads::run_on_threads(bytes / THREAD_BYTES, &work);
        match failed.into_inner() {
            Some(error) => Err(error.into()),
            None => self.check_unpacked(),
        }
    }

    /// Returns an error if a compressed row that was read could not be decompressed.
    fn check_unpacked(&self) -> Result<(), ReplayError> {
        if self.settings.compression == Compression::None {
            return Ok(());
        }
        for (field, column) in self.settings.fields.iter().zip(&self.columns) {
            if let Some(slot) = column.packed.as_ref().and_then(Packed::damaged) {
                return Err(ReplayError::Row { name: field.name.clone(), slot });
            }
        }
        Ok(())
    }

    /// Fills the rows of the transitions in `range`, in all arrays.
    fn fill(
        &self,
        view: &BatchView<'_>,
        rows: &[Rows],
        range: Range<usize>,
        streams: bool,
    ) -> Result<(), SumTreeError> {
        let all = view.transitions;
        let copy = |field: usize, rows: &Rows, slot: fn(&Transition) -> usize| {
            let column = &self.columns[field];
            for i in range.clone() {
                if let Some(ahead) = all.get(i + PREFETCH_AHEAD) {
                    column.prefetch(slot(ahead));
                }
                // SAFETY: the row was seen open under the pin of `view`, or reached through links from such a
                // row; only this thread writes row `i` of the array, by `range`.
                unsafe { column.read_to(slot(&all[i]), rows.row(i), streams) };
            }
        };
        let walk = self.settings.sequence.map(|_| self.walk(view, range.clone())).transpose()?;
        // Fields with 0 bytes need no copy.
        let array = rows;
        for (source, rows) in self.outputs.iter().zip(rows).filter(|(_, rows)| rows.row_bytes > 0) {
            match (*source, &walk) {
                (Source::Row(field), _) => copy(field, rows, |t| t.row.slot),
                (Source::LastRow(field), _) => copy(field, rows, |t| t.last),
                (Source::NextRow(field), _) => copy(field, rows, |t| t.next),
                (Source::Stack(field), _) => {
                    let at = self.outputs.iter().position(|other| *other == Source::NextStack(field));
                    let next = &array[at.expect("every stacked observation has a next observation")];
                    self.copy_stacks(view, field, [rows, next], range.clone(), streams);
                }
                // Copied together with the observation, because most frames are in both.
                (Source::NextStack(_), _) => {}
                (Source::Return(_), _) if rows.row_bytes == 4 => {
                    rows.each(range.clone(), |i, out| {
                        out.copy_from_slice(&(all[i].reward as f32).to_ne_bytes())
                    });
                }
                (Source::Return(_), _) => {
                    rows.each(range.clone(), |i, out| out.copy_from_slice(&all[i].reward.to_ne_bytes()))
                }
                (Source::Terminated, _) => {
                    rows.each(range.clone(), |i, out| out[0] = u8::from(all[i].terminated))
                }
                (Source::Truncated, _) => {
                    rows.each(range.clone(), |i, out| out[0] = u8::from(all[i].truncated))
                }
                (Source::Goal(field), _) => {
                    let field = self.goal_column(field);
                    rows.each(range.clone(), |i, out| match view.goals[i] {
                        // SAFETY: the row was reached through links from one seen open under the pin of `view`.
                        Some(slot) => unsafe { self.columns[field].read(slot, out) },
                        None => out.fill(0),
                    });
                }
                (Source::Relabelled, _) => {
                    rows.each(range.clone(), |i, out| out[0] = u8::from(view.goals[i].is_some()));
                }
                (source, Some(walk)) => self.fill_steps(view, source, rows, walk, range.clone()),
                (_, None) => unreachable!("only sequences have outputs with steps"),
            }
        }
        Ok(())
    }

    /// Writes the slots of the stack that ends with the row in `slot` to `slots`, newest first, and returns
    /// their number. That row is the row of transition `t` or comes after it.
    fn stack_slots(&self, view: &BatchView<'_>, t: &Transition, slot: usize, slots: &mut [usize]) -> usize {
        let horizon = self.history.ring.horizon(view.pin.marked());
        let sequence = self.history.later_sequence(self.history.sequence(view.pin, t.row), slot);
        self.history.stack(horizon, sequence, slots)
    }

    /// Copies the frame stacks of some observations and next observations. A frame in both is read once.
    fn copy_stacks(
        &self,
        view: &BatchView<'_>,
        field: usize,
        [obs, next]: [&Rows; 2],
        range: Range<usize>,
        streams: bool,
    ) {
        let (column, frames) = (&self.columns[field], self.settings.fields[field].stack);
        let bytes = column.row_bytes;
        let pads_zero = self.settings.stack_padding == Padding::Zero;
        let frame = |k: usize| (frames - 1 - k) * bytes..(frames - k) * bytes;
        let copy = |slot: usize, out: &mut [u8]| {
            // SAFETY: the row of the transition was seen open under the pin of `view`; the rows before it are not
            // older than the horizon of that pin, those after it were reached through links.
            unsafe { column.read_to(slot, out, streams) };
        };
        let (mut ours, mut theirs) = ([0; STACK_MAX], [0; STACK_MAX]);
        for i in range {
            let t = &view.transitions[i];
            // SAFETY: only this thread writes rows `i` of both arrays, by `range`.
            let (obs, next) = unsafe { (obs.row(i), next.row(i)) };
            let there = self.stack_slots(view, t, t.row.slot, &mut ours[..frames]);
            let there_next = self.stack_slots(view, t, t.next, &mut theirs[..frames]);
            let (ours, theirs) = (&ours[..there], &theirs[..there_next]);
            for (k, slot) in ours.iter().enumerate().rev() {
                column.prefetch_lines(if k > 0 { ours[k - 1] } else { theirs[0] });
                let (to, other) = (frame(k), theirs.iter().position(|s| s == slot));
                copy(*slot, &mut obs[to.clone()]);
                if let Some(other) = other {
                    match column.packed {
                        // Decompressed once; the copy then reads from the cache.
                        Some(_) => next[frame(other)].copy_from_slice(&obs[to]),
                        None => copy(*slot, &mut next[frame(other)]),
                    }
                }
            }
            if let Some(ahead) = view.transitions.get(i + 1) {
                column.prefetch_lines(ahead.row.slot);
            }
            for (k, slot) in theirs.iter().enumerate().rev().filter(|(_, slot)| !ours.contains(slot)) {
                copy(*slot, &mut next[frame(k)]);
            }
            for (out, slots) in [(obs, ours), (next, theirs)] {
                for k in slots.len()..frames {
                    match pads_zero {
                        true => out[frame(k)].fill(0),
                        false => copy(slots[slots.len() - 1], &mut out[frame(k)]),
                    }
                }
            }
        }
    }

    /// Copies the frame stack that ends with the row in `slot`, which is the row of `t` or comes after it.
    fn copy_stack(&self, view: &BatchView<'_>, field: usize, t: &Transition, slot: usize, out: &mut [u8]) {
        let (column, frames) = (&self.columns[field], self.settings.fields[field].stack);
        let mut slots = [0; STACK_MAX];
        let there = self.stack_slots(view, t, slot, &mut slots[..frames]);
        for (k, frame) in out.chunks_exact_mut(column.row_bytes).rev().enumerate() {
            if k >= there && self.settings.stack_padding == Padding::Zero {
                frame.fill(0);
                continue;
            }
            // SAFETY: as in `copy_stacks`.
            unsafe { column.read(slots[k.min(there - 1)], frame) };
        }
    }

    /// The steps of the sequences of some transitions, as slots.
    fn walk(&self, view: &BatchView<'_>, range: Range<usize>) -> Result<SequenceSlots, SumTreeError> {
        let stride = self.settings.n_step + 1;
        let slots = vec_of_zeros(stride.saturating_mul(range.len()))?;
        let mut walk = SequenceSlots { slots, lengths: vec_with_capacity(range.len())? };
        for (t, slots) in view.transitions[range].iter().zip(walk.slots.chunks_exact_mut(stride)) {
            let (mut slot, mut length) = (t.row.slot, 0);
            loop {
                slots[length] = slot;
                length += 1;
                if slot == t.last {
                    break;
                }
                // All links of the window were followed before, under the same pin.
                slot = view.pin.next(slot).expect("links do not change under a pin");
            }
            slots[length] = t.next;
            walk.lengths.push(length);
        }
        Ok(walk)
    }

    /// Fills one array of shape (steps, batch, ...) for some transitions. Missing steps are 0.
    fn fill_steps(
        &self,
        view: &BatchView<'_>,
        source: Source,
        rows: &Rows,
        walk: &SequenceSlots,
        range: Range<usize>,
    ) {
        let (count, stride) = (view.transitions.len(), self.settings.n_step + 1);
        let steps = match source {
            Source::StepsAndNext(_) => stride,
            _ => stride - 1,
        };
        for (k, i) in range.enumerate() {
            let (t, length) = (&view.transitions[i], walk.lengths[k]);
            for step in 0..steps {
                let slot = walk.slots[k * stride + step.min(length)];
                // SAFETY: only this thread writes row `step * count + i`, as for row `i`.
                let out = unsafe { rows.row(step * count + i) };
                match source {
                    Source::StepsAndNext(field) if step <= length => {
                        if self.settings.fields[field].stack > 1 {
                            self.copy_stack(view, field, t, slot, out);
                        } else {
                            // SAFETY: reached through links from a row seen open under the pin of `view`.
                            unsafe { self.columns[field].read(slot, out) };
                        }
                    }
                    // SAFETY: as above.
                    Source::Steps(field) if step < length => unsafe { self.columns[field].read(slot, out) },
                    Source::StepDiscounts if step < length => {
                        let discount = match self.flag(self.roles.terminated, slot) {
                            true => 0.0,
                            false => self.settings.gamma * self.row_discount(slot),
                        };
                        out.copy_from_slice(&(discount as f32).to_ne_bytes());
                    }
                    Source::Mask => out[0] = u8::from(step < length),
                    _ => out.fill(0),
                }
            }
        }
    }
}
