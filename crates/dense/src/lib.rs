//! Small networks of dense layers with ReLU, forward and back, by one thread.
//!
//! For learners whose products take a tenth of a millisecond: started one by one from Python, a pass and its way back are
//! some forty operations, and starting them costs as much as the arithmetic. Products are the `gemm` crate's, which finds
//! the processor's vector instructions when it runs. One thread does all, so that numbers depend on nothing else.
//!
//! Adam's step is here too.
//!
//! `x -> relu(x W^T + b) -> ... -> features`, and on the features heads without ReLU, side by side.

mod adam;
mod error;
mod pass;
mod product;

pub use adam::{Adam, Buffers};
pub use error::DenseError;
pub use pass::{Gradient, Layer, Pass, Shape};
