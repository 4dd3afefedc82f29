//! The slot protocol: which thread may write, read or reprioritize which rows, and when. It handles no bytes.
//!
//! Rows are written to a ring of slots, in the order of their 64-bit sequence numbers. States, memory
//! orderings and the scenario behind each fence: README.md beside this file. `loom.rs` explores small cases
//! exhaustively.

#[cfg(not(loom))]
use super::columns::prefetch;
use super::process::Processes;
use super::wait::Wait;
use super::{ReplayError, layout::Ring};
use crate::region::Cells;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

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

/// Registration of one thread for one operation. Dropping it ends the operation, also after a panic.
pub(super) struct Operation<'a, W> {
    slots: &'a Slots<W>,
    words: &'a [AtomicU64],
    tag: u64,
}

impl<W> Drop for Operation<'_, W> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire loads of waiting threads; all accesses of this operation come
        // before.
        self.words[operation::PIN].store(0, Ordering::Release);
        self.words[operation::RESERVE].store(0, Ordering::Release);
        self.words[operation::WRITING].store(0, Ordering::Release);
        self.words[operation::OWNER].store(0, Ordering::Release);
    }
}

/// Keeps rows from being overwritten: rows seen open under a pin stay unchanged until it is dropped.
pub(super) struct Pin<'a, W> {
    slots: &'a Slots<W>,
    word: &'a AtomicU64,
    marked: u64,
}

impl<W> Drop for Pin<'_, W> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `clear`; reads of the rows come before they are overwritten.
        self.word.store(0, Ordering::Release);
    }
}

/// Rows that only this thread may write. Rows not published when it is dropped stay closed for one lap.
pub(super) struct Reservation<'a, W> {
    operation: Operation<'a, W>,
    pub first: u64,
    pub count: usize,
}

impl<W: Weights> Slots<W> {
    fn state(&self, slot: usize, which: usize) -> &AtomicU32 {
        &self.states[slot * STATE_WORDS + which]
    }

