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
const SPIN_TIME: Duration = Duration::from_micros(40);

/// A borrowed task. It is called with the number of the thread.
#[derive(Clone, Copy)]
struct Task(*const (dyn Fn(usize) + Sync));

// SAFETY: the closure is `Sync`, so any thread may call it, and it lives until `ThreadTeam::run` returns.
unsafe impl Send for Task {}

#[derive(Default)]
struct TeamState {
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
    state: Mutex<TeamState>,
    begin: Condvar,
    end: Condvar,
    /// Number of tasks so far. Incremented under the lock.
    epoch: AtomicUsize,
    /// Number of threads that run the task. Incremented under the lock.
    busy: AtomicUsize,
    /// A waiting thread spins before it sleeps.
    spins: bool,
}

impl Inner {
    /// Spins until `ready` returns true, for at most [`SPIN_TIME`].
    fn spin_until(&self, ready: impl Fn() -> bool) {
        if !self.spins || ready() {
            return;
        }
        let begin = Instant::now();
        while begin.elapsed() < SPIN_TIME {
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
pub(super) struct ThreadTeam {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
    /// Held while [`ThreadTeam::run`] runs, so that calls run one after the other.
    call: Mutex<()>,
    process: u32,
}

impl ThreadTeam {
    /// Starts `threads - 1` threads; the calling thread is thread 0. With `affinity` each started thread is
    /// pinned to its core.
    ///
    /// # Errors
    /// [`CuleError::Threads`] if the system cannot start the threads.
    pub(super) fn new(threads: usize, affinity: Option<&Affinity>) -> Result<Self, CuleError> {
        let spins = available_parallelism().is_ok_and(|cores| cores.get() >= threads);
        let inner = Arc::new(Inner { spins, ..Inner::default() });
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
        // SAFETY: only the lifetime changes. `TaskGuard` keeps this call from returning before the last
        // thread that took the task has finished it, also if `task` panics.
        let task_of_any_life: *const (dyn Fn(usize) + Sync) =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(task) };
        let mut state = lock(&self.inner.state);
        state.task = Some(Task(task_of_any_life));
        state.count = count;
        self.inner.epoch.fetch_add(1, Ordering::Release);
        let asleep = state.asleep > 0;
        drop(state);
        let _guard = TaskGuard(&self.inner);
        if asleep {
            self.inner.begin.notify_all();
        }
        task(0);
    }
}

/// On drop, withdraws the task and waits for the threads that have started it.
struct TaskGuard<'a>(&'a Inner);

impl Drop for TaskGuard<'_> {
    fn drop(&mut self) {
        let ended = || self.0.busy.load(Ordering::Acquire) == 0;
        lock(&self.0.state).task = None;
        // From here on no thread starts the task.
        self.0.spin_until(ended);
        if ended() {
            return;
        }
        let mut state = lock(&self.0.state);
        while !ended() {
            state.waits = true;
            state = self.0.end.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waits = false;
    }
}

impl Drop for ThreadTeam {
    fn drop(&mut self) {
        // In a forked process the threads do not exist: there is none to join, and one of them may have held
        // the lock. Dropping a handle would detach the thread of this process that has the same id.
        if self.process != process::id() {
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        lock(&self.inner.state).stop = true;
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
        inner.spin_until(|| inner.epoch.load(Ordering::Relaxed) != seen);
        let mut state = lock(&inner.state);
        let task = loop {
            if state.stop {
                return;
            }
            let epoch = inner.epoch.load(Ordering::Relaxed);
            let due = state.task.filter(|_| epoch != seen && number < state.count);
            // Also marks a task as seen that was finished before this thread woke up.
            seen = epoch;
            if let Some(task) = due {
                break task;
            }
            state.asleep += 1;
            state = inner.begin.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.asleep -= 1;
        };
        inner.busy.fetch_add(1, Ordering::Relaxed);
        drop(state);
        // SAFETY: `task` is the argument of `ThreadTeam::run`, which does not return while `busy` is above 0.
        // Tasks must not panic; if one does, the panic ends only this call of the task: this thread goes on
        // and `busy` is decremented.
        let _ = catch_unwind(AssertUnwindSafe(|| unsafe { (*task.0)(number) }));
        if inner.busy.fetch_sub(1, Ordering::Release) == 1 && lock(&inner.state).waits {
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
            let team = ThreadTeam::new(threads, None).unwrap();
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
        let team = ThreadTeam::new(3, None).unwrap();
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
