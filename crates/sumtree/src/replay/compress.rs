//! Compressed storage of rows with many bytes, in private memory. Each row is compressed separately.
//!
//! A row is compressed before its slot is reserved, and freed when the slot is written again. The slot
//! protocol allows this exactly when plain bytes could be overwritten, so no reader sees a row change.
#![allow(unsafe_code)] // Pointers of boxes; each block states its invariant.

use std::sync::atomic::{AtomicPtr, AtomicUsize};

use super::ReplayError;
use super::settings::setting;
use crate::memory::{reserve, vec_of_zeros, vec_with_capacity};
use crate::sync::Ordering;

/// Compression of fields with at least 256 bytes per row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4 blocks. For the results of zstd, see `docs/decisions/0009-compressed-rows.md`.
    Lz4,
}

/// Fields with fewer bytes per row are not compressed.
pub(super) const PACKED_BYTES_MIN: usize = 256;
/// Bytes at the start of a blob that hold its length. The row follows.
const HEAD: usize = 4;
/// Bytes that one allocation costs in addition to its contents and its pointer in the table.
const OVERHEAD_BYTES: usize = 16;

impl Compression {
    /// Name of the variant, as used in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
        }
    }

    /// Returns the variant with this name.
    ///
    /// # Errors
    /// [`ReplayError::Setting`] if there is none.
    pub fn from_name(name: &str) -> Result<Self, ReplayError> {
        [Self::None, Self::Lz4]
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| setting("compression", format!("{name:?}"), "none or lz4"))
    }

    /// Returns true if fields with `row_bytes` bytes per row are compressed.
    pub(super) fn packs(self, row_bytes: usize) -> bool {
        self != Self::None && (PACKED_BYTES_MIN..=u32::MAX as usize >> 1).contains(&row_bytes)
    }

    /// Compresses `row` into `out`, which is large enough. Returns the length, 0 if the row does not get
    /// smaller.
    fn pack(self, row: &[u8], out: &mut [u8]) -> usize {
        let length = match self {
            Self::None => 0,
            Self::Lz4 => lz4_flex::block::compress_into(row, out).unwrap_or(0),
        };
        if length < row.len() { length } else { 0 }
    }

    /// Decompresses the output of [`Compression::pack`] into `row`. Returns false for anything else.
    fn unpack(self, packed: &[u8], row: &mut [u8]) -> bool {
        if packed.len() == row.len() {
            row.copy_from_slice(packed);
            return true;
        }
        let length = match self {
            Self::None => 0,
            Self::Lz4 => lz4_flex::block::decompress_into(packed, row).unwrap_or(0),
        };
        length == row.len()
    }
}

/// Compressed rows that are not stored in slots yet.
pub(super) struct Blobs(Vec<Box<[u8]>>);

/// The compressed rows of one field.
pub(super) struct Packed {
    kind: Compression,
    row_bytes: usize,
    /// Per slot a pointer to a box with the length of the data in [`HEAD`] bytes and the data, or null.
    blobs: Vec<AtomicPtr<u8>>,
    bytes: AtomicUsize,
    /// Slot + 1 of a row that could not be decompressed, or 0.
    damaged: AtomicUsize,
}

