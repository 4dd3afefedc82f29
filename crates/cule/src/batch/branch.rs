//! Branches: sequences of actions that run from saved states, without changing the environments of the batch.
//! Host only.
//!
//! Every branch runs the step of an environment ([`Slot::step`]) on a copy of its state. A branch depends only
//! on its state, its actions and its seed, and writes only its own rows of the results, so that the results
//! do not depend on the threads.

use super::cpu::Shared;
use super::outputs::{RAM_BYTES, check_length, front};
use super::pool::Pool;
use super::slot::{Slot, Workspace};
use super::{player_actions, states};
use crate::env::state::EnvSettings;
use crate::env::{self, Action};
use crate::{CuleError, memory};

/// Branches to run: the number of states is `states.len() / state_bytes`, and each state has `branches`
/// branches of `steps` actions.
#[derive(Clone, Copy)]
pub struct Branches<'a> {
    /// Rows of [`super::CpuBatch::save`].
    pub states: &'a [u8],
    /// Number of rows.
    pub count: usize,
    /// Branches of each state, at least 1.
    pub branches: usize,
    /// Actions of each branch, at least 1.
    pub steps: usize,
    /// `count * branches * steps` actions, those of a branch one after the other; with two players, twice as
    /// many: both of a step are side by side.
    pub actions: &'a [Action],
    /// Per branch, the seed of its generators; negative to continue with the generators of the state.
    pub seeds: Option<&'a [i64]>,
}

/// Results of a branch, except its observation and its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchReport {
    /// Sum of the rewards, each clipped.
    pub reward: i64,
    /// Sum of the rewards before clipping.
    pub raw_reward: i64,
    /// Of the second player, in batches for two players: the sum of the rewards, each clipped.
    pub second_reward: i64,
    /// The sum of its rewards before clipping.
    pub second_raw_reward: i64,
    /// Steps that have run: less than the number of actions if the episode ended before.
    pub length: u32,
    /// Lives left.
    pub lives: i32,
    /// The episode ended by the rules of the game.
    pub terminated: bool,
    /// The episode was ended by a limit.
    pub truncated: bool,
}

/// Which results of branches are written.
pub struct BranchOutputs<'a> {
    /// The observation after the last step of each branch. Without it no frame is drawn.
    pub obs: Option<&'a mut [u8]>,
    /// Console RAM after the last step, 128 bytes per branch.
    pub ram: Option<&'a mut [u8]>,
    /// One report per branch.
    pub reports: &'a mut [BranchReport],
    /// Return the states after the last steps. Without `obs`, only in a batch whose observations are RAM: the
    /// pictures of an observation are part of a state.
    pub saves: bool,
}

/// One branch.
struct Job<'a> {
    start: &'a Slot,
    actions: &'a [Action],
    seed: Option<u64>,
    obs: Option<&'a mut [u8]>,
    ram: Option<&'a mut [u8]>,
    report: &'a mut BranchReport,
    /// Empty if states are not wanted.
    state: &'a mut [u8],
    /// The end of the branch, if its state does not fit into `state`.
    large: &'a mut Option<Slot>,
}

/// Runs branches and returns their states, rows of equal length, which is 0 if they are not wanted.
///
/// # Errors
/// A number of items does not fit the number of branches, a row is not the state of an environment of this
/// batch, or the environment of a row was not reset.
pub(super) fn run(
    shared: &Shared,
    pool: &Pool<Workspace>,
    request: &Branches<'_>,
    out: BranchOutputs<'_>,
) -> Result<Vec<u8>, CuleError> {
    let total = check(shared, request, &out)?;
    if total == 0 {
        return Ok(vec![]);
    }
    let starts = parse(shared, pool, request)?;
    // Without observations no frame is drawn: then kept pictures are not needed either.
    let shows = out.obs.is_some() || shared.rules()[0].draws == 0;
    let undrawn: Vec<_> = shared.rules().iter().map(|rules| EnvSettings { draws: 0, ..*rules }).collect();
    let rules = if shows { shared.rules() } else { &undrawn[..] };
    let size = if out.saves { states::row_bytes_without_pictures(&starts[0]) } else { 0 };
    let mut rows = memory::filled(0, total.saturating_mul(size))?;
    let mut large: Vec<Option<Slot>> = memory::reserved(if out.saves { total } else { 0 })?;
    large.resize_with(total, || None);
    let mut rest = (&mut rows[..], out.obs, out.ram);
    let each = request.steps * shared.players() as usize;
    let mut jobs: Vec<Job<'_>> = memory::reserved(total)?;
    for (i, (report, large)) in out.reports.iter_mut().zip(&mut large).enumerate() {
        jobs.push(Job {
            start: &starts[i / request.branches],
            actions: &request.actions[i * each..][..each],
            seed: request.seeds.and_then(|seeds| u64::try_from(seeds[i]).ok()),
            obs: rest.1.as_mut().map(|obs| front(obs, shared.obs_bytes())),
            ram: rest.2.as_mut().map(|ram| front(ram, RAM_BYTES)),
            report,
            state: front(&mut rest.0, size),
            large,
        });
    }
    // The decoded cartridges of two games do not fit into the first-level cache.
    jobs.sort_by_key(|job| job.start.game);
    pool.run(split(jobs, pool.parts(total)), |work, job| {
        run_one(shared, work, rules, shows, job);
        Ok(())
    })?;
    widen(shared, rows, size, &large)
}

