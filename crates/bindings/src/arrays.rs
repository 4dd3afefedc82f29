//! Borrows numpy arrays as slices, after checks of shape, type and layout.
//!
//! Slices stay borrowed while the interpreter is detached. numpy does not resize an array that has other
//! references. If the caller writes into an argument from another thread during a call, results are
//! unspecified; numbers that are used unchecked after a check, such as the indices of a sum tree, are copied
//! before it.
#![allow(unsafe_code)] // Slices over the memory of arrays; each block states its invariants.

use numpy::npyffi::flags::{NPY_ARRAY_ALIGNED, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE};
use numpy::npyffi::{PY_ARRAY_API, npy_intp};
use numpy::{Element, PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use sumtree::memory;
use sumtree::replay::Priorities;

use crate::errors::sumtree_error;

fn has_flags(array: &Bound<'_, PyUntypedArray>, wanted: i32) -> bool {
    // SAFETY: the pointer of a live array object.
    let flags = unsafe { (*array.as_array_ptr()).fields.flags };
    flags & wanted == wanted
}

fn start(array: &Bound<'_, PyUntypedArray>) -> *mut u8 {
    // SAFETY: the pointer of a live array object.
    unsafe { (*array.as_array_ptr()).fields.data.cast() }
}

/// All bytes of a C-contiguous array.
pub fn bytes<'a>(array: &'a Bound<'_, PyUntypedArray>, name: &str) -> PyResult<&'a [u8]> {
    if !has_flags(array, NPY_ARRAY_C_CONTIGUOUS) {
        return Err(PyValueError::new_err(format!("{name} is not C-contiguous")));
    }
    let length = array.len() * array.dtype().itemsize();
    if length == 0 {
        return Ok(&[]);
    }
    // SAFETY: a C-contiguous array of `length` bytes, kept alive by the borrow; see the module
    // documentation on writers.
    Ok(unsafe { std::slice::from_raw_parts(start(array), length) })
}

/// A borrowed array of real numbers.
pub struct Reals<'a> {
    pub slice: Priorities<'a>,
    /// True if the array has no dimensions: one number for all elements that it is matched with.
    pub is_scalar: bool,
}

impl<'a> Reals<'a> {
    /// Borrows an array that [`reals`] returned.
    pub fn of(array: &'a Bound<'_, PyUntypedArray>) -> Self {
        let slice = match typed_slice::<f32>(array) {
            Some(slice) => Priorities::F32(slice),
            None => Priorities::F64(typed_slice(array).unwrap_or_default()),
        };
        Self { slice, is_scalar: array.ndim() == 0 }
    }

