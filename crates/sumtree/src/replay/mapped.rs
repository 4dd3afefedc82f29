//! A replay whose memory is a file: larger than the machine's if need be, and there again when it is opened.
//!
//! The region is mapped shared, so what a process wrote is in the file however the process ends. Processes hold a
//! shared lock on the file; who gets it alone knows that all others are gone, forgets what they held and has the sums
//! mended. What the *machine* loses when it goes down is another matter: the disk has pages in any order. So a word
//! of the file says whether something was written since the last flush, and such a file is refused.
//!
//! Checksums. The words of the header that never change have one. The last process to close the file *seals* it: a
//! checksum of everything but the rows' bytes, compared when the file is opened and void while it is open. The rows'
//! bytes have one per chunk, made at each flush and close for the rows added since, and compared by
//! [`Replay::verify`]. A file that was not closed, because its processes were killed, has no seal; whether it is or not,
//! everything that later calls use as a count, slot or weight is checked before anything is used (`check.rs`).

#![allow(unsafe_code)] // The region as bytes, while no process writes it; the reasons stand at each block.

use std::path::Path;
use std::sync::Arc;

use super::check::{Counts, SlotStates};
use super::checksum::Checksum;
use super::file::{io, temporary_beside};
use super::layout::HEADER_BYTES;
use super::open::{MAGIC, UNSEALED, header, text_sum};
use super::slots::word;
use super::{Replay, ReplayError, Settings, counter};
use crate::region::Cells;
use crate::sync::{AtomicU64, Ordering};
use crate::{Region, SumTreeError};

/// Values of the word that says whether the disk may lack something.
const CLEAN: u64 = 0;
/// Being written to the disk.
const BECOMING: u64 = 1;
const DIRTY: u64 = 2;
/// How often to begin anew when others close the file while this process waits for it.
const OPENINGS_MAX: usize = 100;

impl Replay {
    /// The replay in the file `path`, which is made if there is none.
    ///
    /// # Errors
    /// [`ReplayError::Io`], those of [`Replay::heap`] and [`Replay::open_file`]; [`ReplayError::OtherReplay`] when it
    /// has other settings.
    pub fn create_or_open_file(path: &Path, settings: Settings) -> Result<Self, ReplayError> {
        settings.check_private()?;
        let layout = Self::lay_out(&settings)?;
        if !path.exists() {
            // Under another name first, so that no process opens an incomplete replay, and a killed process leaves none.
            let temporary = temporary_beside(path);
            let region = Region::create_file(&temporary, layout.bytes).map_err(|e| io(path, &e))?;
            let made = Self::make_named(region, path, settings.clone(), layout);
            let placed = made.and_then(|replay| {
                let linked = std::fs::hard_link(&temporary, path);
                linked.map(|()| replay).map_err(|error| io(path, &error))
            });
            let _ = std::fs::remove_file(&temporary); // The file has its own name now, or is not wanted.
            match placed {
                Err(ReplayError::Io { code: Some(libc::EEXIST), .. }) => {} // Another process was first.
                other => return other,
            }
        }
        Self::open_file(path)?.same_settings(&path.display().to_string(), &settings)
    }

    fn make_named(
        mut region: Region,
        path: &Path,
        settings: Settings,
        layout: super::layout::Layout,
    ) -> Result<Self, ReplayError> {
        region.set_path(path);
        let replay = Self::make_hidden(region, settings, layout)?;
        replay.header()?[header::BOOT].store(boot(), Ordering::Relaxed);
        replay.show()?;
        Ok(replay)
    }

    /// The replay in the file `path`.
    ///
    /// # Errors
    /// [`ReplayError::Io`]; [`ReplayError::File`] when it is no mapped replay, or is damaged, or the machine went down
    /// while rows were being written.
    pub fn open_file(path: &Path) -> Result<Self, ReplayError> {
        let name = path.display().to_string();
        for _ in 0..OPENINGS_MAX {
            let (region, is_alone) = Region::open_file(path).map_err(|error| io(path, &error))?;
            let region = Arc::new(region);
            if !is_alone && is_sealed(&region) {
                continue; // The last one closed it while this process waited for it.
            }
            let replay = Self::of_region(&name, region, !is_alone).map_err(|error| damaged(path, error))?;
            if is_alone {
                replay.check_file().map_err(|reason| bad(path, reason))?;
                replay.take_over().map_err(|error| damaged(path, error))?;
                replay.region.share_file().map_err(|error| io(path, &error))?;
            }
            return Ok(replay);
        }
        Err(bad(path, format!("other processes opened and closed it {OPENINGS_MAX} times meanwhile")))
    }

