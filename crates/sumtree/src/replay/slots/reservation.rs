//! Reservations: rows that a thread may write, and the rows that they push out of the capacity.

#[cfg(not(loom))]
use super::STATE_WORDS;
use super::operations::Operation;
use super::{
    BATCH_ROWS, GENERATION, LAP_SHIFT, LINK, NO_LINK, OPEN, PARKED, Pin, Row, SMALL_BATCH_ROWS, Slots,
    Weights, operation, word,
};
use crate::sync::{Ordering, fence};

/// Rows that only this thread may write. Rows not published when it is dropped stay closed for one lap.
pub(crate) struct Reservation<'a, W> {
    operation: Operation<'a, W>,
    pub first: u64,
    pub count: usize,
}

impl<W: Weights> Slots<W> {
    /// Reserves `count` rows, at most the capacity, and makes their slots ready to be written.
    ///
    /// Closes the rows that fall out of the capacity. Waits for readers of the slots (rarely, because chunks
    /// are closed ahead of need) and for writers that are a whole lap behind.
    pub(crate) fn reserve<'a>(&'a self, operation: Operation<'a, W>, count: usize) -> Reservation<'a, W> {
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
}

impl<'a, W: Weights> Reservation<'a, W> {
    pub(crate) fn row(&self, i: usize) -> Row {
        debug_assert!(i < self.count);
        self.operation.slots.ring.row(self.first + i as u64)
    }

    /// All rows, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row> + use<W> {
        self.operation.slots.ring.rows(self.first..self.first + self.count as u64)
    }

    pub(crate) fn pin(&self) -> Pin<'a, W> {
        self.operation.pin()
    }

    /// Publishes a row of this reservation after its bytes were written: opens it, not yet sampleable.
    pub(crate) fn publish(&self, row: Row, parked: u32) {
        let slots = self.operation.slots;
        slots.state(row.slot, LINK).store(NO_LINK, Ordering::Relaxed);
        slots.state(row.slot, PARKED).store(parked, Ordering::Relaxed);
        // Release: pairs with the Acquire loads under a pin; publishes the row's bytes, link and parked weight.
        slots.state(row.slot, GENERATION).store(row.lap << LAP_SHIFT | OPEN, Ordering::Release);
    }

    /// Closes rows of this reservation that later reservations pushed out of the capacity before they were
    /// published.
    pub(crate) fn close_displaced_since_reserved(&self, _pin: &Pin<'_, W>) {
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
