//! Asynchronous stepping: `send` queues tasks, threads run them, `recv` returns the results that are ready.

use std::collections::VecDeque;
use std::process;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Report;
use super::affinity::Affinity;
use super::cpu::{Command, Shared};
use super::outputs::Row;
use super::pool::{check_process, lock};
use super::slot::Workspace;
use crate::{CuleError, memory};

/// A queued step or reset of one environment.
struct Task {
    id: usize,
    command: Command,
    number: u64,
}

/// The result of a task.
pub(super) struct Outcome {
    pub report: Report,
    pub obs: Vec<u8>,
    pub final_obs: Vec<u8>,
    pub ram: Vec<u8>,
    pub audio: Vec<u8>,
    pub id: usize,
    pub error: Option<CuleError>,
    number: u64,
}

#[derive(Default)]
struct QueueState {
    tasks: VecDeque<Task>,
    results: VecDeque<Outcome>,
    /// Buffers for results, free for reuse.
    spare: Vec<Outcome>,
    /// Number of results that the caller waits for; 0 if it does not wait.
    wanted: usize,
    stop: bool,
}

struct Inner {
    state: Mutex<QueueState>,
    work: Condvar,
    done: Condvar,
}

/// Worker threads, and the queues of tasks and results between them and the caller.
pub(super) struct Queue {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
    /// Number of tasks that were sent and whose results have not been received.
    pending: usize,
    sent: u64,
    received: u64,
    /// Results are returned in the order of the tasks.
    ordered: bool,
    process: u32,
}

impl Queue {
    pub(super) fn new(
        shared: &Arc<Shared>,
        threads: usize,
        affinity: Option<&Affinity>,
        ordered: bool,
    ) -> Result<Self, CuleError> {
        // One buffer per environment, allocated here: a thread could not report a failed allocation.
        let mut spare = memory::reserved(shared.envs())?;
        for _ in 0..shared.envs() {
            spare.push(shared.outcome()?);
        }
        let state = QueueState { spare, ..QueueState::default() };
        let inner = Arc::new(Inner { state: Mutex::new(state), work: Condvar::new(), done: Condvar::new() });
        let mut queue = Self {
            inner: inner.clone(),
            threads: vec![],
            pending: 0,
            sent: 0,
            received: 0,
            ordered,
            process: process::id(),
        };
        for i in 0..threads {
            let (inner, shared) = (inner.clone(), shared.clone());
            let mut work = shared.workspace();
            let affinity = affinity.cloned();
            let handle = thread::Builder::new()
                .name(format!("parl-env-{i}"))
                .spawn(move || {
                    if let Some(affinity) = affinity {
                        affinity.pin(i);
                    }
                    serve(&inner, &shared, &mut work);
                })
                .map_err(|error| CuleError::Threads { threads, reason: error.to_string() })?;
            queue.threads.push(handle);
        }
        Ok(queue)
    }

    pub(super) fn send(&mut self, tasks: impl Iterator<Item = (usize, Command)>) -> Result<(), CuleError> {
        check_process(self.process)?;
        let mut state = lock(&self.inner.state);
        for (id, command) in tasks {
            state.tasks.push_back(Task { id, command, number: self.sent });
            self.sent += 1;
            self.pending += 1;
        }
        drop(state);
        self.inner.work.notify_all();
        Ok(())
    }

    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    /// Returns the next `count` results, or `None` if they are not ready within `timeout`. Results may be
    /// errors.
    pub(super) fn receive(
        &mut self,
        count: usize,
        timeout: Duration,
    ) -> Result<Option<Vec<Outcome>>, CuleError> {
        check_process(self.process)?;
        if self.pending < count {
            return Err(CuleError::NothingPending { pending: self.pending, batch_size: count });
        }
        let deadline = Instant::now() + timeout;
        let last = self.received + count as u64;
        let is_next = |outcome: &Outcome| !self.ordered || outcome.number < last;
        let mut state = lock(&self.inner.state);
        // Each result is counted once: until some are taken below, new results are only appended.
        let (mut looked_at, mut ready) = (0, 0);
        loop {
            ready += state.results.iter().skip(looked_at).filter(|outcome| is_next(outcome)).count();
            looked_at = state.results.len();
            let left = deadline.saturating_duration_since(Instant::now());
            let waits = ready < count && !left.is_zero();
            state.wanted = if waits { count } else { 0 };
            if ready >= count {
                break;
            }
            if !waits {
                return Ok(None);
            }
            state = match self.inner.done.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        let mut taken = Vec::with_capacity(count);
        let mut rest = VecDeque::new();
        for outcome in state.results.drain(..) {
            if taken.len() < count && is_next(&outcome) {
                taken.push(outcome);
            } else {
                rest.push_back(outcome);
            }
        }
        state.results = rest;
        drop(state);
        if self.ordered {
            taken.sort_by_key(|outcome| outcome.number);
        }
        self.received += count as u64;
        self.pending -= count;
        Ok(Some(taken))
    }

    /// Returns the buffers of results for reuse.
    pub(super) fn recycle(&self, outcomes: Vec<Outcome>) {
        lock(&self.inner.state).spare.extend(outcomes);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // In a forked process the threads do not exist: there is none to join, and one of them may have held
        // the lock. Dropping a handle would detach the thread of this process that has the same id.
        if self.process != process::id() {
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        let mut state = lock(&self.inner.state);
        state.stop = true;
        state.tasks.clear();
        drop(state);
        self.inner.work.notify_all();
        for thread in self.threads.drain(..) {
            // A panic in a thread has been reported with its result.
            let _ = thread.join();
        }
    }
}

fn serve(inner: &Inner, shared: &Shared, work: &mut Workspace) {
    loop {
        let mut state = lock(&inner.state);
        let task = loop {
            if state.stop {
                return;
            }
            if let Some(task) = state.tasks.pop_front() {
                break task;
            }
            state = inner.work.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        };
        // An environment has one task at a time, and there is one buffer per environment.
        let mut outcome = state.spare.pop().expect("one buffer per environment");
        drop(state);
        outcome.number = task.number;
        outcome.id = task.id;
        let row = Row {
            obs: &mut outcome.obs,
            final_obs: (!outcome.final_obs.is_empty()).then_some(&mut outcome.final_obs[..]),
            ram: (!outcome.ram.is_empty()).then_some(&mut outcome.ram[..]),
            audio: (!outcome.audio.is_empty()).then_some(&mut outcome.audio[..]),
        };
        let report = shared.execute(work, task.id, task.command, row);
        (outcome.report, outcome.error) = match report {
            Ok(report) => (report, None),
            Err(error) => (Report::default(), Some(error)),
        };
        let mut state = lock(&inner.state);
        state.results.push_back(outcome);
        let enough = state.wanted > 0 && state.results.len() >= state.wanted;
        drop(state);
        if enough {
            inner.done.notify_all();
        }
    }
}

impl Outcome {
    pub(super) fn new(obs: usize, final_obs: usize, ram: usize, audio: usize) -> Result<Self, CuleError> {
        Ok(Self {
            report: Report::default(),
            obs: memory::filled(0, obs)?,
            final_obs: memory::filled(0, final_obs)?,
            ram: memory::filled(0, ram)?,
            audio: memory::filled(0, audio)?,
            id: 0,
            error: None,
            number: 0,
        })
    }
}
