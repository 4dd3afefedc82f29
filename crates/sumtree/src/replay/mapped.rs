//! A replay in a mapped file: it may be larger than the memory of the machine, and can be opened again.
//!
//! The region is mapped shared, so the file has everything that a process wrote, however the process ends.
//! Processes hold a shared lock on the file. A process that gets the lock alone knows that no other process
//! uses the file: it resets operations and locks and repairs the sums. A crash of the *machine* is different,
//! because pages reach the disk in any order. A word of the file therefore says whether anything was written
//! since the last flush, and after a crash such a file is refused.
//!
//! Checksums. The words of the header that never change have one. The last process to close the file *seals*
//! it with a checksum of everything but the bytes of the rows, which is compared when the file is opened and
//! invalid while it is open. The bytes of the rows have one checksum per chunk, computed at each flush and
//! close for the rows added since, and compared by [`Replay::verify`]. A file that was not closed, because
//! its processes were killed, has no seal. With or without a seal, everything that later calls use as a
//! count, slot or weight is checked before it is used (`check.rs`).

#![allow(unsafe_code)] // The region as bytes, while no process writes it; each block states its reason.

use std::path::Path;
use std::sync::Arc;

use super::check::{Counts, SlotStates};
use super::checksum::Checksum;
use super::file::{io, temporary_beside};
use super::layout::HEADER_BYTES;
use super::open::{MAGIC, UNSEALED, hash_text, header};
use super::slots::word;
use super::{Replay, ReplayError, Settings, counter};
use crate::region::Cells;
use crate::sync::{AtomicU64, Ordering};
use crate::{Region, SumTreeError};

/// Values of the header word `DIRTY`. This one: the disk has all changes.
const CLEAN: u64 = 0;
/// `DIRTY` itself is being written to the disk.
const WRITING_DIRTY_FLAG: u64 = 1;
const DIRTY: u64 = 2;
/// Maximum number of attempts to open a file that other processes close while this process waits for it.
const OPEN_ATTEMPTS_MAX: usize = 100;

impl Replay {
    /// Opens the replay in the file `path`, or creates it if the file does not exist.
    ///
    /// # Errors
    /// [`ReplayError::Io`], those of [`Replay::heap`] and [`Replay::open_file`]; [`ReplayError::OtherReplay`]
    /// if the settings are different.
    pub fn create_or_open_file(path: &Path, settings: Settings) -> Result<Self, ReplayError> {
        settings.check_private()?;
        let layout = Self::compute_layout(&settings)?;
        if !path.exists() {
            // Created under another name, so that no process opens an incomplete replay or leaves one when
            // killed.
            let temporary = temporary_beside(path);
            let region = Region::create_file(&temporary, layout.bytes).map_err(|e| io(path, &e))?;
            let made = Self::create_at_path(region, path, settings.clone(), layout);
            let placed = made.map(|replay| (std::fs::hard_link(&temporary, path), replay));
            let _ = std::fs::remove_file(&temporary); // The file has its final name now, or is not needed.
            match placed? {
                (Ok(()), replay) => return Ok(replay),
                (Err(error), _) if error.kind() == std::io::ErrorKind::AlreadyExists => {} // Another process was first.
                (Err(error), _) => return Err(io(path, &error)),
            }
        }
        Self::open_file(path)?.same_settings(&path.display().to_string(), &settings)
    }

    fn create_at_path(
        mut region: Region,
        path: &Path,
        settings: Settings,
        layout: super::layout::Layout,
    ) -> Result<Self, ReplayError> {
        region.set_path(path);
        let replay = Self::create_unpublished(region, settings, layout)?;
        replay.header()?[header::BOOT].store(boot_id_hash(), Ordering::Relaxed);
        replay.publish_region()?;
        Ok(replay)
    }

