//! The exclusive writer, for a tree in the memory of one process: one thread at a time updates the tree, with plain
//! loads and stores. This takes about half of the time of the atomic exchange and adds of the lock-free writer. A thread
//! that finds the tree in use waits until the other thread's call has ended. Readers never wait.

use crate::SumTree;
use crate::sync::{AtomicU32, Ordering, yield_now};

/// Attempts before a waiting thread yields its core. An update of 256 leaves takes about as long.
#[cfg(not(loom))]
const SPINS: u32 = 100;

/// The writer's lock: 0 if no thread writes, else one more than the number of forks of the writing process.
pub(crate) struct ExclusiveWriter {
    held: AtomicU32,
}

/// The right to write. It ends on drop, also when a panic unwinds.
struct Guard<'a>(&'a ExclusiveWriter);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next writer, which continues from the sums that this one stored.
        self.0.held.store(0, Ordering::Release);
    }
}

impl ExclusiveWriter {
    fn new() -> Self {
        Self { held: AtomicU32::new(0) }
    }

    /// Waits until no other thread writes to `tree`, then runs `write`.
    pub(crate) fn run(&self, tree: &SumTree, write: impl FnOnce()) {
        let mine = crate::fork::count() + 1;
        let mut expected = 0;
        #[cfg(not(loom))]
        let mut spins = 0;
        loop {
            // Acquire: pairs with the Release of the last writer.
            match self.held.compare_exchange(expected, mine, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                // A thread of the parent process wrote during the fork. It does not exist in this process, so its lock
                // is taken from it.
                Err(found) if found != mine && found != expected => expected = found,
                #[cfg(not(loom))]
                Err(_) if spins < SPINS => {
                    spins += 1;
                    std::hint::spin_loop();
                }
                Err(_) => yield_now(),
            }
        }
        let guard = Guard(self);
        if expected != 0 {
            tree.restore_sums_alone(); // It may have stored a leaf and not yet the sums above.
        }
        write();
        drop(guard);
    }
}

impl SumTree {
    /// The same tree with the exclusive writer: updates store with plain instructions, one thread at a time, and wait
    /// while another thread updates. Draws and reads never wait.
    ///
    /// All updates of the memory must go through this one value: no other [`SumTree::in_region`] view may update it.
    /// So it is not for memory that several processes share, one of which may be killed during an update.
    #[must_use]
    pub fn exclusive(self) -> Self {
        Self { exclusive: Some(ExclusiveWriter::new()), ..self }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::{FAN_OUTS, Rng};

    /// One thread: every kind of update ends in the same tree as with the lock-free writer.
    #[test]
    fn one_thread_makes_the_same_tree() {
        for fan_out in FAN_OUTS {
            let a = SumTree::new(30_000, fan_out).unwrap();
            let b = SumTree::new(30_000, fan_out).unwrap().exclusive();
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

    /// Four threads: no update is lost, and each is stored when its call returns.
    #[test]
    fn threads_lose_no_update() {
        let tree = SumTree::new(40_000, 16).unwrap().exclusive();
        std::thread::scope(|scope| {
            for me in 0..4u64 {
                let tree = &tree;
                scope.spawn(move || {
                    for round in 1..=400u32 {
                        let indices: Vec<u64> = (0..200).map(|k| me * 10_000 + k * 7).collect();
                        tree.set_many(&indices, &vec![round; 200]).unwrap();
                        assert_eq!(tree.get(indices[199]).unwrap(), round);
                        let first = me as usize * 10_000 + 5000;
                        tree.fill_range(first, 100, round).unwrap();
                        assert_eq!(tree.get(first + 99).unwrap(), round);
                    }
                });
            }
        });
        tree.verify().unwrap();
        tree.verify_histogram().unwrap();
        assert_eq!(tree.total(), 4 * (200 + 100) * 400);
    }

    /// A thread of the parent that was writing during the fork does not block the child, where the next update completes
    /// its sums.
    #[test]
    fn a_writer_from_before_a_fork_is_ignored() {
        let tree = SumTree::new(5000, 16).unwrap().exclusive();
        let writer = tree.exclusive.as_ref().unwrap();
        tree.leaves[4000].store(9, Ordering::Relaxed);
        writer.held.store(crate::fork::count() + 2, Ordering::Relaxed);
        tree.set(3u32, 5).unwrap();
        assert_eq!((tree.total(), writer.held.load(Ordering::Relaxed)), (14, 0));
        tree.verify().unwrap();
        tree.verify_histogram().unwrap();
    }
}
