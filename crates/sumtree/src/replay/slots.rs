//! The slot protocol: which thread may write, read or reprioritize which rows, and when. It handles no bytes.
//!
//! Rows are written to a ring of slots, in the order of their 64-bit sequence numbers. States, memory
//! orderings and the scenario behind each fence: README.md beside this file. `loom.rs` explores small cases
//! exhaustively.
//!
//! [`operations`] registers threads and has the gate, [`pin`] keeps rows from being overwritten, [`reservation`]
//! gives rows to a writer, and [`evictor`] frees slots for them.

mod evictor;
mod operations;
mod pin;
mod reservation;

pub(super) use operations::Gate;
pub(super) use pin::Pin;
pub(super) use reservation::Reservation;

use super::layout::Ring;
use super::process::Processes;
use crate::region::Cells;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Indices of the words that all threads and processes share, each on a cache line of its own.
pub(super) mod word {
    const LINE: usize = if cfg!(loom) { 1 } else { 8 };
    /// Sequence number of the next row to be reserved.
    pub const RESERVED: usize = 0;
    /// Number of chunks closed to readers so far. Pins store it as their epoch.
    pub const MARKED: usize = LINE;
    /// Number of chunks that may be written so far.
    pub const CLEARED: usize = 2 * LINE;
    /// Tag of the process that holds the evictor's lock, or 0.
    pub const EVICTOR: usize = 3 * LINE;
    /// Tag of the process that holds the gate shut against writers and updaters, or 0.
    pub const GATE: usize = 4 * LINE;
    /// Only operations `0..OPERATIONS_USED` have ever been in use.
    pub const OPERATIONS_USED: usize = 5 * LINE;
    /// Number of rows that are open and sampleable.
    pub const READY: usize = 6 * LINE;
    /// Number of processes that died in an operation. After that, the sums of the tree may be inconsistent.
    pub const REAPED: usize = 7 * LINE;
    pub const COUNT: usize = 8 * LINE;
}

/// State of a row, in the two low bits of its generation word. The bits above hold the lap.
const OPEN: u32 = 1;
const READY: u32 = 2;
const LAP_SHIFT: u32 = 2;

/// Maximum number of threads inside an operation at a time. Further threads wait.
pub(super) const OPERATIONS_MAX: usize = if cfg!(loom) { 3 } else { 128 };
/// Words per operation, of which four are used.
pub(super) const OPERATION_WORDS: usize = if cfg!(loom) { 4 } else { 8 };
/// Indices of the words of an operation.
mod operation {
    /// Tag of the process whose thread holds this operation, or 0.
    pub const OWNER: usize = 0;
    /// Epoch + 1 while the thread reads rows and weights, or 0.
    pub const PIN: usize = 1;
    /// First reserved sequence number + 1 while the thread writes rows, or 0.
    pub const RESERVE: usize = 2;
    /// 1 while the thread may change rows or weights, or 0.
    pub const WRITING: usize = 3;
}

/// Words per slot.
pub(super) const STATE_WORDS: usize = 3;
/// Lap and state of the row.
const GENERATION: usize = 0;
/// Slot + 1 of the next row of the same environment, or [`NO_LINK`].
pub(super) const LINK: usize = 1;
/// The weight given last. It is stored in the tree when the row becomes sampleable.
pub(super) const PARKED: usize = 2;

/// Returns true if a row with these state words can be sampled.
pub(super) fn is_ready(state: [u32; STATE_WORDS]) -> bool {
    state[GENERATION] & (OPEN | READY) == OPEN | READY
}

/// Returns true if a row with these state words is published.
pub(super) fn is_open(state: [u32; STATE_WORDS]) -> bool {
    state[GENERATION] & OPEN != 0
}

/// Returns true if the flags are valid: a row is only ready if it is open.
pub(super) fn has_valid_flags(state: [u32; STATE_WORDS]) -> bool {
    state[GENERATION] & (OPEN | READY) != READY
}

/// State words of a row that is moved to the slot and lap of `to` and linked to slot `next`. The row is
/// closed unless `is_held`, that is, within the capacity.
pub(super) fn relocated_state(
    state: [u32; STATE_WORDS],
    to: Row,
    next: Option<usize>,
    is_held: bool,
) -> [u32; STATE_WORDS] {
    let open = if is_held { state[GENERATION] & (OPEN | READY) } else { 0 };
    let link = next.map_or(NO_LINK, |next| next as u32 + 1);
    [to.lap << LAP_SHIFT | open, link, state[PARKED]]
}

/// The lap of a row with these state words.
pub(super) fn lap(state: [u32; STATE_WORDS]) -> u32 {
    state[GENERATION] >> LAP_SHIFT
}

/// Maximum number of rows whose weights are stored together. The sums above them and the counters are written
/// once for all of them, so that threads that add rows at the same time contend less for these cache lines.
const BATCH_ROWS: usize = if cfg!(loom) { 2 } else { 256 };
/// As `BATCH_ROWS`, for calls with fewer rows, which need smaller arrays.
const SMALL_BATCH_ROWS: usize = if cfg!(loom) { 2 } else { 16 };

/// No next row.
pub(super) const NO_LINK: u32 = 0;
/// Parked weight that stands for the largest weight at the time when the row becomes sampleable.
pub(super) const LARGEST: u32 = u32::MAX;