    /// Opens the replay in the file `path`.
    ///
    /// # Errors
    /// [`ReplayError::Io`]; [`ReplayError::File`] if it is not a mapped replay, is damaged, or the machine
    /// went down while rows were being written.
    pub fn open_file(path: &Path) -> Result<Self, ReplayError> {
        let name = path.display().to_string();
        for _ in 0..OPEN_ATTEMPTS_MAX {
            let (region, is_exclusive) = Region::open_file(path).map_err(|error| io(path, &error))?;
            let region = Arc::new(region);
            if !is_exclusive && is_sealed(&region) {
                continue; // The last process closed it while this one waited for it.
            }
            let replay = Self::from_region(&name, region, !is_exclusive)
                .map_err(|error| as_file_error(path, error))?;
            if is_exclusive {
                replay.check_file().map_err(|reason| file_error(path, reason))?;
                replay.take_over().map_err(|error| as_file_error(path, error))?;
                replay.region.share_file().map_err(|error| io(path, &error))?;
            }
            return Ok(replay);
        }
        Err(file_error(
            path,
            format!("other processes closed it during {OPEN_ATTEMPTS_MAX} attempts to open it"),
        ))
    }

    /// Checks that the file holds a replay that was closed, or whose processes were killed. Writes nothing.
    fn check_file(&self) -> Result<(), String> {
        let header = self.header().map_err(|error| error.to_string())?;
        let (seal, boot_at_last_write) =
            (header[header::SEAL].load(Ordering::Relaxed), header[header::BOOT].load(Ordering::Relaxed));
        let was_dirty = header[header::DIRTY].load(Ordering::Relaxed) != CLEAN;
        // Without a boot id it is unknown whether the machine went down.
        let boot = boot_id_hash();
        if seal == UNSEALED && was_dirty && (boot == 0 || boot_at_last_write != boot) {
            return Err("the machine went down while rows were being written to it".to_owned());
        }
        if seal != UNSEALED && seal != self.seal().map_err(|error| error.to_string())? {
            return Err("its checksum is wrong: it is damaged".to_owned());
        }
        self.check_structure(false)
    }

    /// Checks that counts, slots and weights are consistent. `is_quiescent`: no operation is unfinished.
    fn check_structure(&self, is_quiescent: bool) -> Result<(), String> {
        let word = |at: usize| self.slots.words[at].load(Ordering::Relaxed);
        let count = |at: usize| self.counters[at].load(Ordering::Relaxed);
        let counts = Counts {
            reserved: word(word::RESERVED),
            marked: word(word::MARKED),
            cleared: word(word::CLEARED),
            first: count(counter::FIRST),
            largest: count(counter::LARGEST),
        };
        let (ring, max_weight) = (self.layout.ring, self.scale.max_weight());
        counts.check(ring, max_weight)?;
        if count(counter::CHECKSUMMED) > counts.reserved {
            return Err(format!("it has checksums of {} rows", count(counter::CHECKSUMMED)));
        }
        if !self.tree().is_padded() {
            return Err("its tree of weights has weights beyond its end".to_owned());
        }
        let state = |slot: usize| self.slots.state_words(slot);
        let weight = |slot: usize| self.tree().get(slot).unwrap_or(u32::MAX);
        let used = ring.slots;
        SlotStates { ring, counts, max_weight, used, state, weight, is_quiescent }.check()?;
        self.tails.check(ring.slots)
    }

    /// Prepares a checked file for use by this process. No other process has it open.
    fn take_over(&self) -> Result<(), ReplayError> {
        let header = self.header()?;
        header[header::SEAL].store(UNSEALED, Ordering::Relaxed);
        header[header::BOOT].store(boot_id_hash(), Ordering::Relaxed);
        // Flushed before anything else changes, or the disk might have later changes and still the seal.
        let flushed = self.region.flush(HEADER_BYTES);
        flushed.map_err(|error| io(self.region.path().unwrap_or(Path::new("")), &error))?;
        self.slots.forget_all();
        self.tails.forget_holders();
        self.slots.processes.forget_all()?;
        drop(self.shut_and_repair()?);
        Ok(())
    }

    /// If no other process uses the file, unlocks it, and before that writes the seal if no other process has it
    /// open and the disk has all changes.
    pub(super) fn seal_if_last(&self) {
        if !self.is_mapped || self.slots.processes.alive_count() > 0 {
            return;
        }
        if self.region.try_lock_file_exclusive() {
            let _ = self.write_seal(); // Without a seal the file is checked less strictly when it is opened.
        }
        self.region.unlock_file();
    }

