//! Layout of the region: index arithmetic, no atomics.

use std::ops::Range;

use super::process::{ENTRY_WORDS, PROCESSES};
use super::settings::{Field, Settings};
use super::slots::{OPERATION_WORDS, OPERATIONS_MAX, Row, STATE_WORDS, word};
use super::tails::Tails;
use super::{ReplayError, counter};
use crate::{LINE_BYTES, SumTree};

/// Maximum capacity: links and tickets store slots in 32 bits.
pub(super) const MAX_CAPACITY: usize = 1 << 31;
/// Rows are evicted in chunks of a 64th of the capacity (`CHUNKS_MIN`), at most `CHUNK_MAX` rows.
const CHUNK_MAX: usize = 1024;
const CHUNKS_MIN: usize = 64;
/// Chunks beyond the capacity: the one being written and the one closed ahead of it.
pub(super) const SPARE_CHUNKS: usize = 2;
/// Bytes of the header, the words at the start of a region, before the settings.
pub(super) const HEADER_BYTES: usize = 128;

/// The ring of slots: a whole number of chunks, at least two more than the capacity needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ring {
    pub capacity: usize,
    pub chunk: usize,
    pub slots: usize,
}

impl Ring {
    /// Laps are counted modulo 2^30: two bits of the generation word are the row's state.
    pub const LAP_MASK: u64 = (1 << 30) - 1;

    #[cfg(test)]
    pub fn new(capacity: usize) -> Self {
        Self::with_history(capacity, 0)
    }

    /// A ring that keeps the bytes of `history` more rows than can be sampled.
    pub fn with_history(capacity: usize, history: usize) -> Self {
        let chunk = (capacity / CHUNKS_MIN).clamp(1, CHUNK_MAX);
        Self { capacity, chunk, slots: ((capacity + history).div_ceil(chunk) + SPARE_CHUNKS) * chunk }
    }

    /// Slot and lap of a sequence number; laps count from 1.
    pub fn row(&self, sequence: u64) -> Row {
        let slots = self.slots as u64;
        Row { slot: (sequence % slots) as usize, lap: ((sequence / slots + 1) & Self::LAP_MASK) as u32 }
    }

    /// Slots and laps of sequence numbers, with one division for all of them.
    pub fn rows(&self, sequences: Range<u64>) -> impl Iterator<Item = Row> + use<> {
        let (slots, mut next) = (self.slots, self.row(sequences.start));
        sequences.map(move |_| {
            let row = next;
            next.slot += 1;
            if next.slot == slots {
                next = Row { slot: 0, lap: ((u64::from(row.lap) + 1) & Self::LAP_MASK) as u32 };
            }
            row
        })
    }

    /// Sequence number of a row that the ring holds while `marked` chunks are marked.
    pub fn sequence(&self, row: Row, marked: u64) -> u64 {
        let slots = self.slots as u64;
        // Laps are counted from 0 here and not cut to 30 bits. No row is later than the newest marked chunk.
        let newest = (marked * self.chunk as u64).saturating_sub(1) / slots;
        let behind = newest.wrapping_sub(u64::from(row.lap)).wrapping_add(1) & Self::LAP_MASK;
        newest.saturating_sub(behind) * slots + row.slot as u64
    }

    /// Sequence number of the newest row that a slot may hold while `marked` chunks are marked.
    pub fn newest(&self, slot: usize, marked: u64) -> Option<u64> {
        let (slots, slot) = (self.slots as u64, slot as u64);
        let last = (marked * self.chunk as u64).checked_sub(1)?;
        last.checked_sub((last % slots + slots - slot) % slots)
    }

    /// The oldest sequence number whose row cannot be overwritten yet while `marked` chunks are marked.
    pub fn horizon(&self, marked: u64) -> u64 {
        marked.saturating_sub((self.slots / self.chunk) as u64) * self.chunk as u64
    }

    /// Returns true if a slot is in one of these chunks, which are counted from the first ever written.
    pub fn is_among(&self, slot: usize, chunks: Range<u64>) -> bool {
        let count = (self.slots / self.chunk) as u64;
        let ahead = ((slot / self.chunk) as u64 + count - chunks.start % count) % count;
        ahead < chunks.end.saturating_sub(chunks.start)
    }

    /// Slots of chunk `chunk`, which is counted from the first ever written.
    pub fn chunk_slots(&self, chunk: u64) -> Range<usize> {
        let start = (chunk % (self.slots / self.chunk) as u64) as usize * self.chunk;
        start..start + self.chunk
    }
}

