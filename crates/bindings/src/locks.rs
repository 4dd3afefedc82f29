//! Locks of objects that forked processes inherit.
//!
//! A thread that holds a lock during a fork does not exist in the child, where the lock is never released.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

use cule::CuleError;
use cule::batch::check_process;

/// A value that only the process that made it can lock.
pub struct Owned<T> {
    value: Mutex<T>,
    process: u32,
}

impl<T> Owned<T> {
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(value), process: process::id() }
    }

    /// Waits for the lock. [`CuleError::Forked`] in another process.
    pub fn lock(&self) -> Result<MutexGuard<'_, T>, CuleError> {
        check_process(self.process)?;
        Ok(self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// States of [`Inherited::user`].
const USABLE: u64 = 0;
const CHECKING: u64 = 1;
const LOST: u64 = 2;

/// A value that forked processes can lock too, unless a thread had it locked during the fork.
pub struct Inherited<T> {
    value: Mutex<T>,
    /// Four times the id of the process that used it last, plus the state of the lock there.
    user: AtomicU64,
}

impl<T> Inherited<T> {
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(value), user: AtomicU64::new(u64::from(process::id()) << 2 | USABLE) }
    }

    /// Waits for the lock. [`CuleError::UsedDuringFork`] if a thread that does not exist here holds it.
    pub fn lock(&self) -> Result<MutexGuard<'_, T>, CuleError> {
        self.check()?;
        // No code panics while it holds the lock; after a panic the value would still be valid.
        Ok(self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`Inherited::lock`], but `None` instead of waiting.
    pub fn try_lock(&self) -> Result<Option<MutexGuard<'_, T>>, CuleError> {
        self.check()?;
        match self.value.try_lock() {
            Ok(guard) => Ok(Some(guard)),
            Err(TryLockError::Poisoned(poisoned)) => Ok(Some(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => Ok(None),
        }
    }

    /// At the first use in a forked process, tries the lock once before any thread of that process takes it.
    fn check(&self) -> Result<(), CuleError> {
        let here = process::id();
        let state = |state| u64::from(here) << 2 | state;
        loop {
            let found = self.user.load(Ordering::Acquire);
            if found == state(USABLE) {
                return Ok(());
            }
            if found == state(LOST) {
                return Err(CuleError::UsedDuringFork { here });
            }
            if found == state(CHECKING) {
                thread::yield_now();
                continue;
            }
            let taken =
                self.user.compare_exchange(found, state(CHECKING), Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                let lost = matches!(self.value.try_lock(), Err(TryLockError::WouldBlock));
                self.user.store(state(if lost { LOST } else { USABLE }), Ordering::Release);
            }
        }
    }
}
