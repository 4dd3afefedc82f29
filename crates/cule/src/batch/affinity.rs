//! Threads that stay on a core each. Host only.

use std::thread;

use core_affinity::CoreId;

use crate::CuleError;

const NAME: &str = "thread_affinity_offset";

/// The cores that this process may use, from the one that the first thread gets.
#[derive(Clone, Debug)]
pub(super) struct Affinity {
    cores: Vec<CoreId>,
    offset: usize,
}

impl Affinity {
    /// Thread i will have core number `offset + i`, counted round and round, of those that this process may use.
    ///
    /// # Errors
    /// [`CuleError::Setting`] where the system does not let threads choose.
    pub(super) fn new(offset: usize) -> Result<Self, CuleError> {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        let affinity = Self { cores, offset };
        // Tried on a thread that ends at once: the caller is left alone.
        let probe = affinity.clone();
        let works = !affinity.cores.is_empty() && thread::spawn(move || probe.pin(0)).join().unwrap_or(false);
        if works {
            return Ok(affinity);
        }
        let bound = "a negative number: this system does not place threads";
        Err(CuleError::Setting { name: NAME, value: offset.to_string(), bound })
    }

    /// Puts the calling thread on the core of thread `thread`; false if the system refuses.
    pub(super) fn pin(&self, thread: usize) -> bool {
        core_affinity::set_for_current(self.cores[self.offset.wrapping_add(thread) % self.cores.len()])
    }
}
