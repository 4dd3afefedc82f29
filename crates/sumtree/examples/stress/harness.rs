//! Threads that write and draw at once, with a check on every draw.
//!
//! Each leaf belongs to one writer, by its number. A writer keeps one half of its leaves at zero, updates the
//! other half for a while, then fills the empty half and clears the other. Its phase number tells which half
//! is zero. A sampler reads all phases, draws, and reads them again: if a phase has not changed, the leaves
//! of the empty half were zero for the whole call, and drawing one is a fault. Every fourth leaf is never
//! set.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use sumtree::{Draws, Path, Rng, SumTree, SumTreeError};

/// The options of a run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub capacity: u64,
    pub fan_out: usize,
    pub path: Path,
    /// The exclusive writer instead of the lock-free one.
    pub exclusive: bool,
    /// Number of threads. Half of them write (at least one), the others draw (at least one).
    pub threads: usize,
    /// Number of weights stored and leaves drawn, together.
    pub operations: u64,
    pub batch: usize,
    pub seed: u64,
}

/// Counts of a run.
#[derive(Debug, Default, Clone, Copy)]
pub struct Outcome {
    pub stores: u64,
    pub draws: u64,
    /// Draws whose writer stayed in one phase for the whole call.
    pub checked: u64,
    /// Draws of a leaf that was zero for the whole call. Must be 0.
    pub zero_draws: u64,
    /// Draws with a weight that was never stored. Must be 0.
    pub wrong_weights: u64,
    pub empty: u64,
    pub restarts: u64,
}

