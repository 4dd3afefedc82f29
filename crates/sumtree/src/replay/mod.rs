//! Core of the prioritized replay buffer: rows of bytes in a ring, sampled in proportion to their priorities.
//!
#![doc = include_str!("README.md")]

mod add;
mod check;
mod checksum;
mod columns;
mod compress;
mod convert;
mod draw;
mod error;
mod file;
mod frames;
mod gather;
mod hindsight;
mod layout;
mod mapped;
mod open;
mod process;
mod relocation;
mod repair;
mod select;
mod settings;
mod slots;
mod tails;
mod threads;
mod wait;

#[cfg(all(test, loom))]
mod loom;

use std::sync::Arc;

use crate::memory::{vec_of_zeros, vec_with_capacity};
use crate::region::Cells;
use crate::sync::{AtomicU64, Ordering};
use crate::{Region, Scale, SumTree};

pub use add::{Finals, Priorities, Rows};
pub use compress::Compression;
pub use convert::Conversion;
pub use draw::Batch;
pub use error::ReplayError;
pub use file::FileWriter;
pub use gather::Output;
pub use select::Selection;
pub use settings::{Autoreset, Field, Hindsight, Padding, Sequence, Settings, Strategy, WeightNorm};

use columns::Column;
use frames::History;
use layout::Layout;
use settings::Roles;
use slots::{Gate, Slots, Update, Weights, word};
use tails::{Tails, Window};

/// Indices of the words outside the slot protocol. Counters order no other access and are Relaxed.
pub(crate) mod counter {
    pub const SEED: usize = 0;
    pub const DRAWS: usize = 1;
    /// Largest weight given to a row so far.
    pub const LARGEST: usize = 2;
    /// Tag of the replay, XORed into its tickets to distinguish them from those of other replays. 0 in files
    /// of versions without tags.
    pub const TAG: usize = 3;
    /// Sequence number of the first row of this replay. Not 0 if the replay was loaded with another capacity.
    pub const FIRST: usize = 7;
    pub const ADDED: usize = 8;
    pub const UPDATED: usize = 16;
    pub const STALE: usize = 17;
    pub const SATURATED: usize = 18;
    pub const SAMPLED: usize = 24;
    pub const REDRAWN: usize = 25;
    /// Value of `word::REAPED` up to which the unfinished changes of dead processes have been repaired.
    pub const REPAIRED: usize = 26;
    /// Mapped files: rows with sequence numbers below this are included in the checksums of their chunks.
    pub const CHECKSUMMED: usize = 27;
    pub const COUNT: usize = 32;
}

/// Number of updates that the prefetch of slot states runs ahead.
const UPDATES_AHEAD: usize = 16;

/// Counters of a replay since its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Rows added, including those that only hold a final observation.
    pub added: u64,
    /// Rows sampled.
    pub sampled: u64,
    /// Draws repeated because the row drawn was being overwritten.
    pub redrawn: u64,
    /// Priorities updated.
    pub updated: u64,
    /// Priority updates dropped because the row had been overwritten.
    pub stale: u64,
    /// Priorities too large for a weight, stored as the largest weight.
    pub saturated: u64,
    /// Draws that were restarted because a writer had emptied the tree node that they had reached.
    pub restarts: u64,
    /// Processes that died during an operation and whose locks and pins were released.
    pub recovered: u64,
}

/// The leaves of the sum tree, as the weights of the slots.
struct TreeWeights(SumTree);

impl Weights for TreeWeights {
    #[inline]
    fn set(&self, slot: usize, weight: u32) {
        self.0.set(slot, weight).expect("the slot is in the ring and the weight in bounds");
    }

    #[inline]
    fn get(&self, slot: usize) -> u32 {
        self.0.get(slot).expect("the slot is in the ring")
    }

    fn set_many(&self, slots: &[u32], weights: &[u32]) {
        self.0.set_many(slots, weights).expect("the slots are in the ring and the weights in bounds");
    }

    fn prefetch_run(&self, first: usize, count: usize) {
        self.0.prefetch_run(first, count);
    }

    fn set_run(&self, first: usize, weights: &[u32]) {
        self.0.set_range(first, weights).expect("the slots are in the ring and the weights in bounds");
    }
}

