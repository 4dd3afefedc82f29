//! Per environment: its newest row and the rows that still wait for the end of their window.
//!
//! A tail is locked while rows of its environment are added, from before the reservation until after the last link,
//! so that a link always leads to a later row. If its holder dies, the tail is emptied: the rows that waited never
//! become sampleable, and the next row starts a new chain.

use std::sync::Arc;

use super::frames::History;
use super::process::Processes;
use super::settings::{Autoreset, Sequence, Settings};
use super::slots::{Pin, Row, Weights};
use super::wait::Wait;
use crate::region::Cells;
use crate::sync::{AtomicU64, Ordering};

/// Words per environment besides one per waiting row: lock, state, newest row.
pub(super) const TAIL_WORDS: usize = 3;
const LOCK: usize = 0;
/// Waiting rows | index of the first one << 16 | how the last row ended << 32 | rows of the episode << 34.
const STATE: usize = 1;
/// Ticket of the newest row, or 0.
const LAST: usize = 2;
const WAITING: usize = 3;
/// A row that never was, in place of one that is no more; laps count from 1.
const GONE: Row = Row { slot: 1, lap: 0 };
/// Rows of one episode are counted up to about this.
const AGE_MAX: u64 = (1 << 30) - 1;

/// How an episode ended in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    None = 0,
    Terminated = 1,
    Truncated = 2,
}

/// When rows become sampleable.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Rows of one environment from a row on, that row included, before it is complete.
    pub rows: usize,
    /// A truncated row waits for, or comes with, the row that holds its final observation.
    pub needs_final: bool,
    pub autoreset: Autoreset,
    /// Only some rows become sampleable: the starts of sequences.
    pub sequence: Option<Sequence>,
    /// Rows before a row that it needs for its stacks, itself included.
    pub stack_rows: usize,
}

impl Window {
    pub(super) fn new(settings: &Settings, rebuilds: bool) -> Self {
        let rows = settings.n_step + usize::from(rebuilds);
        Self {
            rows,
            needs_final: rebuilds,
            autoreset: settings.autoreset,
            sequence: settings.sequence,
            stack_rows: settings.stack_rows(),
        }
    }

    /// The number of rows of an episode after one more. Beyond [`AGE_MAX`] whole periods are left out.
    #[inline(always)]
    fn counted(&self, rows: u64) -> u64 {
        if rows < AGE_MAX {
            return rows + 1;
        }
        let period = self.sequence.map_or(1, |sequence| sequence.period as u64);
        rows + 1 - period * (AGE_MAX / period / 2)
    }

    /// Whether the row `age` rows after the first of its episode is worth drawing with `left` steps, itself included.
    #[inline(always)]
    fn starts(&self, age: u64, left: usize) -> bool {
        let Some(sequence) = &self.sequence else { return true };
        // The steps of a shorter one at the end of an episode are in the sequence before it, or all burnt in.
        let length = self.rows - usize::from(self.needs_final);
        let overlap = if age == 0 { 0 } else { length - sequence.period };
        age.is_multiple_of(sequence.period as u64) && left > overlap.max(sequence.burn_in)
    }
}

/// A row that is appended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub row: Row,
    pub end: End,
    /// The row of the final observation, where that comes beside the row.
    pub last: Option<Row>,
}

/// The tails of all environments.
pub(super) struct Tails {
    words: Cells<AtomicU64>,
    stride: usize,
    history: Arc<History>,
}

impl Tails {
    pub(super) fn stride(window_rows: usize) -> usize {
        TAIL_WORDS + window_rows
    }

