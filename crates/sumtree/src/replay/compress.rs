//! Rows of many bytes held compressed, each by itself, in private memory.
//!
//! A row is compressed before its slot is reserved and is freed when the slot is written anew, which the slot protocol
//! allows exactly when plain bytes could be overwritten: no reader sees a row change its form.
#![allow(unsafe_code)] // Pointers of boxes; the invariants stand at each block.

use std::sync::atomic::{AtomicPtr, AtomicUsize};

use super::ReplayError;
use super::settings::setting;
use crate::memory::{reserve, vec_of_zeros, vec_with_capacity};
use crate::sync::Ordering;

/// How rows of `PACKED_BYTES_MIN` and more are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// LZ4 blocks. What zstd would give: `docs/decisions/0009-compressed-rows.md`.
    Lz4,
}

/// Fields with fewer bytes per row stay as they are.
pub(super) const PACKED_BYTES_MIN: usize = 256;
/// Bytes of a blob before the row: how many follow.
const HEAD: usize = 4;
/// What one allocation costs besides its bytes, and its place in the table.
const OVERHEAD_BYTES: usize = 16;

impl Compression {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
        }
    }

    /// The one of this name.
    ///
    /// # Errors
    /// [`ReplayError::Setting`].
    pub fn of_name(name: &str) -> Result<Self, ReplayError> {
        [Self::None, Self::Lz4]
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| setting("compression", format!("{name:?}"), "none, lz4"))
    }

    /// Whether a field of so many bytes per row is compressed.
    pub(super) fn packs(self, row_bytes: usize) -> bool {
        self != Self::None && (PACKED_BYTES_MIN..=u32::MAX as usize >> 1).contains(&row_bytes)
    }

    /// Compresses `row` into `out`, which takes any result; 0 if it does not get smaller.
    fn pack(self, row: &[u8], out: &mut [u8]) -> usize {
        let length = match self {
            Self::None => 0,
            Self::Lz4 => lz4_flex::block::compress_into(row, out).unwrap_or(0),
        };
        if length < row.len() { length } else { 0 }
    }

    /// Fills `row` from what [`Compression::pack`] wrote; false if it is something else.
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

/// Compressed rows that wait for their slots.
pub(super) struct Blobs(Vec<Box<[u8]>>);

/// One field's rows, compressed.
pub(super) struct Packed {
    kind: Compression,
    row_bytes: usize,
    /// Per slot a box of [`HEAD`] and as many bytes as that says, or null.
    blobs: Vec<AtomicPtr<u8>>,
    bytes: AtomicUsize,
    /// One more than the slot of a row that could not be read, or 0.
    damaged: AtomicUsize,
}

impl Packed {
    pub fn new(kind: Compression, slots: usize, row_bytes: usize) -> Result<Self, ReplayError> {
        let mut blobs = vec_with_capacity(slots)?;
        blobs.resize_with(slots, || AtomicPtr::new(std::ptr::null_mut()));
        let (bytes, damaged) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Self { kind, row_bytes, blobs, bytes, damaged })
    }

    /// Bytes of memory, an estimate of the allocator's own included.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.blobs.len() * size_of::<AtomicPtr<u8>>()
    }

    /// Compresses rows, about `count` of them.
    pub fn pack<'a>(&self, count: usize, rows: impl Iterator<Item = &'a [u8]>) -> Result<Blobs, ReplayError> {
        let mut scratch = vec_of_zeros(lz4_flex::block::get_maximum_output_size(self.row_bytes))?;
        let mut blobs = vec_with_capacity(count)?;
        for row in rows {
            let length = self.kind.pack(row, &mut scratch);
            blobs.push(blob(if length == 0 { row } else { &scratch[..length] })?);
        }
        Ok(Blobs(blobs))
    }

    /// Puts compressed rows into slots, in order, and frees what was there.
    ///
    /// # Safety
    /// The caller holds a reservation over these slots that is not published yet, or no other thread has the replay.
    pub unsafe fn write(&self, slots: impl Iterator<Item = usize>, blobs: Blobs) {
        for (slot, blob) in slots.zip(blobs.0) {
            let new = blob.len() + OVERHEAD_BYTES;
            // Relaxed: the generation's Release publishes it; its readers have finished.
            let old = self.blobs[slot].swap(Box::into_raw(blob).cast(), Ordering::Relaxed);
            // SAFETY: `old` came from a box of `blob` and is out of every reader's reach, by the caller.
            let freed = unsafe { take(old) }.map_or(0, |old| old.len() + OVERHEAD_BYTES);
            self.bytes.fetch_add(new.wrapping_sub(freed), Ordering::Relaxed); // A counter.
        }
    }

    /// The compressed bytes of a slot, without their length; none if nothing was written.
    ///
    /// # Safety
    /// The row was seen open under a pin that is held as long as the slice lives, or no thread writes.
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
            // Bytes that were packed here always unpack; of a file a row may be missing.
            out.fill(0);
            self.damaged.store(slot + 1, Ordering::Relaxed); // Read after the threads of a batch have joined.
        }
    }

    /// The slot of a row that was read and was not whole.
    pub fn damaged(&self) -> Option<usize> {
        self.damaged.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Takes compressed bytes of a file for a slot; false if they are no row. `row` is working memory.
    pub fn take_packed(&self, slot: usize, packed: &[u8], row: &mut Vec<u8>) -> Result<bool, ReplayError> {
        // A byte of an LZ4 block stands for at most 255 of the row: too few are refused before memory is asked for.
        if packed.len().saturating_mul(255) < self.row_bytes {
            return Ok(false);
        }
        row.clear();
        reserve(row, self.row_bytes)?;
        row.resize(self.row_bytes, 0);
        if !self.kind.unpack(packed, row) {
            return Ok(false);
        }
        // SAFETY: only called while a file is read, when no other thread has the replay.
        unsafe { self.write([slot].into_iter(), Blobs(vec![blob(packed)?])) };
        Ok(true)
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        for blob in &self.blobs {
            // SAFETY: boxes of `blob`; no other thread is left.
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

/// The box that a pointer came from.
///
/// # Safety
/// `start` is null or came from `Box::into_raw` of a [`blob`] and is given here once.
unsafe fn take(start: *mut u8) -> Option<Box<[u8]>> {
    if start.is_null() {
        return None;
    }
    // SAFETY: the length in its head is the one it was boxed with, by the caller.
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
