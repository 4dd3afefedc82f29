//! Tests of the slot protocol with loom: every interleaving up to a bound on preemptions, on tiny rings.
//!
//! Weights are a flat array and rows are loom cells, so that loom reports a read during a write whatever
//! value it returns.
#![allow(unsafe_code)] // Access to loom cells, which loom itself checks.

use std::sync::Arc as StdArc;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::frames::{History, PreviousRow};
use super::layout::Ring;
use super::process::{ENTRY_WORDS, PROCESSES, Processes};
use super::settings::Autoreset;
use super::slots::{
    LARGEST, OPERATION_WORDS, OPERATIONS_MAX, Row, STATE_WORDS, Slots, Update, Weights, word,
};
use super::tails::{End, Step, Tails, Window};
use crate::Region;
use crate::region::Cells;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

struct Flat(Cells<AtomicU32>);

impl Weights for Flat {
    fn set(&self, slot: usize, weight: u32) {
        self.0[slot].swap(weight, Ordering::AcqRel);
    }

    fn get(&self, slot: usize) -> u32 {
        self.0[slot].load(Ordering::Acquire)
    }
}

/// A ring in which each row holds its own lap.
struct Model {
    slots: Slots<Flat>,
    rows: Vec<UnsafeCell<u32>>,
    tails: Tails,
    history: StdArc<History>,
}

const WINDOW: Window =
    Window { rows: 2, needs_final: true, autoreset: Autoreset::Disabled, sequence: None, stack_rows: 1 };

impl Model {
    fn new(capacity: usize) -> Arc<Self> {
        Self::with_history(capacity, None)
    }

    /// As [`Model::new`], with previous rows, and with the bytes of `history` rows beyond the capacity.
    fn with_history(capacity: usize, history: Option<usize>) -> Arc<Self> {
        Self::from_ring(Ring::with_history(capacity, history.unwrap_or(0)), history)
    }

    fn from_ring(ring: Ring, history: Option<usize>) -> Arc<Self> {
        let region = StdArc::new(Region::heap(PROCESSES * ENTRY_WORDS * 8).unwrap());
        let cells = |count| Cells::<AtomicU64>::in_region(&region, 0, count).unwrap();
        let cells32 = |count| Cells::<AtomicU32>::in_region(&region, 0, count).unwrap();
        let back = cells32(if history.is_some() { ring.slots } else { 0 });
        let history = StdArc::new(History { back, ring });
        Arc::new(Self {
            slots: Slots {
                ring,
                words: cells(word::COUNT),
                operations: cells(OPERATIONS_MAX * OPERATION_WORDS),
                states: cells32(STATE_WORDS * ring.slots),
                weights: Flat(cells32(ring.slots)),
                processes: Processes::new(
                    Cells::in_region(&region, 0, PROCESSES * ENTRY_WORDS).unwrap(),
                    true,
                )
                .unwrap(),
            },
            rows: (0..ring.slots).map(|_| UnsafeCell::new(0)).collect(),
            tails: Tails::new(cells(Tails::stride(WINDOW.rows)), WINDOW.rows, history.clone()),
            history,
        })
    }

    /// Adds a row that is sampleable immediately.
    fn add(&self, weight: u32) -> Row {
        let reservation = self.slots.reserve(self.slots.enter().unwrap().begin_changes(), 1);
        let row = reservation.row(0);
        self.write(row);
        let pin = reservation.pin();
        reservation.publish(reservation.row(0), weight);
        pin.make_ready(&[row], 1);
        reservation.close_displaced_since_reserved(&pin);
        row
    }

    /// Adds rows in one call that are sampleable immediately.
    fn add_many(&self, weights: &[u32]) {
        let reservation = self.slots.reserve(self.slots.enter().unwrap().begin_changes(), weights.len());
        let rows: Vec<_> = (0..weights.len()).map(|i| reservation.row(i)).collect();
        rows.iter().for_each(|row| self.write(*row));
        let pin = reservation.pin();
        weights.iter().zip(reservation.rows()).for_each(|(weight, row)| reservation.publish(row, *weight));
        pin.make_ready(&rows, 1);
        reservation.close_displaced_since_reserved(&pin);
    }

    /// Adds a row of environment 0; the row before it becomes sampleable.
    fn append(&self, weight: u32) {
        let operation = self.slots.enter().unwrap();
        let _lock = self.tails.lock(&[0], &self.slots.processes, operation.tag());
        let reservation = self.slots.reserve(operation.begin_changes(), 1);
        let row = reservation.row(0);
        self.write(row);
        let pin = reservation.pin();
        reservation.publish(reservation.row(0), weight);
        let step = Step { row, end: End::None, last: None };
        self.tails.append(&pin, 0, &WINDOW, step, |row| {
            pin.make_ready(&[row], 1);
        });
    }