/// Weight of a leaf in a turn of its half: large and small weights, never the same in two turns.
fn weight(leaf: u64, turn: u64, max: u32) -> u32 {
    let mixed = (leaf ^ turn << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (1 + (mixed >> 40) as u32 % max) >> (mixed & 15).min(15) | 1
}

/// The half of a leaf: 64 leaves each in turn, so that some nodes have leaves of both halves and some of one.
fn half(leaf: u64) -> u64 {
    leaf >> 6 & 1
}

fn writer(tree: &SumTree, plan: &Plan, me: u64, writers: u64, phase: &AtomicU64, done: &AtomicBool) -> u64 {
    let mut rng = Rng::new(plan.seed ^ me << 32);
    let max = tree.max_weight();
    let mine: Vec<Vec<u64>> = (0..2)
        .map(|h| {
            (0..plan.capacity).filter(|i| i % 4 != 3 && (i >> 2) % writers == me && half(*i) == h).collect()
        })
        .collect();
    let (mut stores, mut turn) = (0, 0u64);
    let store = |leaves: &[u64], zero: bool, turn: u64| {
        for part in leaves.chunks(plan.batch) {
            let weights: Vec<u32> =
                part.iter().map(|i| if zero { 0 } else { weight(*i, turn, max) }).collect();
            tree.set_many(part, &weights).expect("leaves and weights are in range");
        }
        leaves.len() as u64
    };
    stores += store(&mine[0], false, 0);
    phase.store(0, SeqCst);
    while !done.load(SeqCst) {
        // Even phase 2 * turn: half `turn % 2` is set, the other is zero.
        let active = &mine[(turn % 2) as usize];
        for _ in 0..200 {
            let part: Vec<u64> =
                (0..plan.batch).map(|_| active[rng.below(active.len() as u64) as usize]).collect();
            // One in eight is cleared and set again later, so that leaves of the active half are sometimes
            // zero too.
            let weights: Vec<u32> =
                part.iter().map(|i| if rng.below(8) == 0 { 0 } else { weight(*i, turn, max) }).collect();
            tree.set_many(&part, &weights).expect("leaves and weights are in range");
            stores += part.len() as u64;
        }
        phase.store(2 * turn + 1, SeqCst);
        stores += store(&mine[((turn + 1) % 2) as usize], false, turn + 1);
        stores += store(active, true, turn);
        turn += 1;
        phase.store(2 * turn, SeqCst);
    }
    stores
}

fn sampler(
    tree: &SumTree,
    plan: &Plan,
    me: u64,
    phases: &[AtomicU64],
    stop: &dyn Fn(&Outcome) -> bool,
) -> Outcome {
    let mut rng = Rng::new(!plan.seed ^ me << 32);
    let max = tree.max_weight();
    let mut out = Outcome::default();
    let (mut indices, mut weights) = (vec![0; plan.batch], vec![0; plan.batch]);
    let modes = [Draws::Independent, Draws::Stratified, Draws::Systematic, Draws::WithoutReplacement];
    let read = || phases.iter().map(|p| p.load(SeqCst)).collect::<Vec<_>>();
    for round in 0.. {
        if stop(&out) {
            break;
        }
        // Distinct draws are slower: one call in 16.
        let mode = if round % 16 == 15 { modes[3] } else { modes[round % 3] };
        let before = read();
        match tree.sample(&mut rng, mode, &mut indices, &mut weights) {
            Ok(_) => {}
            Err(SumTreeError::Empty | SumTreeError::TooFewLeaves { .. }) => {
                out.empty += 1;
                continue;
            }
            Err(other) => panic!("{other}"),
        }
        let after = read();
        out.draws += plan.batch as u64;
        for (leaf, w) in indices.iter().zip(&weights) {
            let owner = ((leaf >> 2) % phases.len() as u64) as usize;
            let (b, a) = (before[owner], after[owner]);
            // The turns whose weight the leaf can have had during the call; in between it was cleared.
            let known =
                (b / 2..=a.div_ceil(2)).any(|turn| turn % 2 == half(*leaf) && *w == weight(*leaf, turn, max));
            out.wrong_weights += u64::from(!known);
            let still = b == a && b % 2 == 0;
            out.checked += u64::from(still);
            let zero = leaf % 4 == 3 || *w == 0 || (still && half(*leaf) != b / 2 % 2);
            out.zero_draws += u64::from(zero);
        }
    }
    out
}

/// Runs the plan and checks every node at the end.
pub fn run(plan: &Plan) -> Result<Outcome, SumTreeError> {
    let tree = SumTree::new(plan.capacity, plan.fan_out)?.with_path(plan.path)?;
    let tree = if plan.exclusive { tree.exclusive() } else { tree };
    let writers = (plan.threads / 2).max(1);
    let samplers = (plan.threads - plan.threads / 2).max(1);
    // Phases start at an odd number: the first half of the leaves has not been filled yet.
    let phases: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(1)).collect();
    let done = AtomicBool::new(false);
    let stored = AtomicU64::new(0);
    let mut sum = Outcome::default();
    // Half of the operations are draws. Writers run until these are done.
    let share = plan.operations / 2 / samplers as u64;
    // On a busy machine a writer may be suspended during a change of phase: continue until an eighth of the
    // draws was checked, or for a thousand times as many draws.
    let enough =
        |out: &Outcome| out.draws >= share && (out.checked >= share / 8 || out.draws / 1000 >= share);
    std::thread::scope(|scope| {
        let writing: Vec<_> = (0..writers)
            .map(|me| {
                let (tree, phases, done, stored) = (&tree, &phases, &done, &stored);
                scope.spawn(move || {
                    let stores = writer(tree, plan, me as u64, writers as u64, &phases[me], done);
                    stored.fetch_add(stores, SeqCst);
                })
            })
            .collect();
        let drawing: Vec<_> = (0..samplers)
            .map(|me| {
                let (tree, phases, enough) = (&tree, &phases, &enough);
                scope.spawn(move || sampler(tree, plan, me as u64, phases, enough))
            })
            .collect();
        for thread in drawing {
            let out = thread.join().expect("a sampler panicked");
            sum.draws += out.draws;
            sum.checked += out.checked;
            sum.zero_draws += out.zero_draws;
            sum.wrong_weights += out.wrong_weights;
            sum.empty += out.empty;
        }
        done.store(true, SeqCst);
        writing.into_iter().for_each(|thread| thread.join().expect("a writer panicked"));
    });
    sum.stores = stored.load(SeqCst);
    sum.restarts = tree.restarts();
    tree.verify()?;
    tree.verify_histogram()?;
    Ok(sum)
}
