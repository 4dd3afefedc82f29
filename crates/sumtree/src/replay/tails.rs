//! The tail of each environment: its newest row and the rows that wait for the end of their window.
//!
//! A tail is locked while rows of its environment are added, from before the reservation until after the last
//! link, so that a link always leads to a later row. If the process that holds the lock dies, the tail is
//! emptied: the waiting rows never become sampleable, and the next row starts a new chain of links.

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
/// Stands for a newest row that does not exist any more. No row is equal to it, since laps count from 1.
const NO_ROW: Row = Row { slot: 1, lap: 0 };
/// Rows of one episode are counted up to about this number.
const EPISODE_ROWS_MAX: u64 = (1 << 30) - 1;

/// How the episode ended with a row, if it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    None = 0,
    Terminated = 1,
    Truncated = 2,
}

/// When rows become sampleable.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Number of rows of one environment, from a row on and including it, that complete its window.
    pub rows: usize,
    /// A truncated row needs the row with its final observation, which follows it or is added with it.
    pub needs_final: bool,
    pub autoreset: Autoreset,
    /// If set, only the rows that start a sequence become sampleable.
    pub sequence: Option<Sequence>,
    /// Number of rows that a row needs for its stacks of frames, including itself.
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

    /// The number of rows of an episode after one more. Beyond [`EPISODE_ROWS_MAX`], whole periods are
    /// subtracted.
    #[inline(always)]
    fn next_episode_rows(&self, rows: u64) -> u64 {
        if rows < EPISODE_ROWS_MAX {
            return rows + 1;
        }
        let period = self.sequence.map_or(1, |sequence| sequence.period as u64);
        rows + 1 - period * (EPISODE_ROWS_MAX / period / 2)
    }

    /// Returns true if a sequence of the `left` remaining steps starts `age` rows after the first of its
    /// episode.
    #[inline(always)]
    fn starts_sequence(&self, age: u64, left: usize) -> bool {
        let Some(sequence) = &self.sequence else { return true };
        // Skips a shorter one at the end if all its steps are in the previous sequence or are burn-in steps.
        let length = self.rows - usize::from(self.needs_final);
        let overlap = if age == 0 { 0 } else { length - sequence.period };
        age.is_multiple_of(sequence.period as u64) && left > overlap.max(sequence.burn_in)
    }
}

/// A row to append.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub row: Row,
    pub end: End,
    /// Row of the final observation, if it is added together with the row.
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

    /// Resets all locks, in memory that was read from a file.
    pub(super) fn unlock_all(&self) {
        for tail in self.words.chunks(self.stride) {
            tail[LOCK].store(0, Ordering::Release);
        }
    }

    /// Empties and unlocks all locked tails. Their holders have ended.
    pub(super) fn forget_holders(&self) {
        for tail in self.words.chunks(self.stride) {
            if tail[LOCK].swap(0, Ordering::AcqRel) != 0 {
                empty(tail);
            }
        }
    }

    /// Checks that unlocked tails name slots of a ring of `slots` slots, and no more rows than a window has.
    ///
    /// # Errors
    /// A description of what is wrong with the first invalid tail.
    pub(super) fn check(&self, slots: usize) -> Result<(), String> {
        let capacity = self.stride - TAIL_WORDS;
        for (env, words) in self.words.chunks(self.stride).enumerate() {
            let tail = |at: usize| words[at].load(Ordering::Relaxed);
            let (waiting, first) = ((tail(STATE) & 0xffff) as usize, (tail(STATE) >> 16 & 0xffff) as usize);
            if tail(LOCK) != 0 {
                continue; // It will be emptied.
            }
            if waiting > capacity || first >= capacity {
                return Err(format!(
                    "environment {env} has {waiting} rows waiting from {first}, more than {capacity}"
                ));
            }
            let rows = (0..waiting).map(|i| tail(WAITING + (first + i) % capacity)).chain([tail(LAST)]);
            for slot in rows.map(|ticket| Row::from_ticket(ticket).slot) {
                if slot >= slots {
                    return Err(format!("environment {env} names slot {slot} of {slots}"));
                }
            }
        }
        Ok(())
    }

    /// Replaces the rows that tails hold by their new slots and laps, without those that are not kept. Only
    /// after [`Tails::check`].
    pub(super) fn relocate_rows(&self, to: impl Fn(Row) -> Option<Row>) {
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
                let moved = to(Row::from_ticket(tail(LAST))).unwrap_or(NO_ROW);
                words[LAST].store(moved.ticket(), Ordering::Relaxed);
            }
            let rows = (0..waiting).map(|i| Row::from_ticket(tail(WAITING + (first + i) % capacity)));
            // Only the oldest rows are dropped, so the others stay in order.
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

    /// Appends a published row to its environment and calls `ready` with the rows whose window it completes.
    /// The tail is locked.
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
        let before = before.map(Row::from_ticket);
        // Stored before rows are linked or made ready, which publishes these words to readers.
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
            // This row only holds the final observation of the previous row.
            if newest.is_some() && ended == End::Truncated {
                tail.complete(0, &mut ready);
            }
            return empty(tail.words);
        }
        if newest.is_none() {
            empty(tail.words);
        }
        tail.push(row, self.history.has_whole_stack_at(pin, row, window.stack_rows));
        match end {
            End::None => tail.complete(window.rows - 1, &mut ready),
            // Rows whose window reaches the end wait for the final observation; the others are complete.
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

    /// Ends the chains of `envs`: the next row of each environment starts a new one, and waiting rows never
    /// become sampleable.
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

    /// `ended` also holds the number of rows of the episode.
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

    /// Adds the next row. It waits to become sampleable if it is `whole`: its earlier frames are still held.
    fn push(&self, row: Row, whole: bool) {
        let (waiting, first, ended) = self.state();
        // Only sequences need the number of rows of the episode.
        let counts = self.window.sequence.is_some();
        let ended = if counts { self.window.next_episode_rows(ended >> 2) << 2 | ended & 3 } else { ended };
        debug_assert!(waiting < self.window.rows);
        self.words[LAST].store(row.ticket(), Ordering::Relaxed);
        if !whole {
            return self.set_state(waiting, first, ended);
        }
        self.words[WAITING + (first + waiting) % self.window.rows].store(row.ticket(), Ordering::Relaxed);
        self.set_state(waiting + 1, first, ended);
    }

    /// Removes the oldest waiting rows until `left` remain; calls `ready` with those that become sampleable.
    fn complete(&self, left: usize, ready: &mut impl FnMut(Row)) {
        let (mut waiting, mut first, ended) = self.state();
        let (steps, all) = (ended >> 2, self.window.sequence.is_none());
        // Within an episode, the newest row follows the window and is not one of its steps. At the end there
        // is no such row, because a row that only holds the final observation is not pushed.
        let beyond = usize::from(self.window.needs_final && left > 0);
        while waiting > left {
            if all || self.window.starts_sequence(steps.saturating_sub(waiting as u64), waiting - beyond) {
                ready(Row::from_ticket(self.words[WAITING + first].load(Ordering::Relaxed)));
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
    /// Number of rows that wait in these tails.
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
