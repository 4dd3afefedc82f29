//! The workloads that are timed or counted: calls on a tree or a replay that was filled before.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use sumtree::replay::{Autoreset, Batch, Field, Priorities, Replay, Rows, Settings, WeightNorm};
use sumtree::{Draws, Rng, SumTree};

/// Length of the pool of indices, so that a run does not use the same leaves again and again.
const POOL: usize = 1 << 18;
/// Bytes of a row of a replay.
const ROW_BYTES: usize = 64;

/// What the threads of a workload share.
#[derive(Clone)]
enum Shared {
    Tree(Arc<SumTree>),
    Replay(Arc<Replay>),
}

/// One kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Sample(Draws),
    Update,
    Append,
}

/// A workload and its working memory.
pub struct Workload {
    shared: Shared,
    steps: &'static [Step],
    next: usize,
    batch: usize,
    threads: usize,
    /// Each thread has its own tree or replay, to measure the machine's limit without sharing.
    apart: bool,
    log2: u32,
    rng: Rng,
    pool: Arc<Vec<u64>>,
    at: usize,
    weights: Vec<u32>,
    drawn: Vec<u32>,
    indices: Vec<u64>,
    priorities: Vec<f32>,
    tickets: Vec<u64>,
    rows: Vec<u8>,
    importance: Vec<f32>,
    discounts: Vec<f32>,
    added: Vec<u64>,
}

const MIXED: &[Step] =
    &[Step::Sample(Draws::Stratified), Step::Update, Step::Sample(Draws::Stratified), Step::Append];

fn filled(log2: u32) -> Result<SumTree, String> {
    let tree = SumTree::new(1 << log2, 16).map_err(|e| e.to_string())?;
    let mut rng = Rng::new(1);
    let weights: Vec<u32> = (0..1 << log2).map(|_| 1 + rng.below(1 << 17) as u32).collect();
    tree.load(&weights).map_err(|e| e.to_string())?;
    Ok(tree)
}

fn replay(log2: u32) -> Result<Replay, String> {
    let field = Field {
        name: "x".into(),
        dtype: "|u1".into(),
        shape: vec![ROW_BYTES],
        row_bytes: ROW_BYTES,
        stack: 1,
    };
    let replay = Replay::heap(Settings {
        capacity: 1 << log2,
        fields: vec![field],
        alpha: 1.0,
        n_step: 1,
        gamma: 1.0,
        epsilon: 0.0,
        fan_out: 16,
        num_envs: 1,
        autoreset: Autoreset::NextStep,
        weight_norm: WeightNorm::Batch,
        seed: 0,
        ..Settings::default()
    })
    .map_err(|e| e.to_string())?;
    let mut rng = Rng::new(1);
    let (count, mut tickets) = (4096.min(1 << log2), vec![0; 4096.min(1 << log2)]);
    let bytes = vec![7; ROW_BYTES * count];
    for _ in 0..(1usize << log2) / count {
        let priorities: Vec<f32> = (0..count).map(|_| 0.01 + rng.unit() as f32).collect();
        let rows = Rows {
            count,
            columns: &[&bytes],
            envs: None,
            priorities: Some(Priorities::F32(&priorities)),
            finals: None,
        };
        replay.add(&rows, &mut tickets).map_err(|e| e.to_string())?;
    }
    Ok(replay)
}

