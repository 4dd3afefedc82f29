//! The replay core: rows of bytes in a ring, drawn in proportion to their priorities.
//!
#![doc = include_str!("README.md")]

mod add;
mod check;
mod checksum;
mod columns;
mod compress;
mod draw;
mod error;
mod file;
mod frames;
mod gather;
mod hindsight;
mod layout;
mod mapped;
mod mend;
mod moves;
mod open;
mod process;
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

/// Words beside those of the protocol. Counters order nothing and are Relaxed.
pub(crate) mod counter {
    pub const SEED: usize = 0;
    pub const DRAWS: usize = 1;
    /// The largest weight given so far.
    pub const LARGEST: usize = 2;
    /// Tag of the replay: the bits by which its tickets differ from those of other replays. 0 in files of versions that
    /// had no tags.
    pub const TAG: usize = 3;
    /// Sequence number of the first row ever; not 0 in a replay that was loaded into another capacity.
    pub const FIRST: usize = 7;
    pub const ADDED: usize = 8;
    pub const UPDATED: usize = 16;
    pub const STALE: usize = 17;
    pub const SATURATED: usize = 18;
    pub const SAMPLED: usize = 24;
    pub const REDRAWN: usize = 25;
    /// Deaths whose odd parts in the sums have been mended.
    pub const REPAIRED: usize = 26;
    /// Of a file: rows before this have their bytes in the checksums of their chunks.
    pub const SUMMED: usize = 27;
    pub const COUNT: usize = 32;
}

/// How many updates ahead the states of their slots are asked for.
const UPDATES_AHEAD: usize = 16;

/// What a replay has counted since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Rows added, those that only carry a final observation included.
    pub added: u64,
    /// Rows sampled.
    pub sampled: u64,
    /// Draws repeated because the row drawn was being overwritten.
    pub redrawn: u64,
    /// Priorities updated.
    pub updated: u64,
    /// Priority updates dropped because the row had been overwritten.
    pub stale: u64,
    /// Priorities too large for a weight, stored as the largest one.
    pub saturated: u64,
    /// Draws that had to start anew because a writer had emptied the node they were in.
    pub restarts: u64,
    /// Processes that died inside an operation and were cleared away.
    pub recovered: u64,
}

/// Leaves of the tree as the weights of the slots.
struct Leaves(SumTree);

impl Weights for Leaves {
    #[inline]
    fn set(&self, slot: usize, weight: u32) {
        self.0.set(slot, weight).expect("the slot is one of the ring, the weight one of the scale");
    }

    #[inline]
    fn get(&self, slot: usize) -> u32 {
        self.0.get(slot).expect("the slot is one of the ring")
    }

    fn set_many(&self, slots: &[u32], weights: &[u32]) {
        self.0.set_many(slots, weights).expect("the slots are of the ring, the weights of the scale");
    }

    fn prefetch_run(&self, first: usize, count: usize) {
        self.0.prefetch_run(first, count);
    }

    fn set_run(&self, first: usize, weights: &[u32]) {
        self.0.set_range(first, weights).expect("the slots are of the ring, the weights of the scale");
    }
}

/// A replay: see the module page for what threads and processes may do at once (everything).
pub struct Replay {
    region: Arc<Region>,
    settings: Settings,
    layout: Layout,
    roles: Roles,
    window: Window,
    scale: Scale,
    slots: Slots<Leaves>,
    tails: Tails,
    columns: Vec<Column>,
    counters: Cells<AtomicU64>,
    history: Arc<History>,
    outputs: Vec<gather::Source>,
    /// Of each output: bytes per row and step, and steps.
    row_bytes: Vec<usize>,
    steps: Vec<usize>,
    /// This handle made the region, so its close removes the name.
    is_maker: bool,
    /// The region is a file.
    is_mapped: bool,
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Replay {
    /// What it was made of.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Rows held, sampleable or not, at most the capacity.
    #[must_use]
    pub fn len(&self) -> u64 {
        let first = self.counters[counter::FIRST].load(Ordering::Relaxed);
        let reserved = self.slots.words[word::RESERVED].load(Ordering::Relaxed);
        reserved.saturating_sub(first).min(self.settings.capacity as u64)
    }

    /// Whether no row was ever added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows that may be sampled (their weight may still be 0).
    #[must_use]
    pub fn sampleable(&self) -> u64 {
        self.slots.ready_count()
    }

    /// Bytes of memory.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let packed = |column: &Column| column.packed.as_ref().map_or(0, |packed| packed.bytes());
        self.region.len() + self.columns.iter().map(packed).sum::<usize>()
    }

