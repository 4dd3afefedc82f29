//! What the soak adds, draws and checks: rows whose bytes identify them, and weights that identify their row.
//!
//! A row has eight words: a unique number, and seven words that are computed from it, so that torn rows are
//! detected. All weights of a row, set at any time by any thread, have the same remainder modulo [`CLASSES`],
//! which is computed from its number too, so that a weight of another row is detected in 60 cases of 61.

use sumtree::replay::{
    Autoreset, Batch, Field, Priorities, Replay, ReplayError, Rows, Selection, Settings, WeightNorm,
};
use sumtree::{Draws, Rng, SumTreeError};

const WORDS: usize = 8;
const ROW_BYTES: usize = 8 * WORDS;
const CLASSES: u32 = 61;
/// Weights per unit of priority: the replay's scale at exponent 1.
const UNITS: f32 = 65_536.0;

/// Counts of operations and of faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub added: u64,
    pub sampled: u64,
    pub updated: u64,
    /// Updates dropped because their row had been overwritten.
    pub stale: u64,
    /// Rows whose words do not belong together. Must be 0.
    pub torn: u64,
    /// Rows drawn with weight 0. Must be 0.
    pub zero: u64,
    /// Rows drawn with the weight of another one. Must be 0.
    pub wrong: u64,
}

impl Counts {
    pub const NAMES: [&str; 7] = ["added", "sampled", "updated", "stale", "torn", "zero", "wrong"];

    pub fn parts(&self) -> [u64; 7] {
        [self.added, self.sampled, self.updated, self.stale, self.torn, self.zero, self.wrong]
    }

    pub fn from_parts(parts: [u64; 7]) -> Self {
        let [added, sampled, updated, stale, torn, zero, wrong] = parts;
        Self { added, sampled, updated, stale, torn, zero, wrong }
    }

    pub fn plus(self, other: Self) -> Self {
        let (a, b) = (self.parts(), other.parts());
        Self::from_parts(std::array::from_fn(|k| a[k] + b[k]))
    }

    pub fn minus(self, earlier: Self) -> Self {
        let (a, b) = (self.parts(), earlier.parts());
        Self::from_parts(std::array::from_fn(|k| a[k] - b[k]))
    }

    /// Number of rows added, drawn and given another priority.
    pub fn operations(&self) -> u64 {
        self.added + self.sampled + self.updated
    }

    pub fn is_clean(&self) -> bool {
        self.torn == 0 && self.zero == 0 && self.wrong == 0
    }
}

/// Settings of the replay: few rows, so that writers overwrite the ring all the time.
pub fn settings(capacity: usize) -> Settings {
    Settings {
        capacity,
        fields: vec![Field {
            name: "row".into(),
            dtype: "<u8".into(),
            shape: vec![WORDS],
            row_bytes: ROW_BYTES,
            stack: 1,
        }],
        alpha: 1.0,
        n_step: 1,
        gamma: 1.0,
        epsilon: 0.0,
        fan_out: 16,
        num_envs: 1,
        autoreset: Autoreset::NextStep,
        weight_norm: WeightNorm::Batch,
        seed: 1,
        ..Settings::default()
    }
}