    pub fn len(&self) -> usize {
        match self.slice {
            Priorities::F32(p) => p.len(),
            Priorities::F64(p) => p.len(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = f64> + use<'a> {
        let slice = self.slice;
        (0..self.len()).map(move |i| match slice {
            Priorities::F32(p) => f64::from(p[i]),
            Priorities::F64(p) => p[i],
        })
    }
}

/// All bytes of a writable C-contiguous array, as a mutable slice.
///
/// # Errors
/// ValueError if the array is not writable and C-contiguous. The caller must not pass an array twice.
#[allow(clippy::mut_from_ref)] // The memory is the array object's, not the reference's.
pub fn bytes_mut<'a>(array: &'a Bound<'_, PyUntypedArray>, name: &str) -> PyResult<&'a mut [u8]> {
    if !has_flags(array, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_WRITEABLE) {
        return Err(PyValueError::new_err(format!("{name} is not C-contiguous and writable")));
    }
    let length = array.len() * array.dtype().itemsize();
    if length == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as in `bytes`, and writable; `check_disjoint` checks that slices of one call do not overlap.
    Ok(unsafe { std::slice::from_raw_parts_mut(start(array), length) })
}

/// Checks that output arrays do not overlap.
pub fn check_disjoint(arrays: &[Bound<'_, PyUntypedArray>]) -> PyResult<()> {
    let mut spans: Vec<_> = arrays
        .iter()
        .map(|array| (start(array) as usize, array.len() * array.dtype().itemsize()))
        .filter(|(_, length)| *length > 0)
        .collect();
    spans.sort_unstable();
    if spans.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
        return Err(PyValueError::new_err("two output arrays share memory"));
    }
    Ok(())
}

/// The elements of an array if it has exactly this type and is C-contiguous and aligned, whatever its shape.
pub fn typed_slice<'a, T: Element>(array: &'a Bound<'_, PyUntypedArray>) -> Option<&'a [T]> {
    let fits = has_flags(array, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED)
        && array.dtype().is_equiv_to(&T::get_dtype(array.py()));
    if !fits {
        return None;
    }
    if array.len() == 0 {
        return Some(&[]);
    }
    // SAFETY: aligned, contiguous, of type T, kept alive by the borrow; see the module documentation on
    // writers.
    Some(unsafe { std::slice::from_raw_parts(start(array).cast(), array.len()) })
}

/// As [`typed_slice`], as a mutable slice; else a ValueError that names the array.
#[allow(clippy::mut_from_ref)] // As above.
pub fn typed_slice_mut<'a, T: Element>(
    array: &'a Bound<'_, PyUntypedArray>,
    name: &str,
) -> PyResult<&'a mut [T]> {
    let fits = has_flags(array, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_WRITEABLE)
        && array.dtype().is_equiv_to(&T::get_dtype(array.py()));
    if !fits {
        let wanted = T::get_dtype(array.py());
        let message =
            format!("{name} is not a writable C-contiguous array of {wanted}, but of {}", array.dtype());
        return Err(PyValueError::new_err(message));
    }
    if array.len() == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as in `typed_slice`, and writable; `check_disjoint` checks that slices of one call do not
    // overlap.
    Ok(unsafe { std::slice::from_raw_parts_mut(start(array).cast(), array.len()) })
}

/// Creates an array and returns it with its memory. Every element must be written before Python gets the
/// array.
///
/// # Errors
/// MemoryError.
pub fn new_array<'py, T: Element + Copy>(
    py: Python<'py>,
    length: usize,
) -> PyResult<(Bound<'py, PyArray1<T>>, &'py mut [T])> {
    const { assert!(!std::mem::needs_drop::<T>()) };
    const MAX_BYTES: usize = 1 << 40;
    if length > MAX_BYTES / size_of::<T>() {
        return Err(PyMemoryError::new_err(format!("an array of {length} elements is too large")));
    }
    memory::check(length * size_of::<T>()).map_err(|error| sumtree_error(py, error))?;
    let mut dims = [length as npy_intp];
    // `PyArray_Zeros` is numpy's calloc: small arrays cost nothing to clear, large ones are cleared by the
    // system. SAFETY: one dimension, and a type description whose ownership the call takes; a null result
    // comes with an exception.
    let array = unsafe {
        let dtype = T::get_dtype(py).into_dtype_ptr();
        let array = PY_ARRAY_API.PyArray_Zeros(py, 1, dims.as_mut_ptr(), dtype, 0);
        Bound::from_owned_ptr_or_err(py, array)?.cast_into_unchecked::<PyArray1<T>>()
    };
    // SAFETY: zeroed, contiguous, of that length; the slice is the only access to the memory until the caller
    // passes the array on, and the caller keeps the array alive that long.
    let slice = unsafe { std::slice::from_raw_parts_mut(array.data(), length) };
    Ok((array, slice))
}

/// Views int64 of numpy as u64 of the core. The bits are the same, and values stay below 2^63.
pub fn as_unsigned(slice: &mut [i64]) -> &mut [u64] {
    // SAFETY: same size and alignment, any bits are a value of both.
    unsafe { std::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), slice.len()) }
}