    fn write(&self, row: Row) {
        // SAFETY: loom checks that no other thread accesses the cell.
        self.rows[row.slot].with_mut(|cell| unsafe { *cell = row.lap });
    }

    fn read(&self, slot: usize) -> u32 {
        // SAFETY: as above.
        self.rows[slot].with(|cell| unsafe { *cell })
    }

    /// Reads every slot like a sampler that drew it. Asserts that each row has the lap of its ticket.
    fn sample(&self, follow: bool) {
        let operation = self.slots.enter().unwrap();
        let pin = operation.pin();
        for slot in 0..self.slots.ring.slots {
            if self.slots.weights.get(slot) == 0 {
                continue;
            }
            let Some(row) = pin.sampleable(slot) else { continue };
            assert_eq!(self.read(slot), row.lap);
            if follow {
                let next = pin.next(slot).expect("a sampleable row has a next one");
                let sequence = |slot: usize, lap| lap as usize * self.slots.ring.slots + slot;
                assert_eq!(sequence(next, self.read(next)), sequence(slot, row.lap) + 1);
            }
        }
    }

    /// Reads the rows that are open in the order of their sequence numbers, as a conversion does. Asserts that
    /// each has its lap. Returns how many there are.
    fn read_open(&self) -> usize {
        let operation = self.slots.enter().unwrap();
        let pin = operation.pin();
        let ring = self.slots.ring;
        let horizon = ring.horizon(pin.marked());
        let reserved = self.slots.words[word::RESERVED].load(Ordering::Relaxed);
        let mut count = 0;
        for sequence in horizon.max(reserved.saturating_sub(ring.capacity as u64))..reserved {
            let row = ring.row(sequence);
            if pin.is_open(row) {
                assert_eq!(self.read(row.slot), row.lap);
                count += 1;
            }
        }
        count
    }

    /// Adds rows in one call that are sampleable immediately, with their laps as weights.
    fn add_laps(&self, count: usize) {
        let reservation = self.slots.reserve(self.slots.enter().unwrap().begin_changes(), count);
        let rows: Vec<_> = (0..count).map(|i| reservation.row(i)).collect();
        let pin = reservation.pin();
        rows.iter().for_each(|row| reservation.publish(*row, row.lap));
        pin.make_ready(&rows, 1);
        reservation.close_displaced_since_reserved(&pin);
    }

    /// Draws a slot whose rows were added by [`Model::add_laps`] and asserts that the weight is that of the
    /// row. If `checks_cleared`, skips rows whose slot was, or may have been, cleared after the weight was
    /// drawn.
    fn draw(&self, slot: usize, checks_cleared: bool) {
        let operation = self.slots.enter().unwrap();
        let pin = operation.pin();
        let then = pin.cleared();
        let weight = self.slots.weights.get(slot);
        if weight != 0
            && let Some(row) = pin.sampleable(slot)
            && !(checks_cleared && self.slots.ring.is_among(slot, then..pin.cleared()))
        {
            assert_eq!(weight, row.lap, "the weight of another row");
        }
    }

    /// Samples every row with the frame before it. Returns how many of these frames are not overwritten.
    fn sample_stacks(&self) -> usize {
        let operation = self.slots.enter().unwrap();
        let pin = operation.pin();
        let (ring, horizon) = (self.slots.ring, self.slots.ring.horizon(pin.marked()));
        let mut whole = 0;
        for slot in 0..ring.slots {
            let Some(row) = pin.sampleable(slot) else { continue };
            assert_eq!(self.read(slot), row.lap);
            let sequence = ring.sequence(row, pin.marked());
            match self.history.previous(horizon, sequence) {
                PreviousRow::Row(before) => {
                    assert_eq!(before, sequence - 1);
                    assert_eq!(self.read(ring.row(before).slot), ring.row(before).lap);
                    whole += 1;
                }
                PreviousRow::EpisodeStart => assert_eq!(sequence, 0),
                PreviousRow::Overwritten => {}
            }
        }
        whole
    }

    fn update(&self, row: Row, weight: u32) -> Update {
        let operation = self.slots.enter().unwrap().begin_changes();
        let pin = operation.pin();
        let update = pin.update(row, weight);
        if update == Update::Store {
            pin.store_many(&[row], &[row.slot as u32], &[weight]);
        }
        update
    }
}

fn explore(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(test);
}

