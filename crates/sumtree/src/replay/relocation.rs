//! New places of the rows of a file that is loaded into a replay with another capacity.

use super::check::SEQUENCE_MAX;
use super::frames::{FIRST, UNREACHABLE};
use super::layout::Ring;
use super::slots::{self, LINK, NO_LINK, Row, STATE_WORDS};

/// Maps the slots of one ring to those of another.
pub(super) struct Relocation {
    from: Ring,
    to: Ring,
    /// The next sequence number of the old ring (`reserved`), and the oldest one that is kept (`oldest`).
    reserved: u64,
    oldest: u64,
    held: u64,
    marked: u64,
    /// New sequence number of row `oldest`.
    first: u64,
}

impl Relocation {
    /// `first` is the sequence number of the first row of the old ring. Returns `None` if the new numbers
    /// would be too large.
    pub fn new(from: Ring, to: Ring, first: u64, reserved: u64, marked: u64) -> Option<Self> {
        let capacity = (to.slots - super::layout::SPARE_CHUNKS * to.chunk) as u64;
        let oldest = reserved.saturating_sub(capacity).max(from.horizon(marked)).min(reserved);
        // The oldest row that is held. Earlier rows may be kept for their bytes.
        let held = reserved.saturating_sub(from.capacity as u64).max(first).max(oldest);
        // The new ring starts with a lap that no ticket of the old ring names.
        let lap = reserved / from.slots as u64 + 1;
        let first = lap.saturating_mul(to.slots as u64);
        let fits = from == to || first.saturating_add(reserved - oldest) <= SEQUENCE_MAX;
        fits.then_some(Self { from, to, reserved, oldest, held, marked, first })
    }

    /// Returns true if all rows keep their slots.
    pub fn is_identity(&self) -> bool {
        self.from == self.to
    }

    /// Sequence number of the first row that the new ring holds.
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

    fn relocate(&self, sequence: u64) -> Option<Row> {
        let kept = self.oldest..self.reserved;
        kept.contains(&sequence).then(|| self.to.row(sequence - self.oldest + self.first))
    }

    /// New slot of the row in a slot in use, `None` if the row is not kept.
    pub fn slot(&self, slot: usize) -> Option<usize> {
        if self.is_identity() { Some(slot) } else { Some(self.relocate(self.sequence(slot))?.slot) }
    }

    /// New slot and lap of a row, `None` if the row is not kept.
    pub fn row(&self, row: Row) -> Option<Row> {
        if self.is_identity() { Some(row) } else { self.relocate(self.from.sequence(row, self.marked)) }
    }

    /// New state words of the row that was in a slot.
    pub fn state(&self, slot: usize, state: [u32; STATE_WORDS]) -> [u32; STATE_WORDS] {
        let sequence = self.sequence(slot);
        let (false, Some(to)) = (self.is_identity(), self.relocate(sequence)) else { return state };
        if slots::lap(state) != self.from.row(sequence).lap {
            return [0; STATE_WORDS]; // Reserved and never published.
        }
        let next = match state[LINK] {
            NO_LINK => None,
            link => self.slot(link as usize - 1),
        };
        let is_held = self.reserved - sequence <= self.to.capacity as u64;
        slots::relocated_state(state, to, next, is_held)
    }

    /// New distance from the row in a slot to the previous row of its episode.
    pub fn distance(&self, slot: usize, distance: u32) -> u32 {
        let before = self.sequence(slot).checked_sub(u64::from(distance));
        match distance {
            FIRST => FIRST,
            _ if self.is_identity() || before.is_some_and(|before| before >= self.oldest) => distance,
            _ => UNREACHABLE,
        }
    }
}
