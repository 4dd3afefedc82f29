//! The bytes of the rows, one column per field. Plain copies; the slot protocol decides who may make them.
#![allow(unsafe_code)] // Copies to and from mapped memory; the invariants stand at each block.

use std::sync::Arc;

use super::ReplayError;
use crate::Region;

/// Starts to load a cache line that is read soon. Any address will do.
#[inline(always)]
pub(super) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// One field's bytes for every slot.
pub(super) struct Column {
    start: *mut u8,
    slots: usize,
    pub row_bytes: usize,
    _region: Arc<Region>,
}

// SAFETY: `start` points into the region that `_region` keeps alive; access to rows is ordered by the slot protocol.
unsafe impl Send for Column {}
// SAFETY: as above.
unsafe impl Sync for Column {}

impl Column {
    pub fn new(
        region: &Arc<Region>,
        offset: usize,
        slots: usize,
        row_bytes: usize,
    ) -> Result<Self, ReplayError> {
        let start = region.bytes(offset, slots * row_bytes)?;
        Ok(Self { start, slots, row_bytes, _region: Arc::clone(region) })
    }

    /// Writes rows from `slot` on.
    ///
    /// # Safety
    /// The caller holds a reservation over these slots that is not published yet.
    pub unsafe fn write(&self, slot: usize, rows: &[u8]) {
        assert!(
            slot <= self.slots && rows.len() <= (self.slots - slot) * self.row_bytes,
            "rows outside a column"
        );
        // SAFETY: in bounds by the assertion and `new`; nobody else is on these rows, by the caller's reservation;
        // `rows` is a Rust slice and no part of the region.
        unsafe {
            std::ptr::copy_nonoverlapping(rows.as_ptr(), self.start.add(slot * self.row_bytes), rows.len());
        }
    }

    /// Starts to load the first bytes of a row.
    #[inline(always)]
    pub fn prefetch(&self, slot: usize) {
        prefetch(self.start.wrapping_add(slot * self.row_bytes));
    }

    /// Copies the row of a slot to `out`, which is one row long.
    ///
    /// # Safety
    /// The row was seen open under a pin that is still held, or nobody writes.
    #[inline(always)]
    pub unsafe fn read(&self, slot: usize, out: &mut [u8]) {
        assert!(slot < self.slots && out.len() == self.row_bytes, "row outside a column");
        // SAFETY: in bounds by the assertion and `new`; the row is published and not overwritten while the pin is
        // held.
        unsafe {
            let from = self.start.add(slot * self.row_bytes);
            match self.row_bytes {
                // Constant lengths become single moves.
                1 => *out.as_mut_ptr() = *from,
                4 => std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), 4),
                8 => std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), 8),
                16 => std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), 16),
                n => std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), n),
            }
        }
    }

    /// The first `rows` rows as bytes, for a file.
    ///
    /// # Safety
    /// Nobody writes as long as the slice lives.
    pub unsafe fn all(&self, rows: usize) -> &[u8] {
        assert!(rows <= self.slots, "rows outside a column");
        // SAFETY: in bounds by the assertion and `new`; no writer, by the caller.
        unsafe { std::slice::from_raw_parts(self.start, rows * self.row_bytes) }
    }

    /// As [`Column::all`], to be filled.
    ///
    /// # Safety
    /// Nobody else reads or writes as long as the slice lives.
    #[allow(clippy::mut_from_ref)] // The memory is the region's, not self's.
    pub unsafe fn all_mut(&self, rows: usize) -> &mut [u8] {
        assert!(rows <= self.slots, "rows outside a column");
        // SAFETY: in bounds by the assertion and `new`; exclusive, by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.start, rows * self.row_bytes) }
    }
}
