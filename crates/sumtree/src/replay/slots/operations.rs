//! Operations: registrations of threads that read or change rows; and the gate, which keeps other threads from
//! changing them.

use super::super::ReplayError;
use super::super::wait::Wait;
use super::{OPERATION_WORDS, OPERATIONS_MAX, Slots, Weights, operation, word};
use crate::sync::{AtomicU64, Ordering, fence};

/// Registration of one thread for one operation. Dropping it ends the operation, also after a panic.
pub(crate) struct Operation<'a, W> {
    pub(super) slots: &'a Slots<W>,
    pub(super) words: &'a [AtomicU64],
    pub(super) tag: u64,
}

impl<W> Drop for Operation<'_, W> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire loads of waiting threads; all accesses of this operation come
        // before.
        self.words[operation::PIN].store(0, Ordering::Release);
        self.words[operation::RESERVE].store(0, Ordering::Release);
        self.words[operation::WRITING].store(0, Ordering::Release);
        self.words[operation::OWNER].store(0, Ordering::Release);
    }
}

/// Guard of a shut gate: until it is dropped, no other thread changes rows or weights.
pub(crate) struct Gate<'a, W> {
    word: &'a AtomicU64,
    operation: Operation<'a, W>,
}

impl<W> Drop for Gate<'_, W> {
    fn drop(&mut self) {
        self.word.store(0, Ordering::Release); // Release: pairs with the Acquire in `begin_changes`.
    }
}

impl<W: Weights> Slots<W> {
    /// Begins an operation of this thread that only reads. [`Operation::begin_changes`] allows it to write.
    pub(crate) fn enter(&self) -> Result<Operation<'_, W>, ReplayError> {
        let tag = self.processes.tag()?;
        let start = thread_number().wrapping_add(tag as usize * 37) % OPERATIONS_MAX;
        let mut wait = Wait::default();
        loop {
            for i in 0..OPERATIONS_MAX {
                let at = (start + i) % OPERATIONS_MAX;
                let words = &self.operations[at * OPERATION_WORDS..][..OPERATION_WORDS];
                let owner = &words[operation::OWNER];
                // Acquire: pairs with the Release in Operation::drop. The Relaxed load before it is only a
                // hint.
                if owner.load(Ordering::Relaxed) == 0
                    && owner.compare_exchange(0, tag, Ordering::AcqRel, Ordering::Relaxed).is_ok()
                {
                    // Comes before the fence of any pin or reservation: if another thread misses this
                    // operation, this operation sees what that thread wrote before its own fence.
                    if self.words[word::OPERATIONS_USED].load(Ordering::Relaxed) <= at as u64 {
                        self.words[word::OPERATIONS_USED].fetch_max(at as u64 + 1, Ordering::AcqRel);
                    }
                    let operation = Operation { slots: self, words, tag };
                    // Pairs with the fence in `close`: either this thread sees that the tag was given up, or
                    // `close` sees this operation.
                    fence(Ordering::SeqCst);
                    return if self.processes.tag()? == tag {
                        Ok(operation)
                    } else {
                        Err(ReplayError::Closed)
                    };
                }
            }
            if wait.step() {
                self.reap_as(tag);
            }
        }
    }

    /// Unregisters this process, after waiting until none of its threads is inside an operation.
    pub(crate) fn close(&self) {
        let Some(tag) = self.processes.release_tag() else { return };
        // Pairs with the fence in `enter`.
        fence(Ordering::SeqCst);
        for index in 0..self.operations_used() {
            let mut wait = Wait::default();
            // Acquire: pairs with the Release in Operation::drop.
            while self.operations[index * OPERATION_WORDS + operation::OWNER].load(Ordering::Acquire) == tag {
                wait.step();
            }
        }
        self.processes.free_entry(tag);
    }
}

impl<'a, W: Weights> Operation<'a, W> {
    /// Begins the part of the operation that changes weights or rows. Waits while the gate is shut.
    pub(crate) fn begin_changes(self) -> Self {
        let slots = self.slots;
        let mut wait = Wait::default();
        loop {
            self.words[operation::WRITING].store(1, Ordering::Relaxed);
            // Pairs with the fence in `shut`: either this thread sees the shut gate, or `shut` sees this
            // operation.
            fence(Ordering::SeqCst);
            let word = &slots.words[word::GATE];
            let gate = word.load(Ordering::Acquire);
            if gate == 0 {
                return self;
            }
            self.words[operation::WRITING].store(0, Ordering::Release);
            // `WRITING` is 0 while waiting; otherwise the thread that shuts the gate might find 1 at each
            // check.
            while word.load(Ordering::Relaxed) == gate {
                if wait.step() && !slots.processes.is_alive(gate) {
                    // The holder died. If the exchange fails, another thread has opened the gate.
                    let _ = word.compare_exchange(gate, 0, Ordering::AcqRel, Ordering::Relaxed);
                }
            }
        }
    }

    /// Shuts the gate: keeps all other threads from changing rows and weights until the guard is dropped. Not
    /// allowed after [`Operation::begin_changes`].
    pub(crate) fn shut(self) -> Gate<'a, W> {
        let slots = self.slots;
        let word = &slots.words[word::GATE];
        let mut wait = Wait::default();
        while let Err(holder) = word.compare_exchange(0, self.tag, Ordering::AcqRel, Ordering::Relaxed) {
            if wait.step() && !slots.processes.is_alive(holder) {
                let _ = word.compare_exchange(holder, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        let gate = Gate { word, operation: self };
        // Pairs with the fence in `begin_changes`.
        fence(Ordering::SeqCst);
        for index in 0..slots.operations_used() {
            let mut wait = Wait::default();
            // Acquire: pairs with the Release in Operation::drop.
            while slots.operations[index * OPERATION_WORDS + operation::WRITING].load(Ordering::Acquire) != 0
            {
                if wait.step() {
                    slots.reap_as(gate.operation.tag);
                }
            }
        }
        gate
    }

    /// Tag of the process of this operation.
    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }
}

/// A small number that is different for most threads.
fn thread_number() -> usize {
    #[cfg(loom)]
    return 0;
    #[cfg(not(loom))]
    {
        use std::cell::Cell;
        use std::sync::atomic::AtomicUsize;
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) });
        NUMBER.with(|number| {
            if number.get() == usize::MAX {
                number.set(NEXT.fetch_add(1, Ordering::Relaxed)); // A counter: orders nothing.
            }
            number.get()
        })
    }
}
