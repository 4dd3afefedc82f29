//! Waiting for another thread or process: spins, then yields, then sleeps, and from time to time asks the
//! caller to check whether the other process is alive.
#![cfg_attr(loom, allow(dead_code))] // loom only yields.

/// The first `SPINS` steps spin, those up to `YIELDS` yield, and later ones sleep for a short time.
const SPINS: u32 = 64;
const YIELDS: u32 = 256;
/// Number of sleeping steps from one check of the other process to the next.
const CHECK_EVERY: u32 = 16;
const SLEEP: std::time::Duration = std::time::Duration::from_micros(100);

#[derive(Default)]
pub(super) struct Wait {
    steps: u32,
}

impl Wait {
    /// Waits for one step. Returns true if the caller should check whether the other process is still alive.
    pub(super) fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_add(1);
        #[cfg(loom)]
        {
            loom::thread::yield_now();
            false
        }
        #[cfg(not(loom))]
        if self.steps <= SPINS {
            std::hint::spin_loop();
            false
        } else if self.steps <= YIELDS {
            std::thread::yield_now();
            false
        } else {
            std::thread::sleep(SLEEP);
            self.steps.is_multiple_of(CHECK_EVERY)
        }
    }
}