    /// Whether the file holds a replay that was closed, or left by processes that were killed. Nothing is written.
    fn check_file(&self) -> Result<(), String> {
        let header = self.header().map_err(|error| error.to_string())?;
        let (seal, boot_then) =
            (header[header::SEAL].load(Ordering::Relaxed), header[header::BOOT].load(Ordering::Relaxed));
        let was_dirty = header[header::DIRTY].load(Ordering::Relaxed) != CLEAN;
        if seal == UNSEALED && was_dirty && boot_then != boot() {
            return Err("the machine went down while rows were being written to it".to_owned());
        }
        if seal != UNSEALED && seal != self.seal().map_err(|error| error.to_string())? {
            return Err("its checksum is wrong: it is damaged".to_owned());
        }
        self.check_structure(false)
    }

    /// Whether all counts, slots and weights fit together. `at_rest`: every process that used it has finished what it did.
    fn check_structure(&self, at_rest: bool) -> Result<(), String> {
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
        if count(counter::SUMMED) > counts.reserved {
            return Err(format!("it has checksums of {} rows", count(counter::SUMMED)));
        }
        if !self.tree().is_padded() {
            return Err("its tree of weights has weights beyond its end".to_owned());
        }
        let state = |slot: usize| self.slots.words_of(slot);
        let weight = |slot: usize| self.tree().get(slot).unwrap_or(u32::MAX);
        let used = ring.slots;
        SlotStates { ring, counts, max_weight, used, state, weight, at_rest }.check()?;
        self.tails.check(ring.slots)
    }

    /// Makes a file that was checked, and that no other process has open, this process's to use.
    fn take_over(&self) -> Result<(), ReplayError> {
        let header = self.header()?;
        header[header::SEAL].store(UNSEALED, Ordering::Relaxed);
        header[header::BOOT].store(boot(), Ordering::Relaxed);
        // Before anything else changes, or the disk might have that and still the seal.
        let flushed = self.region.flush(HEADER_BYTES);
        flushed.map_err(|error| io(self.region.path().unwrap_or(Path::new("")), &error))?;
        self.slots.forget_all();
        self.tails.forget_holders();
        self.slots.processes.forget_all()?;
        drop(self.at_rest()?);
        Ok(())
    }

    /// Writes the seal if this process was the last one to have the file open, and the disk has all of it.
    pub(super) fn seal_if_last(&self) {
        if self.is_mapped && self.slots.processes.alive_count() == 0 && self.region.lock_file_alone() {
            let _ = self.write_seal(); // Without a seal the file is checked less strictly when it is opened.
        }
    }

    fn write_seal(&self) -> Result<(), ReplayError> {
        let header = self.header()?;
        if header[header::DIRTY].load(Ordering::Relaxed) == CLEAN {
            header[header::BOOT].store(0, Ordering::Relaxed); // Any run of the machine may open it.
            header[header::SEAL].store(self.seal()?, Ordering::Relaxed);
            self.region.flush(HEADER_BYTES).map_err(|error| io(Path::new(""), &error))?;
        }
        Ok(())
    }

    /// Checksum of everything but the rows' bytes, which have sums of their own. No process has the file open.
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

    /// The checksum of the rows in chunk `chunk` of the ring. No process writes rows meanwhile.
    fn sum_of_rows(&self, chunk: usize) -> u64 {
        let rows = self.layout.ring.chunk;
        let mut sum = Checksum::new();
        // SAFETY: no process writes, by the caller's gate.
        self.columns.iter().for_each(|column| sum.update(unsafe { column.some(chunk * rows, rows) }));
        sum.finish()
    }

    /// The checksum of a chunk that was never written.
    fn sum_of_nothing(&self) -> u64 {
        let mut sum = Checksum::new();
        let mut left = self.columns.iter().map(|column| column.row_bytes * self.layout.ring.chunk).sum();
        while left > 0 {
            let part = usize::min(left, 4096);
            sum.update(&[0; 4096][..part]);
            left -= part;
        }
        sum.finish()
    }

    fn sums(&self) -> Result<Cells<AtomicU64>, SumTreeError> {
        Cells::in_region(&self.region, self.layout.sums, self.layout.ring.slots / self.layout.ring.chunk)
    }

    /// The chunks, counted from the first ever written, with rows that were reserved since the checksums were made.
    fn changed_chunks(&self) -> std::ops::Range<u64> {
        let (ring, summed) = (self.layout.ring, self.counters[counter::SUMMED].load(Ordering::Relaxed));
        let reserved = self.slots.words[word::RESERVED].load(Ordering::Relaxed);
        let (chunk, chunks) = (ring.chunk as u64, (ring.slots / ring.chunk) as u64);
        if reserved == summed {
            return 0..0;
        }
        let end = reserved.div_ceil(chunk);
        (summed / chunk).max(end.saturating_sub(chunks))..end
    }

