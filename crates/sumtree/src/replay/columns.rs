//! The bytes of the rows, one column per field. Reads and writes are plain copies; the slot protocol decides
//! which thread may make them.
#![allow(unsafe_code)] // Copies to and from mapped memory; each block states its invariant.

use std::sync::Arc;

use super::ReplayError;
use super::compress::{Compression, PACKED_BYTES_MIN, Packed};
use crate::{LINE_BYTES, Region};

/// Prefetches a cache line for reading. Any address is allowed.
#[inline(always)]
pub(super) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint, which never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Rows with fewer bytes are copied without [`stream`].
const STREAM_BYTES_MIN: usize = 512;
/// Number of cache lines that are prefetched of a frame. Of 8, 24, 32 and all 111, 8 to 32 were fastest.
const PREFETCH_LINES: usize = 24;

/// Copies bytes to `out` with stores that bypass the caches, if the CPU has them (AVX).
///
/// # Safety
/// `from` points to `out.len()` bytes that do not overlap `out` and that no thread writes during the call.
unsafe fn stream(from: *const u8, out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: by the caller, and the CPU has AVX.
        return unsafe { stream_avx(from, out) };
    }
    // SAFETY: by the caller.
    unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
}

/// [`stream`] with stores of half a cache line.
///
/// # Safety
/// As [`stream`]; the CPU has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn stream_avx(from: *const u8, out: &mut [u8]) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_stream_si256};
    const WIDTH: usize = size_of::<__m256i>();
    let head = out.as_ptr().align_offset(WIDTH).min(out.len());
    let body = (out.len() - head) / (2 * LINE_BYTES) * (2 * LINE_BYTES);
    let to = out.as_mut_ptr();
    // SAFETY: all offsets are below `out.len()`, and the stores go to multiples of WIDTH.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        for at in (head..head + body).step_by(2 * LINE_BYTES) {
            let load = |i: usize| _mm256_loadu_si256(from.add(at + i * WIDTH).cast());
            let store = |i: usize, four| _mm256_stream_si256(to.add(at + i * WIDTH).cast(), four);
            let (a, b, c, d) = (load(0), load(1), load(2), load(3));
            store(0, a);
            store(1, b);
            store(2, c);
            store(3, d);
        }
        let done = head + body;
        std::ptr::copy_nonoverlapping(from.add(done), to.add(done), out.len() - done);
    }
}

/// Makes the rows that this thread copied with [`Column::read_to`] visible to other threads.
pub(super) fn end_of_stream() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a fence that every x86-64 CPU has.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// The bytes of one field, for all slots.
pub(super) struct Column {
    start: *mut u8,
    slots: usize,
    pub row_bytes: usize,
    /// The rows, if they are compressed. There are none at `start` then.
    pub packed: Option<Packed>,
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
        compression: Compression,
    ) -> Result<Self, ReplayError> {
        let packs = compression.packs(row_bytes);
        let packed = if packs { Some(Packed::new(compression, slots, row_bytes)?) } else { None };
        let start = region.bytes(offset, if packs { 0 } else { slots * row_bytes })?;
        Ok(Self { start, slots, row_bytes, packed, _region: Arc::clone(region) })
    }

    /// Writes rows to the slots from `slot` on.
    ///
    /// # Safety
    /// The caller holds a reservation over these slots that is not published yet.
    pub unsafe fn write(&self, slot: usize, rows: &[u8]) {
        assert!(
            self.packed.is_none() && slot <= self.slots && rows.len() <= (self.slots - slot) * self.row_bytes,
            "rows outside a column"
        );
        // SAFETY: in bounds by the assertion and `new`; no other thread accesses these rows, by the caller's
        // reservation; `rows` is a Rust slice and not part of the region.
        unsafe {
            std::ptr::copy_nonoverlapping(rows.as_ptr(), self.start.add(slot * self.row_bytes), rows.len());
        }
    }

    /// Prefetches the first bytes of a row.
    #[inline(always)]
    pub fn prefetch(&self, slot: usize) {
        // In a compressed column this address belongs to other data, which is harmless.
        prefetch(self.start.wrapping_add(slot * self.row_bytes));
    }

    /// Copies the row of a slot to `out`, which is one row long.
    ///
    /// # Safety
    /// The row was seen open under a pin that is still held, or no thread writes.
    #[inline(always)]
    pub unsafe fn read(&self, slot: usize, out: &mut [u8]) {
        assert!(slot < self.slots && out.len() == self.row_bytes, "row outside a column");
        if self.row_bytes >= PACKED_BYTES_MIN
            && let Some(packed) = &self.packed
        {
            // SAFETY: by the caller.
            return unsafe { packed.read(slot, out) };
        }
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

    /// As [`Column::read`]. If `streams`, stores bypass the caches, for batches larger than these.
    ///
    /// # Safety
    /// As [`Column::read`]. If `streams`, this thread calls [`end_of_stream`] before another thread reads
    /// `out`.
    #[inline(always)]
    pub unsafe fn read_to(&self, slot: usize, out: &mut [u8], streams: bool) {
        if !streams || self.row_bytes < STREAM_BYTES_MIN || self.packed.is_some() {
            // SAFETY: by the caller.
            return unsafe { self.read(slot, out) };
        }
        assert!(slot < self.slots && out.len() == self.row_bytes, "row outside a column");
        // SAFETY: in bounds by the assertion and `new`; the row is published and not overwritten while the pin is
        // held; a row and an array of a batch never overlap.
        unsafe { stream(self.start.add(slot * self.row_bytes), out) };
    }

    /// Prefetches the first cache lines of a row. The hardware prefetcher continues from there.
    #[inline(always)]
    pub fn prefetch_lines(&self, slot: usize) {
        let start = self.start.wrapping_add(slot * self.row_bytes);
        (0..PREFETCH_LINES.min(self.row_bytes / LINE_BYTES))
            .for_each(|i| prefetch(start.wrapping_add(i * LINE_BYTES)));
    }

    /// Rows `start..start + rows` as bytes, to write them to a file.
    ///
    /// # Safety
    /// No thread writes while the slice exists.
    pub unsafe fn rows(&self, start: usize, rows: usize) -> &[u8] {
        assert!(start + rows <= self.slots && self.packed.is_none(), "rows outside a column");
        // SAFETY: in bounds by the assertion and `new`; no writer, by the caller.
        unsafe { std::slice::from_raw_parts(self.start.add(start * self.row_bytes), rows * self.row_bytes) }
    }
}
