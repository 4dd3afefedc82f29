//! Tests the GPU batch without a GPU: the host code that launches kernels on a device launches them compiled
//! as host C++ (`kernels/host.cpp`). Observations, figures and saved states must equal those of the CPU
//! batch, byte for byte.

#![allow(clippy::unwrap_used, reason = "a test fails if its program cannot be run")]
#![allow(unsafe_code, reason = "calls functions of a library that was compiled here")]

#[path = "../support/compiled.rs"]
mod compiled;
#[path = "../support/roms.rs"]
mod roms;

mod forms;
mod launches;
mod pair;
mod programs;
mod settings;
mod states;
mod variations;