/// Converts `value` with `numpy.asarray`. Tensors are detached and copied to the CPU first.
///
/// # Errors
/// ValueError if entries are masked, because the array would not show which.
fn as_array<'py>(value: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyUntypedArray>> {
    if let Ok(array) = value.cast_exact::<PyUntypedArray>() {
        return Ok(array.clone());
    }
    if let Ok(array) = value.cast::<PyUntypedArray>() {
        static IS_MASKED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let is_masked = IS_MASKED.import(value.py(), "numpy.ma", "is_masked")?;
        if is_masked.call1((value,))?.extract()? {
            let message = format!("{name} has masked entries, expected an array without a mask");
            return Err(PyValueError::new_err(message));
        }
        return Ok(array.clone());
    }
    static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let asarray = ASARRAY.import(value.py(), "numpy", "asarray")?;
    let value = match value.getattr_opt("detach")? {
        Some(detach) => detach.call0()?.call_method0("cpu")?,
        None => value.clone(),
    };
    let found = asarray.call1((&value,)).or_else(|error| {
        // numpy has no bfloat16; float32 holds its values.
        let is_bf16 =
            value.getattr("dtype").and_then(|dtype| dtype.str()).is_ok_and(|name| name == "torch.bfloat16");
        if is_bf16 { asarray.call1((value.call_method0("float")?,)) } else { Err(error) }
    })?;
    Ok(found.cast_into()?)
}

fn cast_array<'py>(array: &Bound<'py, PyUntypedArray>, dtype: &str) -> PyResult<Bound<'py, PyUntypedArray>> {
    let keywords = PyDict::new(array.py());
    keywords.set_item("order", "C")?;
    Ok(array.call_method("astype", (dtype,), Some(&keywords))?.cast_into()?)
}

fn wrong_kind(name: &str, array: &Bound<'_, PyUntypedArray>, wanted: &str) -> PyErr {
    PyTypeError::new_err(format!("{name} has dtype {}, expected {wanted}", array.dtype()))
}

/// Converts indices to an array of int64; returns the array itself if it is one already.
pub fn indices<'py>(value: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyUntypedArray>> {
    let array = as_array(value, name)?;
    if typed_slice::<i64>(&array).is_some() {
        return Ok(array);
    }
    match array.dtype().kind() {
        b'i' => cast_array(&array, "int64"),
        b'u' => {
            // Beyond 2^63 they would become negative; no index is that large.
            let too_large = array.call_method0("max").is_ok_and(|max| max.gt(i64::MAX).unwrap_or(false));
            if too_large {
                let message = format!("{name} holds {}, outside int64", array.call_method0("max")?);
                return Err(pyo3::exceptions::PyIndexError::new_err(message));
            }
            cast_array(&array, "int64")
        }
        _ if array.len() == 0 => cast_array(&array, "int64"),
        _ => Err(wrong_kind(name, &array, "an integer type")),
    }
}

/// Converts tickets to an array of uint64; returns the array itself if it is one already.
pub fn tickets<'py>(value: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyUntypedArray>> {
    let array = as_array(value, name)?;
    if typed_slice::<u64>(&array).is_some() {
        return Ok(array);
    }
    match array.dtype().kind() {
        b'i' | b'u' => cast_array(&array, "uint64"),
        _ if array.len() == 0 => cast_array(&array, "uint64"),
        _ => Err(wrong_kind(name, &array, "uint64")),
    }
}

/// Converts real numbers to an array of float32 or float64; returns the array itself if it is one already.
pub fn reals<'py>(value: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyUntypedArray>> {
    let array = as_array(value, name)?;
    if typed_slice::<f32>(&array).is_some() || typed_slice::<f64>(&array).is_some() {
        return Ok(array);
    }
    match array.dtype().kind() {
        b'f' | b'i' | b'u' | b'b' => cast_array(&array, "float64"),
        _ => Err(wrong_kind(name, &array, "a real type")),
    }
}
