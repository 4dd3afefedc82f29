#![doc = include_str!("../README.md")]

mod bulk;
mod descent;
mod error;
mod exclusive;
mod fork;
pub mod kernels;
mod layout;
pub mod memory;
mod mixture;
mod node;
mod path;
mod platform;
mod prefetch;
mod priority;
mod region;
pub mod replay;
mod rng;
mod sample;
mod stats;
pub mod sync;
mod top;
mod tree;
mod write;

pub use error::SumTreeError;
pub use layout::{DEFAULT_FAN_OUT, FAN_OUTS, MAX_CAPACITY, max_weight};
pub use mixture::{Mixture, MixtureProbabilities};
pub use path::{PATH_VARIABLE, Path};
pub use priority::{DEFAULT_SCALE, Scale};
pub use region::{Cells, LINE_BYTES, Region, SharedCell};
pub use rng::Rng;
pub use sample::Draws;
pub use stats::SIZES;
pub use tree::SumTree;

/// An integer type that can index a leaf. Negative and too large values are errors, whose message shows the
/// value as given.
pub trait Index: Copy + sealed::Sealed {
    /// The index. A value that does not fit becomes a number beyond the capacity of any tree.
    fn to_usize(self) -> usize;
    /// The value as given, for error messages.
    fn to_i128(self) -> i128;
}

mod sealed {
    /// Only this crate implements `Index`: unchecked code relies on `to_usize` returning the same number at
    /// each call.
    pub trait Sealed {}
}

macro_rules! index {
    ($($int:ty),*) => { $(
        impl sealed::Sealed for $int {}
        impl Index for $int {
            #[inline(always)]
            fn to_usize(self) -> usize {
                // With 64-bit pointers a negative value becomes 2^63 or more, beyond any capacity.
                if cfg!(target_pointer_width = "64") { self as usize } else { usize::try_from(self).unwrap_or(usize::MAX) }
            }
            fn to_i128(self) -> i128 { self as i128 }
        }
    )* };
}
index!(u32, u64, usize, i32, i64);
