//! Consistency checks of a file: every count, slot and weight that later calls rely on is checked before it
//! is used. A checksum detects accidental damage; these checks also cover what a checksum cannot, such as a
//! file that was never closed.

use super::layout::Ring;
use super::slots::{self, LARGEST, LINK, NO_LINK, OPERATIONS_MAX, PARKED, STATE_WORDS};

/// Sequence numbers of rows are below this.
pub(super) const SEQUENCE_MAX: u64 = 1 << 56;

/// The counts of a ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    /// Number of rows reserved so far.
    pub reserved: u64,
    /// Number of chunks closed to readers so far.
    pub marked: u64,
    /// Number of chunks that may be written so far.
    pub cleared: u64,
    /// Sequence number of the first row.
    pub first: u64,
    /// Weight of rows that are added without a priority.
    pub largest: u64,
}

impl Counts {
    /// Checks that a ring can have these counts.
    ///
    /// # Errors
    /// A description of what is wrong.
    pub fn check(&self, ring: Ring, max_weight: u32) -> Result<(), String> {
        let Self { reserved, marked, cleared, first, largest } = *self;
        if reserved > SEQUENCE_MAX || first > reserved {
            return Err(format!("it numbers its rows {first}..{reserved}, beyond {SEQUENCE_MAX}"));
        }
        let chunks = reserved.div_ceil(ring.chunk as u64);
        // A killed writer may have reserved rows whose chunks are not cleared. There are at most
        // `OPERATIONS_MAX` writers.
        let ahead = (OPERATIONS_MAX * (ring.slots / ring.chunk)) as u64;
        if cleared > chunks + 1 || chunks > cleared + ahead || !(cleared..=cleared + 1).contains(&marked) {
            let text = format!("{reserved} rows do not fit {marked} marked and {cleared} cleared chunks");
            return Err(text);
        }
        if !(1..=u64::from(max_weight)).contains(&largest) {
            return Err(format!("its largest weight {largest} is outside 1 to {max_weight}"));
        }
        Ok(())
    }
}

/// The slots of a ring. Those from `used` on are empty.
pub(super) struct SlotStates<State, Weight> {
    pub ring: Ring,
    pub counts: Counts,
    pub max_weight: u32,
    /// Number of slots to check.
    pub used: usize,
    /// Returns the state words of a slot.
    pub state: State,
    /// Returns the weight of a slot.
    pub weight: Weight,
    /// No operation is in progress, so rows that cannot be sampled must have weight 0.
    pub is_quiescent: bool,
}

impl<State, Weight> SlotStates<State, Weight>
where
    State: Fn(usize) -> [u32; STATE_WORDS],
    Weight: Fn(usize) -> u32,
{
    /// Checks that open rows are the newest that their slots may hold, that links lead to later rows that
    /// exist, and that weights are valid.
    ///
    /// # Errors
    /// A description of what is wrong with the first invalid slot.
    pub fn check(&self) -> Result<(), String> {
        for slot in 0..self.used {
            self.check_slot(slot).map_err(|what| format!("slot {slot} {what}"))?;
        }
        Ok(())
    }

    /// Sequence number of the row in `slot`, if it is the newest row that the slot may hold.
    fn newest_sequence(&self, slot: usize) -> Option<u64> {
        let sequence = self.ring.newest(slot, self.counts.marked)?;
        (slots::lap((self.state)(slot)) == self.ring.row(sequence).lap).then_some(sequence)
    }

    fn check_slot(&self, slot: usize) -> Result<(), String> {
        let (state, weight, max) = ((self.state)(slot), (self.weight)(slot), self.max_weight);
        let parked = state[PARKED];
        if weight > max || (parked > max && parked != LARGEST) {
            return Err(format!("has weights {weight} and {parked}, above {max}"));
        }
        if !slots::has_valid_flags(state) || (self.is_quiescent && weight != 0 && !slots::is_ready(state)) {
            return Err(format!("has an invalid state, with weight {weight}"));
        }
        if state[LINK] as usize > self.used {
            return Err(format!("links to slot {} of {}", state[LINK] - 1, self.used));
        }
        let Some(sequence) = self.newest_sequence(slot) else {
            return if slots::is_open(state) { Err("holds a row of another lap".to_owned()) } else { Ok(()) };
        };
        if sequence >= self.counts.reserved {
            return Err(format!("holds row {sequence}, which is not reserved"));
        }
        if state[LINK] == NO_LINK {
            return Ok(());
        }
        // Links must lead to later rows, so that following them ends.
        let to = state[LINK] as usize - 1;
        if to != slot
            && self.newest_sequence(to).is_some_and(|next| (sequence..self.counts.reserved).contains(&next))
        {
            return Ok(());
        }
        Err(format!("links to slot {to}, which holds no later row"))
    }
}
