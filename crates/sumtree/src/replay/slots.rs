//! The slot protocol: which rows may be written, read or reprioritized, by whom, when. It knows no bytes.
//!
//! A ring of slots, written in the order of one 64-bit sequence. States, orderings and the scenario behind each
//! fence: README.md beside this file; `loom.rs` explores the small cases exhaustively.

#[cfg(not(loom))]
use super::columns::prefetch;
use super::process::Processes;
use super::wait::Wait;
use super::{ReplayError, layout::Ring};
use crate::region::Cells;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Words of the ring that all share, by use on cache lines of their own.
pub(super) mod word {
    const LINE: usize = if cfg!(loom) { 1 } else { 8 };
    /// Sequence of the next row to be reserved.
    pub const RESERVED: usize = 0;
    /// Chunks closed to readers so far: the epoch that pins name.
    pub const MARKED: usize = LINE;
    /// Chunks that may be written so far.
    pub const CLEARED: usize = 2 * LINE;
    /// Tag of the process that evicts at the moment, or 0.
    pub const EVICTOR: usize = 3 * LINE;
    /// Tag of the process that keeps all writers and updaters out, or 0.
    pub const GATE: usize = 4 * LINE;
    /// Members `0..MEMBERS_USED` have been in use.
    pub const MEMBERS_USED: usize = 5 * LINE;
    /// Rows that are open and sampleable.
    pub const READY: usize = 6 * LINE;
    /// Processes that died inside an operation and were cleared away; odd parts may be left in the tree's sums.
    pub const REAPED: usize = 7 * LINE;
    pub const COUNT: usize = 8 * LINE;
}

/// One row's life, in the two low bits of its generation word; the lap count stands above.
const OPEN: u32 = 1;
const READY: u32 = 2;
const LAP_SHIFT: u32 = 2;

/// Threads that may be inside an operation at a time; more wait.
pub(super) const MEMBERS: usize = if cfg!(loom) { 3 } else { 128 };
/// Words per member, of which four are used.
pub(super) const MEMBER_WORDS: usize = if cfg!(loom) { 4 } else { 8 };
mod member {
    /// Tag of the process whose thread holds this member, or 0.
    pub const OWNER: usize = 0;
    /// Epoch + 1 while rows and weights are looked at, or 0.
    pub const PIN: usize = 1;
    /// First reserved sequence + 1 while rows are being written, or 0.
    pub const RESERVE: usize = 2;
    /// 1 while weights or rows may change, or 0.
    pub const MUTATES: usize = 3;
}

/// Words per slot.
pub(super) const STATE_WORDS: usize = 3;
/// Lap and state of the row.
const GENERATION: usize = 0;
/// Slot + 1 of the next row of the same environment, or [`NO_LINK`].
pub(super) const LINK: usize = 1;
/// The weight given last: the one that a row gets when it becomes sampleable.
pub(super) const PARKED: usize = 2;

/// Whether a row with these state words can be drawn.
pub(super) fn is_ready(state: [u32; STATE_WORDS]) -> bool {
    state[GENERATION] & (OPEN | READY) == OPEN | READY
}

/// Whether a row with these state words is published.
pub(super) fn is_open(state: [u32; STATE_WORDS]) -> bool {
    state[GENERATION] & OPEN != 0
}

/// Whether the state is one of a row: only open ones are ready.
pub(super) fn flags_fit(state: [u32; STATE_WORDS]) -> bool {
    state[GENERATION] & (OPEN | READY) != READY
}

