//! Where the rows of a file go when the replay they are loaded into has another capacity.

use super::check::SEQUENCE_MAX;
use super::frames::{FIRST, LOST};
use super::layout::Ring;
use super::slots::{self, LINK, NO_LINK, Row, STATE_WORDS};

/// From the slots of one ring to those of another.
pub(super) struct Moves {
    from: Ring,
    to: Ring,
    /// The next sequence number of the old ring, and the oldest that is kept.
    reserved: u64,
    oldest: u64,
    held: u64,
    marked: u64,
    /// The number that the oldest gets.
    first: u64,
}

impl Moves {
    /// `first` is the first row ever of the old ring. None where the new numbers were too large.
    pub fn new(from: Ring, to: Ring, first: u64, reserved: u64, marked: u64) -> Option<Self> {
        let capacity = (to.slots - super::layout::SPARE_CHUNKS * to.chunk) as u64;
        let oldest = reserved.saturating_sub(capacity).max(from.horizon(marked)).min(reserved);
        // Rows before it may be kept for their bytes, but are not held.
        let held = reserved.saturating_sub(from.capacity as u64).max(first).max(oldest);
        // A lap that no ticket of the old ring names.
        let lap = reserved / from.slots as u64 + 1;
        let first = lap.saturating_mul(to.slots as u64);
        let fits = from == to || first.saturating_add(reserved - oldest) <= SEQUENCE_MAX;
        fits.then_some(Self { from, to, reserved, oldest, held, marked, first })
    }

    /// Everything stays where it is.
    pub fn is_still(&self) -> bool {
        self.from == self.to
    }

    /// The first row that the new ring holds.
    pub fn first(&self) -> u64 {
        self.first + (self.held - self.oldest)
    }

    pub fn reserved(&self) -> u64 {
        self.first + (self.reserved - self.oldest)
    }

    pub fn marked(&self) -> u64 {
        self.reserved().div_ceil(self.to.chunk as u64)
    }

    /// The newest sequence number that a slot in use was reserved for.
    fn sequence(&self, slot: usize) -> u64 {
        let slots = self.from.slots as u64;
        let before = self.reserved.saturating_sub(1);
        before - (before + slots - slot as u64) % slots
    }

    fn moved(&self, sequence: u64) -> Option<Row> {
        let kept = self.oldest..self.reserved;
        kept.contains(&sequence).then(|| self.to.row(sequence - self.oldest + self.first))
    }

    /// Where the row in a slot in use goes.
    pub fn slot(&self, slot: usize) -> Option<usize> {
        if self.is_still() { Some(slot) } else { Some(self.moved(self.sequence(slot))?.slot) }
    }

    /// What a row is called now.
    pub fn row(&self, row: Row) -> Option<Row> {
        if self.is_still() { Some(row) } else { self.moved(self.from.sequence(row, self.marked)) }
    }

    /// The state words of the row that was in a slot.
    pub fn state(&self, slot: usize, state: [u32; STATE_WORDS]) -> [u32; STATE_WORDS] {
        let sequence = self.sequence(slot);
        let (false, Some(to)) = (self.is_still(), self.moved(sequence)) else { return state };
        if slots::lap(state) != self.from.row(sequence).lap {
            return [0; STATE_WORDS]; // Reserved and never published.
        }
        let next = match state[LINK] {
            NO_LINK => None,
            link => self.slot(link as usize - 1),
        };
        let is_held = self.reserved - sequence <= self.to.capacity as u64;
        slots::moved(state, to, next, is_held)
    }

    /// How far back the row before the one in a slot is.
    pub fn distance(&self, slot: usize, distance: u32) -> u32 {
        let before = self.sequence(slot).checked_sub(u64::from(distance));
        match distance {
            FIRST => FIRST,
            _ if self.is_still() || before.is_some_and(|before| before >= self.oldest) => distance,
            _ => LOST,
        }
    }
}
