//! The arrays of a call as slices, none of which overlaps another.

#![allow(unsafe_code, reason = "slices over the memory of XLA's arrays")]

use std::ffi::c_int;
use std::ops::Range;
use std::slice;

use bytemuck::{Pod, Zeroable};

use crate::abi::{self, Buffer, CallFrame};

/// Element type of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// `bool`, a byte of 0 or 1.
    Bool,
    /// `uint8`.
    U8,
    /// `int32`.
    I32,
    /// `uint32`.
    U32,
}

impl Dtype {
    /// The type with XLA's number for it.
    fn new(number: c_int) -> Option<Self> {
        Some(match number {
            1 => Self::Bool,
            4 => Self::I32,
            6 => Self::U8,
            8 => Self::U32,
            _ => return None,
        })
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bool | Self::U8 => 1,
            Self::I32 | Self::U32 => 4,
        }
    }
}

/// A Rust type for the elements of an array.
pub trait Element: Pod {
    /// The type of the array.
    const DTYPE: Dtype;
}

/// An element of a `bool` array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Flag(u8);

impl From<bool> for Flag {
    fn from(flag: bool) -> Self {
        Self(flag.into())
    }
}

impl Element for Flag {
    const DTYPE: Dtype = Dtype::Bool;
}

impl Element for u8 {
    const DTYPE: Dtype = Dtype::U8;
}

impl Element for i32 {
    const DTYPE: Dtype = Dtype::I32;
}

impl Element for u32 {
    const DTYPE: Dtype = Dtype::U32;
}

/// Where the contents of an argument are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents<'a> {
    /// In an array of its own.
    Bytes(&'a [u8]),
    /// In the array of the result with this index, which is to be changed in place.
    InResult(usize),
}

/// An argument of a call.
#[derive(Debug)]
pub struct Argument<'a> {
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions.
    pub shape: &'a [i64],
    /// The elements.
    pub contents: Contents<'a>,
}

/// A result of a call.
#[derive(Debug)]
pub struct Output<'a> {
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions.
    pub shape: &'a [i64],
    bytes: &'a mut [u8],
}

fn check<T: Element>(dtype: Dtype) -> Result<(), String> {
    if dtype == T::DTYPE { Ok(()) } else { Err(format!("an array is {dtype:?}, expected {:?}", T::DTYPE)) }
}

impl<'a> Argument<'a> {
    /// The elements of an array that has memory of its own.
    ///
    /// # Errors
    /// The array has another type, is not aligned, or lies in the memory of a result.
    pub fn elements<T: Element>(&self) -> Result<&'a [T], String> {
        check::<T>(self.dtype)?;
        match self.contents {
            // An empty slice need not be aligned.
            Contents::Bytes([]) => Ok(&[]),
            Contents::Bytes(bytes) => {
                bytemuck::try_cast_slice(bytes).map_err(|error| format!("an array: {error}"))
            }
            Contents::InResult(result) => Err(format!("an argument lies in the memory of result {result}")),
        }
    }
}

impl Output<'_> {
    /// The elements, to be written.
    ///
    /// # Errors
    /// The array has another type, or is not aligned.
    pub fn elements<T: Element>(&mut self) -> Result<&mut [T], String> {
        check::<T>(self.dtype)?;
        if self.bytes.is_empty() {
            return Ok(&mut []);
        }
        bytemuck::try_cast_slice_mut(self.bytes).map_err(|error| format!("an array: {error}"))
    }
}

/// Type, dimensions and address range of an array.
struct Place<'a> {
    dtype: Dtype,
    shape: &'a [i64],
    range: Range<usize>,
    start: *mut u8,
}

impl<'a> Place<'a> {
    /// # Safety
    /// `buffer` is an array of a valid frame.
    unsafe fn new(buffer: &'a Buffer) -> Result<Self, String> {
        let dtype = Dtype::new(buffer.dtype).ok_or_else(|| format!("unknown dtype {}", buffer.dtype))?;
        // SAFETY: that of this function.
        let shape = unsafe { abi::dims(buffer) };
        let length = shape
            .iter()
            .try_fold(dtype.bytes(), |length, &dim| length.checked_mul(usize::try_from(dim).ok()?))
            .filter(|&length| isize::try_from(length).is_ok())
            .ok_or_else(|| format!("an array has the shape {shape:?}"))?;
        let start: *mut u8 = buffer.data.cast();
        if start.is_null() && length > 0 {
            return Err(format!("an array of shape {shape:?} has no memory"));
        }
        Ok(Self { dtype, shape, range: start as usize..start as usize + length, start })
    }

    fn overlaps(&self, other: &Self) -> bool {
        !self.range.is_empty()
            && !other.range.is_empty()
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

/// Arguments and results of a call. Only here are slices made of addresses: those of results overlap nothing,
/// since an argument with the same address and length as a result is only in the results, and any other
/// overlap is an error.
///
/// # Safety
/// The frame is valid, and nothing else reads or writes the arrays while the slices live.
pub unsafe fn of_call(frame: &CallFrame) -> Result<(Vec<Argument<'_>>, Vec<Output<'_>>), String> {
    let places = |buffers| {
        // SAFETY: the frame is valid, and so are its arrays.
        unsafe {
            abi::items(buffers)?.into_iter().map(|buffer| Place::new(buffer)).collect::<Result<Vec<_>, _>>()
        }
    };
    let (inputs, outputs) = (places(&frame.arguments)?, places(&frame.results)?);
    for (i, output) in outputs.iter().enumerate() {
        if let Some(other) = outputs[..i].iter().position(|other| other.overlaps(output)) {
            return Err(format!("results {other} and {i} overlap"));
        }
    }
    let argument = |input: &Place<'_>| {
        let shared = outputs.iter().position(|output| output.overlaps(input));
        match shared {
            Some(result) if outputs[result].range != input.range => {
                return Err(format!("an argument overlaps a part of result {result}"));
            }
            Some(result) => return Ok(Contents::InResult(result)),
            None if input.range.is_empty() => return Ok(Contents::Bytes(&[])),
            None => {}
        }
        // SAFETY: the memory of an array, which no result overlaps; others do not write it.
        Ok(Contents::Bytes(unsafe { slice::from_raw_parts(input.start, input.range.len()) }))
    };
    let arguments = inputs
        .iter()
        .map(|input| Ok(Argument { dtype: input.dtype, shape: input.shape, contents: argument(input)? }))
        .collect::<Result<_, String>>()?;
    let results = outputs
        .iter()
        .map(|output| {
            let bytes: &mut [u8] = if output.range.is_empty() {
                &mut []
            } else {
                // SAFETY: the memory of an array, which no slice of this call overlaps; others do not use it.
                // XLA has allocated it; bytes have no invalid values.
                unsafe { slice::from_raw_parts_mut(output.start, output.range.len()) }
            };
            Output { dtype: output.dtype, shape: output.shape, bytes }
        })
        .collect();
    Ok((arguments, results))
}