impl Workload {
    /// Creates the workload with a name such as `sample:20:256`.
    pub fn new(name: &str) -> Result<Self, String> {
        let parts: Vec<&str> = name.split(':').collect();
        let (&operation, numbers) = parts.split_first().ok_or("no name")?;
        let (operation, apart) =
            operation.strip_suffix("-apart").map_or((operation, false), |operation| (operation, true));
        let numbers: Vec<usize> = numbers
            .iter()
            .map(|n| n.parse().map_err(|_| format!("{n:?} is not a number")))
            .collect::<Result<_, _>>()?;
        let (log2, batch, threads) = match numbers.as_slice() {
            [log2, batch] => (*log2 as u32, *batch, 1),
            [log2, batch, threads] => (*log2 as u32, *batch, *threads),
            _ => return Err(format!("{name:?} has {} numbers, expected 2 or 3", numbers.len())),
        };
        if !(8..=28).contains(&log2)
            || !(1..=POOL).contains(&batch)
            || batch > 1 << log2
            || !(1..=1024).contains(&threads)
        {
            return Err(format!("{name:?} is outside 2^8..=2^28 leaves, 1..={POOL} items, 1..=1024 threads"));
        }
        let tree = |exclusive: bool| {
            let tree = filled(log2)?;
            Ok::<_, String>(Shared::Tree(Arc::new(if exclusive { tree.exclusive() } else { tree })))
        };
        let steps: &[Step] = match operation {
            "sample" | "samples" | "replay-sample" => &[Step::Sample(Draws::Stratified)],
            "sample-independent" => &[Step::Sample(Draws::Independent)],
            "update" | "updates" | "update-exclusive" | "updates-exclusive" | "replay-update" => {
                &[Step::Update]
            }
            "append" | "replay-add" => &[Step::Append],
            "mixed-tree" | "mixed-exclusive" | "mixed-replay" => MIXED,
            _ => return Err(format!("unknown operation {operation:?}")),
        };
        let shared = match operation {
            "update-exclusive" | "updates-exclusive" | "mixed-exclusive" => tree(true)?,
            operation if operation.contains("replay") => Shared::Replay(Arc::new(replay(log2)?)),
            _ => tree(false)?,
        };
        let mut rng = Rng::new(2);
        let pool = (0..POOL + batch).map(|_| rng.below(1 << log2)).collect();
        let mut out = Self {
            shared,
            steps,
            next: 0,
            batch,
            threads,
            apart,
            log2,
            pool: Arc::new(pool),
            at: 0,
            weights: (0..batch).map(|_| rng.below(1 << 17) as u32).collect(),
            drawn: vec![0; batch],
            priorities: (0..batch).map(|_| 0.01 + rng.unit() as f32).collect(),
            rng,
            indices: vec![0; batch],
            tickets: vec![0; batch],
            rows: vec![7; ROW_BYTES * batch],
            importance: vec![0.0; batch],
            discounts: vec![0.0; batch],
            added: vec![0; batch],
        };
        if let Shared::Replay(_) = out.shared {
            out.sample(Draws::Stratified); // Tickets to update.
        }
        Ok(out)
    }

    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The same workload for another thread, with its own draws and indices.
    fn for_thread(&self, nth: usize) -> Result<Self, String> {
        let shared = match &self.shared {
            _ if !self.apart || nth == 0 => self.shared.clone(),
            Shared::Replay(_) => Shared::Replay(Arc::new(replay(self.log2)?)),
            Shared::Tree(_) => Shared::Tree(Arc::new(filled(self.log2)?)),
        };
        // Other indices for each thread: with the same ones, a thread that catches up with another would
        // follow it.
        let mut rng = Rng::new(1000 + nth as u64);
        let pool = (0..self.pool.len()).map(|_| rng.below(1 << self.log2)).collect();
        let mut out = Self {
            shared,
            apart: self.apart,
            log2: self.log2,
            pool: Arc::new(pool),
            rng: Rng::new(3 + nth as u64),
            at: (nth * POOL / 16) % POOL,
            next: nth,
            weights: self.weights.clone(),
            drawn: self.drawn.clone(),
            indices: self.indices.clone(),
            priorities: self.priorities.clone(),
            tickets: self.tickets.clone(),
            rows: self.rows.clone(),
            importance: self.importance.clone(),
            discounts: self.discounts.clone(),
            added: self.added.clone(),
            steps: self.steps,
            batch: self.batch,
            threads: self.threads,
        };
        if let Shared::Replay(_) = out.shared {
            out.sample(Draws::Stratified); // Tickets of its own.
        }
        Ok(out)
    }

    /// Runs one call and returns its number of items.
    pub fn call(&mut self) -> usize {
        let step = self.steps[self.next % self.steps.len()];
        self.next += 1;
        match step {
            Step::Sample(mode) => self.sample(mode),
            Step::Update => self.update(),
            Step::Append => self.append(),
        }
        self.batch
    }

