//! Processes on one replay in shared memory, of which one is killed at a random moment, again and again.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use sumtree::Rng;
use sumtree::replay::Replay;

use crate::Plan;
use crate::rows::{self, Counts, Worker};
use crate::state::State;

/// A process hangs if it has not reported for this long, without the time that it waited for a processor.
const SILENCE: Duration = Duration::from_secs(120);
/// Largest time that a round of the watch counts as silence of the processes. A longer round was itself
/// delayed, for example by other work on the machine.
const ROUND_MAX: Duration = Duration::from_millis(200);
/// Rounds between two reports of a process.
const ROUNDS: usize = 4;
/// Operations of all processes between two kills. Counted in operations, so that a busy machine has as many
/// kills per operation as an idle one, and processes are not killed before they have done any work.
const KILL_EVERY: std::ops::Range<u64> = 20_000..400_000;

/// A process of the soak: `child NAME SEED BATCH ADDS`. It prints its counts until its output is closed.
pub fn child(arguments: &[String]) -> Result<(), String> {
    let [name, seed, batch, adds] = arguments else { return Err("child NAME SEED BATCH ADDS".to_owned()) };
    let number = |text: &String| text.parse::<u64>().map_err(|e| e.to_string());
    let replay = Replay::attach_shared(name).map_err(|e| e.to_string())?;
    let mut worker = Worker::new(number(seed)?, number(batch)? as usize);
    let adds = number(adds)? as usize;
    loop {
        for _ in 0..ROUNDS {
            worker.round(&replay, adds).map_err(|e| e.to_string())?;
        }
        let parts = std::mem::take(&mut worker.counts).parts();
        let line: Vec<String> = parts.iter().map(u64::to_string).collect();
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{}", line.join(" ")).and_then(|()| out.flush()).is_err() {
            return Ok(()); // The parent has ended.
        }
    }
}

struct Running {
    child: Child,
    number: u64,
    silent: Duration,
    /// How long it had waited for a processor at the time of its last report.
    queued: Duration,
}

impl Running {
    /// How long it has waited for a processor since its start while it was ready to run; 0 if that is
    /// unknown.
    fn queued(&self) -> Duration {
        let text =
            std::fs::read_to_string(format!("/proc/{}/schedstat", self.child.id())).unwrap_or_default();
        Duration::from_nanos(text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0))
    }

    fn record_report(&mut self) {
        (self.silent, self.queued) = (Duration::ZERO, self.queued());
    }

    /// Returns true if it hangs, after another `round` without a report.
    fn hangs(&mut self, round: Duration) -> bool {
        self.silent += round.min(ROUND_MAX);
        self.silent > SILENCE
            && self.silent.saturating_sub(self.queued().saturating_sub(self.queued)) > SILENCE
    }
}

/// A report of a child: its number and its counts.
type Report = (u64, Counts);

fn start(plan: &Plan, name: &str, number: u64, send: &Sender<Report>) -> Result<Running, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let adds = if number.is_multiple_of(2) { 4 } else { 1 };
    let mut child = Command::new(own)
        .args(["child", name, &(plan.seed + number).to_string(), &plan.batch.to_string(), &adds.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let output = child.stdout.take().ok_or("no output")?;
    let send = send.clone();
    std::thread::spawn(move || {
        // A killed child may leave half a line.
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let parts: Vec<u64> = line.split(' ').filter_map(|part| part.parse().ok()).collect();
            if let Ok(parts) = parts.try_into()
                && send.send((number, Counts::from_parts(parts))).is_err()
            {
                return;
            }
        }
    });
    Ok(Running { child, number, silent: Duration::ZERO, queued: Duration::ZERO })
}

pub fn run(plan: &Plan, state: &mut State) -> Result<(), String> {
    let name = format!("parl-soak-{}", std::process::id());
    let replay = Replay::create_shared(&name, rows::settings(plan.capacity)).map_err(|e| e.to_string())?;
    let (send, receive) = channel();
    // Numbers of processes, and with them seeds and the numbers of their rows, continue across runs.
    let mut next = state.runs * 100_000;
    let mut running = Vec::new();
    for _ in 0..plan.workers {
        running.push(start(plan, &name, next, &send)?);
        next += 1;
    }
    let done = watch(plan, state, &mut running, &mut next, &name, (&send, &receive));
    for one in &mut running {
        let _ = one.child.kill(); // It may have ended by itself.
        let _ = one.child.wait();
    }
    done?;
    replay.verify().map_err(|e| e.to_string())?;
    state.mended += replay.counters().recovered;
    // The replay must still be usable: overwrite the ring once more, from this process alone.
    let mut worker = Worker::new(plan.seed ^ 0xffff, plan.batch);
    for _ in 0..2 * plan.capacity / plan.batch {
        worker.round(&replay, 1).map_err(|e| e.to_string())?;
    }
    state.add(worker.counts);
    replay.verify().map_err(|e| e.to_string())?;
    replay.tree().verify_histogram().map_err(|e| e.to_string())?;
    state.write()?;
    drop(replay);
    if Replay::attach_shared(&name).is_ok() {
        return Err(format!("the segment {name} still exists after the last close"));
    }
    Ok(())
}

fn watch(
    plan: &Plan,
    state: &mut State,
    running: &mut [Running],
    next: &mut u64,
    name: &str,
    (send, receive): (&Sender<Report>, &Receiver<Report>),
) -> Result<(), String> {
    let mut rng = Rng::new(plan.seed ^ state.runs);
    let begun = Instant::now();
    let (mut last, mut begun_round) = (Instant::now(), Instant::now());
    let after =
        |from: u64, rng: &mut Rng| from + KILL_EVERY.start + rng.below(KILL_EVERY.end - KILL_EVERY.start);
    let mut kill_at = after(state.counts.operations(), &mut rng);
    loop {
        if let Ok((number, news)) = receive.recv_timeout(Duration::from_millis(5)) {
            state.add(news);
            if let Some(one) = running.iter_mut().find(|one| one.number == number) {
                one.record_report();
            }
        }
        let round = std::mem::replace(&mut begun_round, Instant::now()).elapsed();
        for one in running.iter_mut() {
            if let Some(status) = one.child.try_wait().map_err(|e| e.to_string())? {
                return Err(format!("process {} ended by itself: {status}", one.number));
            }
            if one.hangs(round) {
                return Err(format!("process {} has done nothing for {SILENCE:?}: it hangs", one.number));
            }
        }
        if state.counts.operations() >= kill_at {
            // Wait, so that the kill happens anywhere in a round and not just after a report.
            std::thread::sleep(Duration::from_micros(rng.below(2000)));
            let victim = rng.below(running.len() as u64) as usize;
            running[victim].child.kill().map_err(|e| e.to_string())?;
            // Sometimes it stays a zombie for a while, as under a busy parent.
            if rng.below(2) == 0 {
                std::thread::sleep(Duration::from_millis(rng.below(20)));
            }
            running[victim].child.wait().map_err(|e| e.to_string())?;
            running[victim] = start(plan, name, *next, send)?;
            *next += 1;
            state.killed += 1;
            kill_at = after(state.counts.operations(), &mut rng);
        }
        if state.save_if_due(plan, begun, &mut last)? {
            return Ok(());
        }
    }
}
