//! A memory fence, for memory that Python code of several threads or processes shares without locks.

use std::sync::atomic::{Ordering, fence};

use pyo3::prelude::*;

/// Keeps the order of reads and writes of memory before and after the call.
#[pyfunction]
pub fn memory_fence() {
    fence(Ordering::SeqCst);
}