    fn sample(&mut self, mode: Draws) {
        match &self.shared {
            Shared::Tree(tree) => {
                tree.sample(&mut self.rng, mode, &mut self.indices, &mut self.drawn)
                    .expect("the tree has weight");
            }
            Shared::Replay(replay) => {
                let mut batch = Batch {
                    fields: vec![&mut self.rows],
                    discounts: &mut self.discounts,
                    indices: &mut self.indices,
                    weights: &mut self.importance,
                    tickets: &mut self.tickets,
                };
                replay.sample(mode, 0.4, &mut batch).expect("the replay has rows");
            }
        }
    }

    fn update(&mut self) {
        match &self.shared {
            Shared::Tree(tree) => {
                self.at = (self.at + self.batch) % POOL;
                // Change the weights each time, since storing an unchanged weight is cheaper.
                self.weights.iter_mut().for_each(|w| *w = (*w + 1) & 0x1_ffff);
                tree.set_many(&self.pool[self.at..self.at + self.batch], &self.weights)
                    .expect("indices and weights are in range");
            }
            Shared::Replay(replay) => {
                self.priorities.iter_mut().for_each(|p| *p = if *p > 1.0 { 0.01 } else { *p + 0.001 });
                replay
                    .update(&self.tickets, Priorities::F32(&self.priorities))
                    .expect("tickets that were drawn");
            }
        }
    }

    fn append(&mut self) {
        match &self.shared {
            Shared::Tree(tree) => {
                self.at = (self.at + self.batch) % POOL.min(tree.capacity() - self.batch);
                self.weights.iter_mut().for_each(|w| *w = (*w + 1) & 0x1_ffff);
                tree.set_range(self.at, &self.weights).expect("the range is in the tree");
            }
            Shared::Replay(replay) => {
                let rows = Rows {
                    count: self.batch,
                    columns: &[&self.rows],
                    envs: None,
                    priorities: Some(Priorities::F32(&self.priorities)),
                    finals: None,
                };
                replay.add(&rows, &mut self.added).expect("rows that fit");
            }
        }
    }
}

/// The threads of one workload, which start together.
pub struct Threads {
    workloads: Vec<Workload>,
}

impl Threads {
    pub fn new(workload: &Workload) -> Result<Self, String> {
        let workloads =
            (0..workload.threads).map(|nth| workload.for_thread(nth)).collect::<Result<_, _>>()?;
        Ok(Self { workloads })
    }

    /// Nanoseconds per item of all threads together: wall clock, and processor time divided by the number of
    /// threads.
    pub fn time(&mut self, length: Duration) -> Result<(f64, f64), String> {
        let (start, stop) = (Barrier::new(self.workloads.len() + 1), AtomicBool::new(false));
        let (items, busy) = (AtomicU64::new(0), AtomicU64::new(0));
        let threads = self.workloads.len() as f64;
        let wall = std::thread::scope(|scope| {
            let running: Vec<_> = self
                .workloads
                .iter_mut()
                .enumerate()
                .map(|(nth, workload)| {
                    let (start, stop, items, busy) = (&start, &stop, &items, &busy);
                    scope.spawn(move || {
                        // The scheduler may take milliseconds to notice that two threads are on one core.
                        crate::pin_to_core(nth);
                        let warm = Instant::now();
                        while warm.elapsed() < length / 8 {
                            workload.call();
                        }
                        start.wait();
                        let (before, mut mine) = (crate::thread_time(), 0);
                        while !stop.load(Ordering::Relaxed) {
                            mine += workload.call() as u64;
                        }
                        items.fetch_add(mine, Ordering::Relaxed);
                        let spent = (crate::thread_time() - before).as_nanos() as u64;
                        busy.fetch_add(spent, Ordering::Relaxed);
                    })
                })
                .collect();
            start.wait();
            let begun = Instant::now();
            std::thread::sleep(length);
            stop.store(true, Ordering::Relaxed);
            let joined = running.into_iter().map(|thread| thread.join()).collect::<Vec<_>>();
            let wall = begun.elapsed();
            if joined.iter().any(Result::is_err) { Err("a thread panicked".to_owned()) } else { Ok(wall) }
        })?;
        let items = items.into_inner() as f64;
        Ok((wall.as_secs_f64() * 1e9 / items, busy.into_inner() as f64 / threads / items))
    }
}