    fn write_seal(&self) -> Result<(), ReplayError> {
        let header = self.header()?;
        if header[header::DIRTY].load(Ordering::Relaxed) == CLEAN {
            header[header::BOOT].store(0, Ordering::Relaxed); // It may be opened after a reboot.
            header[header::SEAL].store(self.seal()?, Ordering::Relaxed);
            self.region.flush(HEADER_BYTES).map_err(|error| io(Path::new(""), &error))?;
        }
        Ok(())
    }

    /// Checksum of everything but the bytes of the rows. No other process has the file open.
    fn seal(&self) -> Result<u64, SumTreeError> {
        let mut sum = Checksum::new();
        for (at, word) in self.header()?.iter().enumerate() {
            let word = if at == header::SEAL { 0 } else { word.load(Ordering::Relaxed) };
            sum.update(&word.to_le_bytes());
        }
        let mut start = header::COUNT * size_of::<u64>();
        let all = self.region.bytes(0, self.layout.bytes)?;
        let columns = self.layout.columns.iter().zip(&self.columns);
        let rows = columns.map(|(at, column)| (*at, column.row_bytes * self.layout.ring.slots));
        for (rows, bytes) in rows.chain([(self.layout.bytes, 0)]) {
            // SAFETY: inside the region; no process writes, because the file's lock is held alone.
            sum.update(unsafe { std::slice::from_raw_parts(all.wrapping_add(start), rows - start) });
            start = rows + bytes;
        }
        let sum = sum.finish();
        Ok(if sum == UNSEALED { !sum } else { sum })
    }

    /// Checksum of the rows in chunk `chunk` of the ring. No process writes rows during the call.
    fn chunk_checksum(&self, chunk: usize) -> u64 {
        let rows = self.layout.ring.chunk;
        let mut sum = Checksum::new();
        // SAFETY: no process writes, by the caller's gate.
        self.columns.iter().for_each(|column| sum.update(unsafe { column.rows(chunk * rows, rows) }));
        sum.finish()
    }

    /// Checksum of a chunk that was never written.
    fn unwritten_chunk_checksum(&self) -> u64 {
        let mut sum = Checksum::new();
        let mut left = self.columns.iter().map(|column| column.row_bytes * self.layout.ring.chunk).sum();
        while left > 0 {
            let part = usize::min(left, 4096);
            sum.update(&[0; 4096][..part]);
            left -= part;
        }
        sum.finish()
    }

    fn chunk_checksums(&self) -> Result<Cells<AtomicU64>, SumTreeError> {
        Cells::in_region(&self.region, self.layout.checksums, self.layout.ring.slots / self.layout.ring.chunk)
    }

    /// The chunks, counted from the first ever written, with rows reserved since the checksums were computed.
    fn changed_chunks(&self) -> std::ops::Range<u64> {
        let (ring, summed) = (self.layout.ring, self.counters[counter::CHECKSUMMED].load(Ordering::Relaxed));
        let reserved = self.slots.words[word::RESERVED].load(Ordering::Relaxed);
        let (chunk, chunks) = (ring.chunk as u64, (ring.slots / ring.chunk) as u64);
        if reserved == summed {
            return 0..0;
        }
        let end = reserved.div_ceil(chunk);
        (summed / chunk).max(end.saturating_sub(chunks))..end
    }

    /// Computes the checksums of rows that were added since the last call. The gate is shut.
    fn update_chunk_checksums(&self) -> Result<(), SumTreeError> {
        let sums = self.chunk_checksums()?;
        for chunk in self.changed_chunks() {
            let chunk = (chunk % sums.len() as u64) as usize;
            sums[chunk].store(self.chunk_checksum(chunk), Ordering::Relaxed);
        }
        let reserved = self.slots.words[word::RESERVED].load(Ordering::Relaxed);
        self.counters[counter::CHECKSUMMED].store(reserved, Ordering::Relaxed);
        Ok(())
    }