/// The state words of a row for slot and lap `to`, linked to slot `next`; closed if it falls out of the capacity.
pub(super) fn moved(
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

/// Rows whose weights are stored together, at most: the sums above them and the counters are written once for all, so
/// that threads which add rows side by side do not take the same cache lines from each other for every row.
const TOGETHER: usize = if cfg!(loom) { 2 } else { 256 };
/// The same for calls of fewer rows, which do not need as much room.
const FEW: usize = if cfg!(loom) { 2 } else { 16 };

/// No next row.
pub(super) const NO_LINK: u32 = 0;
/// A parked weight that stands for "the largest so far when the row becomes sampleable".
pub(super) const LARGEST: u32 = u32::MAX;

/// Where the weights of the slots live.
pub(super) trait Weights {
    /// Sets one weight; what the caller wrote before is visible to the thread that draws it.
    fn set(&self, slot: usize, weight: u32);
    /// The weight at present.
    fn get(&self, slot: usize) -> u32;
    /// Sets many in order.
    fn set_many(&self, slots: &[u32], weights: &[u32]) {
        slots.iter().zip(weights).for_each(|(slot, weight)| self.set(*slot as usize, *weight));
    }
    /// Starts to load the weights of `count` slots from `first` on, which are going to be set.
    fn prefetch_run(&self, first: usize, count: usize) {
        let _ = (first, count);
    }
    /// Sets those of the slots from `first` on.
    fn set_run(&self, first: usize, weights: &[u32]) {
        weights.iter().enumerate().for_each(|(i, weight)| self.set(first + i, *weight));
    }
}

/// A row that was seen: its slot and its lap. Tickets are made of it.
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

    pub(super) fn of_ticket(ticket: u64) -> Self {
        Self { slot: ticket as u32 as usize, lap: (ticket >> 32) as u32 }
    }
}

/// What an update of a row's weight came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Update {
    /// The row is sampleable: store the weight.
    Store,
    /// The row waits for the end of its window, and keeps the weight until then.
    Parked,
    /// The row was overwritten.
    Stale,
    /// No such row was written.
    Unknown,
}

/// The protocol over its shared words. Every handle, in whatever process, sees the same words.
pub(super) struct Slots<W> {
    pub ring: Ring,
    pub words: Cells<AtomicU64>,
    pub members: Cells<AtomicU64>,
    /// [`STATE_WORDS`] per slot, side by side because they are used together.
    pub states: Cells<AtomicU32>,
    pub weights: W,
    pub processes: Processes,
}

/// One thread inside one operation. Dropping it ends the operation, whatever happened.
pub(super) struct Member<'a, W> {
    slots: &'a Slots<W>,
    words: &'a [AtomicU64],
    tag: u64,
}

impl<W> Drop for Member<'_, W> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire loads of who waits; what this operation read and wrote comes before.
        self.words[member::PIN].store(0, Ordering::Release);
        self.words[member::RESERVE].store(0, Ordering::Release);
        self.words[member::MUTATES].store(0, Ordering::Release);
        self.words[member::OWNER].store(0, Ordering::Release);
    }
}

/// Rows and weights seen under a pin stay what they are until it is dropped.
pub(super) struct Pin<'a, W> {
    slots: &'a Slots<W>,
    word: &'a AtomicU64,
    marked: u64,
}

impl<W> Drop for Pin<'_, W> {
    fn drop(&mut self) {
        // Release: pairs with the evictor's Acquire; our reads of the rows come before they are overwritten.
        self.word.store(0, Ordering::Release);
    }
}

/// Rows that this thread alone may write. Those not published when it is dropped stay closed for a lap.
pub(super) struct Reservation<'a, W> {
    member: Member<'a, W>,
    pub first: u64,
    pub count: usize,
}

impl<W: Weights> Slots<W> {
    fn state(&self, slot: usize, which: usize) -> &AtomicU32 {
        &self.states[slot * STATE_WORDS + which]
    }