/// A prioritized replay buffer. All methods may be called concurrently; see the module documentation.
pub struct Replay {
    region: Arc<Region>,
    settings: Settings,
    layout: Layout,
    roles: Roles,
    window: Window,
    scale: Scale,
    slots: Slots<TreeWeights>,
    tails: Tails,
    columns: Vec<Column>,
    counters: Cells<AtomicU64>,
    history: Arc<History>,
    outputs: Vec<gather::Source>,
    /// Per output: bytes per row and step (`row_bytes`), and number of steps (`steps`).
    row_bytes: Vec<usize>,
    steps: Vec<usize>,
    /// This handle created the region, so closing it removes the name of the shared memory.
    is_creator: bool,
    /// The region is a mapped file.
    is_mapped: bool,
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Replay {
    /// Settings of the replay.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Number of rows held, sampleable or not, at most the capacity.
    #[must_use]
    pub fn len(&self) -> u64 {
        let first = self.counters[counter::FIRST].load(Ordering::Relaxed);
        let reserved = self.slots.words[word::RESERVED].load(Ordering::Relaxed);
        reserved.saturating_sub(first).min(self.settings.capacity as u64)
    }

    /// Returns true if no row was ever added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of rows that can be sampled, including those of weight 0.
    #[must_use]
    pub fn sampleable(&self) -> u64 {
        self.slots.ready_count()
    }

    /// Memory used, in bytes, including compressed rows.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let packed = |column: &Column| column.packed.as_ref().map_or(0, |packed| packed.bytes());
        self.region.len() + self.columns.iter().map(packed).sum::<usize>()
    }

    /// Name of the shared memory, `None` if the replay is not in shared memory.
    #[must_use]
    pub fn shared_name(&self) -> Option<&str> {
        self.region.name()
    }