    pub(super) fn new(words: Cells<AtomicU64>, window_rows: usize, history: Arc<History>) -> Self {
        Self { words, stride: Self::stride(window_rows), history }
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// Forgets who held locks, in memory that came from a file.
    pub(super) fn unlock_all(&self) {
        for tail in self.words.chunks(self.stride) {
            tail[LOCK].store(0, Ordering::Release);
        }
    }

    /// Empties the tails whose holder has ended.
    pub(super) fn forget_holders(&self) {
        for tail in self.words.chunks(self.stride) {
            if tail[LOCK].swap(0, Ordering::AcqRel) != 0 {
                empty(tail);
            }
        }
    }

    /// Whether tails without a holder name slots of a ring of `slots`, and no more of them than a window has.
    ///
    /// # Errors
    /// What is wrong with the first one that does not.
    pub(super) fn check(&self, slots: usize) -> Result<(), String> {
        let capacity = self.stride - TAIL_WORDS;
        for (env, words) in self.words.chunks(self.stride).enumerate() {
            let tail = |at: usize| words[at].load(Ordering::Relaxed);
            let (waiting, first) = ((tail(STATE) & 0xffff) as usize, (tail(STATE) >> 16 & 0xffff) as usize);
            if tail(LOCK) != 0 {
                continue; // It is going to be emptied.
            }
            if waiting > capacity || first >= capacity {
                return Err(format!(
                    "environment {env} has {waiting} rows waiting from {first}, outside 0..{capacity}"
                ));
            }
            let rows = (0..waiting).map(|i| tail(WAITING + (first + i) % capacity)).chain([tail(LAST)]);
            for slot in rows.map(|ticket| Row::of_ticket(ticket).slot) {
                if slot >= slots {
                    return Err(format!("environment {env} names slot {slot}, outside 0..{slots}"));
                }
            }
        }
        Ok(())
    }

    /// Renames the rows that tails hold, forgetting those that are no more. After [`Tails::check`].
    pub(super) fn move_rows(&self, to: impl Fn(Row) -> Option<Row>) {
        for words in self.words.chunks(self.stride) {
            let tail = |at: usize| words[at].load(Ordering::Relaxed);
            let (capacity, state) = (self.stride - TAIL_WORDS, tail(STATE));
            let (waiting, first) = ((state & 0xffff) as usize, (state >> 16 & 0xffff) as usize);
            if waiting == capacity {
                // Its holder died between two steps.
                empty(words);
                continue;
            }
            if tail(LAST) != 0 {
                let moved = to(Row::of_ticket(tail(LAST))).unwrap_or(GONE);
                words[LAST].store(moved.ticket(), Ordering::Relaxed);
            }
            let rows = (0..waiting).map(|i| Row::of_ticket(tail(WAITING + (first + i) % capacity)));
            // The oldest are those that are gone, so the others stay in order.
            let rows: Vec<_> = rows.filter_map(&to).collect();
            rows.iter().zip(&words[WAITING..]).for_each(|(row, word)| {
                word.store(row.ticket(), Ordering::Relaxed);
            });
            words[STATE].store(state >> 32 << 32 | rows.len() as u64, Ordering::Relaxed);
        }
    }

    /// Locks the tails of `envs`, which are sorted and distinct, for an operation of the process with this tag.
    pub(super) fn lock<'a>(&'a self, envs: &'a [u32], processes: &Processes, tag: u64) -> TailLocks<'a> {
        let mut locks = TailLocks { tails: self, envs, locked: 0 };
        for env in envs {
            let tail = self.tail(*env);
            let mut wait = Wait::default();
            // Acquire: pairs with the Release in TailLocks::drop.
            while let Err(holder) = tail[LOCK].compare_exchange(0, tag, Ordering::Acquire, Ordering::Relaxed)
            {
                if holder != 0
                    && wait.step()
                    && !processes.is_alive(holder)
                    && tail[LOCK].compare_exchange(holder, tag, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    empty(tail);
                    break;
                }
            }
            locks.locked += 1;
        }
        locks
    }

    fn tail(&self, env: u32) -> &[AtomicU64] {
        &self.words[env as usize * self.stride..][..self.stride]
    }

    /// Appends a published row to its environment and hands the rows whose window it completes to `ready`. The tail
    /// is locked.
    pub(super) fn append<W: Weights>(
        &self,
        pin: &Pin<'_, W>,
        env: u32,
        window: &Window,
        step: Step,
        mut ready: impl FnMut(Row),
    ) {
        let Step { row, end, last } = step;
        let tail = Tail { words: self.tail(env), window };
        let before = Some(tail.words[LAST].load(Ordering::Relaxed)).filter(|ticket| *ticket != 0);
        let before = before.map(Row::of_ticket);
        // Before the link and before anything is ready, which carry these to the readers.
        self.history.set(row, before);
        if let Some(last) = last {
            self.history.set(last, Some(row));
        }
        let newest = before.filter(|row| pin.is_open(*row));
        if let Some(newest) = newest {
            pin.link(newest.slot, row.slot);
        }
        let ended = tail.ended();
        if ended != End::None {
            // This row only carries the final observation of the one before.
            if newest.is_some() && ended == End::Truncated {
                tail.complete(0, &mut ready);
            }
            return empty(tail.words);
        }
        if newest.is_none() {
            empty(tail.words);
        }
        tail.push(row, self.history.is_whole_at(pin, row, window.stack_rows));
        match end {
            End::None => tail.complete(window.rows - 1, &mut ready),
            // The rows whose window reaches the end wait for the final observation, the others are complete.
            End::Truncated if window.needs_final && window.autoreset == Autoreset::NextStep => {
                tail.complete(window.rows - 1, &mut ready);
            }
            End::Terminated | End::Truncated => {
                if let Some(last) = last {
                    pin.link(row.slot, last.slot);
                }
                tail.complete(0, &mut ready);
            }
        }
        match (end, window.autoreset) {
            (End::None, _) => {}
            (_, Autoreset::NextStep) => tail.set_ended(end),
            _ => empty(tail.words),
        }
    }

    /// Ends the chains of `envs`: the next row of each starts a new one, rows that waited never become sampleable.
    pub(super) fn cut(&self, locks: &TailLocks<'_>) {
        for env in locks.envs {
            empty(self.tail(*env));
        }
    }
}

/// Words of one tail under its lock; all accesses are Relaxed because the lock orders them.
struct Tail<'a> {
    words: &'a [AtomicU64],
    window: &'a Window,
}