    /// Begins an operation of this thread that only reads. [`Operation::begin_changes`] allows it to write.
    pub(super) fn enter(&self) -> Result<Operation<'_, W>, ReplayError> {
        let tag = self.processes.tag()?;
        let start = thread_number().wrapping_add(tag as usize * 37) % OPERATIONS_MAX;
        let mut wait = Wait::default();
        loop {
            for i in 0..OPERATIONS_MAX {
                let at = (start + i) % OPERATIONS_MAX;
                let words = &self.operations[at * OPERATION_WORDS..][..OPERATION_WORDS];
                let owner = &words[operation::OWNER];
                // Acquire: pairs with the Release in Operation::drop. The Relaxed load before it is only a
                // hint.
                if owner.load(Ordering::Relaxed) == 0
                    && owner.compare_exchange(0, tag, Ordering::AcqRel, Ordering::Relaxed).is_ok()
                {
                    // Comes before the fence of any pin or reservation: if another thread misses this
                    // operation, this operation sees what that thread wrote before its own fence.
                    if self.words[word::OPERATIONS_USED].load(Ordering::Relaxed) <= at as u64 {
                        self.words[word::OPERATIONS_USED].fetch_max(at as u64 + 1, Ordering::AcqRel);
                    }
                    let operation = Operation { slots: self, words, tag };
                    // Pairs with the fence in `close`: either this thread sees that the tag was given up, or
                    // `close` sees this operation.
                    fence(Ordering::SeqCst);
                    return if self.processes.tag()? == tag {
                        Ok(operation)
                    } else {
                        Err(ReplayError::Closed)
                    };
                }
            }
            if wait.step() {
                self.reap_as(tag);
            }
        }
    }

    /// Unregisters this process, after waiting until none of its threads is inside an operation.
    pub(super) fn close(&self) {
        let Some(tag) = self.processes.release_tag() else { return };
        // Pairs with the fence in `enter`.
        fence(Ordering::SeqCst);
        for index in 0..self.operations_used() {
            let mut wait = Wait::default();
            // Acquire: pairs with the Release in Operation::drop.
            while self.operations[index * OPERATION_WORDS + operation::OWNER].load(Ordering::Acquire) == tag {
                wait.step();
            }
        }
        self.processes.free_entry(tag);
    }

    /// Reserves `count` rows, at most the capacity, and makes their slots ready to be written.
    ///
    /// Closes the rows that fall out of the capacity. Waits for readers of the slots (rarely, because chunks
    /// are closed ahead of need) and for writers that are a whole lap behind.
    pub(super) fn reserve<'a>(&'a self, operation: Operation<'a, W>, count: usize) -> Reservation<'a, W> {
        debug_assert!(count <= self.ring.capacity);
        let reserved = &self.words[word::RESERVED];
        if count > 1 {
            self.prefetch_run(reserved.load(Ordering::Relaxed), count.min(BATCH_ROWS));
        }
        // A lower bound first, so that an evictor does not miss this reservation between the next two lines.
        operation.words[operation::RESERVE].store(reserved.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // AcqRel: an evictor that got a later sequence number sees the bound.
        let first = reserved.fetch_add(count as u64, Ordering::AcqRel);
        operation.words[operation::RESERVE].store(first + 1, Ordering::Release);
        let reservation = Reservation { operation, first, count };
        if count > 0 {
            self.close_displaced(&reservation);
            let last_chunk = (first + count as u64 - 1) / self.ring.chunk as u64;
            self.clear_through(last_chunk, reservation.operation.tag);
        }
        reservation
    }

    /// Prefetches the states and weights of rows that are about to be written, and of the rows that they push
    /// out of the capacity. Other cores have read these lines, which are too many for the caches of this
    /// core.
    fn prefetch_run(&self, first: u64, count: usize) {
        let displaced = first.checked_sub(self.ring.capacity as u64);
        for start in [Some(first), displaced].into_iter().flatten() {
            let slot = (start % self.ring.slots as u64) as usize;
            self.weights.prefetch_run(slot, count);
            #[cfg(not(loom))]
            (slot * STATE_WORDS..(slot + count) * STATE_WORDS).step_by(16).for_each(|at| {
                crate::prefetch::write(self.states.as_ptr().wrapping_add(at));
            });
        }
    }

    /// Closes the rows that a reservation pushes out of the capacity.
    fn close_displaced(&self, reservation: &Reservation<'_, W>) {
        let capacity = self.ring.capacity as u64;
        let end = (reservation.first + reservation.count as u64).saturating_sub(capacity);
        let start = reservation.first.saturating_sub(capacity);
        if start == end {
            return;
        }
        // Pinned, so that a slot whose row is closed here is not written again before its weight is set to 0.
        let _pin = reservation.operation.pin();
        match end - start {
            1 => self.close_range::<1>(start, end),
            few if few <= SMALL_BATCH_ROWS as u64 => self.close_range::<SMALL_BATCH_ROWS>(start, end),
            _ => self.close_range::<BATCH_ROWS>(start, end),
        }
    }

    fn close_range<const N: usize>(&self, start: u64, end: u64) {
        let mut closed = [Row { slot: 0, lap: 0 }; N];
        for first in (start..end).step_by(N) {
            let (mut count, mut were_ready) = (0, 0);
            for row in self.ring.rows(first..end.min(first + N as u64)) {
                if let Some(was_ready) = self.close_generation(row.slot, Some(row.lap)) {
                    closed[count] = row;
                    count += 1;
                    were_ready += u64::from(was_ready);
                }
            }
            self.store::<N>(&closed[..count], &[0; N][..count]);
            if were_ready > 0 {
                self.words[word::READY].fetch_sub(were_ready, Ordering::Relaxed); // A counter.
            }
        }
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

    /// Waits until chunk `chunk` and all before it may be written. Marks one more if no other thread evicts.
    fn clear_through(&self, chunk: u64, tag: u64) {
        let (marked, cleared) = (&self.words[word::MARKED], &self.words[word::CLEARED]);
        let mut wait = Wait::default();
        // Acquire: pairs with the Release in `clear`; no thread reads the old rows any more.
        while cleared.load(Ordering::Acquire) <= chunk {
            if let Some(_lock) = self.try_evictor(tag) {
                while cleared.load(Ordering::Acquire) <= chunk {
                    let next = cleared.load(Ordering::Relaxed);
                    if marked.load(Ordering::Relaxed) <= next {
                        self.await_lapped(next);
                        self.mark(next);
                    }
                    self.clear(next);
                }
            } else {
                self.watch_evictor(&mut wait);
            }
        }
        if marked.load(Ordering::Relaxed) <= chunk + 1
            && let Some(_lock) = self.try_evictor(tag)
        {
            let next = marked.load(Ordering::Relaxed);
            if next <= chunk + 1 && !self.any_lapped(next) {
                self.mark(next);
            }
        }
    }

    /// Closes the rows of chunk `chunk` (counted from the first one) and starts the next epoch. Evictor only.
    pub(super) fn mark(&self, chunk: u64) {
        for slot in self.ring.chunk_slots(chunk) {
            self.close_slot(slot, None);
        }
        // Release: a thread that pins the new epoch sees the rows closed.
        self.words[word::MARKED].store(chunk + 1, Ordering::Release);
    }

    /// Waits until no thread reads or writes the rows of a marked chunk, then frees its slots. Evictor only.
    pub(super) fn clear(&self, chunk: u64) {
        // Pairs with the fence in `pin`: either the reader sees the rows closed, or this thread sees its pin.
        fence(Ordering::SeqCst);
        for index in 0..self.operations_used() {
            let mut wait = Wait::default();
            loop {
                // Acquire: pairs with the Release in Pin::drop.
                let pin = self.operations[index * OPERATION_WORDS + operation::PIN].load(Ordering::Acquire);
                if pin == 0 || pin - 1 > chunk {
                    break;
                }
                if wait.step() {
                    self.reap();
                }
            }
        }
        for slot in self.ring.chunk_slots(chunk) {
            // A thread that stores a weight on a closed row sets it back to 0, unless it is killed before
            // that.
            if self.weights.get(slot) != 0 {
                self.weights.set(slot, 0);
            }
        }
        // Release: pairs with the Acquire in `clear_through`.
        self.words[word::CLEARED].store(chunk + 1, Ordering::Release);
    }

    /// Returns true if an operation may still write rows that chunk `chunk` held one lap ago.
    fn any_lapped(&self, chunk: u64) -> bool {
        (0..self.operations_used()).any(|index| self.is_lapped(index, chunk))
    }

    fn is_lapped(&self, index: usize, chunk: u64) -> bool {
        let lap_ago = ((chunk + 1) * self.ring.chunk as u64).saturating_sub(self.ring.slots as u64);
        // Acquire: pairs with the Release in Operation::drop; its rows are published.
        let reserve = self.operations[index * OPERATION_WORDS + operation::RESERVE].load(Ordering::Acquire);
        reserve != 0 && reserve - 1 < lap_ago
    }

    pub(super) fn await_lapped(&self, chunk: u64) {
        for index in 0..self.operations_used() {
            let mut wait = Wait::default();
            while self.is_lapped(index, chunk) {
                if wait.step() {
                    self.reap();
                }
            }
        }
    }

    fn operations_used(&self) -> usize {
        (self.words[word::OPERATIONS_USED].load(Ordering::Acquire) as usize).min(OPERATIONS_MAX)
    }

    fn try_evictor(&self, tag: u64) -> Option<EvictorLock<'_>> {
        let word = &self.words[word::EVICTOR];
        // Acquire: pairs with the Release in EvictorLock::drop; eviction continues where it stopped.
        word.compare_exchange(0, tag, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| EvictorLock { word })
    }

    /// One step of waiting for the evictor. Frees its lock if its process died: eviction can be repeated.
    pub(super) fn watch_evictor(&self, wait: &mut Wait) {
        if wait.step() {
            self.free_evictor();
        }
    }

    /// Frees the evictor's lock if the process that holds it is dead.
    fn free_evictor(&self) {
        let word = &self.words[word::EVICTOR];
        let holder = word.load(Ordering::Relaxed);
        if holder != 0
            && !self.processes.is_alive(holder)
            && word.compare_exchange(holder, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            self.words[word::REAPED].fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Ends the operations of dead processes, or frees the evictor's lock if a dead process holds it.
    fn reap_as(&self, tag: u64) {
        match self.try_evictor(tag) {
            Some(_lock) => self.reap(),
            None => self.free_evictor(),
        }
    }

    /// Ends the operations of dead processes. Evictor only, so that no operation is freed twice.
    fn reap(&self) {
        for index in 0..self.operations_used() {
            let words = &self.operations[index * OPERATION_WORDS..][..OPERATION_WORDS];
            let owner = words[operation::OWNER].load(Ordering::Acquire);
            if owner != 0 && !self.processes.is_alive(owner) {
                if words[operation::WRITING].load(Ordering::Acquire) != 0 {
                    self.words[word::REAPED].fetch_add(1, Ordering::AcqRel);
                }
                drop(Operation { slots: self, words, tag: owner });
            }
        }
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

/// The evictor's lock. Dropping it frees the lock.
struct EvictorLock<'a> {
    word: &'a AtomicU64,
}

impl Drop for EvictorLock<'_> {
    fn drop(&mut self) {
        self.word.store(0, Ordering::Release); // Release: pairs with the Acquire in `try_evictor`.
    }
}

/// Guard of a shut gate: until it is dropped, no other thread changes rows or weights.
pub(super) struct Gate<'a, W> {
    word: &'a AtomicU64,
    operation: Operation<'a, W>,
}

impl<W> Drop for Gate<'_, W> {
    fn drop(&mut self) {
        self.word.store(0, Ordering::Release); // Release: pairs with the Acquire in `begin_changes`.
    }
}

