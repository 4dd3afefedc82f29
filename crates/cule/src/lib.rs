//! Atari 2600 emulator whose frames equal those of ale-py, with the rules of its games, on CPU and GPU.

pub mod batch;
pub mod console;
pub mod env;
mod error;
#[cfg_attr(processor_alone, allow(dead_code))]
pub mod fast_cpu;
pub mod games;
pub mod machine;
pub mod memory;
pub mod numpy_random;
pub mod observe;
pub mod random;
pub mod rom;
pub mod sound;
#[cfg(test)]
#[path = "../tests/support/roms.rs"]
mod test_roms;

pub use console::{Console, Options};
pub use error::CuleError;
