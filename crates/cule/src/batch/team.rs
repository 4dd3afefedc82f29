//! Worker threads that sleep until the calling thread has a task, and then run it together with that thread.
//! Host only.
//!
//! A step of a few environments takes some hundred microseconds. Waking a thread costs tens of microseconds,
//! both in the waking and in the woken thread. Therefore a waiting thread spins briefly before it sleeps, if
//! there is a core for every thread. The calling thread may finish all work before a sleeping thread has
//! woken up, so it waits only for the threads that have started the task.

#![allow(
    unsafe_code,
    reason = "persistent threads borrow the task of a call, which returns after they have finished it"
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

/// How long a thread spins before it sleeps: about the time that Python spends between two steps, plus one
/// wake-up.
const PATIENCE: Duration = Duration::from_micros(40);

/// A borrowed task. It is called with the number of the thread.
#[derive(Clone, Copy)]
struct Task(*const (dyn Fn(usize) + Sync));

// SAFETY: the closure is `Sync`, so any thread may call it, and it lives until `Team::run` returns.
unsafe impl Send for Task {}

#[derive(Default)]
struct Line {
    task: Option<Task>,
    /// Number of threads that may run the task, including the caller.
    count: usize,
    /// Number of threads that sleep until there is a task.
    asleep: usize,
    /// The caller sleeps until all threads have finished the task.
    waits: bool,
    stop: bool,
}

#[derive(Default)]
struct Inner {
    line: Mutex<Line>,
    begin: Condvar,
    end: Condvar,
    /// Number of tasks so far. Incremented under the lock.
    turn: AtomicUsize,
    /// Number of threads that run the task. Incremented under the lock.
    busy: AtomicUsize,
    /// A waiting thread spins before it sleeps.
    looks: bool,
}

impl Inner {
    /// Spins until `ready` returns true, for at most [`PATIENCE`].
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

/// Threads 1, 2, ...; the calling thread is thread 0.
pub(super) struct Team {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
    /// Held while [`Team::run`] runs, so that calls run one after the other.
    call: Mutex<()>,
    process: u32,
}

impl Team {
    /// Starts `threads - 1` threads; the calling thread is thread 0. With `affinity` each started thread is
    /// pinned to its core.
    ///
    /// # Errors
    /// [`CuleError::Threads`] if the system cannot start the threads.
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

    /// Calls `task(0)` on this thread and, at the same time, `task(i)` on those threads below `count` that
    /// wake up in time. Returns when every started call has returned. `task` must complete all work with any
    /// subset of the threads, and must not panic.
    pub(super) fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        let _call = lock(&self.call);
        // SAFETY: only the lifetime changes. `Ending` keeps this call from returning before the last thread
        // that took the task has finished it, also if `task` panics.
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

/// On drop, withdraws the task and waits for the threads that have started it.
struct Ending<'a>(&'a Inner);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let ended = || self.0.busy.load(Ordering::Acquire) == 0;
        lock(&self.0.line).task = None;
        // From here on no thread starts the task.
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
        // In a forked process the threads do not exist: there is none to join, and one of them may have held
        // the lock.
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
            // Also marks a task as seen that was finished before this thread woke up.
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
        // SAFETY: `task` is the argument of `Team::run`, which does not return while `busy` is above 0. Tasks
        // must not panic; if one does, the panic ends only this call of the task: this thread goes on and
        // `busy` is decremented.
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
