//! Asking for cache lines ahead of use; nothing where the machine has no way to.
#![allow(unsafe_code)] // Prefetch instructions, which touch no memory as far as the language can see.

/// For reading.
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

/// Takes the line of a sum for this core, without waiting for it, even if other cores have it too: what a prefetch does
/// not do once the line is here for reading. A locked instruction waits for that with nothing else under way, which
/// costs as much as 150 ns each where two cores read and write the same sums; stores wait side by side.
///
/// To the language this is `cell.fetch_or(0)`, Relaxed: the lowest byte of a [raised](crate::node::RAISED) sum is 0 at
/// all times, so storing 0 there changes nothing.
#[inline(always)]
pub(crate) fn claim(cell: &crate::sync::AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a store inside the cell, which may be written at any time, of what is there anyway.
    unsafe {
        std::arch::asm!("mov byte ptr [{at}], 0", at = in(reg) cell.as_ptr(), options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = cell;
}

/// For writing: the line arrives in the state that an exchange needs.
#[inline(always)]
pub(crate) fn write<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above; a machine without the instruction takes it as no operation.
    unsafe {
        std::arch::asm!("prefetchw byte ptr [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
