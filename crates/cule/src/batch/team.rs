//! Threads that sleep until the caller has a task, and work on it beside him. Host only.
//!
//! A step of a few environments takes some hundred microseconds, and to wake a thread takes tens of them, of the one
//! who wakes and of the one who is woken. So a thread that has to wait spins for a moment before it sleeps, where there
//! is a core for everyone; and the caller, who may have done all work before a sleeper was up, waits only for those who
//! have begun.

#![allow(
    unsafe_code,
    reason = "threads that stay borrow the task of one call, which does not end before they have"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle, available_parallelism};
use std::time::{Duration, Instant};

use super::affinity::Affinity;
use super::pool::lock;
use crate::CuleError;

/// How long a thread looks about before it sleeps: what Python takes between two steps, and a wake-up.
const PATIENCE: Duration = Duration::from_micros(40);

/// A borrowed task; it is called with a thread's number.
#[derive(Clone, Copy)]
struct Task(*const (dyn Fn(usize) + Sync));

// SAFETY: what it points at may be called from any thread, and lives as long as `Team::run` has not returned.
unsafe impl Send for Task {}

#[derive(Default)]
struct Line {
    task: Option<Task>,
    /// Threads wanted, the caller among them.
    count: usize,
    /// Threads that sleep until there is a task.
    asleep: usize,
    /// The caller sleeps until all have ended.
    waits: bool,
    stop: bool,
}

#[derive(Default)]
struct Inner {
    line: Mutex<Line>,
    begin: Condvar,
    end: Condvar,
    /// Grows with each task, under the lock.
    turn: AtomicUsize,
    /// Threads that have begun and not ended; grows under the lock.
    busy: AtomicUsize,
    /// A thread that waits spins first.
    looks: bool,
}

impl Inner {
    /// Waits a moment for `ready`.
    fn look(&self, ready: impl Fn() -> bool) {
        if !self.looks || ready() {
            return;
        }
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            for _ in 0..16 {
                std::hint::spin_loop();
            }
            if ready() {
                return;
            }
        }
    }
}

/// Threads number 1, 2, ...; the caller is number 0.
pub(super) struct Team {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
    /// Held by the one call that runs.
    call: Mutex<()>,
    process: u32,
}

impl Team {
    /// `threads` of them, the caller among them; each but the caller has its place of `affinity`, if there is one.
    ///
    /// # Errors
    /// [`CuleError::Threads`] when the system refuses.
    pub(super) fn new(threads: usize, affinity: Option<&Affinity>) -> Result<Self, CuleError> {
        let looks = available_parallelism().is_ok_and(|cores| cores.get() >= threads);
        let inner = Arc::new(Inner { looks, ..Inner::default() });
        let mut team = Self { inner, threads: vec![], call: Mutex::new(()), process: process::id() };
        for number in 1..threads {
            let (inner, affinity) = (team.inner.clone(), affinity.cloned());
            let handle = thread::Builder::new()
                .name(format!("parl-env-{number}"))
                .spawn(move || {
                    if let Some(affinity) = affinity {
                        affinity.pin(number);
                    }
                    serve(&inner, number);
                })
                .map_err(|error| CuleError::Threads { threads, reason: error.to_string() })?;
            team.threads.push(handle);
        }
        Ok(team)
    }

    /// Calls `task(0)` here and, at the same time, `task(i)` on the threads below `count` that are up in time; returns
    /// when all that began have ended. `task` must get everything done with any of them, and must not panic.
    pub(super) fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        let _call = lock(&self.call);
        // SAFETY: only the lifetime changes. `Ending` does not let go of this call before the last thread that took the
        // task has ended, also when `task` panics.
        let task_of_any_life: *const (dyn Fn(usize) + Sync) =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(task) };
        let mut line = lock(&self.inner.line);
        line.task = Some(Task(task_of_any_life));
        line.count = count;
        self.inner.turn.fetch_add(1, Ordering::Release);
        let asleep = line.asleep > 0;
        drop(line);
        let _ending = Ending(&self.inner);
        if asleep {
            self.inner.begin.notify_all();
        }
        task(0);
    }
}

/// Takes the task back and waits for those who have begun.
struct Ending<'a>(&'a Inner);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let ended = || self.0.busy.load(Ordering::Acquire) == 0;
        lock(&self.0.line).task = None;
        // No thread begins from here on.
        self.0.look(ended);
        if ended() {
            return;
        }
        let mut line = lock(&self.0.line);
        while !ended() {
            line.waits = true;
            line = self.0.end.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        line.waits = false;
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // After a fork the threads are not here: one of them may have held the lock, and there is no thread to wait for.
        if self.process != process::id() {
            return;
        }
        lock(&self.inner.line).stop = true;
        self.inner.begin.notify_all();
        for thread in self.threads.drain(..) {
            // Tasks do not panic.
            let _ = thread.join();
        }
    }
}

fn serve(inner: &Inner, number: usize) {
    let mut seen = 0;
    loop {
        inner.look(|| inner.turn.load(Ordering::Relaxed) != seen);
        let mut line = lock(&inner.line);
        let task = loop {
            if line.stop {
                return;
            }
            let turn = inner.turn.load(Ordering::Relaxed);
            let due = line.task.filter(|_| turn != seen && number < line.count);
            // Also a task that was done before this thread was up.
            seen = turn;
            if let Some(task) = due {
                break task;
            }
            line.asleep += 1;
            line = inner.begin.wait(line).unwrap_or_else(PoisonError::into_inner);
            line.asleep -= 1;
        };
        inner.busy.fetch_add(1, Ordering::Relaxed);
        drop(line);
        // SAFETY: `busy` keeps `Team::run`, whose argument this is, from returning. A panic, which a task must not do,
        // ends the task and neither this thread nor that wait.
        let _ = catch_unwind(AssertUnwindSafe(|| unsafe { (*task.0)(number) }));
        if inner.busy.fetch_sub(1, Ordering::Release) == 1 && lock(&inner.line).waits {
            inner.end.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn nobody_works_after_the_call() {
        for threads in [1, 2, 5] {
            let team = Team::new(threads, None).unwrap();
            for round in 0..2000 {
                let jobs = AtomicUsize::new(0);
                let ended = AtomicUsize::new(0);
                let count = 1 + round % threads;
                team.run(count, &|number| {
                    assert!(number < count);
                    while jobs.fetch_add(1, Ordering::Relaxed) < 20 {
                        ended.fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert_eq!(ended.into_inner(), 20);
            }
        }
    }

    #[test]
    fn a_panic_of_the_caller_waits_for_the_others() {
        let team = Team::new(3, None).unwrap();
        let begun = AtomicUsize::new(0);
        let ended = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            team.run(3, &|number| {
                begun.fetch_add(1, Ordering::SeqCst);
                if number == 0 {
                    while begun.load(Ordering::SeqCst) < 2 {
                        thread::yield_now();
                    }
                    panic!("the caller fell over");
                }
                thread::sleep(std::time::Duration::from_millis(20));
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }));
        assert!(result.is_err());
        assert_eq!(ended.load(Ordering::SeqCst) + 1, begun.load(Ordering::SeqCst));
        team.run(3, &|_| ());
    }
}
