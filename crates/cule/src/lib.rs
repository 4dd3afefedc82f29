//! The Atari 2600: one machine, exact against the reference, and the games that run on it.

mod error;
pub mod observe;
pub mod rom;

pub use error::CuleError;