impl<'a, W: Weights> Operation<'a, W> {
    /// Begins the part of the operation that changes weights or rows. Waits while the gate is shut.
    pub(super) fn begin_changes(self) -> Self {
        let slots = self.slots;
        let mut wait = Wait::default();
        loop {
            self.words[operation::WRITING].store(1, Ordering::Relaxed);
            // Pairs with the fence in `shut`: either this thread sees the shut gate, or `shut` sees this
            // operation.
            fence(Ordering::SeqCst);
            let word = &slots.words[word::GATE];
            let gate = word.load(Ordering::Acquire);
            if gate == 0 {
                return self;
            }
            self.words[operation::WRITING].store(0, Ordering::Release);
            // `WRITING` is 0 while waiting; otherwise the thread that shuts the gate might find 1 at each
            // check.
            while word.load(Ordering::Relaxed) == gate {
                if wait.step() && !slots.processes.is_alive(gate) {
                    // The holder died. If the exchange fails, another thread has opened the gate.
                    let _ = word.compare_exchange(gate, 0, Ordering::AcqRel, Ordering::Relaxed);
                }
            }
        }
    }

    /// Shuts the gate: keeps all other threads from changing rows and weights until the guard is dropped. Not
    /// allowed after [`Operation::begin_changes`].
    pub(super) fn shut(self) -> Gate<'a, W> {
        let slots = self.slots;
        let word = &slots.words[word::GATE];
        let mut wait = Wait::default();
        while let Err(holder) = word.compare_exchange(0, self.tag, Ordering::AcqRel, Ordering::Relaxed) {
            if wait.step() && !slots.processes.is_alive(holder) {
                let _ = word.compare_exchange(holder, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        let gate = Gate { word, operation: self };
        // Pairs with the fence in `begin_changes`.
        fence(Ordering::SeqCst);
        for index in 0..slots.operations_used() {
            let mut wait = Wait::default();
            // Acquire: pairs with the Release in Operation::drop.
            while slots.operations[index * OPERATION_WORDS + operation::WRITING].load(Ordering::Acquire) != 0
            {
                if wait.step() {
                    slots.reap_as(gate.operation.tag);
                }
            }
        }
        gate
    }

    /// Tag of the process of this operation.
    pub(super) fn tag(&self) -> u64 {
        self.tag
    }

    /// Pins the epoch: rows seen open from here on are not overwritten until the pin is dropped. The thread
    /// must not wait for another one while it holds the pin.
    pub(super) fn pin(&self) -> Pin<'a, W> {
        // Acquire: pairs with the Release in `mark`; the chunks marked so far are seen closed.
        let epoch = self.slots.words[word::MARKED].load(Ordering::Acquire);
        let word = &self.words[operation::PIN];
        word.store(epoch + 1, Ordering::Relaxed);
        // Pairs with the fence in `clear`: either this thread sees the rows closed and their chunk marked, or
        // `clear` sees the pin.
        fence(Ordering::SeqCst);
        let marked = self.slots.words[word::MARKED].load(Ordering::Acquire);
        Pin { slots: self.slots, word, marked }
    }
}

impl<W: Weights> Pin<'_, W> {
    /// The row in a slot, if it can be sampled.
    pub(super) fn sampleable(&self, slot: usize) -> Option<Row> {
        // Acquire: pairs with the Release in `publish` and `make_ready`; the row's bytes and links are visible.
        let seen = self.slots.state(slot, GENERATION).load(Ordering::Acquire);
        (seen & (OPEN | READY) == OPEN | READY).then_some(Row { slot, lap: seen >> LAP_SHIFT })
    }