impl Packed {
    pub fn new(kind: Compression, slots: usize, row_bytes: usize) -> Result<Self, ReplayError> {
        let mut blobs = vec_with_capacity(slots)?;
        blobs.resize_with(slots, || AtomicPtr::new(std::ptr::null_mut()));
        let (bytes, damaged) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Self { kind, row_bytes, blobs, bytes, damaged })
    }

    /// Memory used, in bytes, including an estimate of the allocator's overhead.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.blobs.len() * size_of::<AtomicPtr<u8>>()
    }

    /// Compresses rows. `count` is their approximate number.
    pub fn pack<'a>(&self, count: usize, rows: impl Iterator<Item = &'a [u8]>) -> Result<Blobs, ReplayError> {
        let mut scratch = vec_of_zeros(lz4_flex::block::get_maximum_output_size(self.row_bytes))?;
        let mut blobs = vec_with_capacity(count)?;
        for row in rows {
            let length = self.kind.pack(row, &mut scratch);
            blobs.push(blob(if length == 0 { row } else { &scratch[..length] })?);
        }
        Ok(Blobs(blobs))
    }

    /// Stores compressed rows in slots, in order, and frees the previous rows of these slots.
    ///
    /// # Safety
    /// The caller holds a reservation over these slots that is not published yet, or no other thread uses the
    /// replay.
    pub unsafe fn write(&self, slots: impl Iterator<Item = usize>, blobs: Blobs) {
        for (slot, blob) in slots.zip(blobs.0) {
            let new = blob.len() + OVERHEAD_BYTES;
            // Relaxed: the Release of the generation publishes the new blob; the old one has no readers any
            // more.
            let old = self.blobs[slot].swap(Box::into_raw(blob).cast(), Ordering::Relaxed);
            // SAFETY: `old` came from a box of `blob`, and no reader can reach it, by the caller.
            let freed = unsafe { take(old) }.map_or(0, |old| old.len() + OVERHEAD_BYTES);
            self.bytes.fetch_add(new.wrapping_sub(freed), Ordering::Relaxed); // A counter.
        }
    }

    /// The compressed bytes of a slot, without their length. Empty if nothing was written.
    ///
    /// # Safety
    /// The row was seen open under a pin that is held while the slice exists, or no thread writes.
    pub unsafe fn packed(&self, slot: usize) -> &[u8] {
        let blob = self.blobs[slot].load(Ordering::Relaxed);
        if blob.is_null() {
            return &[];
        }
        // SAFETY: a box of `blob`, not freed while the pin is held.
        unsafe {
            let length = blob.cast::<u32>().read_unaligned() as usize;
            std::slice::from_raw_parts(blob.add(HEAD), length)
        }
    }

    /// Copies the row of a slot to `out`, which is one row long.
    ///
    /// # Safety
    /// As [`Packed::packed`].
    pub unsafe fn read(&self, slot: usize, out: &mut [u8]) {
        // SAFETY: by the caller.
        let whole = self.kind.unpack(unsafe { self.packed(slot) }, out);
        if !whole {
            // Rows compressed by this process can always be decompressed. A row from a file may be missing.
            out.fill(0);
            self.damaged.store(slot + 1, Ordering::Relaxed); // Read after the threads of a batch have joined.
        }
    }

    /// Slot of a row that could not be decompressed, if there was one.
    pub fn damaged(&self) -> Option<usize> {
        self.damaged.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Stores compressed bytes of a file in a slot; false if they are not a row. `row` is scratch memory.
    pub fn take_packed(&self, slot: usize, packed: &[u8], row: &mut Vec<u8>) -> Result<bool, ReplayError> {
        // A byte of an LZ4 block expands to at most 255, so short input is refused before memory is
        // allocated.
        if packed.len().saturating_mul(255) < self.row_bytes {
            return Ok(false);
        }
        row.clear();
        reserve(row, self.row_bytes)?;
        row.resize(self.row_bytes, 0);
        if !self.kind.unpack(packed, row) {
            return Ok(false);
        }
        // SAFETY: only called while a file is read, when no other thread uses the replay.
        unsafe { self.write([slot].into_iter(), Blobs(vec![blob(packed)?])) };
        Ok(true)
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        for blob in &self.blobs {
            // SAFETY: boxes of `blob`; no other thread uses them.
            drop(unsafe { take(blob.load(Ordering::Relaxed)) });
        }
    }
}

fn blob(packed: &[u8]) -> Result<Box<[u8]>, ReplayError> {
    let mut bytes = vec_with_capacity(HEAD + packed.len())?;
    bytes.extend_from_slice(&(packed.len() as u32).to_ne_bytes());
    bytes.extend_from_slice(packed);
    Ok(bytes.into_boxed_slice())
}

/// Returns the box that a pointer came from.
///
/// # Safety
/// `start` is null, or came from `Box::into_raw` of a [`blob`] and is passed here only once.
unsafe fn take(start: *mut u8) -> Option<Box<[u8]>> {
    if start.is_null() {
        return None;
    }
    // SAFETY: the length at its start is the one with which it was boxed, by the caller.
    unsafe {
        let length = start.cast::<u32>().read_unaligned() as usize + HEAD;
        Some(Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, length)))
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_whatever_they_hold() {
        {
            let kind = Compression::Lz4;
            let packed = Packed::new(kind, 4, 1000).unwrap();
            let mut rng = crate::Rng::new(1);
            let noise: Vec<u8> = (0..1000).map(|_| rng.next_u64() as u8).collect();
            let rows = [vec![0; 1000], noise, (0..1000).map(|i| (i / 100) as u8).collect()];
            for lap in 0..3 {
                let blobs = packed.pack(3, rows.iter().map(|row| &row[..])).unwrap();
                // SAFETY: one thread.
                unsafe { packed.write([1, 2, 3].into_iter(), blobs) };
                for (i, row) in rows.iter().enumerate() {
                    let mut out = vec![7; 1000];
                    // SAFETY: one thread.
                    unsafe { packed.read(i + 1, &mut out) };
                    assert_eq!(&out, row, "{kind:?} lap {lap} row {i}");
                }
                // Noise is kept as it is; the others take a few bytes. Counted once, however often rewritten.
                assert!((1000..1200).contains(&(packed.bytes() - 32)), "{}", packed.bytes());
            }
            assert!(!packed.take_packed(0, &[1, 2, 3], &mut Vec::new()).unwrap());
            assert!(!packed.take_packed(0, &[], &mut Vec::new()).unwrap());
        }
    }
}
