//! Converts Rust errors to Python exceptions, with one match per enum.

use cuda::CudaError;
use cule::CuleError;
use dense::DenseError;
use pyo3::exceptions::{
    PyFileNotFoundError, PyIndexError, PyMemoryError, PyOSError, PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use sumtree::SumTreeError;
use sumtree::replay::ReplayError;

/// An exception of the class `name` of `parl.errors`, with `message`.
fn parl_error(py: Python<'_>, cell: &'static PyOnceLock<Py<PyAny>>, name: &str, message: String) -> PyErr {
    match cell.import(py, "parl.errors", name).and_then(|class| class.call1((message,))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

macro_rules! parl_error {
    ($py:expr, $name:literal, $message:expr) => {{
        static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        parl_error($py, &CLASS, $name, $message)
    }};
}

pub fn sumtree_error(py: Python<'_>, error: SumTreeError) -> PyErr {
    let message = error.to_string();
    match error {
        SumTreeError::Index { .. } => PyIndexError::new_err(message),
        SumTreeError::OutOfMemory { .. } => PyMemoryError::new_err(message),
        SumTreeError::Empty | SumTreeError::TooFewLeaves { .. } => {
            parl_error!(py, "NotSampleableError", message)
        }
        SumTreeError::Shared { .. } | SumTreeError::OtherLayout { .. } => {
            parl_error!(py, "SharedMemoryError", message)
        }
        SumTreeError::Inconsistent { .. } | SumTreeError::Histogram { .. } => {
            parl_error!(py, "InconsistentError", message)
        }
        SumTreeError::Capacity { .. }
        | SumTreeError::FanOut { .. }
        | SumTreeError::Weight { .. }
        | SumTreeError::Priority { .. }
        | SumTreeError::Scale { .. }
        | SumTreeError::Prefix { .. }
        | SumTreeError::Length { .. }
        | SumTreeError::Rank { .. }
        | SumTreeError::OutsideRegion { .. }
        | SumTreeError::Name { .. }
        | SumTreeError::Shares { .. }
        | SumTreeError::Path { .. } => PyValueError::new_err(message),
    }
}

pub fn replay_error(py: Python<'_>, error: ReplayError) -> PyErr {
    let message = error.to_string();
    match error {
        ReplayError::Tree(error) => sumtree_error(py, error),
        ReplayError::Env { .. } | ReplayError::Ticket { .. } | ReplayError::UnknownTicket { .. } => {
            PyIndexError::new_err(message)
        }
        ReplayError::Setting { .. }
        | ReplayError::Field { .. }
        | ReplayError::RowBytes { .. }
        | ReplayError::Discount { .. }
        | ReplayError::FinalObservation { .. } => PyValueError::new_err(message),
        ReplayError::Reward { .. } => parl_error!(py, "NonFiniteError", message),
        ReplayError::Row { .. } => parl_error!(py, "InconsistentError", message),
        ReplayError::NotSampleable { .. } => parl_error!(py, "NotSampleableError", message),
        ReplayError::OtherReplay { .. }
        | ReplayError::NotAReplay { .. }
        | ReplayError::TooManyProcesses { .. } => parl_error!(py, "SharedMemoryError", message),
        ReplayError::Closed => parl_error!(py, "ReplayClosedError", message),
        ReplayError::File { .. } | ReplayError::Rows { .. } => parl_error!(py, "ReplayFileError", message),
        // With an error number Python chooses the subclass, such as FileNotFoundError.
        // Python gives the number of an error of Windows separately, and computes the other from it.
        ReplayError::Io { path, reason, code: Some(code) } if cfg!(windows) => {
            PyOSError::new_err((0, reason, path, code))
        }
        ReplayError::Io { path, reason, code: Some(code) } => PyOSError::new_err((code, reason, path)),
        ReplayError::Io { code: None, .. } => PyOSError::new_err(message),
    }
}

pub fn dense_error(error: &DenseError) -> PyErr {
    match error {
        DenseError::Gradient { .. } => {
            Python::attach(|py| parl_error!(py, "NonFiniteError", error.to_string()))
        }
        DenseError::Without(_)
        | DenseError::Length { .. }
        | DenseError::Count { .. }
        | DenseError::Rows { .. }
        | DenseError::First { .. } => PyValueError::new_err(error.to_string()),
    }
}

pub fn cuda_error(py: Python<'_>, error: &CudaError) -> PyErr {
    let message = error.to_string();
    match error {
        CudaError::Unavailable { .. } => parl_error!(py, "CudaUnavailableError", message),
        CudaError::Failed { .. } => PyRuntimeError::new_err(message),
        CudaError::Length { .. } => PyValueError::new_err(message),
    }
}

pub fn cule_error(py: Python<'_>, error: CuleError) -> PyErr {
    let message = error.to_string();
    match error {
        CuleError::RomNotFound { .. } => PyFileNotFoundError::new_err(message),
        // As above.
        CuleError::RomUnreadable { path, source } => match source.raw_os_error() {
            Some(code) => PyOSError::new_err((code, source.to_string(), path)),
            None => PyOSError::new_err(message),
        },
        CuleError::Cuda(error) => cuda_error(py, &error),
        CuleError::OutOfMemory { .. } => PyMemoryError::new_err(message),
        CuleError::RamIndex { .. } => PyIndexError::new_err(message),
        CuleError::RomWrongMd5 { .. }
        | CuleError::RomSize { .. }
        | CuleError::SchemeUnsupported { .. }
        | CuleError::GameUnknown { .. }
        | CuleError::Mode { .. }
        | CuleError::OnePlayer { .. }
        | CuleError::Difficulty { .. }
        | CuleError::Setting { .. }
        | CuleError::BufferLength { .. }
        | CuleError::NoSound
        | CuleError::State { .. }
        | CuleError::ModeSelection { .. } => parl_error!(py, "AtariError", message),
        // The enum is non-exhaustive.
        _ => parl_error!(py, "AtariError", message),
    }
}