    /// Name of the shared memory, `None` if it is private.
    #[must_use]
    pub fn shared_name(&self) -> Option<&str> {
        self.region.name()
    }

    /// Sum of all weights, in units of `priority ** alpha`.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.slots.weights.0.total() as f64 / self.scale.units()
    }

    /// The largest priority given so far, to the power of alpha; 1 before the first one.
    #[must_use]
    pub fn largest(&self) -> f64 {
        self.scale.priority(self.counters[counter::LARGEST].load(Ordering::Relaxed) as u32)
    }

    /// The tree of weights.
    #[must_use]
    pub fn tree(&self) -> &SumTree {
        &self.slots.weights.0
    }

    /// What was counted since the replay was made.
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

    /// Seed of the draws and number of sample calls so far: all that the next draws depend on besides the weights.
    #[must_use]
    pub fn rng_state(&self) -> [u64; 2] {
        [counter::SEED, counter::DRAWS].map(|at| self.counters[at].load(Ordering::Relaxed))
    }

    /// Draws go on as from a replay that gave this [`Replay::rng_state`].
    pub fn set_rng_state(&self, state: [u64; 2]) {
        self.counters[counter::SEED].store(state[0], Ordering::Relaxed);
        self.counters[counter::DRAWS].store(state[1], Ordering::Relaxed);
    }

    fn note_largest(&self, weight: u32) {
        let largest = &self.counters[counter::LARGEST];
        // A plain load first: once the largest is known, no thread writes this line.
        if u64::from(weight) > largest.load(Ordering::Relaxed) {
            largest.fetch_max(u64::from(weight), Ordering::Relaxed);
        }
    }

    fn count(&self, at: usize, by: u64) {
        if by != 0 {
            self.counters[at].fetch_add(by, Ordering::Relaxed);
        }
    }

    /// The bits by which tickets of this replay differ from the slots and laps that they name. Every replay draws them
    /// when it is created; a file keeps them, so that tickets are valid in the replay that is loaded from it.
    #[must_use]
    pub fn ticket_tag(&self) -> u64 {
        self.counters[counter::TAG].load(Ordering::Relaxed)
    }

    /// Tickets are from now on those of a replay with this [`Replay::ticket_tag`]. Tickets issued before are invalid.
    pub fn set_ticket_tag(&self, tag: u64) {
        self.counters[counter::TAG].store(tag, Ordering::Relaxed);
    }

    /// Gives the rows of `tickets` new priorities; of equal tickets the last one wins. Tickets of rows that were
    /// overwritten are dropped and counted. Returns how many were.
    ///
    /// # Errors
    /// [`ReplayError::Tree`] for a priority that is not finite, a length that differs, or memory that is not to be had;
    /// [`ReplayError::Ticket`]; then nothing was stored. [`ReplayError::UnknownTicket`] names the first ticket that was
    /// issued by another replay, or by none; the others' priorities are stored.
    pub fn update(&self, tickets: &[u64], priorities: Priorities<'_>) -> Result<usize, ReplayError> {
        let mut weights = vec_of_zeros(tickets.len())?;
        let largest = self.weights_of(priorities, &mut weights)?;
        let tag = self.ticket_tag();
        let row_of = |ticket: &u64| slots::Row::of_ticket(*ticket ^ tag);
        for (position, ticket) in tickets.iter().enumerate() {
            let slot = row_of(ticket).slot;
            if slot >= self.layout.ring.slots {
                let slots = self.layout.ring.slots;
                return Err(ReplayError::Ticket { ticket: *ticket, position, slot, slots });
            }
        }
        let (mut kept, mut stale, mut unknown) = (vec_with_capacity(tickets.len())?, 0, None);
        let mut kept_slots = vec_with_capacity(tickets.len())?;
        self.mend()?;
        let member = self.slots.enter()?.change();
        self.touch();
        self.note_largest(largest);
        let pin = member.pin();
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
                Update::Unknown if self.was_moved(row) => stale += 1,
                Update::Unknown => {
                    stale += 1;
                    unknown.get_or_insert(ReplayError::UnknownTicket { ticket: *ticket, position: i });
                }
            }
        }
        pin.store_many(&kept, &kept_slots, &weights[..kept.len()]);
        drop(pin);
        drop(member);
        self.count(counter::UPDATED, (tickets.len() - stale) as u64);
        self.count(counter::STALE, stale as u64);
        unknown.map_or(Ok(stale), Err)
    }

    /// Whether a row has a lap of before the replay was loaded into another capacity.
    #[cold]
    fn was_moved(&self, row: slots::Row) -> bool {
        let first = self.counters[counter::FIRST].load(Ordering::Relaxed);
        first > 0 && (1..self.layout.ring.row(first).lap).contains(&row.lap)
    }

    /// Checks that the tree's sums are exact; of a mapped file also that the slots' states agree, and that the rows which
    /// were there at the last flush have the bytes that they had then. Reads all of them. Adds and updates wait meanwhile.
    ///
    /// # Errors
    /// [`ReplayError::Tree`] names the first node that is wrong, [`ReplayError::Rows`] the first rows,
    /// [`ReplayError::File`] what else does not fit.
    pub fn verify(&self) -> Result<(), ReplayError> {
        let _gate = self.at_rest()?;
        self.tree().verify()?;
        self.verify_rows()
    }

    /// After a process died in the middle of a change: mends what it may have left half done.
    fn mend(&self) -> Result<(), ReplayError> {
        let reaped = self.slots.words[word::REAPED].load(Ordering::Relaxed);
        if reaped != self.counters[counter::REPAIRED].load(Ordering::Relaxed) {
            drop(self.at_rest()?);
        }
        Ok(())
    }

    /// Everything mended, and no other thread changes anything until the guard is dropped.
    fn at_rest(&self) -> Result<Gate<'_, Leaves>, ReplayError> {
        // Shutting finds the dead, so look for their traces afterwards.
        let gate = self.slots.enter()?.shut();
        let reaped = self.slots.words[word::REAPED].load(Ordering::Acquire);
        let repaired = &self.counters[counter::REPAIRED];
        if reaped != repaired.load(Ordering::Acquire) {
            self.slots.mend(self.counters[counter::LARGEST].load(Ordering::Relaxed) as u32);
            self.tree().rebuild();
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

    /// A process that is killed may leave a leaf without its path, a ready row without its weight, a closed row with
    /// one, and a count that is off.
    #[test]
    fn what_a_death_leaves_half_done_is_mended_before_the_next_change() {
        let replay = replay();
        let tickets = add(&replay, 10);
        let one = replay.tree().get(0u32).unwrap();
        let leaves = &replay.slots.weights.0.leaves;
        leaves[3].store(5 * one, Ordering::Relaxed); // No path.
        leaves[4].store(0, Ordering::Relaxed); // Ready, no weight, no path.
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
                let reservation = replay.slots.reserve(replay.slots.enter().unwrap().change(), 20);
                let pin = reservation.pin();
                reservation.publish(reservation.row(0), 77);
                pin.make_ready(&[reservation.row(0)], 1);
                panic!("while rows are written");
            });
            adding.join().is_err()
        });
        assert!(panicked);
        // The row that was published is there, the others are closed for a lap; no tickets for them were given out.
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

    /// The exclusive writer of private memory and the lock-free one of shared memory end in the same weights.
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

    /// The tag of a process that has ended, in an entry of the replay's table.
    fn tag_of_dead_process(replay: &Replay) -> u64 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = u64::from(child.id());
        child.wait().unwrap();
        replay.slots.processes.entries()[2 * 5].store(1 << 44 | pid, Ordering::Relaxed);
        1 << 16 | 5
    }

    /// An evictor does not overwrite rows that a member reserved a lap ago: it waits until the member's process has ended.
    #[test]
    fn an_evictor_waits_for_reservations_of_the_lap_before() {
        let replay = replay();
        let tag = tag_of_dead_process(&replay);
        let slots = &replay.slots;
        let members = [3, 4].map(|at| &slots.members[slots::MEMBER_WORDS * at..][..4]);
        slots.words[word::MEMBERS_USED].store(5, Ordering::Relaxed);
        let laps = (replay.layout.ring.slots / replay.layout.ring.chunk) as u64;
        // Sequence number 0, which is in the chunk one lap before chunk `laps`; and the first number after that chunk.
        for (member, first) in members.iter().zip([0, replay.layout.ring.chunk as u64]) {
            for (word, value) in member.iter().zip([tag, 0, first + 1, 0]) {
                word.store(value, Ordering::Relaxed);
            }
        }
        slots.await_lapped(laps - 1);
        assert_eq!(members[0][2].load(Ordering::Relaxed), 1, "no lap ago");
        members[1][0].store(slots.enter().unwrap().tag(), Ordering::Relaxed);
        slots.await_lapped(laps);
        let words =
            members.map(|words| words.iter().map(|word| word.swap(0, Ordering::Relaxed)).sum::<u64>());
        assert_eq!(words[0], 0, "freed");
        assert_ne!(words[1], 0, "of a later chunk");
    }

    /// A writer that waits for another evictor takes the lock of one whose process has ended.
    #[test]
    fn a_waiting_writer_frees_the_lock_of_a_dead_evictor() {
        let replay = replay();
        let lock = &replay.slots.words[word::EVICTOR];
        lock.store(tag_of_dead_process(&replay), Ordering::Relaxed);
        let mut wait = wait::Wait::default();
        // It asks after some hundred steps whether the process is alive.
        (0..1000).for_each(|_| replay.slots.watch_evictor(&mut wait));
        assert_eq!(lock.load(Ordering::Relaxed), 0);
        assert_eq!(replay.counters().recovered, 1);
        // That of a process that is alive stays.
        let own = replay.slots.enter().unwrap().tag();
        lock.store(own, Ordering::Relaxed);
        (0..1000).for_each(|_| replay.slots.watch_evictor(&mut wait));
        assert_eq!(lock.swap(0, Ordering::Relaxed), own);
    }

    /// A member of a process that has ended is freed by the next call that would wait for it.
    #[test]
    fn the_pins_and_reservations_of_the_dead_are_taken_back() {
        let replay = replay();
        add(&replay, 100);
        // A member of an ended process with a pin, a reservation and a change under way.
        let dead = tag_of_dead_process(&replay);
        let member = &replay.slots.members[slots::MEMBER_WORDS * 9..][..4];
        for (word, value) in member.iter().zip([dead, 1, 1, 1]) {
            word.store(value, Ordering::Relaxed);
        }
        replay.slots.words[word::MEMBERS_USED].store(10, Ordering::Relaxed);
        // It was evicting, too; who waits for its change alone must get over both.
        replay.slots.words[word::EVICTOR].store(dead, Ordering::Relaxed);
        replay.verify().unwrap();
        assert_eq!(replay.counters().recovered, 2);
        add(&replay, 50);
        add(&replay, 50);
        replay.verify().unwrap();
        assert_eq!(replay.counters().recovered, 2);
        assert!(member.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        assert_eq!(replay.sampleable(), 100);
    }
}
