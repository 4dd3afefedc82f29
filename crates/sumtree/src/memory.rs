//! Vectors for batches of any size: memory that the system refuses is an error of the call, not an abort of the process.
//! Those of a few kilobytes are made as any other.

use crate::SumTreeError;
use crate::region::check_against_machine;

/// Less is allocated as anywhere else: where it fails, the error could not be told either.
const SMALL_BYTES: usize = 4096;

/// Whether so many elements are few.
#[inline(always)]
fn is_small<T>(length: usize) -> bool {
    length <= SMALL_BYTES / size_of::<T>().max(1)
}

/// An empty vector with room for `length` elements.
///
/// # Errors
/// [`SumTreeError::OutOfMemory`] when the system refuses the memory, or the machine could never hold it.
#[inline(always)]
pub fn vec_with_capacity<T>(length: usize) -> Result<Vec<T>, SumTreeError> {
    if is_small::<T>(length) { Ok(Vec::with_capacity(length)) } else { large(length) }
}

#[cold]
#[inline(never)]
fn large<T>(length: usize) -> Result<Vec<T>, SumTreeError> {
    let mut items = Vec::new();
    reserve(&mut items, length)?;
    Ok(items)
}

/// A vector of `length` elements of value zero (the default).
///
/// # Errors
/// As [`vec_with_capacity`].
#[inline(always)]
pub fn vec_of_zeros<T: Copy + Default>(length: usize) -> Result<Vec<T>, SumTreeError> {
    let mut items = vec_with_capacity(length)?;
    items.resize(length, T::default());
    Ok(items)
}

/// Makes room for `more` elements in `items`.
///
/// # Errors
/// As [`vec_with_capacity`].
#[inline]
pub fn reserve<T>(items: &mut Vec<T>, more: usize) -> Result<(), SumTreeError> {
    let bytes = more.saturating_mul(size_of::<T>());
    check_against_machine(bytes)?;
    items.try_reserve_exact(more).map_err(|error| out_of_memory(bytes, &error))
}

/// Whether so many bytes could be in memory at once. Arrays made without touching them may be larger together than the
/// machine's memory; the process is killed later, when they are filled.
///
/// # Errors
/// [`SumTreeError::OutOfMemory`] when the machine, or the control group of this process, has less.
#[inline]
pub fn check(bytes: usize) -> Result<(), SumTreeError> {
    check_against_machine(bytes)
}

/// The items of an iterator, whose number is not known before.
///
/// # Errors
/// As [`vec_with_capacity`].
pub(crate) fn collect<T>(from: impl Iterator<Item = T>) -> Result<Vec<T>, SumTreeError> {
    let mut items = Vec::new();
    for item in from {
        if items.len() == items.capacity() {
            let more = items.len().max(16);
            reserve(&mut items, more)?;
        }
        items.push(item);
    }
    Ok(items)
}

#[cold]
pub(crate) fn out_of_memory(bytes: usize, error: &impl ToString) -> SumTreeError {
    SumTreeError::OutOfMemory { bytes: bytes as u64, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_the_machine_are_errors() {
        for length in [1 << 50, usize::MAX / 8, usize::MAX] {
            let error = vec_of_zeros::<u64>(length).unwrap_err();
            assert!(matches!(error, SumTreeError::OutOfMemory { .. }), "{error}");
        }
        assert_eq!(vec_of_zeros::<u32>(3).unwrap(), [0; 3]);
        assert_eq!(collect(0..1000).unwrap(), (0..1000).collect::<Vec<_>>());
    }
}