    /// Makes the checksums of rows that were added since the last time. Behind the gate.
    fn sum_rows(&self) -> Result<(), SumTreeError> {
        let sums = self.sums()?;
        for chunk in self.changed_chunks() {
            let chunk = (chunk % sums.len() as u64) as usize;
            sums[chunk].store(self.sum_of_rows(chunk), Ordering::Relaxed);
        }
        let reserved = self.slots.words[word::RESERVED].load(Ordering::Relaxed);
        self.counters[counter::SUMMED].store(reserved, Ordering::Relaxed);
        Ok(())
    }

    /// Checks a file's structure, and the bytes of all rows that were there at the last flush. Behind the gate.
    pub(super) fn verify_rows(&self) -> Result<(), ReplayError> {
        let Some(path) = self.region.path() else { return Ok(()) };
        self.check_structure(true).map_err(|reason| bad(path, reason))?;
        let (sums, ring) = (self.sums()?, self.layout.ring);
        let changed = self.changed_chunks();
        let summed = self.counters[counter::SUMMED].load(Ordering::Relaxed).div_ceil(ring.chunk as u64);
        let nothing = self.sum_of_nothing();
        for chunk in 0..sums.len() {
            if ring.is_among(chunk * ring.chunk, changed.clone()) {
                continue;
            }
            let was_written = (chunk as u64) < summed;
            let expected = if was_written { sums[chunk].load(Ordering::Relaxed) } else { nothing };
            if expected != self.sum_of_rows(chunk) {
                let (path, start) = (path.display().to_string(), chunk * ring.chunk);
                return Err(ReplayError::Rows { path, start, end: start + ring.chunk });
            }
        }
        Ok(())
    }

    /// Writes to the disk what it does not have yet; adds and updates wait meanwhile.
    ///
    /// # Errors
    /// [`ReplayError::Setting`] when there is no file, [`ReplayError::Io`], [`ReplayError::Closed`].
    pub fn flush(&self) -> Result<(), ReplayError> {
        let Some(path) = self.region.path() else {
            return Err(super::settings::setting(
                "flush",
                "of private or shared memory",
                "replays in a file",
            ));
        };
        let _gate = self.at_rest()?;
        self.sum_rows()?;
        let header = self.header()?;
        let written = self.region.flush(self.region.len()).and_then(|()| {
            header[header::DIRTY].store(CLEAN, Ordering::Relaxed);
            self.region.flush(HEADER_BYTES)
        });
        written.map_err(|error| io(path, &error))
    }

    /// The file that holds everything, `None` if there is none.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.region.path()
    }

    /// Before rows or weights change: the disk knows that it may lack something.
    #[inline(always)]
    pub(super) fn touch(&self) {
        if self.is_mapped {
            self.make_dirty();
        }
    }

    #[inline(never)]
    fn make_dirty(&self) {
        let Ok(header) = self.header() else { return };
        let word = &header[header::DIRTY];
        if word.load(Ordering::Acquire) == DIRTY {
            return;
        }
        word.store(BECOMING, Ordering::Relaxed);
        // If it cannot be written, no flush can either, and that reports it.
        if self.region.flush(HEADER_BYTES).is_ok() {
            word.store(DIRTY, Ordering::Release);
        }
    }
}

fn bad(path: &Path, reason: String) -> ReplayError {
    ReplayError::File { path: path.display().to_string(), reason }
}

/// What is said of a file that made an error: settings and sizes in it are not the caller's.
pub(super) fn damaged(path: &Path, error: ReplayError) -> ReplayError {
    match error {
        ReplayError::NotAReplay { reason, .. } => bad(path, reason),
        ReplayError::Tree(SumTreeError::OutOfMemory { .. })
        | ReplayError::Io { .. }
        | ReplayError::File { .. }
        | ReplayError::TooManyProcesses { .. } => error,
        other => bad(path, other.to_string()),
    }
}

/// Whether the last one to close the file has sealed it.
fn is_sealed(region: &Arc<Region>) -> bool {
    Cells::<AtomicU64>::in_region(region, 0, header::COUNT).is_ok_and(|header| {
        let get = |at: usize| header[at].load(Ordering::Acquire);
        get(header::MAGIC) == MAGIC && get(header::SEAL) != UNSEALED
    })
}

/// Which run of the machine this is; 0 where that is not to be had.
fn boot() -> u64 {
    std::fs::read("/proc/sys/kernel/random/boot_id").map_or(0, |id| text_sum(&id))
}
