//! `parl._native.CudaProgram`: the kernels of trees and replays on a CUDA device. Launches take addresses and
//! a stream; torch allocates and owns the memory.

use std::ffi::c_void;
use std::path::PathBuf;

use cuda::{Program, Sources};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::cuda_error;

/// The sources of `sumtree`.
pub const SOURCES: Sources = Sources {
    files: &sumtree::kernels::FILES,
    headers: &sumtree::kernels::HEADERS,
    kernels: &sumtree::kernels::KERNELS,
};
/// Largest struct of a launch; the driver's limit for all arguments is 4 KiB.
const ARGUMENT_BYTES_MAX: usize = 2048;
/// Structs of kernels are aligned to this.
const ALIGNMENT: usize = size_of::<u64>();

/// Returns true if a file is one of [`SOURCES`].
pub fn is_source_file(file: &str) -> bool {
    SOURCES.files.iter().any(|(name, _)| *name == file)
}

/// Copies bytes into words, so that they are aligned as the kernels' structs.
fn words(bytes: &[u8], name: &str) -> PyResult<Vec<u64>> {
    if bytes.len() > ARGUMENT_BYTES_MAX || !bytes.len().is_multiple_of(ALIGNMENT) {
        let message = format!("{name} has {} bytes, expected a multiple of 8 up to 2048", bytes.len());
        return Err(PyValueError::new_err(message));
    }
    let word = |chunk: &[u8]| u64::from_ne_bytes(chunk.try_into().unwrap_or_default());
    Ok(bytes.chunks_exact(ALIGNMENT).map(word).collect())
}

/// The kernels of `crates/sumtree/kernels` on one device.
#[pyclass(frozen, module = "parl._native")]
pub struct CudaProgram {
    program: Program,
    /// True if every kernel came from the kernel cache.
    #[pyo3(get)]
    from_cache: bool,
}

#[pymethods]
impl CudaProgram {
    #[new]
    #[allow(clippy::needless_pass_by_value, reason = "extracted from Python")]
    fn new(py: Python<'_>, device: u32, nvrtc_folders: Vec<PathBuf>) -> PyResult<Self> {
        let program = py.detach(|| Program::new(device, &nvrtc_folders, &SOURCES));
        let program = program.map_err(|error| cuda_error(py, &error))?;
        let from_cache = program.from_cache;
        Ok(Self { program, from_cache })
    }

    /// Starts a kernel with its two structs; `shape` is the number of blocks and of threads per block. The
    /// addresses in the structs are not checked.
    fn launch(
        &self,
        py: Python<'_>,
        kernel: &str,
        shape: (u32, u32),
        plan: &[u8],
        call: &[u8],
        stream: u64,
    ) -> PyResult<()> {
        let (mut plan, mut call) = (words(plan, "plan")?, words(call, "call")?);
        let mut arguments = [plan.as_mut_ptr().cast::<c_void>(), call.as_mut_ptr().cast::<c_void>()];
        self.program.launch(kernel, shape, &mut arguments, stream).map_err(|error| cuda_error(py, &error))
    }
}