    /// Number of chunks marked when the pin was set. Published rows from [`Ring::horizon`] of this number on
    /// are not overwritten until the pin is dropped, even those that fell out of the capacity.
    #[inline(always)]
    pub(super) fn marked(&self) -> u64 {
        self.marked
    }

    /// Number of chunks that may be written so far. A sampler calls this before it reads a weight and again
    /// after it has read the row. A weight may be left from an earlier row of its slot, which another thread
    /// is about to set to 0. The row can then be newer than the weight only if its slot [`Ring::is_among`]
    /// the chunks cleared between the two calls, because clearing a chunk leaves no earlier weight behind.
    #[inline(always)]
    pub(super) fn cleared(&self) -> u64 {
        // Acquire: pairs with the Release in `clear`; weights read from now on are not from before it.
        self.slots.words[word::CLEARED].load(Ordering::Acquire)
    }

    /// Prefetches the state of a slot.
    #[inline(always)]
    pub(super) fn prefetch(&self, slot: usize) {
        #[cfg(not(loom))]
        prefetch(std::ptr::from_ref(self.slots.state(slot, GENERATION)).cast());
        #[cfg(loom)]
        let _ = slot;
    }

    /// Prefetches the state of a slot for writing.
    #[inline(always)]
    pub(super) fn prefetch_write(&self, slot: usize) {
        #[cfg(not(loom))]
        crate::prefetch::write(std::ptr::from_ref(self.slots.state(slot, GENERATION)));
        #[cfg(loom)]
        let _ = slot;
    }