impl Tail<'_> {
    fn state(&self) -> (usize, usize, u64) {
        let state = self.words[STATE].load(Ordering::Relaxed);
        ((state & 0xffff) as usize, (state >> 16 & 0xffff) as usize, state >> 32)
    }

    /// `ended` holds the age of the newest row too.
    fn set_state(&self, waiting: usize, first: usize, ended: u64) {
        self.words[STATE].store(waiting as u64 | (first as u64) << 16 | ended << 32, Ordering::Relaxed);
    }

    fn ended(&self) -> End {
        match self.state().2 & 3 {
            0 => End::None,
            1 => End::Terminated,
            _ => End::Truncated,
        }
    }

    fn set_ended(&self, end: End) {
        let (waiting, first, ended) = self.state();
        self.set_state(waiting, first, ended & !3 | end as u64);
    }

    /// Takes the row after the newest; only those that are `whole` wait to become sampleable.
    fn push(&self, row: Row, whole: bool) {
        let (waiting, first, ended) = self.state();
        // Only sequences ask how many rows the episode has.
        let counts = self.window.sequence.is_some();
        let ended = if counts { self.window.counted(ended >> 2) << 2 | ended & 3 } else { ended };
        debug_assert!(waiting < self.window.rows);
        self.words[LAST].store(row.ticket(), Ordering::Relaxed);
        if !whole {
            return self.set_state(waiting, first, ended);
        }
        self.words[WAITING + (first + waiting) % self.window.rows].store(row.ticket(), Ordering::Relaxed);
        self.set_state(waiting + 1, first, ended);
    }

    /// Hands out the oldest waiting rows until `left` remain.
    fn complete(&self, left: usize, ready: &mut impl FnMut(Row)) {
        let (mut waiting, mut first, ended) = self.state();
        let (steps, all) = (ended >> 2, self.window.sequence.is_none());
        // Rows that follow a waiting one with the final observation only are no steps and were not pushed.
        let beyond = usize::from(self.window.needs_final && left > 0);
        while waiting > left {
            if all || self.window.starts(steps.saturating_sub(waiting as u64), waiting - beyond) {
                ready(Row::of_ticket(self.words[WAITING + first].load(Ordering::Relaxed)));
            }
            waiting -= 1;
            first = (first + 1) % self.window.rows;
        }
        self.set_state(waiting, first, ended);
    }
}

fn empty(tail: &[AtomicU64]) {
    tail[STATE].store(0, Ordering::Relaxed);
    tail[LAST].store(0, Ordering::Relaxed);
}

/// Locked tails, unlocked on drop.
pub(super) struct TailLocks<'a> {
    tails: &'a Tails,
    envs: &'a [u32],
    locked: usize,
}

impl TailLocks<'_> {
    /// Rows that wait in these tails.
    pub(super) fn waiting(&self) -> usize {
        // Relaxed: under the locks.
        let waiting = |env: &u32| self.tails.tail(*env)[STATE].load(Ordering::Relaxed) & 0xffff;
        self.envs.iter().map(waiting).sum::<u64>() as usize
    }
}

impl Drop for TailLocks<'_> {
    fn drop(&mut self) {
        for env in &self.envs[..self.locked] {
            // Release: pairs with the Acquire in `lock`.
            self.tails.tail(*env)[LOCK].store(0, Ordering::Release);
        }
    }
}
