//! Threads that step environments: parked between batches, each job run once, by a free thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;

use super::affinity::Affinity;
use super::team::Team;
use crate::CuleError;

/// A team of threads, the caller among them, and what each of them works in.
pub struct Pool<W> {
    threads: usize,
    team: Option<Team>,
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
        let team = (threads > 1).then(|| Team::new(threads, affinity)).transpose()?;
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

    /// Into how many ranges `jobs` of them are best split: one for each thread that has something to do.
    pub fn parts(&self, jobs: usize) -> usize {
        self.threads.min(jobs).max(1)
    }

    /// Runs `run` once for every job of every range, in no particular order, and returns when all are done. A thread
    /// begins with the range of its own number, the same in each call, so that what belongs to a job stays in that
    /// core's cache; a thread that is done helps the others. Ranges are at most as many as threads.
    ///
    /// # Errors
    /// [`CuleError::Forked`] in a process that did not make the pool; else the first error of a job, a panic being
    /// [`CuleError::Panicked`]. The other jobs have run.
    pub fn run<I: Iterator + Send>(
        &self,
        ranges: Vec<I>,
        run: impl Fn(&mut W, I::Item) -> Result<(), CuleError> + Sync,
    ) -> Result<(), CuleError> {
        check_process(self.process)?;
        let failure: Mutex<Option<CuleError>> = Mutex::new(None);
        let count = ranges.len();
        let ranges: Vec<Range<I>> = ranges.into_iter().map(|jobs| Range(Mutex::new(jobs))).collect();
        let drain = |thread: usize| {
            let mut work = lock(&self.work[thread]);
            for turn in 0..count {
                let Range(jobs) = &ranges[(thread + turn) % count];
                loop {
                    // A statement of its own, so that the lock is free while the job runs.
                    let job = lock(jobs).next();
                    let Some(job) = job else { break };
                    if let Err(error) = guarded(|| run(&mut work, job)) {
                        lock(&failure).get_or_insert(error);
                    }
                }
            }
        };
        match &self.team {
            Some(team) if count > 1 => team.run(count, &drain),
            _ => drain(0),
        }
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Jobs that a thread does first. On a cache line of its own, since its thread takes from it all the time.
#[repr(align(128))]
struct Range<I>(Mutex<I>);

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
                let size = count.div_ceil(pool.parts(count)).max(1);
                pool.run(seen.chunks_mut(size).map(|range| range.iter_mut()).collect(), |work, job| {
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
        let error = pool.run(vec![0..3, 3..8], |(), job| {
            assert!(job != 3, "job {job} fell over");
            Ok(())
        });
        let error = error.unwrap_err();
        assert!(error.to_string().contains("job 3 fell over"), "{error}");
        assert!(pool.run(vec![0..2, 2..3], |(), _| Ok(())).is_ok());
    }
}