    /// As [`Pin::evict`], but stops before the weight is set to 0, like a thread that is suspended there.
    #[cfg(all(loom, test))]
    pub(super) fn close_generation(&self, slot: usize) -> bool {
        self.sampleable(slot)
            .is_some_and(|row| self.slots.close_generation(row.slot, Some(row.lap)).is_some())
    }

    /// Closes the sampleable row in a slot before it falls out of the capacity. Returns false if there is
    /// none. Only after [`Operation::begin_changes`].
    pub(super) fn evict(&self, slot: usize) -> bool {
        // Pinned: as in `close_displaced`.
        self.sampleable(slot).is_some_and(|row| self.slots.close_slot(row.slot, Some(row.lap)))
    }

    /// Returns true if a row is still open in its slot.
    pub(super) fn is_open(&self, row: Row) -> bool {
        // Acquire: as in `sampleable`.
        let seen = self.slots.state(row.slot, GENERATION).load(Ordering::Acquire);
        seen & OPEN != 0 && seen >> LAP_SHIFT == row.lap
    }

    /// Slot of the next row of the same environment.
    pub(super) fn next(&self, slot: usize) -> Option<usize> {
        // Acquire: pairs with the Release in `link`; the row it names is visible.
        let link = self.slots.state(slot, LINK).load(Ordering::Acquire);
        (link != NO_LINK).then(|| link as usize - 1)
    }

