//! Prefetches of cache lines. They do nothing on machines other than x86-64.
#![allow(unsafe_code)] // Prefetch instructions, which access no memory in terms of the language.

/// Prefetches a cache line for reading.
#[inline(always)]
pub(crate) fn read<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address does nothing but move cache lines.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Requests exclusive ownership of the cache line of a sum for this core, without waiting for it. A prefetch
/// does not do that once this core has the line for reading. A locked instruction waits for ownership with
/// nothing else in flight, up to 150 ns each if two cores read and write the same sums; plain stores wait in
/// parallel.
///
/// In terms of the language this is a Relaxed `cell.fetch_or(0)`: the lowest byte of a
/// [encoded](crate::node::SUM_SHIFT) sum is always 0, so storing 0 there changes nothing.
#[inline(always)]
pub(crate) fn claim(cell: &crate::sync::AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: stores the value that the byte already has, inside the cell, which may be written at any time.
    unsafe {
        std::arch::asm!("mov byte ptr [{at}], 0", at = in(reg) cell.as_ptr(), options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = cell;
}

/// Prefetches a cache line for writing, in the state that an atomic exchange needs.
#[inline(always)]
pub(crate) fn write<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above; machines without the instruction execute it as a no-op.
    unsafe {
        std::arch::asm!("prefetchw byte ptr [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
