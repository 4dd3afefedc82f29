//! The project's own tasks as a library, so that tests can call them; `main.rs` is the command line.
//!
//! [`device`] translates the device subset of Rust into CUDA C++, [`kernels`] writes and checks what is generated.

pub mod device;
pub mod fast_cpu;
pub mod interpreter;
pub mod kernels;
pub mod predicated;
pub mod ptx;