    /// Links the row in `slot` to that in `next`, each reserved by this thread or seen open under this pin.
    pub(super) fn link(&self, slot: usize, next: usize) {
        // Release: pairs with the Acquire in `next`.
        self.slots.state(slot, LINK).store(next as u32 + 1, Ordering::Release);
    }

    /// Prepares an update of a weight. On [`Update::Store`] the caller stores the weight under the same pin.
    pub(super) fn update(&self, row: Row, weight: u32) -> Update {
        let cell = self.slots.state(row.slot, GENERATION);
        let seen = cell.load(Ordering::Acquire);
        if seen & OPEN == 0 || seen >> LAP_SHIFT != row.lap {
            return self.classify_late_update(row.lap, seen >> LAP_SHIFT);
        }
        // Always stored: `make_ready` may be about to store an older weight and reads this word afterwards.
        self.slots.state(row.slot, PARKED).store(weight, Ordering::Relaxed);
        if seen & READY != 0 {
            return Update::Store;
        }
        // Pairs with the fence in `store_parked_weights`: either that function reads this weight, or this
        // thread sees the row ready.
        fence(Ordering::SeqCst);
        let seen = cell.load(Ordering::Acquire);
        if seen >> LAP_SHIFT == row.lap && seen & READY != 0 { Update::Store } else { Update::Parked }
    }

    /// Result for a row of lap `lap` whose slot is in lap `written`. A slot never returns to an earlier lap,
    /// so a row of a later lap does not exist. After the largest lap, counting continues at 0; from then on,
    /// a row that is behind by up to half of all laps counts as overwritten.
    #[cold]
    fn classify_late_update(&self, lap: u32, written: u32) -> Update {
        let largest = Ring::LAP_MASK as u32;
        let slots = &self.slots;
        let rows_of_all_laps = slots.ring.slots as u64 * Ring::LAP_MASK;
        let most = match slots.words[word::RESERVED].load(Ordering::Relaxed) <= rows_of_all_laps {
            true => written,
            false => largest / 2,
        };
        let behind = written.wrapping_sub(lap) & largest;
        let existed = (1..=largest).contains(&lap) && behind <= most;
        if existed { Update::Stale } else { Update::Unknown }
    }

    /// Makes open rows sampleable with their parked weights. Rows closed in the meantime are left unchanged.
    pub(super) fn make_ready(&self, rows: &[Row], largest: u32) {
        match rows.len() {
            0 => {}
            1 => self.make_ready_by::<1>(rows, largest),
            few if few <= SMALL_BATCH_ROWS => self.make_ready_by::<SMALL_BATCH_ROWS>(rows, largest),
            _ => self.make_ready_by::<BATCH_ROWS>(rows, largest),
        }
    }

    fn make_ready_by<const N: usize>(&self, rows: &[Row], largest: u32) {
        let mut ready = [Row { slot: 0, lap: 0 }; N];
        for rows in rows.chunks(N) {
            let mut count = 0;
            for row in rows {
                let waiting = row.lap << LAP_SHIFT | OPEN;
                let cell = self.slots.state(row.slot, GENERATION);
                // Release: a thread that sees the row ready sees the links that were set before.
                let made =
                    cell.compare_exchange(waiting, waiting | READY, Ordering::AcqRel, Ordering::Relaxed);
                if made.is_ok() {
                    ready[count] = *row;
                    count += 1;
                }
            }
            if count > 0 {
                self.slots.words[word::READY].fetch_add(count as u64, Ordering::Relaxed); // A counter.
                self.store_parked_weights::<N>(&ready[..count], largest);
            }
        }
    }

