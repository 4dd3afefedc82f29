//! Runs the replay under load for any length of time and checks every drawn row.
//!
//! `soak threads`: writers overwrite a small ring again and again while other threads draw, copy and update
//! rows, in private memory. `soak processes`: the same with processes on shared memory, of which one is
//! killed from time to time and replaced by a new one.
//!
//! Both count rows whose words do not belong together, rows drawn with weight 0, and rows drawn with the
//! weight of another row: all these counts must be 0. Both add to the counts in `--state FILE`, so that a
//! soak can be stopped and continued, and end when `--operations` are reached there or after `--seconds`.

mod processes;
mod rows;
mod state;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rows::{Counts, Worker};
use state::State;
use sumtree::replay::Replay;

const USAGE: &str = "soak threads|processes [--operations 1e10] [--seconds 1e9] [--workers 4] [--capacity 4096] \
    [--batch 64] [--state FILE] [--seed 1]";
/// Interval at which the counts are written to the file.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// The options of a run.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // Named as the options.
pub struct Plan {
    pub operations: u64,
    pub seconds: f64,
    pub workers: usize,
    pub capacity: usize,
    pub batch: usize,
    pub seed: u64,
}

fn threads(plan: &Plan, state: &mut State) -> Result<(), String> {
    let replay = Arc::new(Replay::heap(rows::settings(plan.capacity)).map_err(|e| e.to_string())?);
    let stop = AtomicBool::new(false);
    let (send, receive) = std::sync::mpsc::channel();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for n in 0..plan.workers {
            let (replay, stop, send, mut worker) = (
                Arc::clone(&replay),
                &stop,
                send.clone(),
                // A different seed each time the soak is continued.
                Worker::new(plan.seed.wrapping_add(state.runs * 1000 + n as u64), plan.batch),
            );
            scope.spawn(move || {
                let mut reported = Counts::default();
                while !stop.load(Ordering::Relaxed) {
                    // Half of the threads mostly write, so that the ring is overwritten while others read.
                    let done =
                        (0..64).try_for_each(|_| worker.round(&replay, if n % 2 == 0 { 4 } else { 1 }));
                    let news = worker.counts.minus(reported);
                    reported = worker.counts;
                    if send.send(done.map(|()| news).map_err(|e| e.to_string())).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        let mut last = Instant::now();
        let mut silent = 0;
        let result = loop {
            // Counts seconds of waiting, so that a machine that was suspended is not taken for a hang.
            match receive.recv_timeout(Duration::from_secs(1)) {
                Ok(Ok(news)) => {
                    silent = 0;
                    state.add(news);
                }
                Ok(Err(error)) => break Err(error),
                Err(_) if silent < 120 => silent += 1,
                Err(_) => break Err("no thread has reported for two minutes: something hangs".to_owned()),
            }
            // An error must not leave the workers running: they stop below.
            match state.save_if_due(plan, begun, &mut last) {
                Ok(false) => {}
                Ok(true) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    replay.verify().map_err(|e| e.to_string())?;
    replay.tree().verify_histogram().map_err(|e| e.to_string())
}

fn plan(mut arguments: impl Iterator<Item = String>) -> Result<(Plan, Option<String>), String> {
    let mut plan =
        Plan { operations: 10_000_000_000, seconds: 1e9, workers: 4, capacity: 4096, batch: 64, seed: 1 };
    let mut file = None;
    while let Some(name) = arguments.next() {
        let text = arguments.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
        if name == "--state" {
            file = Some(text);
            continue;
        }
        let value: f64 = text.parse().map_err(|_| format!("{name}: {text:?} is not a number\n{USAGE}"))?;
        if !(0.0..=1e18).contains(&value) {
            return Err(format!("{name}: {text} is outside 0..=1e18"));
        }
        match name.as_str() {
            "--operations" => plan.operations = value as u64,
            "--seconds" => plan.seconds = value,
            "--workers" => plan.workers = (value as usize).clamp(1, 64),
            "--capacity" => plan.capacity = (value as usize).clamp(256, 1 << 28),
            "--batch" => plan.batch = (value as usize).clamp(1, plan.capacity / 16),
            "--seed" => plan.seed = value as u64,
            _ => return Err(format!("unknown option {name}\n{USAGE}")),
        }
    }
    Ok((plan, file))
}

fn run() -> Result<bool, String> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().ok_or(USAGE)?;
    if mode == "child" {
        let child: Vec<String> = arguments.collect();
        return processes::child(&child).map(|()| true);
    }
    let (plan, file) = plan(arguments)?;
    let mut state = State::open(&mode, file.map(Into::into))?;
    match mode.as_str() {
        "threads" => threads(&plan, &mut state)?,
        "processes" => processes::run(&plan, &mut state)?,
        _ => return Err(USAGE.to_owned()),
    }
    println!("{plan:?}");
    print!("{}", state.text());
    println!("every node equals the sum of its children");
    Ok(state.counts.is_clean())
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("FAULTS FOUND");
            ExitCode::FAILURE
        }
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}