/// A writer overwrites rows whose frames a reader needs for the rows that it draws.
#[test]
fn earlier_frames_are_whole_or_known_to_be_lost() {
    explore(2, || {
        let model = Model::with_history(2, Some(1)); // 5 slots
        (0..4).for_each(|_| model.append(1));
        let writer = {
            let model = model.clone();
            thread::spawn(move || (0..2).for_each(|_| model.append(1)))
        };
        model.sample_stacks();
        writer.join().unwrap();
        // The rows beyond the capacity were kept for this.
        assert_eq!(model.sample_stacks(), 1);
    });
}

/// The same in a ring that keeps no more rows than can be sampled, so that earlier rows may be overwritten
/// before they are read.
#[test]
fn earlier_frames_that_are_not_kept_are_lost_and_not_torn() {
    explore(2, || {
        let model = Model::with_history(2, Some(0)); // 4 slots
        (0..4).for_each(|_| model.append(1));
        let writer = {
            let model = model.clone();
            thread::spawn(move || (0..3).for_each(|_| model.append(1)))
        };
        model.sample_stacks();
        writer.join().unwrap();
    });
}

/// A writer goes once around the ring while another thread runs `read`.
fn overwrite_during<T: 'static>(read: fn(&Model) -> T) -> Arc<Model> {
    let model = Model::new(1); // Three slots: the fourth row overwrites the first.
    model.add(1);
    model.add(1);
    let reader = {
        let model = Arc::clone(&model);
        thread::spawn(move || read(&model))
    };
    model.add(1);
    model.add(1);
    model.add(1);
    reader.join().unwrap();
    model
}

#[test]
fn no_row_is_read_while_it_is_written() {
    explore(2, || {
        overwrite_during(|model| model.sample(false));
    });
}

#[test]
fn no_row_is_converted_while_it_is_written() {
    explore(2, || {
        let model = overwrite_during(Model::read_open);
        assert_eq!(model.read_open(), 1);
    });
}

/// A thread that closes a row in the middle of a chunk pauses before it sets the weight to 0. Other threads
/// continue until that chunk is marked ahead. When the first thread continues, a writer stores a new row in
/// the slot, while a reader draws the old weight and then reads the new row.
fn draw_beside_closing_and_writing(checks_cleared: bool) {
    explore(2, move || {
        let model = Model::from_ring(Ring { capacity: 2, chunk: 2, slots: 6 }, None);
        model.add_laps(2);
        model.add_laps(1);
        let operation = model.slots.enter().unwrap().begin_changes();
        let pin = operation.pin();
        assert!(pin.close_generation(1));
        (0..3).for_each(|_| model.add_laps(1));
        let writer = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.add_laps(2))
        };
        let reader = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.draw(1, checks_cleared))
        };
        model.slots.weights.set(1, 0);
        drop(pin);
        drop(operation);
        writer.join().unwrap();
        reader.join().unwrap();
        model.draw(1, checks_cleared);
    });
}

#[test]
fn no_row_is_drawn_with_the_weight_of_the_one_before_it() {
    draw_beside_closing_and_writing(true);
}

/// Without the check of the cleared chunks, the test above fails.
#[test]
#[should_panic = "the weight of another row"]
fn without_the_check_a_row_is_drawn_with_the_weight_of_the_one_before_it() {
    draw_beside_closing_and_writing(false);
}

/// Two writers share the ring: no slot is written by both, and the last row is held.
#[test]
fn two_writers_never_share_a_slot() {
    explore(2, || {
        let model = Model::new(1);
        model.add(1);
        let other = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                model.add(2);
                model.add(3);
            })
        };
        model.add(4);
        other.join().unwrap();
        let last = model.slots.ring.row(3);
        assert_eq!(model.read(last.slot), last.lap);
        assert_ne!(model.slots.weights.get(last.slot), 0);
        // The other rows were pushed out of the capacity.
        for sequence in 1..3 {
            assert_eq!(model.slots.weights.get(model.slots.ring.row(sequence).slot), 0, "row {sequence}");
        }
        assert_eq!(model.slots.ready_count(), 1);
    });
}

/// A late priority never reaches the row that replaced its own.
#[test]
fn late_updates_do_not_reach_the_next_row() {
    explore(2, || {
        let model = Model::new(1);
        let first = model.add(1);
        let updater = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                model.update(first, 100);
            })
        };
        for weight in 2..=4 {
            model.add(weight);
        }
        updater.join().unwrap();
        // The fourth row is in the slot of the first one.
        let row = model.slots.ring.row(3);
        assert_eq!(row.slot, first.slot);
        assert_eq!(model.slots.weights.get(row.slot), 4);
        assert_eq!(model.update(first, 100), Update::Stale);
    });
}