    /// Stores the parked weights of at most `N` rows that were just made ready.
    fn store_parked_weights<const N: usize>(&self, rows: &[Row], largest: u32) {
        let slots = self.slots;
        let (mut parked, mut weights) = ([0; N], [0; N]);
        let of = |parked| if parked == LARGEST { largest } else { parked };
        // Pairs with the fence in `update`.
        fence(Ordering::SeqCst);
        for ((row, parked), weight) in rows.iter().zip(&mut parked).zip(&mut weights) {
            *parked = slots.state(row.slot, PARKED).load(Ordering::Relaxed);
            *weight = of(*parked);
        }
        slots.store::<N>(rows, &weights[..rows.len()]);
        for (row, parked) in rows.iter().zip(&mut parked) {
            let cell = slots.state(row.slot, PARKED);
            loop {
                // If an update stored a weight before, the exchange of this store makes its parked weight
                // visible here.
                let now = cell.load(Ordering::Relaxed);
                if now == *parked {
                    break;
                }
                *parked = now;
                slots.weights.set(row.slot, of(now));
            }
            self.clear_if_closed(*row);
        }
    }

    /// Stores the weights of `rows`, for which [`Pin::update`] returned [`Update::Store`] under this pin.
    /// `slots` are their slots.
    pub(super) fn store_many(&self, rows: &[Row], slots: &[u32], weights: &[u32]) {
        self.slots.weights.set_many(slots, weights);
        rows.iter().for_each(|row| self.clear_if_closed(*row));
    }

    /// Called after a weight was stored: sets it to 0 if the row was closed in the meantime. If `close_slot`
    /// stored its 0 before this weight, the exchange that stored the weight makes the closing visible here.
    fn clear_if_closed(&self, row: Row) {
        if !self.is_open(row) {
            self.slots.weights.set(row.slot, 0);
        }
    }
}

impl<'a, W: Weights> Reservation<'a, W> {
    pub(super) fn row(&self, i: usize) -> Row {
        debug_assert!(i < self.count);
        self.operation.slots.ring.row(self.first + i as u64)
    }

    /// All rows, in order.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row> + use<W> {
        self.operation.slots.ring.rows(self.first..self.first + self.count as u64)
    }

    pub(super) fn pin(&self) -> Pin<'a, W> {
        self.operation.pin()
    }

    /// Publishes a row of this reservation after its bytes were written: opens it, not yet sampleable.
    pub(super) fn publish(&self, row: Row, parked: u32) {
        let slots = self.operation.slots;
        slots.state(row.slot, LINK).store(NO_LINK, Ordering::Relaxed);
        slots.state(row.slot, PARKED).store(parked, Ordering::Relaxed);
        // Release: pairs with the Acquire loads under a pin; publishes the row's bytes, link and parked weight.
        slots.state(row.slot, GENERATION).store(row.lap << LAP_SHIFT | OPEN, Ordering::Release);
    }

    /// Closes rows of this reservation that later reservations pushed out of the capacity before they were
    /// published.
    pub(super) fn close_displaced_since_reserved(&self, _pin: &Pin<'_, W>) {
        let slots = self.operation.slots;
        // Pairs with the fence of the pin in `close_displaced`: that thread sees these rows open, or this one
        // sees its reservation.
        fence(Ordering::SeqCst);
        let reserved = slots.words[word::RESERVED].load(Ordering::Acquire);
        let end = reserved.saturating_sub(slots.ring.capacity as u64).min(self.first + self.count as u64);
        for row in slots.ring.rows(self.first..end) {
            slots.close_slot(row.slot, Some(row.lap));
        }
    }
}

/// A small number that is different for most threads.
fn thread_number() -> usize {
    #[cfg(loom)]
    return 0;
    #[cfg(not(loom))]
    {
        use std::cell::Cell;
        use std::sync::atomic::AtomicUsize;
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) });
        NUMBER.with(|number| {
            if number.get() == usize::MAX {
                number.set(NEXT.fetch_add(1, Ordering::Relaxed)); // A counter: orders nothing.
            }
            number.get()
        })
    }
}
