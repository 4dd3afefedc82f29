//! Thread affinity: pins each worker thread to one core. Host only.

use std::thread;

use core_affinity::CoreId;

use crate::CuleError;

const NAME: &str = "thread_affinity_offset";

/// The cores that this process may use, and the index of the first thread's core among them.
#[derive(Clone, Debug)]
pub(super) struct Affinity {
    cores: Vec<CoreId>,
    offset: usize,
}

impl Affinity {
    /// Assigns thread i to core `(offset + i) % count`, where `count` is the number of cores that this
    /// process may use.
    ///
    /// # Errors
    /// [`CuleError::Setting`] if the system does not support thread affinity.
    pub(super) fn new(offset: usize) -> Result<Self, CuleError> {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        let affinity = Self { cores, offset };
        // Tried on a temporary thread, so that the affinity of the calling thread does not change.
        let probe = affinity.clone();
        let works = !affinity.cores.is_empty() && thread::spawn(move || probe.pin(0)).join().unwrap_or(false);
        if works {
            return Ok(affinity);
        }
        let bound = "a negative number: this system does not support thread affinity";
        Err(CuleError::Setting { name: NAME, value: offset.to_string(), bound })
    }

    /// Pins the calling thread to the core of thread number `thread`. Returns false if the system refuses.
    pub(super) fn pin(&self, thread: usize) -> bool {
        core_affinity::set_for_current(self.cores[self.offset.wrapping_add(thread) % self.cores.len()])
    }
}