    /// Checks the structure of a file, and the bytes of all rows held at the last flush. The gate is shut.
    pub(super) fn verify_rows(&self) -> Result<(), ReplayError> {
        let Some(path) = self.region.path() else { return Ok(()) };
        self.check_structure(true).map_err(|reason| file_error(path, reason))?;
        let (sums, ring) = (self.chunk_checksums()?, self.layout.ring);
        let changed = self.changed_chunks();
        let summed = self.counters[counter::CHECKSUMMED].load(Ordering::Relaxed).div_ceil(ring.chunk as u64);
        let nothing = self.unwritten_chunk_checksum();
        for chunk in 0..sums.len() {
            if ring.is_among(chunk * ring.chunk, changed.clone()) {
                continue;
            }
            let was_written = (chunk as u64) < summed;
            let expected = if was_written { sums[chunk].load(Ordering::Relaxed) } else { nothing };
            if expected != self.chunk_checksum(chunk) {
                let (path, start) = (path.display().to_string(), chunk * ring.chunk);
                return Err(ReplayError::Rows { path, start, end: start + ring.chunk });
            }
        }
        Ok(())
    }

    /// Writes all changes to the disk. Adds and updates wait until this is done.
    ///
    /// # Errors
    /// [`ReplayError::Setting`] if the replay is not in a file, [`ReplayError::Io`], [`ReplayError::Closed`].
    pub fn flush(&self) -> Result<(), ReplayError> {
        let Some(path) = self.region.path() else {
            return Err(super::settings::setting(
                "memory",
                if self.region.name().is_some() { "shared" } else { "private" },
                "a replay in a file, made with path",
            ));
        };
        let _gate = self.shut_and_repair()?;
        self.update_chunk_checksums()?;
        let header = self.header()?;
        let written = self.region.flush(self.region.len()).and_then(|()| {
            header[header::DIRTY].store(CLEAN, Ordering::Relaxed);
            self.region.flush(HEADER_BYTES)
        });
        written.map_err(|error| io(path, &error))
    }

    /// Path of the mapped file, `None` if the replay is not in a file.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.region.path()
    }

    /// Called before rows or weights change: records on the disk that it may lack changes.
    #[inline(always)]
    pub(super) fn mark_dirty(&self) {
        if self.is_mapped {
            self.write_dirty_flag();
        }
    }

    #[inline(never)]
    fn write_dirty_flag(&self) {
        let Ok(header) = self.header() else { return };
        let word = &header[header::DIRTY];
        if word.load(Ordering::Acquire) == DIRTY {
            return;
        }
        word.store(WRITING_DIRTY_FLAG, Ordering::Relaxed);
        // If this cannot be written, later flushes fail too and report the error.
        if self.region.flush(HEADER_BYTES).is_ok() {
            word.store(DIRTY, Ordering::Release);
        }
    }
}

fn file_error(path: &Path, reason: String) -> ReplayError {
    ReplayError::File { path: path.display().to_string(), reason }
}

/// Converts an error of opening a file to [`ReplayError::File`], because the caller did not give the settings
/// and sizes in it. Errors of memory, I/O and the process table are not converted.
pub(super) fn as_file_error(path: &Path, error: ReplayError) -> ReplayError {
    match error {
        ReplayError::NotAReplay { reason, .. } => file_error(path, reason),
        ReplayError::Tree(SumTreeError::OutOfMemory { .. })
        | ReplayError::Io { .. }
        | ReplayError::File { .. }
        | ReplayError::TooManyProcesses { .. } => error,
        other => file_error(path, other.to_string()),
    }
}

/// Returns true if the last process that closed the file has sealed it.
fn is_sealed(region: &Arc<Region>) -> bool {
    Cells::<AtomicU64>::in_region(region, 0, header::COUNT).is_ok_and(|header| {
        let get = |at: usize| header[at].load(Ordering::Acquire);
        get(header::MAGIC) == MAGIC && get(header::SEAL) != UNSEALED
    })
}

/// Hash of the boot id of the machine, 0 if it is not available.
fn boot_id_hash() -> u64 {
    crate::platform::boot_id().map_or(0, |id| hash_text(&id))
}
