//! The evictor: one thread at a time closes chunks of rows to readers and frees their slots for writers. It also
//! ends the operations of dead processes.

use super::super::wait::Wait;
use super::operations::Operation;
use super::{OPERATION_WORDS, Slots, Weights, operation, word};
use crate::sync::{AtomicU64, Ordering, fence};

/// The evictor's lock. Dropping it frees the lock.
struct EvictorLock<'a> {
    word: &'a AtomicU64,
}

impl Drop for EvictorLock<'_> {
    fn drop(&mut self) {
        self.word.store(0, Ordering::Release); // Release: pairs with the Acquire in `try_evictor`.
    }
}

impl<W: Weights> Slots<W> {
    /// Waits until chunk `chunk` and all before it may be written. Marks one more if no other thread evicts.
    pub(super) fn clear_through(&self, chunk: u64, tag: u64) {
        let (marked, cleared) = (&self.words[word::MARKED], &self.words[word::CLEARED]);
        let mut wait = Wait::default();
        // Acquire: pairs with the Release in `clear`; no thread reads the old rows any more.
        while cleared.load(Ordering::Acquire) <= chunk {
            if let Some(_lock) = self.try_evictor(tag) {
                while cleared.load(Ordering::Acquire) <= chunk {
                    let next = cleared.load(Ordering::Relaxed);
                    if marked.load(Ordering::Relaxed) <= next {
                        self.await_lapped(next);
                        self.mark(next);
                    }
                    self.clear(next);
                }
            } else {
                self.watch_evictor(&mut wait);
            }
        }
        if marked.load(Ordering::Relaxed) <= chunk + 1
            && let Some(_lock) = self.try_evictor(tag)
        {
            let next = marked.load(Ordering::Relaxed);
            if next <= chunk + 1 && !self.any_lapped(next) {
                self.mark(next);
            }
        }
    }

    /// Closes the rows of chunk `chunk` (counted from the first one) and starts the next epoch. Evictor only.
    pub(crate) fn mark(&self, chunk: u64) {
        for slot in self.ring.chunk_slots(chunk) {
            self.close_slot(slot, None);
        }
        // Release: a thread that pins the new epoch sees the rows closed.
        self.words[word::MARKED].store(chunk + 1, Ordering::Release);
    }

    /// Waits until no thread reads or writes the rows of a marked chunk, then frees its slots. Evictor only.
    pub(crate) fn clear(&self, chunk: u64) {
        // Pairs with the fence in `pin`: either the reader sees the rows closed, or this thread sees its pin.
        fence(Ordering::SeqCst);
        for index in 0..self.operations_used() {
            let mut wait = Wait::default();
            loop {
                // Acquire: pairs with the Release in Pin::drop.
                let pin = self.operations[index * OPERATION_WORDS + operation::PIN].load(Ordering::Acquire);
                if pin == 0 || pin - 1 > chunk {
                    break;
                }
                if wait.step() {
                    self.reap();
                }
            }
        }
        for slot in self.ring.chunk_slots(chunk) {
            // A thread that stores a weight on a closed row sets it back to 0, unless it is killed before
            // that.
            if self.weights.get(slot) != 0 {
                self.weights.set(slot, 0);
            }
        }
        // Release: pairs with the Acquire in `clear_through`.
        self.words[word::CLEARED].store(chunk + 1, Ordering::Release);
    }

    /// Returns true if an operation may still write rows that chunk `chunk` held one lap ago.
    fn any_lapped(&self, chunk: u64) -> bool {
        (0..self.operations_used()).any(|index| self.is_lapped(index, chunk))
    }

    fn is_lapped(&self, index: usize, chunk: u64) -> bool {
        let lap_ago = ((chunk + 1) * self.ring.chunk as u64).saturating_sub(self.ring.slots as u64);
        // Acquire: pairs with the Release in Operation::drop; its rows are published.
        let reserve = self.operations[index * OPERATION_WORDS + operation::RESERVE].load(Ordering::Acquire);
        reserve != 0 && reserve - 1 < lap_ago
    }

    pub(crate) fn await_lapped(&self, chunk: u64) {
        for index in 0..self.operations_used() {
            let mut wait = Wait::default();
            while self.is_lapped(index, chunk) {
                if wait.step() {
                    self.reap();
                }
            }
        }
    }

    fn try_evictor(&self, tag: u64) -> Option<EvictorLock<'_>> {
        let word = &self.words[word::EVICTOR];
        // Acquire: pairs with the Release in EvictorLock::drop; eviction continues where it stopped.
        word.compare_exchange(0, tag, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| EvictorLock { word })
    }

    /// One step of waiting for the evictor. Frees its lock if its process died: eviction can be repeated.
    pub(crate) fn watch_evictor(&self, wait: &mut Wait) {
        if wait.step() {
            self.free_evictor();
        }
    }

    /// Frees the evictor's lock if the process that holds it is dead.
    fn free_evictor(&self) {
        let word = &self.words[word::EVICTOR];
        let holder = word.load(Ordering::Relaxed);
        if holder != 0
            && !self.processes.is_alive(holder)
            && word.compare_exchange(holder, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            self.words[word::REAPED].fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Ends the operations of dead processes, or frees the evictor's lock if a dead process holds it.
    pub(super) fn reap_as(&self, tag: u64) {
        match self.try_evictor(tag) {
            Some(_lock) => self.reap(),
            None => self.free_evictor(),
        }
    }

    /// Ends the operations of dead processes. Evictor only, so that no operation is freed twice.
    fn reap(&self) {
        for index in 0..self.operations_used() {
            let words = &self.operations[index * OPERATION_WORDS..][..OPERATION_WORDS];
            let owner = words[operation::OWNER].load(Ordering::Acquire);
            if owner != 0 && !self.processes.is_alive(owner) {
                if words[operation::WRITING].load(Ordering::Acquire) != 0 {
                    self.words[word::REAPED].fetch_add(1, Ordering::AcqRel);
                }
                drop(Operation { slots: self, words, tag: owner });
            }
        }
    }
}
