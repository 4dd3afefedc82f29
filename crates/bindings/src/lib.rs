//! The extension module `parl._native`: the list of exports, nothing else.

mod arrays;
mod atari;
mod atari_config;
mod cuda;
mod dense;
mod errors;
mod fence;
mod finite;
mod locks;
mod program;
mod replay;
mod sumtree;
mod vector;
mod xla;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _native {
    use super::*;

    #[pymodule_export]
    use crate::atari::{Console, GameRow, Rom, game_rows};
    #[pymodule_export]
    use crate::cuda::{CudaAtariBatch, cuda_compile, cuda_prepare, cuda_report};
    #[pymodule_export]
    use crate::dense::{Dense, dense_adam};
    #[pymodule_export]
    use crate::fence::memory_fence;
    #[pymodule_export]
    use crate::finite::all_finite;
    #[pymodule_export]
    use crate::program::CudaProgram;
    #[pymodule_export]
    use crate::replay::{Conversion, Replay};
    #[pymodule_export]
    use crate::sumtree::SumTree;
    #[pymodule_export]
    use crate::vector::{AtariBatch, console_bytes};
    #[pymodule_export]
    use crate::xla::{AtariRows, xla_targets};

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        // The numpy crate finds numpy's functions at first use, and panics if that is interrupted, as by Ctrl-C.
        numpy::dtype::<u8>(m.py());
        m.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