    /// Joins as a thread that only looks.
    pub(super) fn enter(&self) -> Result<Member<'_, W>, ReplayError> {
        let tag = self.processes.tag()?;
        let start = thread_number().wrapping_add(tag as usize * 37) % MEMBERS;
        let mut wait = Wait::default();
        loop {
            for i in 0..MEMBERS {
                let at = (start + i) % MEMBERS;
                let words = &self.members[at * MEMBER_WORDS..][..MEMBER_WORDS];
                let owner = &words[member::OWNER];
                // Acquire: pairs with the Release that gave it back. Relaxed first look: a guess.
                if owner.load(Ordering::Relaxed) == 0
                    && owner.compare_exchange(0, tag, Ordering::AcqRel, Ordering::Relaxed).is_ok()
                {
                    // Before the fence of any pin or reservation, so that who misses the member is seen by it.
                    if self.words[word::MEMBERS_USED].load(Ordering::Relaxed) <= at as u64 {
                        self.words[word::MEMBERS_USED].fetch_max(at as u64 + 1, Ordering::AcqRel);
                    }
                    let member = Member { slots: self, words, tag };
                    // Against `close`: either we see that the tag is given up, or it sees the member.
                    fence(Ordering::SeqCst);
                    return if self.processes.tag()? == tag { Ok(member) } else { Err(ReplayError::Closed) };
                }
            }
            if wait.step() {
                self.reap_as(tag);
            }
        }
    }

    /// Leaves the region for good, when no thread of this process is inside an operation any more.
    pub(super) fn close(&self) {
        let Some(tag) = self.processes.retire() else { return };
        // Against `enter`.
        fence(Ordering::SeqCst);
        for index in 0..self.members_used() {
            let mut wait = Wait::default();
            // Acquire: pairs with the Release in Member::drop.
            while self.members[index * MEMBER_WORDS + member::OWNER].load(Ordering::Acquire) == tag {
                wait.step();
            }
        }
        self.processes.leave(tag);
    }

    /// Reserves `count` rows, at most the capacity, and makes their slots ready to be written.
    ///
    /// The rows that fall out of the capacity are closed at once. Waits for readers that are still on the slots
    /// (chunks are closed ahead of need, so practically never) and for writers a whole lap behind.
    pub(super) fn reserve<'a>(&'a self, member: Member<'a, W>, count: usize) -> Reservation<'a, W> {
        debug_assert!(count <= self.ring.capacity);
        let reserved = &self.words[word::RESERVED];
        if count > 1 {
            self.prefetch_run(reserved.load(Ordering::Relaxed), count.min(TOGETHER));
        }
        // A bound from below first, so that an evictor never misses us between the next two lines.
        member.words[member::RESERVE].store(reserved.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // AcqRel: an evictor that got a later sequence sees the bound.
        let first = reserved.fetch_add(count as u64, Ordering::AcqRel);
        member.words[member::RESERVE].store(first + 1, Ordering::Release);
        let reservation = Reservation { member, first, count };
        if count > 0 {
            self.close_displaced(&reservation);
            let last_chunk = (first + count as u64 - 1) / self.ring.chunk as u64;
            self.clear_through(last_chunk, reservation.member.tag);
        }
        reservation
    }

    /// Starts to load the states and weights of rows that are about to be written, and of those that fall out of the
    /// capacity for them. Other cores have read them; these lines are too many to be in this one's caches.
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
        // Pinned: a slot whose row we close is not written anew before we have set its weight to 0.
        let _pin = reservation.member.pin();
        match end - start {
            1 => self.close_range::<1>(start, end),
            few if few <= FEW as u64 => self.close_range::<FEW>(start, end),
            _ => self.close_range::<TOGETHER>(start, end),
        }
    }

    fn close_range<const N: usize>(&self, start: u64, end: u64) {
        let mut closed = [Row { slot: 0, lap: 0 }; N];
        for first in (start..end).step_by(N) {
            let (mut count, mut were_ready) = (0, 0);
            for row in self.ring.rows(first..end.min(first + N as u64)) {
                if let Some(was_ready) = self.shut_slot(row.slot, Some(row.lap)) {
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

    /// Closes a slot (if it holds lap `lap`) and sets its weight to 0. False if it was closed already.
    fn close_slot(&self, slot: usize, lap: Option<u32>) -> bool {
        let closed = self.shut_slot(slot, lap);
        if closed.is_some() {
            self.weights.set(slot, 0);
        }
        if closed == Some(true) {
            self.words[word::READY].fetch_sub(1, Ordering::Relaxed); // A counter.
        }
        closed.is_some()
    }

    /// The first half of closing a slot: who calls it sets the weight to 0 afterwards, and counts the row out if it was
    /// ready, as this says. `None` if it was closed already.
    fn shut_slot(&self, slot: usize, lap: Option<u32>) -> Option<bool> {
        let cell = self.state(slot, GENERATION);
        let mut seen = cell.load(Ordering::Relaxed);
        while seen & OPEN != 0 && lap.is_none_or(|lap| seen >> LAP_SHIFT == lap) {
            let closed = seen & !(OPEN | READY);
            // AcqRel: the zero that follows comes after the weight that made the row ready.
            match cell.compare_exchange_weak(seen, closed, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(seen & READY != 0),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Returns when chunk `chunk` and all before it may be written; closes one more ahead if no other thread does.
    fn clear_through(&self, chunk: u64, tag: u64) {
        let (marked, cleared) = (&self.words[word::MARKED], &self.words[word::CLEARED]);
        let mut wait = Wait::default();
        // Acquire: pairs with the Release in `clear`; the readers of the old rows are gone.
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

    /// Closes chunk `chunk` (sequence of chunks) and opens the next epoch. Evictor only.
    fn mark(&self, chunk: u64) {
        for slot in self.ring.chunk_slots(chunk) {
            self.close_slot(slot, None);
        }
        // Release: who pins the new epoch sees the rows closed.
        self.words[word::MARKED].store(chunk + 1, Ordering::Release);
    }

    /// Waits until no thread reads or writes the rows of a marked chunk, then gives its slots free. Evictor only.
    fn clear(&self, chunk: u64) {
        // Against `pin`: either its reader sees the rows closed, or we see its pin.
        fence(Ordering::SeqCst);
        for index in 0..self.members_used() {
            let mut wait = Wait::default();
            loop {
                // Acquire: pairs with the Release in Pin::drop.
                let pin = self.members[index * MEMBER_WORDS + member::PIN].load(Ordering::Acquire);
                if pin == 0 || pin - 1 > chunk {
                    break;
                }
                if wait.step() {
                    self.reap();
                }
            }
        }
        for slot in self.ring.chunk_slots(chunk) {
            // Who stores a weight on a closed row takes it back, unless it was killed in between; then none does.
            if self.weights.get(slot) != 0 {
                self.weights.set(slot, 0);
            }
        }
        // Release: pairs with the Acquire in `clear_through`.
        self.words[word::CLEARED].store(chunk + 1, Ordering::Release);
    }

    /// Whether a member may still write rows that chunk `chunk` held a lap ago.
    fn any_lapped(&self, chunk: u64) -> bool {
        (0..self.members_used()).any(|index| self.is_lapped(index, chunk))
    }

    fn is_lapped(&self, index: usize, chunk: u64) -> bool {
        let lap_ago = ((chunk + 1) * self.ring.chunk as u64).saturating_sub(self.ring.slots as u64);
        // Acquire: pairs with the Release in Member::drop; its rows are published.
        let reserve = self.members[index * MEMBER_WORDS + member::RESERVE].load(Ordering::Acquire);
        reserve != 0 && reserve - 1 < lap_ago
    }

    pub(super) fn await_lapped(&self, chunk: u64) {
        for index in 0..self.members_used() {
            let mut wait = Wait::default();
            while self.is_lapped(index, chunk) {
                if wait.step() {
                    self.reap();
                }
            }
        }
    }

    fn members_used(&self) -> usize {
        (self.words[word::MEMBERS_USED].load(Ordering::Acquire) as usize).min(MEMBERS)
    }

    fn try_evictor(&self, tag: u64) -> Option<EvictorLock<'_>> {
        let word = &self.words[word::EVICTOR];
        // Acquire: pairs with the Release in EvictorLock::drop; eviction goes on where the last one stopped.
        word.compare_exchange(0, tag, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| EvictorLock { word })
    }

    /// One step of waiting for the evictor; frees its lock if its process died. Its steps can be repeated.
    pub(super) fn watch_evictor(&self, wait: &mut Wait) {
        if wait.step() {
            self.free_evictor();
        }
    }

    /// Takes the evictor's lock from a dead process.
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

    /// Ends the operations of dead processes, unless a live process is doing that. The dead one may hold the lock itself.
    fn reap_as(&self, tag: u64) {
        match self.try_evictor(tag) {
            Some(_lock) => self.reap(),
            None => self.free_evictor(),
        }
    }

    /// Ends the operations of dead processes. Under the evictor's lock, so that no member is freed twice.
    fn reap(&self) {
        for index in 0..self.members_used() {
            let words = &self.members[index * MEMBER_WORDS..][..MEMBER_WORDS];
            let owner = words[member::OWNER].load(Ordering::Acquire);
            if owner != 0 && !self.processes.is_alive(owner) {
                if words[member::MUTATES].load(Ordering::Acquire) != 0 {
                    self.words[word::REAPED].fetch_add(1, Ordering::AcqRel);
                }
                drop(Member { slots: self, words, tag: owner });
            }
        }
    }

    /// Forgets all members and holders of locks: none is left.
    pub(super) fn forget_all(&self) {
        for cell in self.members.iter() {
            cell.store(0, Ordering::Relaxed);
        }
        for at in [word::EVICTOR, word::GATE] {
            self.words[at].store(0, Ordering::Relaxed);
        }
        // What they may have left half done is mended before the next change.
        self.words[word::REAPED].fetch_add(1, Ordering::AcqRel);
    }

    /// The words of a slot.
    pub(super) fn words_of(&self, slot: usize) -> [u32; STATE_WORDS] {
        std::array::from_fn(|which| self.state(slot, which).load(Ordering::Relaxed))
    }

    /// Brings weights and states together where a death came between them. No other thread changes anything meanwhile.
    pub(super) fn mend(&self, largest: u32) {
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

    /// Rows open and sampleable.
    pub(super) fn ready_count(&self) -> u64 {
        // Rows closed by one thread may be counted before they were counted ready by another.
        (self.words[word::READY].load(Ordering::Relaxed) as i64).max(0) as u64
    }
}

/// Held by the one who evicts.
struct EvictorLock<'a> {
    word: &'a AtomicU64,
}

impl Drop for EvictorLock<'_> {
    fn drop(&mut self) {
        self.word.store(0, Ordering::Release); // Release: pairs with the Acquire in `try_evictor`.
    }
}

/// While it lives, no other thread changes rows or weights.
pub(super) struct Gate<'a, W> {
    word: &'a AtomicU64,
    member: Member<'a, W>,
}

impl<W> Drop for Gate<'_, W> {
    fn drop(&mut self) {
        self.word.store(0, Ordering::Release); // Release: pairs with the Acquire in `Member::change`.
    }
}

impl<'a, W: Weights> Member<'a, W> {
    /// From here on this operation changes weights or rows; waits while the gate is shut.
    pub(super) fn change(self) -> Self {
        let slots = self.slots;
        let mut wait = Wait::default();
        loop {
            self.words[member::MUTATES].store(1, Ordering::Relaxed);
            // Against `shut`: either we see the gate or it sees us.
            fence(Ordering::SeqCst);
            let word = &slots.words[word::GATE];
            let gate = word.load(Ordering::Acquire);
            if gate == 0 {
                return self;
            }
            self.words[member::MUTATES].store(0, Ordering::Release);
            // Stand back until it opens, or the one who shuts it might see us at each of his looks.
            while word.load(Ordering::Relaxed) == gate {
                if wait.step() && !slots.processes.is_alive(gate) {
                    // Its holder died; on failure another thread has opened it.
                    let _ = word.compare_exchange(gate, 0, Ordering::AcqRel, Ordering::Relaxed);
                }
            }
        }
    }

    /// Keeps all others from changing rows and weights until the guard is dropped. Not after [`Member::change`].
    pub(super) fn shut(self) -> Gate<'a, W> {
        let slots = self.slots;
        let word = &slots.words[word::GATE];
        let mut wait = Wait::default();
        while let Err(holder) = word.compare_exchange(0, self.tag, Ordering::AcqRel, Ordering::Relaxed) {
            if wait.step() && !slots.processes.is_alive(holder) {
                let _ = word.compare_exchange(holder, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        let gate = Gate { word, member: self };
        // Against `change`.
        fence(Ordering::SeqCst);
        for index in 0..slots.members_used() {
            let mut wait = Wait::default();
            // Acquire: pairs with the Release in Member::drop.
            while slots.members[index * MEMBER_WORDS + member::MUTATES].load(Ordering::Acquire) != 0 {
                if wait.step() {
                    slots.reap_as(gate.member.tag);
                }
            }
        }
        gate
    }

    /// The process this operation runs in.
    pub(super) fn tag(&self) -> u64 {
        self.tag
    }

    /// From here on, no row seen open is overwritten, until the pin is dropped. Nothing may wait meanwhile.
    pub(super) fn pin(&self) -> Pin<'a, W> {
        // Acquire: pairs with the Release in `mark`; chunks of this epoch are seen closed.
        let epoch = self.slots.words[word::MARKED].load(Ordering::Acquire);
        let word = &self.words[member::PIN];
        word.store(epoch + 1, Ordering::Relaxed);
        // Against `clear`: either we see the rows closed and their chunk marked, or it sees the pin.
        fence(Ordering::SeqCst);
        let marked = self.slots.words[word::MARKED].load(Ordering::Acquire);
        Pin { slots: self.slots, word, marked }
    }
}

impl<W: Weights> Pin<'_, W> {
    /// The row in a slot that was drawn, if it may be sampled.
    pub(super) fn sampleable(&self, slot: usize) -> Option<Row> {
        // Acquire: pairs with the Release in `publish` and `make_ready`; the row's bytes and links are visible.
        let seen = self.slots.state(slot, GENERATION).load(Ordering::Acquire);
        (seen & (OPEN | READY) == OPEN | READY).then_some(Row { slot, lap: seen >> LAP_SHIFT })
    }

    /// Chunks marked when the pin was there. Published rows of all sequence numbers from [`Ring::horizon`] of this on
    /// stay whole until it is dropped, even those that fell out of the capacity.
    #[inline(always)]
    pub(super) fn marked(&self) -> u64 {
        self.marked
    }

    /// Chunks that may be written so far. A weight that is looked at after this may be left of an earlier row of its slot,
    /// which another thread is about to set to 0; the row that is then found there may be newer than the weight only if the
    /// slot is [`Ring::is_among`] the chunks that came from the first of two calls to the second, made after the row was
    /// seen: clearing a chunk leaves no earlier weight behind.
    #[inline(always)]
    pub(super) fn cleared(&self) -> u64 {
        // Acquire: pairs with the Release in `clear`; weights that are looked at from now on are none from before it.
        self.slots.words[word::CLEARED].load(Ordering::Acquire)
    }

    /// Starts to load the state of a slot.
    #[inline(always)]
    pub(super) fn prefetch(&self, slot: usize) {
        #[cfg(not(loom))]
        prefetch(std::ptr::from_ref(self.slots.state(slot, GENERATION)).cast());
        #[cfg(loom)]
        let _ = slot;
    }

    /// Starts to load the state of a slot that is going to be changed.
    #[inline(always)]
    pub(super) fn prefetch_write(&self, slot: usize) {
        #[cfg(not(loom))]
        crate::prefetch::write(std::ptr::from_ref(self.slots.state(slot, GENERATION)));
        #[cfg(loom)]
        let _ = slot;
    }

    /// As [`Pin::evict`], but stops before the weight is 0, as a thread may that does not get on.
    #[cfg(all(loom, test))]
    pub(super) fn shut(&self, slot: usize) -> bool {
        self.sampleable(slot).is_some_and(|row| self.slots.shut_slot(row.slot, Some(row.lap)).is_some())
    }

    /// Closes the sampleable row in a slot before its time. False if there is none. After [`Member::change`].
    pub(super) fn evict(&self, slot: usize) -> bool {
        // Pinned: as in `close_displaced`.
        self.sampleable(slot).is_some_and(|row| self.slots.close_slot(row.slot, Some(row.lap)))
    }

    /// Whether a row is still there.
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

    /// Makes `next` the row that follows `slot`. Both must be this thread's to write or seen open under this pin.
    pub(super) fn link(&self, slot: usize, next: usize) {
        // Release: pairs with the Acquire in `next`.
        self.slots.state(slot, LINK).store(next as u32 + 1, Ordering::Release);
    }

    /// Prepares an update of the weight of `row`; on [`Update::Store`] the caller stores it under this same pin.
    pub(super) fn update(&self, row: Row, weight: u32) -> Update {
        let cell = self.slots.state(row.slot, GENERATION);
        let seen = cell.load(Ordering::Acquire);
        if seen & OPEN == 0 || seen >> LAP_SHIFT != row.lap {
            return self.late(row.lap, seen >> LAP_SHIFT);
        }
        // Always: `make_ready` may be about to store an older weight, and looks here once more after it.
        self.slots.state(row.slot, PARKED).store(weight, Ordering::Relaxed);
        if seen & READY != 0 {
            return Update::Store;
        }
        // Against `make_ready`: either it takes our weight, or we see the row ready and store it ourselves.
        fence(Ordering::SeqCst);
        let seen = cell.load(Ordering::Acquire);
        if seen >> LAP_SHIFT == row.lap && seen & READY != 0 { Update::Store } else { Update::Parked }
    }

    /// The result for a row that is not in its slot, which is in lap `written`: a slot never returns to an earlier lap, so
    /// a row of a later one does not exist. After the largest lap counting continues at 0; from then on a row of up to
    /// half of all laps before counts as overwritten.
    #[cold]
    fn late(&self, lap: u32, written: u32) -> Update {
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

    /// Makes open rows sampleable with their parked weights. Those that were overwritten meanwhile stay as they are.
    pub(super) fn make_ready(&self, rows: &[Row], largest: u32) {
        match rows.len() {
            0 => {}
            1 => self.make_ready_by::<1>(rows, largest),
            few if few <= FEW => self.make_ready_by::<FEW>(rows, largest),
            _ => self.make_ready_by::<TOGETHER>(rows, largest),
        }
    }

    fn make_ready_by<const N: usize>(&self, rows: &[Row], largest: u32) {
        let mut ready = [Row { slot: 0, lap: 0 }; N];
        for rows in rows.chunks(N) {
            let mut count = 0;
            for row in rows {
                let waiting = row.lap << LAP_SHIFT | OPEN;
                let cell = self.slots.state(row.slot, GENERATION);
                // Release: the links that were made before are visible to who sees the row ready.
                let made =
                    cell.compare_exchange(waiting, waiting | READY, Ordering::AcqRel, Ordering::Relaxed);
                if made.is_ok() {
                    ready[count] = *row;
                    count += 1;
                }
            }
            if count > 0 {
                self.slots.words[word::READY].fetch_add(count as u64, Ordering::Relaxed); // A counter.
                self.weigh::<N>(&ready[..count], largest);
            }
        }
    }

    /// Stores the parked weights of at most `N` rows that were just made ready.
    fn weigh<const N: usize>(&self, rows: &[Row], largest: u32) {
        let slots = self.slots;
        let (mut parked, mut weights) = ([0; N], [0; N]);
        let of = |parked| if parked == LARGEST { largest } else { parked };
        // Against `update`.
        fence(Ordering::SeqCst);
        for ((row, parked), weight) in rows.iter().zip(&mut parked).zip(&mut weights) {
            *parked = slots.state(row.slot, PARKED).load(Ordering::Relaxed);
            *weight = of(*parked);
        }
        slots.store::<N>(rows, &weights[..rows.len()]);
        for (row, parked) in rows.iter().zip(&mut parked) {
            let cell = slots.state(row.slot, PARKED);
            loop {
                // If an update has stored its weight before ours, our exchange makes its parked weight visible here.
                let now = cell.load(Ordering::Relaxed);
                if now == *parked {
                    break;
                }
                *parked = now;
                slots.weights.set(row.slot, of(now));
            }
            self.close_stored(*row);
        }
    }

    /// Stores the weights of rows for which [`Pin::update`] said so under this pin.
    /// `slots` are those of `rows`.
    pub(super) fn store_many(&self, rows: &[Row], slots: &[u32], weights: &[u32]) {
        self.slots.weights.set_many(slots, weights);
        rows.iter().for_each(|row| self.close_stored(*row));
    }

    /// After a weight was stored: takes it back if the row was closed meanwhile. If the zero of `close_slot` came before
    /// our weight, the exchange that stored it makes the closing visible here.
    fn close_stored(&self, row: Row) {
        if !self.is_open(row) {
            self.slots.weights.set(row.slot, 0);
        }
    }
}

impl<'a, W: Weights> Reservation<'a, W> {
    pub(super) fn row(&self, i: usize) -> Row {
        debug_assert!(i < self.count);
        self.member.slots.ring.row(self.first + i as u64)
    }

    /// All rows, in order.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row> + use<W> {
        self.member.slots.ring.rows(self.first..self.first + self.count as u64)
    }

    pub(super) fn pin(&self) -> Pin<'a, W> {
        self.member.pin()
    }

    /// Opens a row of this reservation, not yet sampleable, after its bytes were written.
    pub(super) fn publish(&self, row: Row, parked: u32) {
        let slots = self.member.slots;
        slots.state(row.slot, LINK).store(NO_LINK, Ordering::Relaxed);
        slots.state(row.slot, PARKED).store(parked, Ordering::Relaxed);
        // Release: pairs with the Acquire loads under a pin; publishes the row's bytes, link and parked weight.
        slots.state(row.slot, GENERATION).store(row.lap << LAP_SHIFT | OPEN, Ordering::Release);
    }

    /// Closes the rows that others have pushed out of the capacity before they were published here.
    pub(super) fn settle(&self, _pin: &Pin<'_, W>) {
        let slots = self.member.slots;
        // Against `close_displaced`: either it sees our rows open, or we see its reservation.
        fence(Ordering::SeqCst);
        let reserved = slots.words[word::RESERVED].load(Ordering::Acquire);
        let end = reserved.saturating_sub(slots.ring.capacity as u64).min(self.first + self.count as u64);
        for row in slots.ring.rows(self.first..end) {
            slots.close_slot(row.slot, Some(row.lap));
        }
    }
}

/// A small number that differs between threads most of the time.
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
