//! Threads for copying, one pool per process: a pool does not survive a fork, so a child creates its own.
#![allow(unsafe_code)] // The leaked pool behind an atomic pointer.

use std::sync::atomic::{AtomicPtr, Ordering};

struct Pool {
    process: u32,
    /// `None` if there are no other threads, or they could not be created: the caller then works alone.
    threads: Option<rayon::ThreadPool>,
    count: usize,
}

/// The pool of this process, created on first use and never freed.
fn pool() -> &'static Pool {
    static POOL: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());
    let process = std::process::id();
    let found = POOL.load(Ordering::Acquire);
    // SAFETY: null or leaked below, never freed.
    if let Some(pool) = unsafe { found.as_ref() }
        && pool.process == process
    {
        return pool;
    }
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let named = rayon::ThreadPoolBuilder::new().thread_name(|i| format!("parl-gather-{i}"));
    // The calling thread is one of the `count` threads.
    let threads = if count > 1 { named.num_threads(count - 1).build().ok() } else { None };
    let made: &'static Pool = Box::leak(Box::new(Pool { process, threads, count }));
    let pointer = std::ptr::from_ref(made).cast_mut();
    if let Err(other) = POOL.compare_exchange(found, pointer, Ordering::AcqRel, Ordering::Acquire) {
        // Another thread of this process was first; the pool created here stays unused.
        // SAFETY: not null, because it is not `found` any more, and leaked as above.
        return unsafe { &*other };
    }
    made
}

/// Runs `work` in this thread and in up to `threads - 1` others. `work` itself takes the parts that it works
/// on.
pub(super) fn run_on_threads(threads: usize, work: &(impl Fn() + Sync)) {
    if threads > 1 {
        let pool = pool();
        if let Some(others) = &pool.threads {
            others.in_place_scope(|scope| {
                for _ in 1..threads.min(pool.count) {
                    scope.spawn(|_| work());
                }
                work();
            });
            return;
        }
    }
    work();
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_thread_asked_for_works_and_the_caller_is_one() {
        for threads in [0, 1, 2, 100] {
            let (calls, here) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let caller = std::thread::current().id();
            super::run_on_threads(threads, &|| {
                calls.fetch_add(1, super::Ordering::Relaxed);
                let is_caller = std::thread::current().id() == caller;
                here.fetch_add(usize::from(is_caller), super::Ordering::Relaxed);
            });
            let count = std::thread::available_parallelism().unwrap().get();
            assert_eq!(calls.into_inner(), threads.clamp(1, count.max(1)));
            assert_eq!(here.into_inner(), 1);
        }
    }
}
