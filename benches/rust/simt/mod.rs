//! Runs PTX on the host as a GPU runs it: the 32 lanes of a warp share each instruction, lanes that have branched apart run one
//! after the other and meet again at the immediate postdominator of the branch. The text is the compiler's output for a kernel,
//! so that results can be compared without a GPU, and the instructions that a warp executes can be counted.
//!
//! Only what the compiler emits for parl's kernels is supported; anything else is an error that names the line.
//!
//! Sources: the PTX ISA reference; W. Fung et al., *Dynamic Warp Formation and Scheduling for Efficient GPU Control Flow* (2007),
//! for the stack of masks.

mod decode;
mod flow;
mod memory;
mod parse;
mod run;

pub use memory::{Memory, Region};
pub use parse::{Module, parse};
pub use run::{Counts, launch};

/// Number of lanes of a warp.
pub const LANES: usize = 32;
