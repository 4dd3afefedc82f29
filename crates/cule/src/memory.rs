//! Allocations that fail with [`CuleError::OutOfMemory`] where the standard ones end the process. Host only.

use crate::CuleError;

/// An empty vector with room for `count` elements.
///
/// # Errors
/// [`CuleError::OutOfMemory`].
pub fn reserved<T>(count: usize) -> Result<Vec<T>, CuleError> {
    let mut vector = vec![];
    match vector.try_reserve_exact(count) {
        Ok(()) => Ok(vector),
        Err(_) => Err(CuleError::OutOfMemory { bytes: count.saturating_mul(size_of::<T>()) }),
    }
}

/// `count` copies of `value`.
///
/// # Errors
/// [`CuleError::OutOfMemory`].
pub fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>, CuleError> {
    let mut vector = reserved(count)?;
    vector.resize(count, value);
    Ok(vector)
}

/// Checks that `bytes` can be allocated now: what follows is many small allocations, which cannot fail one by one.
///
/// # Errors
/// [`CuleError::OutOfMemory`].
pub fn check(bytes: usize) -> Result<(), CuleError> {
    let room: Vec<u8> = reserved(bytes)?;
    // Without a use the compiler may leave out the allocation.
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
