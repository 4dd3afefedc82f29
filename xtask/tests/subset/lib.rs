//! Device subset. Every construct of the subset, as functions of three numbers: `tests/translated.rs` runs them as
//! Rust and as the C++ they are translated into.

pub mod arithmetic;
pub mod constants;
pub mod control;
pub mod generics;
pub mod places;

/// Folds a value into a running hash.
pub fn mix(hash: u64, value: u64) -> u64 {
    (hash.rotate_left(7) ^ value).wrapping_mul(0x100_0000_01B3)
}
