//! The combining writer: of the threads that update one tree at a time, one holds it and applies everybody's batches
//! with plain loads and stores; who finds it held hands its batch over and goes on. Readers never wait.
//!
//! Nothing is left behind: who hands over looks at the holder's flag after the batch is in the queue, and a holder
//! looks at the queue after it has let go. Both go through the queue's mutex, so either the holder sees the batch or
//! the other one sees that the tree is free and applies it. Batches are applied in the order in which they came, and
//! a holder applies those that wait before its own, so the batches of one thread keep their order.
#![allow(unsafe_code)] // Calls of the inner loops of `write`, which trust that indices were checked.

use std::sync::PoisonError;

use crate::memory::vec_with_room;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, yield_now};
use crate::write::Alone;
use crate::{Index, SumTree, SumTreeError};

/// Batches that may wait; a caller who finds so many waits for the holder, so memory is bounded.
const WAITING_MAX: usize = 64;

/// Whose turn it is, and what waits.
pub(crate) struct Combiner {
    held: AtomicBool,
    waiting: Mutex<Vec<Batch>>,
}

struct Batch {
    indices: Vec<usize>,
    weights: Vec<u32>,
}

impl Batch {
    fn of<I: Index>(indices: &[I], weights: &[u32]) -> Result<Self, SumTreeError> {
        let (mut at, mut copied) = (vec_with_room(indices.len())?, vec_with_room(weights.len())?);
        at.extend(indices.iter().map(|index| index.to_usize()));
        copied.extend_from_slice(weights);
        Ok(Self { indices: at, weights: copied })
    }
}

/// The right to write, given back on drop, also when a panic unwinds.
struct Turn<'a>(&'a Combiner);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next holder, who goes on from the sums stored in this turn.
        self.0.held.store(false, Ordering::Release);
    }
}

impl Combiner {
    pub fn new() -> Self {
        Self { held: AtomicBool::new(false), waiting: Mutex::new(Vec::new()) }
    }

    fn try_turn(&self) -> Option<Turn<'_>> {
        // Acquire: pairs with the Release of the last holder. Relaxed on failure: that the flag seen is not older than
        // the last look at the queue is what the queue's mutex is for.
        let taken = self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Turn(self))
    }

    fn queue(&self) -> MutexGuard<'_, Vec<Batch>> {
        // A panic while it was held leaves a whole queue: it is only pushed to and taken.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a batch now or hands it over; a handed-over batch is applied before the holder's call returns.
    ///
    /// # Safety
    /// All indices are leaves of the tree; there are as many as weights.
    pub unsafe fn apply_or_hand_over<I: Index>(&self, tree: &SumTree, indices: &[I], weights: &[u32]) {
        loop {
            if let Some(turn) = self.try_turn() {
                self.apply_waiting(tree);
                // SAFETY: the caller's promise.
                unsafe { tree.store_each::<Alone, I>(indices, weights) };
                drop(turn);
                break;
            }
            let mut queue = self.queue();
            // Without memory for a copy it waits for its turn.
            if queue.len() < WAITING_MAX
                && let Ok(batch) = Batch::of(indices, weights)
                && queue.try_reserve(1).is_ok()
            {
                queue.push(batch);
                break;
            }
            drop(queue);
            yield_now();
        }
        self.leave(tree);
    }

    /// Waits for its turn and runs `write` in it: when this returns, the update is in the tree.
    pub fn in_turn(&self, tree: &SumTree, write: impl FnOnce()) {
        let turn = loop {
            match self.try_turn() {
                Some(turn) => break turn,
                None => yield_now(),
            }
        };
        self.apply_waiting(tree);
        write();
        drop(turn);
        self.leave(tree);
    }

    fn apply_waiting(&self, tree: &SumTree) {
        let batches = std::mem::take(&mut *self.queue());
        for batch in batches {
            // SAFETY: who handed the batch over promised it.
            unsafe { tree.store_each::<Alone, usize>(&batch.indices, &batch.weights) };
        }
    }

    /// Looks whether something was handed over meanwhile, until nothing waits or somebody else holds the tree.
    fn leave(&self, tree: &SumTree) {
        while !self.queue().is_empty() {
            let Some(_turn) = self.try_turn() else { return };
            self.apply_waiting(tree);
        }
    }
}

impl SumTree {
    /// The same tree with the combining writer, which stores with plain instructions where the lock-free one needs a
    /// locked one per level.
    ///
    /// [`SumTree::set_many`] then may return before its batch is stored, if another thread is storing meanwhile; that
    /// thread stores it before its own call returns. The other updates wait for their turn, and are stored when they
    /// return: take slots out of circulation with these, or call [`SumTree::flush`]. Equal indices in one batch, and the batches of one thread,
    /// keep their order. A caller waits only when 64 batches wait already.
    ///
    /// All updates of the memory must go through this one value: the two writers must not be mixed, so no other
    /// [`SumTree::in_region`] view may update meanwhile.
    #[must_use]
    pub fn combining(self) -> Self {
        Self { combiner: Some(Combiner::new()), ..self }
    }

    /// Waits until every batch that was handed over before this call is stored. Does nothing with the lock-free writer.
    pub fn flush(&self) {
        if let Some(combiner) = &self.combiner {
            combiner.in_turn(self, || ());
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::{FAN_OUTS, Rng};

    /// One thread: every kind of update ends in the same tree as with the lock-free writer.
    #[test]
    fn alone_it_is_the_same_tree() {
        for fan_out in FAN_OUTS {
            let a = SumTree::new(30_000, fan_out).unwrap();
            let b = SumTree::new(30_000, fan_out).unwrap().combining();
            for tree in [&a, &b] {
                let mut rng = Rng::new(1);
                for _ in 0..50 {
                    let indices: Vec<u64> = (0..100).map(|_| rng.below(30_000)).collect();
                    let weights: Vec<u32> = (0..100).map(|_| rng.below(1 << 26) as u32).collect();
                    tree.set_many(&indices, &weights).unwrap();
                    tree.set_range(rng.below(29_900) as usize, &weights).unwrap();
                    tree.fill_range(rng.below(29_000) as usize, 1000, rng.below(3) as u32).unwrap();
                    tree.set(rng.below(30_000), 7).unwrap();
                }
                tree.verify().unwrap();
                tree.verify_histogram().unwrap();
            }
            let leaves = |tree: &SumTree| {
                let mut leaves = vec![0; 30_000];
                tree.get_range(0, &mut leaves).unwrap();
                leaves
            };
            assert_eq!(leaves(&a), leaves(&b));
        }
    }

    /// Threads that hand batches over: nothing is lost, each thread's last batch wins on its own leaves, and a range
    /// update is in the tree when it returns.
    #[test]
    fn handed_over_batches_all_arrive_in_order() {
        let tree = SumTree::new(40_000, 16).unwrap().combining();
        std::thread::scope(|scope| {
            for me in 0..4u64 {
                let tree = &tree;
                scope.spawn(move || {
                    for round in 1..=400u32 {
                        let indices: Vec<u64> = (0..200).map(|k| me * 10_000 + k * 7).collect();
                        tree.set_many(&indices, &vec![round; 200]).unwrap();
                        let first = me as usize * 10_000 + 5000;
                        tree.fill_range(first, 100, round).unwrap();
                        assert_eq!(tree.get(first + 99).unwrap(), round, "a range is stored on return");
                    }
                });
            }
        });
        tree.verify().unwrap();
        tree.verify_histogram().unwrap();
        assert_eq!(tree.total(), 4 * (200 + 100) * 400);
    }
}
