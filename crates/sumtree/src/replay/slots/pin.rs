//! Pins, and what a thread may do with the rows that its pin keeps from being overwritten.

#[cfg(not(loom))]
use super::super::columns::prefetch;
use super::super::layout::Ring;
use super::operations::Operation;
use super::{
    BATCH_ROWS, GENERATION, LAP_SHIFT, LARGEST, LINK, NO_LINK, OPEN, PARKED, READY, Row, SMALL_BATCH_ROWS,
    Slots, Update, Weights, operation, word,
};
use crate::sync::{AtomicU64, Ordering, fence};

/// Keeps rows from being overwritten: rows seen open under a pin stay unchanged until it is dropped.
pub(crate) struct Pin<'a, W> {
    slots: &'a Slots<W>,
    word: &'a AtomicU64,
    marked: u64,
}

impl<W> Drop for Pin<'_, W> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `clear`; reads of the rows come before they are overwritten.
        self.word.store(0, Ordering::Release);
    }
}

impl<'a, W: Weights> Operation<'a, W> {
    /// Pins the epoch: rows seen open from here on are not overwritten until the pin is dropped. The thread
    /// must not wait for another one while it holds the pin.
    pub(crate) fn pin(&self) -> Pin<'a, W> {
        // Acquire: pairs with the Release in `mark`; the chunks marked so far are seen closed.
        let epoch = self.slots.words[word::MARKED].load(Ordering::Acquire);
        let word = &self.words[operation::PIN];
        word.store(epoch + 1, Ordering::Relaxed);
        // Pairs with the fence in `clear`: either this thread sees the rows closed and their chunk marked, or
        // `clear` sees the pin.
        fence(Ordering::SeqCst);
        let marked = self.slots.words[word::MARKED].load(Ordering::Acquire);
        Pin { slots: self.slots, word, marked }
    }
}

