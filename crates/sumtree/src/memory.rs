//! Allocates vectors for batches of any size: if the system refuses the memory, the call returns an error
//! instead of aborting the process. Vectors of up to 4 KiB are allocated as usual.

use crate::SumTreeError;
use crate::region::check_machine_memory;

/// Vectors up to this size are allocated as usual: if that fails, there is no memory to report an error
/// either.
const SMALL_BYTES: usize = 4096;

/// Returns true if `length` elements take at most `SMALL_BYTES`.
#[inline(always)]
fn is_small<T>(length: usize) -> bool {
    length <= SMALL_BYTES / size_of::<T>().max(1)
}

/// Returns an empty vector with capacity for `length` elements.
///
/// # Errors
/// [`SumTreeError::OutOfMemory`] if the system refuses the memory, or the machine has less.
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

/// Returns a vector of `length` default elements (zeros).
///
/// # Errors
/// As [`vec_with_capacity`].
#[inline(always)]
pub fn vec_of_zeros<T: Copy + Default>(length: usize) -> Result<Vec<T>, SumTreeError> {
    let mut items = vec_with_capacity(length)?;
    items.resize(length, T::default());
    Ok(items)
}

/// Reserves capacity for `more` additional elements in `items`.
///
/// # Errors
/// As [`vec_with_capacity`].
#[inline]
pub fn reserve<T>(items: &mut Vec<T>, more: usize) -> Result<(), SumTreeError> {
    let bytes = more.saturating_mul(size_of::<T>());
    check_machine_memory(bytes)?;
    items.try_reserve_exact(more).map_err(|error| out_of_memory(bytes, &error))
}

/// Checks that `bytes` fit in memory at once. The system may grant untouched arrays that are together larger
/// than the machine's memory, and kill the process later, when they are filled.
///
/// # Errors
/// [`SumTreeError::OutOfMemory`] when the machine, or the control group of this process, has less.
#[inline]
pub fn check(bytes: usize) -> Result<(), SumTreeError> {
    check_machine_memory(bytes)
}

/// Collects an iterator whose length is not known in advance.
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
