//! Checks that all numbers of an array are finite, for the rewards and observations of every step.

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::arrays::typed_slice;

/// Numbers that are read before the loop checks whether to stop.
const PART: usize = 4096;
/// Arrays longer than this are read while detached from the interpreter.
const LONG: usize = 1 << 16;

/// Returns true if no number of `array` is NaN or infinite. Integers and booleans are finite.
#[pyfunction]
pub fn all_finite(py: Python<'_>, array: &Bound<'_, PyUntypedArray>) -> PyResult<bool> {
    if let Some(numbers) = typed_slice::<f32>(array) {
        return Ok(if numbers.len() > LONG { py.detach(|| all(numbers)) } else { all(numbers) });
    }
    if let Some(numbers) = typed_slice::<f64>(array) {
        return Ok(if numbers.len() > LONG { py.detach(|| all(numbers)) } else { all(numbers) });
    }
    if !matches!(array.dtype().kind(), b'f' | b'c') {
        return Ok(true);
    }
    // Other widths, byte orders and layouts.
    py.import("numpy")?.call_method1("isfinite", (array,))?.call_method0("all")?.is_truthy()
}

trait Real: Copy + Sync {
    fn finite(self) -> bool;
}

impl Real for f32 {
    fn finite(self) -> bool {
        self.is_finite()
    }
}

impl Real for f64 {
    fn finite(self) -> bool {
        self.is_finite()
    }
}

fn all<T: Real>(numbers: &[T]) -> bool {
    // `&` instead of `&&`, so that the compiler vectorizes the loop.
    numbers.chunks(PART).all(|part| part.iter().fold(true, |all, number| all & number.finite()))
}
