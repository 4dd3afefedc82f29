//! Counts the forks of this process.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// The number of forks between the process that loaded the library and this one. If it has changed, this is a
/// child process, and recorded threads and registrations belong to its parent.
pub(crate) fn count() -> u32 {
    static HOOK: Once = Once::new();
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // The handler only increments an atomic, which is allowed after a fork.
    HOOK.call_once(|| crate::platform::in_forked_children(in_child));
    FORKS.load(Ordering::Relaxed)
}