/// Checks the numbers of items and returns the number of branches.
fn check(shared: &Shared, request: &Branches<'_>, out: &BranchOutputs<'_>) -> Result<usize, CuleError> {
    for (name, value) in
        [("the number of branches", request.branches), ("the number of steps", request.steps)]
    {
        if value == 0 {
            return Err(CuleError::Setting { name, value: value.to_string(), bound: "at least 1" });
        }
    }
    let total = request.count.saturating_mul(request.branches);
    let players = shared.players() as usize;
    let expected = [
        ("actions", request.actions.len(), total.saturating_mul(request.steps).saturating_mul(players)),
        ("seeds", request.seeds.map_or(total, <[_]>::len), total),
        ("reports", out.reports.len(), total),
    ];
    if let Some(&(what, found, expected)) = expected.iter().find(|(_, found, expected)| found != expected) {
        return Err(CuleError::Count { what, found, expected });
    }
    if let Some(ram) = &out.ram {
        check_length("RAM", ram.len(), total.saturating_mul(RAM_BYTES))?;
    }
    if let Some(obs) = &out.obs {
        check_length("observations", obs.len(), total.saturating_mul(shared.obs_bytes()))?;
    } else if out.saves && shared.rules()[0].draws != 0 {
        let value = "true without observations".into();
        return Err(CuleError::Setting { name: "saves", value, bound: "false, or observations of RAM" });
    }
    Ok(total)
}

/// Reads the states. The error is that of the first row that has one.
fn parse(shared: &Shared, pool: &Pool<Workspace>, request: &Branches<'_>) -> Result<Vec<Slot>, CuleError> {
    let size = request.states.len() / request.count;
    let mut results: Vec<Option<Result<Slot, CuleError>>> = memory::reserved(request.count)?;
    results.resize_with(request.count, || None);
    let jobs = results.iter_mut().enumerate().collect();
    pool.run(split(jobs, pool.parts(request.count)), |_, (i, result)| {
        *result = Some(start(shared, &request.states[i * size..][..size]));
        Ok(())
    })?;
    let mut starts = memory::reserved(request.count)?;
    for (row, result) in results.into_iter().flatten().enumerate() {
        starts.push(result.map_err(|source| CuleError::StateRow { row, source: Box::new(source) })?);
    }
    Ok(starts)
}

/// Reads one state, of any game of the batch.
fn start(shared: &Shared, row: &[u8]) -> Result<Slot, CuleError> {
    let games = shared.games();
    let mut fitting = (0..games.len()).filter(|&index| states::is_of(row, &games[index]));
    let index = fitting.next().unwrap_or(0);
    let slot = states::load(row, index, &games[index], &shared.rules()[index])?;
    if fitting.next().is_some() {
        let reason = "environments with its game, mode and difficulty differ in frameskip or \
                      repeat_action_probability, of which branch needs one value";
        return Err(CuleError::State { reason: reason.into() });
    }
    if slot.head.ready == 0 {
        return Err(CuleError::State { reason: "its environment has not been reset".into() });
    }
    Ok(slot)
}

fn run_one(shared: &Shared, work: &mut Workspace, rules: &[EnvSettings], shows: bool, job: Job<'_>) {
    let mut slot = job.start.clone();
    let (game, rules) = (&shared.games()[slot.game], &rules[slot.game]);
    if !shows {
        slot.pictures = None;
    }
    if let Some(seed) = job.seed {
        slot.reseed(seed, rules);
    }
    let mut report = BranchReport::default();
    // A state whose episode has ended keeps the flags of its end.
    let mut ended = slot.has_ended();
    if ended {
        let last = slot.report(0, game, rules);
        (report.terminated, report.truncated) = (last.terminated, last.truncated);
    }
    let players = shared.players();
    for at in 0..job.actions.len() / players as usize {
        if ended {
            break;
        }
        let actions = player_actions(job.actions, players, at);
        if shows {
            slot.step(work, game, rules, actions);
        } else {
            slot.run(work, game, rules, actions);
        }
        let step = slot.report(0, game, rules);
        report.reward += i64::from(step.reward);
        report.raw_reward += i64::from(step.raw_reward);
        report.second_reward += i64::from(step.second_reward);
        report.second_raw_reward += i64::from(step.second_raw_reward);
        report.length += 1;
        (report.terminated, report.truncated) = (step.terminated, step.truncated);
        ended = step.ended || step.terminated || step.truncated;
    }
    report.lives = env::lives(&slot.head.state);
    *job.report = report;
    if let Some(obs) = job.obs {
        slot.observe(rules, obs);
    }
    if let Some(ram) = job.ram {
        ram.copy_from_slice(&slot.head.state.machine.riot.ram);
    }
    if job.state.is_empty() {
        return;
    }
    if slot.pictures.is_some() {
        *job.large = Some(slot);
    } else {
        states::save(&slot, game, job.state);
    }
}

/// Makes room in the rows of `size` bytes for states with kept pictures, if there are any.
fn widen(shared: &Shared, rows: Vec<u8>, size: usize, large: &[Option<Slot>]) -> Result<Vec<u8>, CuleError> {
    let Some(wide) = large.iter().flatten().map(states::row_bytes).max() else { return Ok(rows) };
    let mut wider = memory::filled(0, large.len().saturating_mul(wide))?;
    for ((to, from), slot) in wider.chunks_exact_mut(wide).zip(rows.chunks_exact(size)).zip(large) {
        match slot {
            Some(slot) => states::save(slot, &shared.games()[slot.game], to),
            None => to[..size].copy_from_slice(from),
        }
    }
    Ok(wider)
}
/// Splits `jobs` into ranges of about equal length.
fn split<T>(mut jobs: Vec<T>, parts: usize) -> Vec<std::vec::IntoIter<T>> {
    let total = jobs.len();
    let mut ranges: Vec<_> =
        (0..parts).rev().map(|part| jobs.split_off(total * part / parts).into_iter()).collect();
    ranges.reverse();
    ranges
}
