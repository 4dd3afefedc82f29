//! The project's development tasks as a library, so that tests can call them; `main.rs` is the command line.
//!
//! [`device`] translates the device subset of Rust to CUDA C++, [`kernels`] writes and checks the generated
//! files.

pub mod device;
pub mod fast_cpu;
pub mod interpreter;
pub mod kernels;
pub mod ptx;