/// Byte offsets of the parts, each a multiple of [`LINE_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub ring: Ring,
    pub settings: usize,
    pub words: usize,
    pub counters: usize,
    pub operations: usize,
    pub processes: usize,
    pub tails: usize,
    pub tail_words: usize,
    pub states: usize,
    pub tree: usize,
    /// [`super::frames::History`]: one word per slot, or none.
    pub back: usize,
    pub back_words: usize,
    /// Checksums of the rows in a file, one word per chunk.
    pub checksums: usize,
    pub columns: Vec<usize>,
    pub bytes: usize,
}

impl Layout {
    pub fn new(settings: &Settings, window_rows: usize, settings_bytes: usize) -> Result<Self, ReplayError> {
        let ring = Ring::with_history(settings.capacity, settings.history_rows());
        let tree_bytes = SumTree::bytes_needed(ring.slots as u64, settings.fan_out)?;
        let mut end = 0usize;
        let mut place = |bytes: usize| {
            let start = end;
            // Saturates far above the memory of any machine; the allocation is then refused.
            end = start.saturating_add(bytes.min(usize::MAX - LINE_BYTES).next_multiple_of(LINE_BYTES));
            end = end.min(usize::MAX - LINE_BYTES) / LINE_BYTES * LINE_BYTES;
            start
        };
        place(HEADER_BYTES);
        let back_words = if settings.has_history() { ring.slots } else { 0 };
        let column_bytes = |field: &Field| match settings.compression.packs(field.row_bytes) {
            true => 0,
            false => field.row_bytes.saturating_mul(ring.slots),
        };
        let tail_words = settings.num_envs * Tails::stride(window_rows);
        Ok(Self {
            ring,
            tail_words,
            back_words,
            settings: place(settings_bytes),
            words: place(8 * word::COUNT),
            counters: place(8 * counter::COUNT),
            operations: place(8 * OPERATIONS_MAX * OPERATION_WORDS),
            processes: place(8 * PROCESSES * ENTRY_WORDS),
            tails: place(8 * tail_words),
            states: place(4 * STATE_WORDS * ring.slots),
            tree: place(tree_bytes),
            back: place(4 * back_words),
            checksums: place(8 * (ring.slots / ring.chunk)),
            columns: settings.fields.iter().map(|f| place(column_bytes(f))).collect(),
            bytes: place(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_hold_two_chunks_more_than_the_capacity() {
        for capacity in [1, 2, 3, 63, 64, 65, 100, 1000, 65_535, 65_536, 65_537, 100_000, 1 << 20] {
            let ring = Ring::new(capacity);
            assert!(ring.chunk <= 1024 && ring.chunk <= (capacity / 64).max(1), "{ring:?}");
            assert_eq!(ring.slots % ring.chunk, 0);
            assert!(
                ring.slots >= capacity + 2 * ring.chunk && ring.slots < capacity + 3 * ring.chunk,
                "{ring:?}"
            );
        }
    }

    #[test]
    fn sequence_numbers_wrap_into_laps() {
        let ring = Ring::new(4); // 6 slots
        assert_eq!(ring.row(0), Row { slot: 0, lap: 1 });
        assert_eq!(ring.row(5), Row { slot: 5, lap: 1 });
        assert_eq!(ring.row(6), Row { slot: 0, lap: 2 });
        assert_eq!(ring.chunk_slots(7), 1..2);
        let last_of_all = 6 * (Ring::LAP_MASK - 1);
        for range in [0..20, 5..6, 17..17, last_of_all - 3..last_of_all + 9] {
            assert!(ring.rows(range.clone()).eq(range.map(|sequence| ring.row(sequence))));
        }
    }

    #[test]
    fn the_newest_row_of_a_slot_is_the_last_one_that_was_marked() {
        let ring = Ring::new(200); // Chunks of 3.
        for marked in 0..150 {
            for slot in 0..ring.slots {
                let expected = (0..marked * 3).rev().find(|sequence| ring.row(*sequence).slot == slot);
                assert_eq!(ring.newest(slot, marked), expected, "{marked} {slot}");
            }
        }
    }

    #[test]
    fn slots_are_among_the_chunks_that_hold_them() {
        for ring in [Ring::new(4), Ring::new(1000)] {
            let chunks = (ring.slots / ring.chunk) as u64;
            for start in 0..2 * chunks {
                for end in start..=start + 2 {
                    for slot in 0..ring.slots {
                        let expected = (start..end).any(|chunk| ring.chunk_slots(chunk).contains(&slot));
                        assert_eq!(ring.is_among(slot, start..end), expected, "{slot} {start}..{end}");
                    }
                }
                assert!((0..ring.slots).all(|slot| ring.is_among(slot, start..start + chunks)));
            }
        }
    }
}
