//! Whether what a file holds fits together: every count, slot and weight that later calls rely on, before any of them
//! is used. A checksum finds accidents; this finds what a checksum cannot, such as a file that was never closed.

use super::layout::Ring;
use super::slots::{self, LARGEST, LINK, MEMBERS, NO_LINK, PARKED, STATE_WORDS};

/// Rows are numbered below this.
pub(super) const SEQUENCE_MAX: u64 = 1 << 56;

/// The counts of a ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    /// Rows reserved so far.
    pub reserved: u64,
    /// Chunks closed to readers so far.
    pub marked: u64,
    /// Chunks that may be written so far.
    pub cleared: u64,
    /// The first row ever.
    pub first: u64,
    /// The weight of rows without a priority of their own.
    pub largest: u64,
}

impl Counts {
    /// Whether a ring can have these.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, ring: Ring, max_weight: u32) -> Result<(), String> {
        let Self { reserved, marked, cleared, first, largest } = *self;
        if reserved > SEQUENCE_MAX || first > reserved {
            return Err(format!("it numbers its rows {first}..{reserved}, outside 0..={SEQUENCE_MAX}"));
        }
        let chunks = reserved.div_ceil(ring.chunk as u64);
        // A writer that is killed may have reserved rows whose chunks are not cleared; there are so many writers.
        let ahead = (MEMBERS * (ring.slots / ring.chunk)) as u64;
        if cleared > chunks + 1 || chunks > cleared + ahead || !(cleared..=cleared + 1).contains(&marked) {
            let text = format!("{reserved} rows do not fit {marked} marked and {cleared} cleared chunks");
            return Err(text);
        }
        if !(1..=u64::from(max_weight)).contains(&largest) {
            return Err(format!("its largest weight {largest} is outside 1..={max_weight}"));
        }
        Ok(())
    }
}

/// The slots of a ring; those from `states.len()` on are empty.
pub(super) struct SlotStates<State, Weight> {
    pub ring: Ring,
    pub counts: Counts,
    pub max_weight: u32,
    /// Slots that are looked at.
    pub used: usize,
    /// The words of a slot.
    pub state: State,
    /// The weight of a slot.
    pub weight: Weight,
    /// Rows that cannot be drawn have no weight, as at rest.
    pub at_rest: bool,
}

impl<State, Weight> SlotStates<State, Weight>
where
    State: Fn(usize) -> [u32; STATE_WORDS],
    Weight: Fn(usize) -> u32,
{
    /// Whether open rows are those of the ring, links lead to later rows that are there, and weights are some.
    ///
    /// # Errors
    /// What is wrong with the first slot that is.
    pub fn check(&self) -> Result<(), String> {
        for slot in 0..self.used {
            self.check_slot(slot).map_err(|what| format!("slot {slot} {what}"))?;
        }
        Ok(())
    }

    /// The number of the row in `slot`, if its bytes are those of the newest row that the slot may hold.
    fn whole(&self, slot: usize) -> Option<u64> {
        let sequence = self.ring.newest(slot, self.counts.marked)?;
        (slots::lap((self.state)(slot)) == self.ring.row(sequence).lap).then_some(sequence)
    }

    fn check_slot(&self, slot: usize) -> Result<(), String> {
        let (state, weight, max) = ((self.state)(slot), (self.weight)(slot), self.max_weight);
        let parked = state[PARKED];
        if weight > max || (parked > max && parked != LARGEST) {
            return Err(format!("has weights {weight} and {parked}, outside 0..={max}"));
        }
        if !slots::flags_fit(state) || (self.at_rest && weight != 0 && !slots::is_ready(state)) {
            return Err(format!("is in no state that a row can have, with weight {weight}"));
        }
        if state[LINK] as usize > self.used {
            return Err(format!("links to slot {}, outside 0..{}", state[LINK] - 1, self.used));
        }
        let Some(sequence) = self.whole(slot) else {
            return if slots::is_open(state) { Err("holds a row of another lap".to_owned()) } else { Ok(()) };
        };
        if sequence >= self.counts.reserved {
            return Err(format!("holds row {sequence}, which is not reserved"));
        }
        if state[LINK] == NO_LINK {
            return Ok(());
        }
        // Links lead to later rows, so that who follows them arrives.
        let to = state[LINK] as usize - 1;
        if to != slot && self.whole(to).is_some_and(|next| (sequence..self.counts.reserved).contains(&next)) {
            return Ok(());
        }
        Err(format!("links to slot {to}, which holds no later row"))
    }
}
