//! Threads that step environments: parked between batches, each job run once, by whoever is free.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;

use super::affinity::Affinity;
use crate::CuleError;

/// A team of threads, the caller among them, and what each of them works in.
pub struct Pool<W> {
    threads: usize,
    team: Option<rayon::ThreadPool>,
    work: Vec<Mutex<W>>,
    process: u32,
}

impl<W: Send> Pool<W> {
    /// `threads` of them, 0 for one per core that this process may use, and never more than `most`. Each has a place
    /// of `affinity`, if there is one; only the caller, who is the first of them, stays where he is.
    ///
    /// # Errors
    /// [`CuleError::Threads`] when the system refuses.
    pub fn new(
        threads: usize,
        most: usize,
        affinity: Option<&Affinity>,
        mut work: impl FnMut() -> W,
    ) -> Result<Self, CuleError> {
        let threads = thread_count(threads, most);
        let affinity = affinity.cloned();
        let team = (threads > 1)
            .then(|| {
                rayon::ThreadPoolBuilder::new()
                    .num_threads(threads - 1)
                    .thread_name(|i| format!("parl-env-{i}"))
                    .start_handler(move |i| {
                        if let Some(affinity) = &affinity {
                            affinity.pin(i + 1);
                        }
                    })
                    .build()
                    .map_err(|error| CuleError::Threads { threads, reason: error.to_string() })
            })
            .transpose()?;
        Ok(Self {
            threads,
            team,
            work: (0..threads).map(|_| Mutex::new(work())).collect(),
            process: process::id(),
        })
    }

    /// How many threads work on a batch.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `run` once for every job, in no particular order, and returns when all are done. Each thread begins with
    /// a range of its own, the same in each call, so that what belongs to a job stays in that core's cache; whoever
    /// is done helps the others.
    ///
    /// # Errors
    /// [`CuleError::Forked`] in a process that did not make the pool; else the first error of a job, a panic being
    /// [`CuleError::Panicked`]. The other jobs have run.
    pub fn run<J: Send>(
        &self,
        jobs: Vec<J>,
        run: impl Fn(&mut W, J) -> Result<(), CuleError> + Sync,
    ) -> Result<(), CuleError> {
        check_process(self.process)?;
        let failure: Mutex<Option<CuleError>> = Mutex::new(None);
        let one = |work: &mut W, job: J| {
            if let Err(error) = guarded(|| run(work, job)) {
                lock(&failure).get_or_insert(error);
            }
        };
        match &self.team {
            Some(team) if jobs.len() > 1 => {
                let helpers = (self.threads - 1).min(jobs.len() - 1);
                let jobs: Vec<Mutex<Option<J>>> = jobs.into_iter().map(|job| Mutex::new(Some(job))).collect();
                let ranges = split(jobs.len(), helpers + 1);
                let drain = |thread: usize| {
                    let mut work = lock(&self.work[thread]);
                    for turn in 0..ranges.len() {
                        let Range { next, end } = &ranges[(thread + turn) % ranges.len()];
                        // Relaxed: only hands out numbers; the jobs themselves are behind their mutexes.
                        while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| at < end)
                        {
                            if let Some(job) = lock(&jobs[at]).take() {
                                one(&mut work, job);
                            }
                        }
                    }
                };
                team.in_place_scope(|scope| {
                    for thread in 1..=helpers {
                        let drain = &drain;
                        scope.spawn(move |_| drain(thread));
                    }
                    drain(0);
                });
            }
            _ => {
                let mut work = lock(&self.work[0]);
                for job in jobs {
                    one(&mut work, job);
                }
            }
        }
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Jobs that a thread does first. On a cache line of its own, since its thread counts in it.
#[repr(align(128))]
struct Range {
    next: AtomicUsize,
    end: usize,
}

/// `jobs` numbers in `parts` ranges whose lengths differ by at most one.
fn split(jobs: usize, parts: usize) -> Vec<Range> {
    (0..parts)
        .map(|part| Range { next: AtomicUsize::new(jobs * part / parts), end: jobs * (part + 1) / parts })
        .collect()
}

/// Threads do not survive a fork: waiting for them would never end.
pub(super) fn check_process(made_in: u32) -> Result<(), CuleError> {
    let here = process::id();
    if made_in == here { Ok(()) } else { Err(CuleError::Forked { made_in, here }) }
}

/// Runs one job; a panic becomes an error.
pub(super) fn guarded(job: impl FnOnce() -> Result<(), CuleError>) -> Result<(), CuleError> {
    catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".into());
        Err(CuleError::Panicked { message })
    })
}

/// Threads for a batch: as many as asked for, 0 for one per core that this process may use, at most `most`.
pub(super) fn thread_count(threads: usize, most: usize) -> usize {
    let cores = || available_parallelism().map_or(1, usize::from);
    if threads == 0 { cores() } else { threads }.clamp(1, most.max(1))
}

/// A panic is caught and reported, so what a mutex guards stays usable.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_runs_once_on_any_number_of_threads() {
        for threads in [1, 2, 3, 64] {
            let pool = Pool::new(threads, 5, None, || 0usize).unwrap();
            assert_eq!(pool.threads(), threads.min(5));
            for count in [0, 1, 2, 7, 100] {
                let mut seen = vec![0u32; count];
                pool.run(seen.iter_mut().collect(), |work, job: &mut u32| {
                    *work += 1;
                    *job += 1;
                    Ok(())
                })
                .unwrap();
                assert!(seen.iter().all(|&times| times == 1), "{threads} threads, {count} jobs");
            }
        }
    }

    #[test]
    fn a_panic_is_an_error_and_the_pool_goes_on() {
        let pool = Pool::new(2, 2, None, || ()).unwrap();
        let error = pool.run((0..8).collect(), |(), job| {
            assert!(job != 3, "job {job} fell over");
            Ok(())
        });
        let error = error.unwrap_err();
        assert!(error.to_string().contains("job 3 fell over"), "{error}");
        assert!(pool.run(vec![1, 2, 3], |(), _| Ok(())).is_ok());
    }
}
