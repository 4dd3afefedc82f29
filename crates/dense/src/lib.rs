//! Small networks of dense layers with ReLU: forward and backward passes in one thread.
//!
//! For learners whose matrix products take a tenth of a millisecond: a forward and backward pass is some
//! forty operations, and starting these one by one from Python costs as much as the arithmetic. Products use
//! the `gemm` crate, which detects the processor's vector instructions at run time. Everything runs in one
//! thread, so results do not depend on the number of threads.
//!
//! The crate also has the step of Adam.
//!
//! A network is `x -> relu(x W^T + b) -> ... -> features`, with any number of heads on the features, without
//! ReLU.

mod adam;
mod error;
mod pass;
mod product;

pub use adam::{Adam, Buffers};
pub use error::DenseError;
pub use pass::{Gradient, Layer, Pass, Shape};
