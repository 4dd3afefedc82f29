//! Thread pool that steps environments. Threads sleep between batches; each job runs once, on any thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;

use super::affinity::Affinity;
use super::team::ThreadTeam;
use crate::CuleError;

/// Worker threads, including the calling thread, and the buffers of each.
pub struct Pool<W> {
    threads: usize,
    team: Option<ThreadTeam>,
    work: Vec<Mutex<W>>,
    process: u32,
}

impl<W: Send> Pool<W> {
    /// Starts `threads` threads, at most `most`; 0 means one per core that this process may use. The calling
    /// thread is thread 0. With `affinity` every other thread is pinned to its core.
    ///
    /// # Errors
    /// [`CuleError::Threads`] if the system cannot start the threads.
    pub fn new(
        threads: usize,
        most: usize,
        affinity: Option<&Affinity>,
        mut work: impl FnMut() -> W,
    ) -> Result<Self, CuleError> {
        let threads = thread_count(threads, most);
        let team = (threads > 1).then(|| ThreadTeam::new(threads, affinity)).transpose()?;
        Ok(Self {
            threads,
            team,
            work: (0..threads).map(|_| Mutex::new(work())).collect(),
            process: process::id(),
        })
    }

    /// Number of threads, including the calling one.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Number of ranges to split `jobs` jobs into: one per thread, but at most one per job.
    pub fn parts(&self, jobs: usize) -> usize {
        self.threads.min(jobs).max(1)
    }

    /// Runs `run` once for every job of every range, in no particular order, and returns when all jobs are
    /// done. Each thread starts with the range of its own number, the same in each call, so that the data of
    /// a job stays in that core's cache. A thread whose range is empty takes jobs of the others. There are at
    /// most as many ranges as threads.
    ///
    /// # Errors
    /// [`CuleError::Forked`] if this process did not make the pool. Otherwise the first error of a job; a
    /// panic is [`CuleError::Panicked`]. The other jobs have run.
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
                    // A separate statement, so that the lock is released before the job runs.
                    let job = lock(jobs).next();
                    let Some(job) = job else { break };
                    if let Err(error) = catch_panic(|| run(&mut work, job)) {
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

/// Jobs that one thread does first. It has its own cache line, because its thread locks it for every job.
#[repr(align(128))]
struct Range<I>(Mutex<I>);

/// Fails in a forked process: threads do not survive a fork, so waiting for them would never end.
///
/// # Errors
/// [`CuleError::Forked`] if this process is not `made_in`.
pub fn check_process(made_in: u32) -> Result<(), CuleError> {
    let here = process::id();
    if made_in == here { Ok(()) } else { Err(CuleError::Forked { made_in, here }) }
}

/// Runs one job; a panic becomes an error.
pub(super) fn catch_panic(job: impl FnOnce() -> Result<(), CuleError>) -> Result<(), CuleError> {
    catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".into());
        Err(CuleError::Panicked { message })
    })
}

/// Number of threads for a batch: `threads`, or one per core that this process may use if it is 0, and at
/// most `most`.
pub(super) fn thread_count(threads: usize, most: usize) -> usize {
    let cores = || available_parallelism().map_or(1, usize::from);
    if threads == 0 { cores() } else { threads }.clamp(1, most.max(1))
}

/// Locks a mutex, also a poisoned one: panics are caught and reported, so the guarded data stays usable.
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