/// A priority that arrives while its row becomes sampleable is the one that is stored.
#[test]
fn an_update_is_not_lost_when_its_row_becomes_ready() {
    explore(3, || {
        let model = Model::new(4);
        model.append(5);
        let row = model.slots.ring.row(0);
        let updater = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.update(row, 7))
        };
        model.append(LARGEST);
        assert_ne!(updater.join().unwrap(), Update::Stale);
        assert_eq!(model.slots.weights.get(row.slot), 7);
    });
}

/// The same for rows that become sampleable together.
#[test]
fn an_update_is_not_lost_when_rows_become_ready_together() {
    explore(3, || {
        let model = Model::new(4);
        let row = model.slots.ring.row(1);
        let updater = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.update(row, 7))
        };
        model.add_many(&[5, 6]);
        // Before the row is published, no ticket for it has been issued.
        let is_early = matches!(updater.join().unwrap(), Update::Stale | Update::Unknown);
        let expected = if is_early { 6 } else { 7 };
        assert_eq!(model.slots.weights.get(row.slot), expected);
        assert_eq!(model.slots.weights.get(0), 5);
    });
}

/// Rows that are added in one call close other rows together, while another thread adds one row. The number
/// of rows held is then the capacity.
#[test]
fn rows_that_are_added_together_are_closed_together() {
    explore(2, || {
        let model = Model::new(2);
        let other = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.add_many(&[1]))
        };
        model.add_many(&[3, 4]);
        other.join().unwrap();
        model.sample(false);
        assert_eq!(model.slots.ready_count(), 2);
        let weights = (0..model.slots.ring.slots).map(|slot| model.slots.weights.get(slot));
        let mut weights: Vec<_> = weights.filter(|weight| *weight > 0).collect();
        weights.sort_unstable();
        assert!(weights == [1, 4] || weights == [3, 4], "{weights:?}");
    });
}

/// A reader follows links to the next row of the environment while a writer goes around the ring.
#[test]
fn links_lead_to_the_next_row() {
    explore(2, || {
        let model = Model::new(2);
        model.append(1);
        model.append(1);
        let reader = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.sample(true))
        };
        for _ in 0..3 {
            model.append(1);
        }
        reader.join().unwrap();
    });
}

/// Two threads add to one environment: in any order, links lead forward and skip no row.
#[test]
fn one_environment_two_writers() {
    explore(2, || {
        let model = Model::new(4);
        let other = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.append(1))
        };
        model.append(1);
        other.join().unwrap();
        model.append(1);
        model.sample(true);
        assert_eq!(model.slots.ready_count(), 2);
    });
}

/// A reservation that is dropped, as by a panic, leaves slots that are never drawn and are reused a lap
/// later.
#[test]
fn dropped_reservations_are_tombstones() {
    explore(2, || {
        let model = Model::new(1);
        let other = {
            let model = Arc::clone(&model);
            thread::spawn(move || drop(model.slots.reserve(model.slots.enter().unwrap().begin_changes(), 1)))
        };
        model.add(1);
        other.join().unwrap();
        model.sample(false);
        for _ in 0..3 {
            model.add(2);
        }
        assert_eq!(model.slots.ready_count(), 1);
        model.sample(false);
    });
}

/// While the gate is shut, nothing changes.
#[test]
fn the_gate_keeps_changes_out() {
    explore(3, || {
        let model = Model::new(2);
        let row = model.add(1);
        let updater = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.update(row, 9))
        };
        {
            let _gate = model.slots.enter().unwrap().shut();
            let before = model.slots.weights.get(row.slot);
            thread::yield_now();
            assert_eq!(model.slots.weights.get(row.slot), before);
        }
        updater.join().unwrap();
        assert_eq!(model.slots.weights.get(row.slot), 9);
    });
}

/// A row that is evicted early stays closed, even if its priority is updated at the same moment. Later rows
/// overwrite it as usual.
#[test]
fn an_evicted_row_is_not_revived() {
    explore(2, || {
        let model = Model::new(2);
        let row = model.add(3);
        let updater = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                model.update(row, 9);
            })
        };
        {
            let operation = model.slots.enter().unwrap().begin_changes();
            let pin = operation.pin();
            assert!(pin.evict(row.slot));
            assert!(!pin.evict(row.slot));
        }
        updater.join().unwrap();
        assert_eq!(model.slots.weights.get(row.slot), 0);
        assert_eq!(model.slots.ready_count(), 0);
        assert_eq!(model.update(row, 5), Update::Stale);
        model.add(1);
        model.sample(false);
    });
}
