//! Allocations that return [`CuleError::OutOfMemory`] where those of the standard library abort. Host only.

use crate::CuleError;

/// Returns an empty vector with capacity for `count` elements.
///
/// # Errors
/// [`CuleError::OutOfMemory`] if the allocation fails.
pub fn reserved<T>(count: usize) -> Result<Vec<T>, CuleError> {
    let mut vector = vec![];
    match vector.try_reserve_exact(count) {
        Ok(()) => Ok(vector),
        Err(_) => Err(CuleError::OutOfMemory { bytes: count.saturating_mul(size_of::<T>()) }),
    }
}

/// Returns a vector with `count` copies of `value`.
///
/// # Errors
/// [`CuleError::OutOfMemory`] if the allocation fails.
pub fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>, CuleError> {
    let mut vector = reserved(count)?;
    vector.resize(count, value);
    Ok(vector)
}

/// Checks that `bytes` can be allocated now. For use before many small allocations that cannot return an
/// error.
///
/// # Errors
/// [`CuleError::OutOfMemory`] if the allocation fails.
pub fn check(bytes: usize) -> Result<(), CuleError> {
    let room: Vec<u8> = reserved(bytes)?;
    // The compiler may remove an unused allocation.
    std::hint::black_box(room.as_ptr());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_is_an_error_that_names_the_bytes() {
        for error in [
            check(isize::MAX as usize).unwrap_err(),
            reserved::<u64>(isize::MAX as usize / 8).unwrap_err(),
            filled(7u8, isize::MAX as usize).unwrap_err(),
        ] {
            let CuleError::OutOfMemory { bytes } = error else { panic!("{error}") };
            assert!(bytes > isize::MAX as usize - 8, "{bytes}");
        }
        assert_eq!(filled(7u8, 3).unwrap(), [7, 7, 7]);
        check(1 << 20).unwrap();
    }
}
