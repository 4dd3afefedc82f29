//! The previous row of each row in its episode, so that a frame is stored once and stacks of frames are
//! rebuilt.
//!
//! One word per slot holds the distance to that row, in sequence numbers. Links lead to later rows, but this
//! word leads to rows that are evicted earlier. Whether such a row is intact is checked by comparing its
//! sequence number with [`Ring::horizon`].

use super::TreeWeights;
use super::layout::Ring;
use super::slots::{Pin, Row, Weights};
use crate::region::Cells;
use crate::sync::{AtomicU32, Ordering};

/// The row is the first of its episode.
pub(super) const FIRST: u32 = 0;
/// There is a previous row, but the distance does not fit into the word.
pub(super) const UNREACHABLE: u32 = u32::MAX;

/// The previous row of each row.
pub(super) struct History {
    /// One word per slot; empty if earlier rows are not needed. Written before the row is linked to or made
    /// ready. These steps publish the word, so its accesses are Relaxed.
    pub back: Cells<AtomicU32>,
    pub ring: Ring,
}

/// The previous row of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreviousRow {
    /// Sequence number of the previous row.
    Row(u64),
    /// None: the row is the first of its episode.
    EpisodeStart,
    /// The previous row was overwritten.
    Overwritten,
}

impl History {
    /// Stores the previous row of `row`, which this thread writes.
    #[inline(always)]
    pub fn set(&self, row: Row, before: Option<Row>) {
        if !self.back.is_empty() {
            self.set_distance(row, before);
        }
    }

    fn set_distance(&self, row: Row, before: Option<Row>) {
        let distance = match before {
            None => FIRST,
            Some(before) => {
                let laps = u64::from(row.lap.wrapping_sub(before.lap) & Ring::LAP_MASK as u32);
                let distance =
                    laps.saturating_mul(self.ring.slots as u64) as i64 + row.slot as i64 - before.slot as i64;
                u32::try_from(distance).ok().filter(|distance| *distance != FIRST).unwrap_or(UNREACHABLE)
            }
        };
        self.back[row.slot].store(distance, Ordering::Relaxed);
    }

    /// The previous row of the row with this sequence number, seen under a pin with this horizon.
    pub fn previous(&self, horizon: u64, sequence: u64) -> PreviousRow {
        match self.back[(sequence % self.ring.slots as u64) as usize].load(Ordering::Relaxed) {
            FIRST => PreviousRow::EpisodeStart,
            UNREACHABLE => PreviousRow::Overwritten,
            distance => match sequence.checked_sub(u64::from(distance)) {
                Some(before) if before >= horizon => PreviousRow::Row(before),
                _ => PreviousRow::Overwritten,
            },
        }
    }

    /// Returns true if the `rows - 1` rows before a row, or as many as its episode has, are not overwritten.
    pub fn has_whole_stack(&self, horizon: u64, sequence: u64, rows: usize) -> bool {
        let mut at = sequence;
        for _ in 1..rows {
            match self.previous(horizon, at) {
                PreviousRow::Row(before) => at = before,
                PreviousRow::EpisodeStart => return true,
                PreviousRow::Overwritten => return false,
            }
        }
        true
    }

    /// [`History::has_whole_stack`] for a row that is being added.
    #[inline(always)]
    pub fn has_whole_stack_at<W: Weights>(&self, pin: &Pin<'_, W>, row: Row, rows: usize) -> bool {
        rows == 1 || {
            let marked = pin.marked();
            self.has_whole_stack(self.ring.horizon(marked), self.ring.sequence(row, marked), rows)
        }
    }

    /// Writes the slots of the stack that ends with a row to `slots`, newest first, and returns their number.
    /// Requires [`History::has_whole_stack`].
    pub fn stack(&self, horizon: u64, sequence: u64, slots: &mut [usize]) -> usize {
        let mut at = sequence;
        for (i, slot) in slots.iter_mut().enumerate() {
            *slot = (at % self.ring.slots as u64) as usize;
            match self.previous(horizon, at) {
                PreviousRow::Row(before) => at = before,
                _ => return i + 1,
            }
        }
        slots.len()
    }

    /// Sequence number of a row seen under this pin.
    pub fn sequence(&self, pin: &Pin<'_, TreeWeights>, row: Row) -> u64 {
        self.ring.sequence(row, pin.marked())
    }

    /// Sequence number of the row in `slot`, which was added after row `sequence` and less than a lap later.
    pub fn later_sequence(&self, sequence: u64, slot: usize) -> u64 {
        let slots = self.ring.slots as u64;
        sequence + (slot as u64 + slots - sequence % slots) % slots
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Region;

    #[test]
    fn distances_reach_back_over_the_end_of_the_ring_and_no_further_than_a_word() {
        let ring = Ring::new(4); // 6 slots
        let region = Arc::new(Region::heap(64).unwrap());
        let history = History { back: Cells::in_region(&region, 0, 6).unwrap(), ring };
        let row = |sequence| ring.row(sequence);
        history.set(row(7), Some(row(5)));
        assert_eq!(history.previous(5, 7), PreviousRow::Row(5));
        assert_eq!(history.previous(6, 7), PreviousRow::Overwritten);
        history.set(row(5), None);
        assert_eq!(history.previous(5, 5), PreviousRow::EpisodeStart);
        assert!(
            history.has_whole_stack(5, 7, 4)
                && !history.has_whole_stack(6, 7, 2)
                && history.has_whole_stack(6, 7, 1)
        );
        let mut slots = [9; 4];
        assert_eq!(history.stack(5, 7, &mut slots), 2);
        assert_eq!(slots[..2], [1, 5]);
        history.set(row(6 << 31), Some(row(3)));
        assert_eq!(history.previous(0, 6 << 31), PreviousRow::Overwritten);
        assert_eq!(history.later_sequence(7, 0), 12);
        assert_eq!(history.later_sequence(7, 2), 8);
    }

    #[test]
    fn sequences_are_found_from_laps_that_wrapped() {
        let ring = Ring::new(4);
        for sequence in [0u64, 5, 6, 1000, (1 << 30) * 6 - 7, (1 << 30) * 6 + 1, (3 << 31) * 6 + 13] {
            let chunk = sequence / ring.chunk as u64;
            for marked in chunk + 1..chunk + (ring.slots / ring.chunk) as u64 {
                assert_eq!(ring.sequence(ring.row(sequence), marked), sequence, "{sequence} {marked}");
            }
        }
    }
}