    /// Sum of all weights, in units of `priority ** alpha`.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.slots.weights.0.total() as f64 / self.scale.units()
    }

    /// Largest priority given so far, to the power of alpha; 1 before a priority is given.
    #[must_use]
    pub fn largest(&self) -> f64 {
        self.scale.priority(self.counters[counter::LARGEST].load(Ordering::Relaxed) as u32)
    }

    /// The sum tree of the weights.
    #[must_use]
    pub fn tree(&self) -> &SumTree {
        &self.slots.weights.0
    }

    /// Counters since the creation of the replay.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let get = |at: usize| self.counters[at].load(Ordering::Relaxed);
        Counters {
            added: get(counter::ADDED),
            sampled: get(counter::SAMPLED),
            redrawn: get(counter::REDRAWN),
            updated: get(counter::UPDATED),
            stale: get(counter::STALE),
            saturated: get(counter::SATURATED),
            restarts: self.tree().restarts(),
            recovered: self.slots.words[word::REAPED].load(Ordering::Relaxed),
        }
    }

    /// State of the random number generator: the seed, and the number of calls that have drawn rows so far.
    /// Together with the weights it determines the next draws.
    #[must_use]
    pub fn rng_state(&self) -> [u64; 2] {
        [counter::SEED, counter::DRAWS].map(|at| self.counters[at].load(Ordering::Relaxed))
    }

    /// Restores a state returned by [`Replay::rng_state`], from which the next draws follow.
    pub fn set_rng_state(&self, state: [u64; 2]) {
        self.counters[counter::SEED].store(state[0], Ordering::Relaxed);
        self.counters[counter::DRAWS].store(state[1], Ordering::Relaxed);
    }

    fn update_largest(&self, weight: u32) {
        let largest = &self.counters[counter::LARGEST];
        // A plain load first: while the largest weight does not grow, no thread writes this cache line.
        if u64::from(weight) > largest.load(Ordering::Relaxed) {
            largest.fetch_max(u64::from(weight), Ordering::Relaxed);
        }
    }

    fn count(&self, at: usize, by: u64) {
        if by != 0 {
            self.counters[at].fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Tag of the replay: a random number, XORed into its tickets so that tickets of other replays are
    /// recognized. Files keep it, so tickets stay valid in a replay that is loaded from one.
    #[must_use]
    pub fn ticket_tag(&self) -> u64 {
        self.counters[counter::TAG].load(Ordering::Relaxed)
    }

    /// Sets the tag, as returned by [`Replay::ticket_tag`]. Tickets issued before become invalid.
    pub fn set_ticket_tag(&self, tag: u64) {
        self.counters[counter::TAG].store(tag, Ordering::Relaxed);
    }

    /// Sets new priorities for the rows of `tickets`. If a ticket occurs more than once, its last priority
    /// counts. Tickets of overwritten rows are dropped and counted. Returns the number of dropped tickets.
    ///
    /// # Errors
    /// [`ReplayError::Tree`] if a priority is not finite, the lengths differ, or memory cannot be allocated;
    /// [`ReplayError::Ticket`] if a ticket names a slot outside the ring. Nothing is stored then.
    /// [`ReplayError::UnknownTicket`] names the first ticket that this replay did not issue; the priorities
    /// of all other tickets are stored.
    pub fn update(&self, tickets: &[u64], priorities: Priorities<'_>) -> Result<usize, ReplayError> {
        let mut weights = vec_of_zeros(tickets.len())?;
        let largest = self.weights_of(priorities, &mut weights)?;
        let tag = self.ticket_tag();
        let row_of = |ticket: &u64| slots::Row::from_ticket(*ticket ^ tag);
        for (position, ticket) in tickets.iter().enumerate() {
            let slot = row_of(ticket).slot;
            if slot >= self.layout.ring.slots {
                let slots = self.layout.ring.slots;
                return Err(ReplayError::Ticket { ticket: *ticket, position, slot, slots });
            }
        }
        let (mut kept, mut stale, mut unknown) = (vec_with_capacity(tickets.len())?, 0, None);
        let mut kept_slots = vec_with_capacity(tickets.len())?;
        self.repair()?;
        let operation = self.slots.enter()?.begin_changes();
        self.mark_dirty();
        self.update_largest(largest);
        let pin = operation.pin();
        tickets.iter().take(UPDATES_AHEAD).for_each(|ticket| pin.prefetch_write(row_of(ticket).slot));
        for (i, ticket) in tickets.iter().enumerate() {
            if let Some(ahead) = tickets.get(i + UPDATES_AHEAD) {
                pin.prefetch_write(row_of(ahead).slot);
            }
            let row = row_of(ticket);
            match pin.update(row, weights[i]) {
                Update::Store => {
                    weights[kept.len()] = weights[i];
                    kept.push(row);
                    kept_slots.push(row.slot as u32);
                }
                Update::Parked => {}
                Update::Stale => stale += 1,
                Update::Unknown if self.was_relocated(row) => stale += 1,
                Update::Unknown => {
                    stale += 1;
                    unknown.get_or_insert(ReplayError::UnknownTicket { ticket: *ticket, position: i });
                }
            }
        }
        pin.store_many(&kept, &kept_slots, &weights[..kept.len()]);
        drop(pin);
        drop(operation);
        self.count(counter::UPDATED, (tickets.len() - stale) as u64);
        self.count(counter::STALE, stale as u64);
        unknown.map_or(Ok(stale), Err)
    }

    /// Returns true if the lap of a row is from before the replay was loaded with another capacity.
    #[cold]
    fn was_relocated(&self, row: slots::Row) -> bool {
        let first = self.counters[counter::FIRST].load(Ordering::Relaxed);
        first > 0 && (1..self.layout.ring.row(first).lap).contains(&row.lap)
    }

    /// Checks that the sums of the tree are exact. For a mapped file, also checks that the slot states are
    /// consistent, and that the rows held at the last flush still have the same bytes, which reads all rows.
    /// Adds and updates wait until the check is done.
    ///
    /// # Errors
    /// [`ReplayError::Tree`] names the first wrong node, [`ReplayError::Rows`] the first chunk of rows with
    /// wrong bytes, [`ReplayError::File`] any other inconsistency of a mapped file.
    pub fn verify(&self) -> Result<(), ReplayError> {
        let _gate = self.shut_and_repair()?;
        self.tree().verify()?;
        self.verify_rows()
    }

    /// Repairs the changes that dead processes left unfinished, if there are any.
    fn repair(&self) -> Result<(), ReplayError> {
        let reaped = self.slots.words[word::REAPED].load(Ordering::Relaxed);
        if reaped != self.counters[counter::REPAIRED].load(Ordering::Relaxed) {
            drop(self.shut_and_repair()?);
        }
        Ok(())
    }

    /// Shuts the gate and repairs unfinished changes. Nothing changes until the guard is dropped.
    fn shut_and_repair(&self) -> Result<Gate<'_, TreeWeights>, ReplayError> {
        // Shutting the gate detects dead processes, so `REAPED` is read afterwards.
        let gate = self.slots.enter()?.shut();
        let reaped = self.slots.words[word::REAPED].load(Ordering::Acquire);
        let repaired = &self.counters[counter::REPAIRED];
        if reaped != repaired.load(Ordering::Acquire) {
            self.slots.repair(self.counters[counter::LARGEST].load(Ordering::Relaxed) as u32);
            self.tree().rebuild_sums();
            repaired.store(reaped, Ordering::Release);
        }
        Ok(gate)
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn replay() -> Replay {
        let field = Field { name: "x".into(), dtype: "<i8".into(), shape: vec![], row_bytes: 8, stack: 1 };
        let settings = Settings { capacity: 100, fields: vec![field], ..Settings::default() };
        Replay::heap(Settings { alpha: 1.0, gamma: 1.0, epsilon: 0.0, ..settings }).unwrap()
    }

    fn add(replay: &Replay, count: usize) -> Vec<u64> {
        let (bytes, mut tickets) = (vec![0; 8 * count], vec![0; count]);
        let rows = Rows { count, columns: &[&bytes], envs: None, priorities: None, finals: None };
        replay.add(&rows, &mut tickets).unwrap();
        tickets
    }

    /// A killed process may leave a leaf without updated sums above it, a ready row without its weight, a
    /// closed row with a weight, and a wrong count of ready rows.
    #[test]
    fn unfinished_changes_of_a_dead_process_are_repaired_before_the_next_change() {
        let replay = replay();
        let tickets = add(&replay, 10);
        let one = replay.tree().get(0u32).unwrap();
        let leaves = &replay.slots.weights.0.leaves;
        leaves[3].store(5 * one, Ordering::Relaxed); // The sums above it are not updated.
        leaves[4].store(0, Ordering::Relaxed); // Ready, without weight; the sums are not updated.
        leaves[50].store(one, Ordering::Relaxed); // Closed.
        replay.slots.words[word::READY].store(7, Ordering::Relaxed);
        assert!(replay.tree().verify().is_err());
        replay.slots.words[word::REAPED].fetch_add(1, Ordering::Relaxed);
        assert_eq!(replay.update(&tickets[..1], Priorities::F32(&[2.0])).unwrap(), 0);
        replay.verify().unwrap();
        assert_eq!(replay.sampleable(), 10);
        assert_eq!(replay.total(), 2.0 + 1.0 + 1.0 + 5.0 + 6.0);
        assert_eq!(replay.tree().get(50u32).unwrap(), 0);
    }

    /// A thread that panics between reserving and publishing leaves slots that are never drawn, and blocks no other thread.
    #[test]
    fn a_panic_leaves_tombstones() {
        let replay = replay();
        add(&replay, 10);
        let panicked = std::thread::scope(|scope| {
            let adding = scope.spawn(|| {
                let reservation = replay.slots.reserve(replay.slots.enter().unwrap().begin_changes(), 20);
                let pin = reservation.pin();
                reservation.publish(reservation.row(0), 77);
                pin.make_ready(&[reservation.row(0)], 1);
                panic!("while rows are written");
            });
            adding.join().is_err()
        });
        assert!(panicked);
        // The published row is held, the others are closed for one lap. No tickets were issued for them.
        assert_eq!((replay.sampleable(), replay.len()), (11, 30));
        let ghosts: Vec<u64> = (11..30).map(|slot| (slot | 1 << 32) ^ replay.ticket_tag()).collect();
        let error = replay.update(&ghosts, Priorities::F32(&[9.0; 19])).unwrap_err();
        assert!(matches!(error, ReplayError::UnknownTicket { position: 0, .. }), "{error}");
        assert_eq!(replay.counters().stale, 19);
        assert!((11..30).all(|slot| replay.tree().get(slot as u32).unwrap() == 0));
        add(&replay, 90);
        add(&replay, 90);
        assert_eq!(replay.sampleable(), 100);
        replay.verify().unwrap();
    }

    /// The exclusive writer of private memory and the lock-free one of shared memory store the same weights.
    #[test]
    fn both_writers_serve_a_replay() {
        let run = |replay: Replay| {
            std::thread::scope(|scope| {
                for me in 0..3u64 {
                    let replay = &replay;
                    scope.spawn(move || {
                        for round in 0..200u64 {
                            let tickets = add(replay, 7);
                            let priorities: Vec<f32> =
                                (0..7).map(|k| (1 + k + me + round % 3) as f32).collect();
                            replay.update(&tickets, Priorities::F32(&priorities)).unwrap();
                        }
                    });
                }
            });
            replay.verify().unwrap();
            replay.tree().verify_histogram().unwrap();
            let tickets: Vec<u64> = (0..replay.layout.ring.slots as u64).collect();
            assert_eq!(replay.sampleable(), 100);
            let open = tickets.iter().filter(|slot| replay.tree().get(**slot).unwrap() > 0).count();
            assert_eq!(open, 100);
        };
        run(replay());
        let name = format!("sumtree-test-writers-{}", std::process::id());
        run(Replay::create_shared(&name, replay().settings.clone()).unwrap());
    }

    /// Writes a process that has ended into an entry of the process table, and returns its tag.
    fn tag_of_dead_process(replay: &Replay) -> u64 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = u64::from(child.id());
        child.wait().unwrap();
        replay.slots.processes.entries()[2 * 5].store(1 << 44 | pid, Ordering::Relaxed);
        1 << 16 | 5
    }

    /// Threads stand for processes that start at the same time, after those that used the memory were killed.
    #[test]
    fn memory_of_killed_processes_is_replaced_once() {
        let (name, settings) =
            (format!("sumtree-test-stale-{}", std::process::id()), replay().settings.clone());
        for _ in 0..50 {
            let stale = Replay::create_shared(&name, settings.clone()).unwrap();
            add(&stale, 10);
            tag_of_dead_process(&stale);
            stale.slots.processes.entries()[0].store(0, Ordering::Relaxed);
            std::mem::forget(stale);
            let all = std::thread::scope(|scope| {
                let open = || scope.spawn(|| Replay::open_shared(&name, settings.clone()).unwrap());
                [open(), open(), open()].map(|thread| thread.join().unwrap())
            });
            assert!(all.iter().all(Replay::is_empty));
            add(&all[0], 3);
            assert!(all.iter().all(|replay| replay.len() == 3));
        }
    }

    /// A process that creates a replay has its file locked. Others wait until it ends, and then replace the replay.
    #[test]
    #[cfg(unix)]
    fn memory_of_a_killed_creator_is_replaced() {
        let (name, settings) =
            (format!("sumtree-test-creator-{}", std::process::id()), replay().settings.clone());
        let creator = crate::Region::create_shared(&name, 1 << 16).unwrap();
        let waits = Replay::open_shared_while(&name, settings.clone(), || false);
        assert!(matches!(waits, Err(ReplayError::NotAReplay { unfinished: true, .. })));
        let all = std::thread::scope(|scope| {
            let open = || scope.spawn(|| Replay::open_shared(&name, settings.clone()).unwrap());
            let openers = [open(), open(), open()];
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert!(openers.iter().all(|opener| !opener.is_finished()));
            drop(creator);
            openers.map(|thread| thread.join().unwrap())
        });
        add(&all[0], 3);
        assert!(all.iter().all(|replay| replay.len() == 3));
        drop(all);
        drop(crate::Region::create_shared(&name, 1 << 16).unwrap());
        assert!(matches!(Replay::attach_shared(&name), Err(ReplayError::Tree(_))), "there is none");
    }

    /// An evictor does not overwrite rows reserved one lap ago: it waits until their process has ended.
    #[test]
    fn an_evictor_waits_for_reservations_of_the_lap_before() {
        let replay = replay();
        let tag = tag_of_dead_process(&replay);
        let slots = &replay.slots;
        let operations = [3, 4].map(|at| &slots.operations[slots::OPERATION_WORDS * at..][..4]);
        slots.words[word::OPERATIONS_USED].store(5, Ordering::Relaxed);
        let laps = (replay.layout.ring.slots / replay.layout.ring.chunk) as u64;
        // Sequence number 0, which is in the chunk one lap before chunk `laps`; and the first number after that chunk.
        for (operation, first) in operations.iter().zip([0, replay.layout.ring.chunk as u64]) {
            for (word, value) in operation.iter().zip([tag, 0, first + 1, 0]) {
                word.store(value, Ordering::Relaxed);
            }
        }
        slots.await_lapped(laps - 1);
        assert_eq!(operations[0][2].load(Ordering::Relaxed), 1, "no lap ago");
        operations[1][0].store(slots.enter().unwrap().tag(), Ordering::Relaxed);
        slots.await_lapped(laps);
        let words =
            operations.map(|words| words.iter().map(|word| word.swap(0, Ordering::Relaxed)).sum::<u64>());
        assert_eq!(words[0], 0, "freed");
        assert_ne!(words[1], 0, "of a later chunk");
    }

    /// A writer that waits for an evictor frees the lock of an evictor whose process has ended.
    #[test]
    fn a_waiting_writer_frees_the_lock_of_a_dead_evictor() {
        let replay = replay();
        let lock = &replay.slots.words[word::EVICTOR];
        lock.store(tag_of_dead_process(&replay), Ordering::Relaxed);
        let mut wait = wait::Wait::default();
        // After some hundred steps it checks whether the process is alive.
        (0..1000).for_each(|_| replay.slots.watch_evictor(&mut wait));
        assert_eq!(lock.load(Ordering::Relaxed), 0);
        assert_eq!(replay.counters().recovered, 1);
        // The lock of a live process is not freed.
        let own = replay.slots.enter().unwrap().tag();
        lock.store(own, Ordering::Relaxed);
        (0..1000).for_each(|_| replay.slots.watch_evictor(&mut wait));
        assert_eq!(lock.swap(0, Ordering::Relaxed), own);
    }

    /// Whether `wait` returns while `held` exists; it must return after `held` was dropped.
    fn returns_before_drop<T>(held: T, wait: impl FnOnce() + Send) -> bool {
        let returned = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait();
                returned.store(true, Ordering::Relaxed);
            });
            let until = std::time::Instant::now() + std::time::Duration::from_millis(50);
            while std::time::Instant::now() < until && !returned.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let early = returned.load(Ordering::Relaxed);
            drop(held);
            early
        })
    }

    /// The rows of a chunk are not overwritten while a thread that may still see them has a pin.
    #[test]
    fn a_chunk_is_cleared_after_the_pins_that_are_as_old_as_its_rows() {
        let replay = replay();
        let slots = &replay.slots;
        let (first, second) = (slots.enter().unwrap(), slots.enter().unwrap());
        let pin = first.pin();
        let chunk = pin.marked();
        slots.mark(chunk);
        assert!(!returns_before_drop(pin, || slots.clear(chunk)));
        // A later pin sees the rows of the chunk closed.
        let _later = second.pin();
        slots.clear(chunk);
    }

    /// The lock of an environment is taken over from a process that has ended, and from no other.
    #[test]
    fn locks_of_environments_are_taken_from_ended_processes_only() {
        let replay = replay();
        let (tails, processes) = (&replay.tails, &replay.slots.processes);
        std::mem::forget(tails.lock(&[0], processes, tag_of_dead_process(&replay)));
        let own = replay.slots.enter().unwrap().tag();
        let held = tails.lock(&[0], processes, own);
        assert!(!returns_before_drop(held, || drop(tails.lock(&[0], processes, own))));
    }

    /// An operation of a process that has ended is freed by the next call that would wait for it.
    #[test]
    fn pins_and_reservations_of_dead_processes_are_released() {
        let replay = replay();
        add(&replay, 100);
        // An operation of an ended process with a pin, a reservation and a change under way.
        let dead = tag_of_dead_process(&replay);
        let operation = &replay.slots.operations[slots::OPERATION_WORDS * 9..][..4];
        for (word, value) in operation.iter().zip([dead, 1, 1, 1]) {
            word.store(value, Ordering::Relaxed);
        }
        replay.slots.words[word::OPERATIONS_USED].store(10, Ordering::Relaxed);
        // It also held the lock of the evictor. A call that only waits for its change must release both.
        replay.slots.words[word::EVICTOR].store(dead, Ordering::Relaxed);
        replay.verify().unwrap();
        assert_eq!(replay.counters().recovered, 2);
        add(&replay, 50);
        add(&replay, 50);
        replay.verify().unwrap();
        assert_eq!(replay.counters().recovered, 2);
        assert!(operation.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        assert_eq!(replay.sampleable(), 100);
    }
}