/// The value that all words of a row but the first are computed from. Unique for each number, since the
/// factor is odd.
fn base_word(number: u64) -> u64 {
    number.wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The value that distinguishes word `at` of a row from its other words.
const fn word_mask(at: usize) -> u64 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The words of a row. A few vector instructions, so that a soak spends its time in the replay.
fn words(number: u64) -> [u64; WORDS] {
    let base_word = base_word(number);
    std::array::from_fn(|at| if at == 0 { number } else { base_word ^ word_mask(at) })
}

/// The remainder of all weights of a row modulo [`CLASSES`].
fn weight_class(number: u64) -> u32 {
    // Upper bits take part, so that rows of different workers do not share their order of classes.
    ((number ^ number >> 40) as u32 + 1) % CLASSES
}

/// A random priority with the remainder of a row. Its weight is never 0, and below 2^24, so that it is exact
/// in f32.
fn priority(number: u64, rng: &mut Rng) -> f32 {
    let weight = CLASSES * (1 + rng.below(1 << 17) as u32) + weight_class(number);
    weight as f32 * (1.0 / UNITS)
}

/// Actor and learner in one: adds, draws and updates rows, and checks the drawn ones.
pub struct Worker {
    rng: Rng,
    /// Number of the next row; its upper bits identify this worker.
    next: u64,
    batch: usize,
    rows: Vec<u8>,
    priorities: Vec<f32>,
    tickets: Vec<u64>,
    drawn: Vec<u32>,
    indices: Vec<u64>,
    weights: Vec<f32>,
    discounts: Vec<f32>,
    /// Tickets and numbers of rows drawn some time ago, to be updated late.
    late: Vec<(u64, u64)>,
    pub counts: Counts,
}

impl Worker {
    pub fn new(seed: u64, batch: usize) -> Self {
        Self {
            rng: Rng::new(seed),
            next: seed << 40,
            batch,
            rows: vec![0; ROW_BYTES * batch],
            priorities: vec![0.0; batch],
            tickets: vec![0; batch],
            drawn: vec![0; batch],
            indices: vec![0; batch],
            weights: vec![0.0; batch],
            discounts: vec![0.0; batch],
            late: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// One round: adds `adds` batches, draws and checks one, and updates its priorities and some late ones.
    pub fn round(&mut self, replay: &Replay, adds: usize) -> Result<(), ReplayError> {
        for _ in 0..adds {
            self.add(replay)?;
        }
        self.draw(replay)?;
        // Rarely, since it reads all weights.
        if self.rng.below(256) == 0 {
            match replay.evict(3) {
                Err(ReplayError::Tree(SumTreeError::TooFewLeaves { .. })) => {}
                other => {
                    other?;
                }
            }
        }
        self.update(replay)
    }

    pub fn add(&mut self, replay: &Replay) -> Result<(), ReplayError> {
        // Batches of all lengths, so that reservations begin and end anywhere in a chunk.
        let count = 1 + self.rng.below(self.batch as u64) as usize;
        let rows = self.rows[..count * ROW_BYTES].chunks_exact_mut(ROW_BYTES).zip(&mut self.priorities);
        for (number, (row, given)) in (self.next..).zip(rows) {
            for (bytes, word) in row.chunks_exact_mut(8).zip(words(number)) {
                bytes.copy_from_slice(&word.to_ne_bytes());
            }
            *given = priority(number, &mut self.rng);
        }
        self.next += count as u64;
        let rows = Rows {
            count,
            columns: &[&self.rows[..count * ROW_BYTES]],
            envs: None,
            priorities: Some(Priorities::F32(&self.priorities[..count])),
            finals: None,
        };
        replay.add(&rows, &mut self.tickets[..count])?;
        self.counts.added += count as u64;
        Ok(())
    }

    pub fn draw(&mut self, replay: &Replay) -> Result<(), ReplayError> {
        let mode = match self.rng.below(8) {
            0..3 => Selection::Weighted(Draws::Stratified),
            3 => Selection::Weighted(Draws::Independent),
            4 => Selection::Weighted(Draws::Systematic),
            5 => Selection::Uniform,
            _ => Selection::Mixture { uniform: 0.1, newest: 0.2, newest_rows: 100 },
        };
        let mut batch = Batch {
            fields: vec![&mut self.rows],
            discounts: &mut self.discounts,
            indices: &mut self.indices,
            weights: &mut self.weights,
            tickets: &mut self.tickets,
        };
        // Importance weights are not checked here: exponent 0 avoids the powers.
        match replay.sample_drawn(mode, 0.0, &mut batch, &mut self.drawn) {
            Err(ReplayError::NotSampleable { .. }) => return Ok(()),
            other => other?,
        }
        // One in eight is updated again much later, when its row is likely to be overwritten.
        let keep = self.rng.below(8) as usize;
        for (i, row) in self.rows.chunks_exact(ROW_BYTES).enumerate() {
            let seen: [u64; WORDS] = std::array::from_fn(|at| {
                u64::from_ne_bytes(row[8 * at..][..8].try_into().expect("eight bytes"))
            });
            let number = seen[0];
            let apart = seen.iter().zip(words(number)).fold(0, |apart, (seen, word)| apart | (seen ^ word));
            let weight = self.drawn[i];
            let (torn, wrong) = (apart != 0, weight % CLASSES != weight_class(number));
            self.counts.torn += u64::from(torn);
            self.counts.zero += u64::from(weight == 0);
            self.counts.wrong += u64::from(!torn && wrong);
            if i % 8 == keep {
                let entry = (self.tickets[i], number);
                if self.late.len() < 4096 {
                    self.late.push(entry);
                } else {
                    let at = self.rng.below(4096) as usize;
                    self.late[at] = entry;
                }
            }
        }
        self.counts.sampled += self.batch as u64;
        Ok(())
    }

    /// Sets new priorities for the rows drawn last and for some of the late ones.
    pub fn update(&mut self, replay: &Replay) -> Result<(), ReplayError> {
        for i in 0..self.batch {
            let bytes = &self.rows[i * ROW_BYTES..][..8];
            let mut number = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            if i % 4 == 3 && !self.late.is_empty() {
                let at = self.rng.below(self.late.len() as u64) as usize;
                (self.tickets[i], number) = self.late[at];
            }
            self.priorities[i] = priority(number, &mut self.rng);
        }
        let stale = replay.update(&self.tickets, Priorities::F32(&self.priorities))?;
        self.counts.updated += self.batch as u64;
        self.counts.stale += stale as u64;
        Ok(())
    }
}