/// Storage of the weights of the slots.
pub(super) trait Weights {
    /// Sets one weight. A thread that draws it sees everything that the caller wrote before.
    fn set(&self, slot: usize, weight: u32);
    /// Returns the current weight.
    fn get(&self, slot: usize) -> u32;
    /// Sets several weights, in order.
    fn set_many(&self, slots: &[u32], weights: &[u32]) {
        slots.iter().zip(weights).for_each(|(slot, weight)| self.set(*slot as usize, *weight));
    }
    /// Prefetches the weights of `count` slots from `first` on, for writing.
    fn prefetch_run(&self, first: usize, count: usize) {
        let _ = (first, count);
    }
    /// Sets the weights of consecutive slots from `first` on.
    fn set_run(&self, first: usize, weights: &[u32]) {
        weights.iter().enumerate().for_each(|(i, weight)| self.set(first + i, *weight));
    }
}

/// Identifies a row by its slot and lap. Tickets are derived from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub slot: usize,
    pub lap: u32,
}

impl Row {
    /// Slot and lap in one word: a ticket without the tag of its replay.
    pub(super) fn ticket(self) -> u64 {
        self.slot as u64 | u64::from(self.lap) << 32
    }

    pub(super) fn from_ticket(ticket: u64) -> Self {
        Self { slot: ticket as u32 as usize, lap: (ticket >> 32) as u32 }
    }
}

/// Result of an update of the weight of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Update {
    /// The row is sampleable: the caller stores the weight.
    Store,
    /// The window of the row is not complete. The row keeps the weight until it is.
    Parked,
    /// The row was overwritten.
    Stale,
    /// No row with this slot and lap was written.
    Unknown,
}

/// The shared words of the protocol. All handles, in all processes, use the same words.
pub(super) struct Slots<W> {
    pub ring: Ring,
    pub words: Cells<AtomicU64>,
    pub operations: Cells<AtomicU64>,
    /// [`STATE_WORDS`] per slot, adjacent because they are used together.
    pub states: Cells<AtomicU32>,
    pub weights: W,
    pub processes: Processes,
}

impl<W: Weights> Slots<W> {
    fn state(&self, slot: usize, which: usize) -> &AtomicU32 {
        &self.states[slot * STATE_WORDS + which]
    }

    /// Stores the weights of at most `N` rows.
    fn store<const N: usize>(&self, rows: &[Row], weights: &[u32]) {
        let Some(first) = rows.first() else { return };
        if rows.len() == 1 {
            return self.weights.set(first.slot, weights[0]);
        }
        if rows.iter().enumerate().all(|(i, row)| row.slot == first.slot + i) {
            return self.weights.set_run(first.slot, weights);
        }
        let mut slots = [0; N];
        slots.iter_mut().zip(rows).for_each(|(slot, row)| *slot = row.slot as u32);
        self.weights.set_many(&slots[..rows.len()], weights);
    }

    /// Closes a slot (if it holds lap `lap`) and sets its weight to 0. Returns false if it was closed before.
    fn close_slot(&self, slot: usize, lap: Option<u32>) -> bool {
        let closed = self.close_generation(slot, lap);
        if closed.is_some() {
            self.weights.set(slot, 0);
        }
        if closed == Some(true) {
            self.words[word::READY].fetch_sub(1, Ordering::Relaxed); // A counter.
        }
        closed.is_some()
    }

    /// First half of closing a slot. Returns whether the row was ready, or `None` if the slot was already
    /// closed. The caller then sets the weight to 0 and, if the row was ready, subtracts it from `READY`.
    fn close_generation(&self, slot: usize, lap: Option<u32>) -> Option<bool> {
        let cell = self.state(slot, GENERATION);
        let mut seen = cell.load(Ordering::Relaxed);
        while seen & OPEN != 0 && lap.is_none_or(|lap| seen >> LAP_SHIFT == lap) {
            let closed = seen & !(OPEN | READY);
            // AcqRel: the weight 0 that follows comes after the weight with which the row became ready.
            match cell.compare_exchange_weak(seen, closed, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(seen & READY != 0),
                Err(now) => seen = now,
            }
        }
        None
    }

    fn operations_used(&self) -> usize {
        (self.words[word::OPERATIONS_USED].load(Ordering::Acquire) as usize).min(OPERATIONS_MAX)
    }

    /// Resets all operations and locks. No other process uses the region.
    pub(super) fn forget_all(&self) {
        for cell in self.operations.iter() {
            cell.store(0, Ordering::Relaxed);
        }
        for at in [word::EVICTOR, word::GATE] {
            self.words[at].store(0, Ordering::Relaxed);
        }
        // Changes that they left unfinished are repaired before the next change.
        self.words[word::REAPED].fetch_add(1, Ordering::AcqRel);
    }

    /// The state words of a slot.
    pub(super) fn state_words(&self, slot: usize) -> [u32; STATE_WORDS] {
        std::array::from_fn(|which| self.state(slot, which).load(Ordering::Relaxed))
    }

    /// Makes weights and states consistent again after a process died between changing one and the other. No
    /// other thread changes anything during the call.
    pub(super) fn repair(&self, largest: u32) {
        let mut ready = 0;
        for slot in 0..self.ring.slots {
            let seen = self.state(slot, GENERATION).load(Ordering::Relaxed);
            let is_ready = seen & (OPEN | READY) == OPEN | READY;
            let (weight, parked) = (self.weights.get(slot), self.state(slot, PARKED).load(Ordering::Relaxed));
            ready += u64::from(is_ready);
            if is_ready && weight == 0 && parked != 0 {
                self.weights.set(slot, if parked == LARGEST { largest } else { parked });
            } else if !is_ready && weight != 0 {
                self.weights.set(slot, 0);
            }
        }
        self.words[word::READY].store(ready, Ordering::Relaxed);
    }

    /// Number of rows that are open and sampleable.
    pub(super) fn ready_count(&self) -> u64 {
        // May be negative for a moment: one thread may count a row out before another counts it in.
        (self.words[word::READY].load(Ordering::Relaxed) as i64).max(0) as u64
    }
}
