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