impl<W: Weights> Pin<'_, W> {
    /// The row in a slot, if it can be sampled.
    pub(crate) fn sampleable(&self, slot: usize) -> Option<Row> {
        // Acquire: pairs with the Release in `publish` and `make_ready`; the row's bytes and links are visible.
        let seen = self.slots.state(slot, GENERATION).load(Ordering::Acquire);
        (seen & (OPEN | READY) == OPEN | READY).then_some(Row { slot, lap: seen >> LAP_SHIFT })
    }

    /// Number of chunks marked when the pin was set. Published rows from [`Ring::horizon`] of this number on
    /// are not overwritten until the pin is dropped, even those that fell out of the capacity.
    #[inline(always)]
    pub(crate) fn marked(&self) -> u64 {
        self.marked
    }

    /// Number of chunks that may be written so far. A sampler calls this before it reads a weight and again
    /// after it has read the row. A weight may be left from an earlier row of its slot, which another thread
    /// is about to set to 0. The row can then be newer than the weight only if its slot [`Ring::is_among`]
    /// the chunks cleared between the two calls, because clearing a chunk leaves no earlier weight behind.
    #[inline(always)]
    pub(crate) fn cleared(&self) -> u64 {
        // Acquire: pairs with the Release in `clear`; weights read from now on are not from before it.
        self.slots.words[word::CLEARED].load(Ordering::Acquire)
    }

    /// Prefetches the state of a slot.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: usize) {
        #[cfg(not(loom))]
        prefetch(std::ptr::from_ref(self.slots.state(slot, GENERATION)).cast());
        #[cfg(loom)]
        let _ = slot;
    }

    /// Prefetches the state of a slot for writing.
    #[inline(always)]
    pub(crate) fn prefetch_write(&self, slot: usize) {
        #[cfg(not(loom))]
        crate::prefetch::write(std::ptr::from_ref(self.slots.state(slot, GENERATION)));
        #[cfg(loom)]
        let _ = slot;
    }

    /// As [`Pin::evict`], but stops before the weight is set to 0, like a thread that is suspended there.
    #[cfg(all(loom, test))]
    pub(crate) fn close_generation(&self, slot: usize) -> bool {
        self.sampleable(slot)
            .is_some_and(|row| self.slots.close_generation(row.slot, Some(row.lap)).is_some())
    }

    /// Closes the sampleable row in a slot before it falls out of the capacity. Returns false if there is
    /// none. Only after [`Operation::begin_changes`].
    pub(crate) fn evict(&self, slot: usize) -> bool {
        // Pinned: as in `close_displaced`.
        self.sampleable(slot).is_some_and(|row| self.slots.close_slot(row.slot, Some(row.lap)))
    }

    /// Returns true if a row is still open in its slot.
    pub(crate) fn is_open(&self, row: Row) -> bool {
        // Acquire: as in `sampleable`.
        let seen = self.slots.state(row.slot, GENERATION).load(Ordering::Acquire);
        seen & OPEN != 0 && seen >> LAP_SHIFT == row.lap
    }

    /// Slot of the next row of the same environment.
    pub(crate) fn next(&self, slot: usize) -> Option<usize> {
        // Acquire: pairs with the Release in `link`; the row it names is visible.
        let link = self.slots.state(slot, LINK).load(Ordering::Acquire);
        (link != NO_LINK).then(|| link as usize - 1)
    }

    /// Links the row in `slot` to that in `next`, each reserved by this thread or seen open under this pin.
    pub(crate) fn link(&self, slot: usize, next: usize) {
        // Release: pairs with the Acquire in `next`.
        self.slots.state(slot, LINK).store(next as u32 + 1, Ordering::Release);
    }

    /// Prepares an update of a weight. On [`Update::Store`] the caller stores the weight under the same pin.
    pub(crate) fn update(&self, row: Row, weight: u32) -> Update {
        let cell = self.slots.state(row.slot, GENERATION);
        let seen = cell.load(Ordering::Acquire);
        if seen & OPEN == 0 || seen >> LAP_SHIFT != row.lap {
            return self.classify_late_update(row.lap, seen >> LAP_SHIFT);
        }
        // Always stored: `make_ready` may be about to store an older weight and reads this word afterwards.
        self.slots.state(row.slot, PARKED).store(weight, Ordering::Relaxed);
        if seen & READY != 0 {
            return Update::Store;
        }
        // Pairs with the fence in `store_parked_weights`: either that function reads this weight, or this
        // thread sees the row ready.
        fence(Ordering::SeqCst);
        let seen = cell.load(Ordering::Acquire);
        if seen >> LAP_SHIFT == row.lap && seen & READY != 0 { Update::Store } else { Update::Parked }
    }

    /// Result for a row of lap `lap` whose slot is in lap `written`. A slot never returns to an earlier lap,
    /// so a row of a later lap does not exist. After the largest lap, counting continues at 0; from then on,
    /// a row that is behind by up to half of all laps counts as overwritten.
    #[cold]
    fn classify_late_update(&self, lap: u32, written: u32) -> Update {
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

    /// Makes open rows sampleable with their parked weights. Rows closed in the meantime are left unchanged.
    pub(crate) fn make_ready(&self, rows: &[Row], largest: u32) {
        match rows.len() {
            0 => {}
            1 => self.make_ready_by::<1>(rows, largest),
            few if few <= SMALL_BATCH_ROWS => self.make_ready_by::<SMALL_BATCH_ROWS>(rows, largest),
            _ => self.make_ready_by::<BATCH_ROWS>(rows, largest),
        }
    }

    fn make_ready_by<const N: usize>(&self, rows: &[Row], largest: u32) {
        let mut ready = [Row { slot: 0, lap: 0 }; N];
        for rows in rows.chunks(N) {
            let mut count = 0;
            for row in rows {
                let waiting = row.lap << LAP_SHIFT | OPEN;
                let cell = self.slots.state(row.slot, GENERATION);
                // Release: a thread that sees the row ready sees the links that were set before.
                let made =
                    cell.compare_exchange(waiting, waiting | READY, Ordering::AcqRel, Ordering::Relaxed);
                if made.is_ok() {
                    ready[count] = *row;
                    count += 1;
                }
            }
            if count > 0 {
                self.slots.words[word::READY].fetch_add(count as u64, Ordering::Relaxed); // A counter.
                self.store_parked_weights::<N>(&ready[..count], largest);
            }
        }
    }

    /// Stores the parked weights of at most `N` rows that were just made ready.
    fn store_parked_weights<const N: usize>(&self, rows: &[Row], largest: u32) {
        let slots = self.slots;
        let (mut parked, mut weights) = ([0; N], [0; N]);
        let of = |parked| if parked == LARGEST { largest } else { parked };
        // Pairs with the fence in `update`.
        fence(Ordering::SeqCst);
        for ((row, parked), weight) in rows.iter().zip(&mut parked).zip(&mut weights) {
            *parked = slots.state(row.slot, PARKED).load(Ordering::Relaxed);
            *weight = of(*parked);
        }
        slots.store::<N>(rows, &weights[..rows.len()]);
        for (row, parked) in rows.iter().zip(&mut parked) {
            let cell = slots.state(row.slot, PARKED);
            loop {
                // If an update stored a weight before, the exchange of this store makes its parked weight
                // visible here.
                let now = cell.load(Ordering::Relaxed);
                if now == *parked {
                    break;
                }
                *parked = now;
                slots.weights.set(row.slot, of(now));
            }
            self.clear_if_closed(*row);
        }
    }

    /// Stores the weights of `rows`, for which [`Pin::update`] returned [`Update::Store`] under this pin.
    /// `slots` are their slots.
    pub(crate) fn store_many(&self, rows: &[Row], slots: &[u32], weights: &[u32]) {
        self.slots.weights.set_many(slots, weights);
        rows.iter().for_each(|row| self.clear_if_closed(*row));
    }

    /// Called after a weight was stored: sets it to 0 if the row was closed in the meantime. If `close_slot`
    /// stored its 0 before this weight, the exchange that stored the weight makes the closing visible here.
    fn clear_if_closed(&self, row: Row) {
        if !self.is_open(row) {
            self.slots.weights.set(row.slot, 0);
        }
    }
}
