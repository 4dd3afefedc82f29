//! Waiting for another thread or process: spin, then yield, then sleep, and now and then look whether it is dead.
#![cfg_attr(loom, allow(dead_code))] // loom only yields.

/// Steps of spinning, then of yielding, before steps become short sleeps.
const SPINS: u32 = 64;
const YIELDS: u32 = 256;
/// A step in so many asks whether the other side is alive, once it sleeps.
const CHECK_EVERY: u32 = 16;
const SLEEP: std::time::Duration = std::time::Duration::from_micros(100);

#[derive(Default)]
pub(super) struct Wait {
    steps: u32,
}

impl Wait {
    /// Waits a moment. True when it is time to ask whether the other side is still alive.
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
