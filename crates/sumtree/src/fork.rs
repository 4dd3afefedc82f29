//! Counts the forks of this process.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks in which this process was the child, and in which it was the parent.
static AS_CHILD: AtomicU32 = AtomicU32::new(0);
static AS_PARENT: AtomicU32 = AtomicU32::new(0);

fn install_handlers() {
    static HANDLERS: Once = Once::new();
    // The handlers only increment an atomic, which is allowed after a fork.
    extern "C" fn in_child() {
        AS_CHILD.fetch_add(1, Ordering::Relaxed);
    }
    extern "C" fn in_parent() {
        AS_PARENT.fetch_add(1, Ordering::Relaxed);
    }
    HANDLERS.call_once(|| crate::platform::after_forks(in_parent, in_child));
}

/// The number of forks between the process that loaded the library and this one. If it has changed, this is a
/// child process, and recorded threads and registrations belong to its parent.
pub(crate) fn count() -> u32 {
    install_handlers();
    AS_CHILD.load(Ordering::Relaxed)
}

/// Changes with each fork, in the parent and in the child. While it is the same, no other process has copies
/// of handles that were opened since.
pub(crate) fn seen() -> u32 {
    count().wrapping_add(AS_PARENT.load(Ordering::Relaxed))
}
