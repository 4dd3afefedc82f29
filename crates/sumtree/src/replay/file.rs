//! Saving and loading a replay, with everything that later calls depend on: a resumed run continues exactly.
//!
//! Numbers are little-endian. The parts are, in this order: a head (magic, version, lengths and its own
//! checksum); the settings as text; the words of the ring; the counters; the tails; for the slots in use,
//! their states (generation, link, parked weight), their weights, and the distances to their previous rows
//! (if the replay has them); the columns one after the other (in compressed ones, a length before each row);
//! and a checksum of everything before.
#![allow(unsafe_code)] // Rows as slices, while the gate is shut or before another thread has access.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use super::check::{Counts, SlotStates};
use super::checksum::Checksum;
use super::columns::Column;
use super::compress::Compression;
use super::layout::Layout;
use super::mapped::as_file_error;
use super::relocation::Relocation;
use super::slots::{self, STATE_WORDS, word};
use super::{Replay, ReplayError, Settings};
use crate::Region;
use crate::memory::{reserve, vec_of_zeros};
use crate::sync::{AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"parlbuf\n");
/// Newest version of the format. Older versions can be read, newer ones are an error.
const VERSION: u64 = 3;
/// Version of files without `extra_rows`, which older readers understand.
const VERSION_WITHOUT_EXTRA_ROWS: u64 = 2;
/// Magic, version, bytes of settings, slots in use, bytes of the file, checksum of these five and the settings.
const HEAD_WORDS: usize = 6;
const SETTINGS_BYTES_MAX: u64 = 1 << 20;
/// Number of cells that are converted at a time, and number of bytes for rows (`PIECE_BYTES`).
const PIECE: usize = 4096;
const PIECE_BYTES: usize = 1 << 20;
/// Words of the ring that are saved.
const SAVED_WORDS: [usize; 5] = [word::RESERVED, word::MARKED, word::CLEARED, word::READY, word::REAPED];

impl Replay {
    /// Saves the replay to `path` atomically: at any time a reader finds either the old file or the complete
    /// new one. Adds and updates wait during the call; sampling continues.
    ///
    /// # Errors
    /// [`ReplayError::Io`]; an existing file is then unchanged.
    pub fn save(&self, path: &Path) -> Result<(), ReplayError> {
        let gate = self.shut_and_repair()?;
        let temporary = temporary_beside(path);
        let written = ChecksumWriter::create(&temporary).and_then(|mut out| {
            self.write_to(&mut out)?;
            out.finish()
        });
        drop(gate);
        rename_into_place(&temporary, path, written)
    }

    /// Loads a replay that [`Replay::save`] wrote to `path`, into private memory or into shared memory under
    /// a new name. With another `capacity`, it holds the newest rows, and tickets issued before are stale.
    ///
    /// # Errors
    /// [`ReplayError::Io`]; [`ReplayError::File`] if the file is not a replay, is truncated or damaged, or
    /// was written by a newer version; those of [`Replay::create_shared`]. No shared memory is left behind.
    pub fn load(path: &Path, shared: Option<&str>, capacity: Option<usize>) -> Result<Self, ReplayError> {
        let bad = |reason: String| ReplayError::File { path: path.display().to_string(), reason };
        let file = crate::platform::open_without_waiting(path).map_err(|error| io(path, &error))?;
        let meta = file.metadata().map_err(|error| io(path, &error))?;
        if meta.is_dir() {
            return Err(io(path, &crate::platform::not_a_file(&meta)));
        }
        if !meta.is_file() {
            return Err(bad("it is not a regular file".to_owned()));
        }
        let length = meta.len();
        let mut input = ChecksumReader { file, sum: Checksum::new(), path, left: length };
        if length < 8 * HEAD_WORDS as u64 {
            return Err(bad(format!("it has {length} bytes, fewer than its head")));
        }
        let mut head = [0u64; HEAD_WORDS];
        input.words(&mut head)?;
        if head[0] != MAGIC {
            return Err(bad("it does not begin with the magic number of one".to_owned()));
        }
        if head[1] == 0 {
            return Err(bad("it has version 0, the first one is 1".to_owned()));
        }
        if head[1] > VERSION {
            return Err(bad(format!("it has version {}, the newest known here is {VERSION}", head[1])));
        }
        if head[2] > SETTINGS_BYTES_MAX {
            return Err(bad(format!("it has {} bytes of settings, more than {SETTINGS_BYTES_MAX}", head[2])));
        }
        if head[4] != length {
            return Err(bad(format!("it has {length} bytes, but {} were written", head[4])));
        }
        let mut text = vec![0; head[2].min(SETTINGS_BYTES_MAX).min(length - 8 * HEAD_WORDS as u64) as usize];
        input.bytes(&mut text)?;
        if head[5] != head_sum(&head, &text) {
            return Err(bad("its head is damaged".to_owned()));
        }
        let settings = String::from_utf8(text).ok().and_then(|text| Settings::from_text(&text));
        let settings = settings.ok_or_else(|| bad("its settings cannot be read".to_owned()))?;
        let written = Self::compute_layout(&settings).map_err(|error| as_file_error(path, error))?;
        let used = head[3] as usize;
        let fits = match file_bytes(&settings, &written, used, head[2], 0) {
            Some(bytes) if settings.compression == Compression::None => bytes == length,
            least => least.is_some_and(|least| least <= length),
        };
        if used > written.ring.slots || !fits {
            return Err(bad(format!("{used} slots in use do not fit its settings")));
        }
        let capacity = capacity.unwrap_or(settings.capacity);
        let settings = Settings { capacity, extra_rows: settings.extra_rows.min(capacity), ..settings };
        let layout = Self::compute_layout(&settings)?;
        let region = match shared {
            Some(name) => {
                settings.check_private()?;
                Region::create_shared(name, layout.bytes)?
            }
            None => Region::heap(layout.bytes)?,
        };
        // After an error, dropping the replay closes it, which removes a shared name. No process can attach
        // before it is complete.
        let replay = Self::create_unpublished(region, settings, layout)?;
        replay.read_from(&mut input, used, &written)?;
        let expected = std::mem::replace(&mut input.sum, Checksum::new()).finish();
        let mut found = [0];
        input.words(&mut found)?;
        if found[0] != expected {
            return Err(bad("its checksum is wrong: it is damaged".to_owned()));
        }
        replay.publish_region()?;
        Ok(replay)
    }

    fn write_to(&self, out: &mut ChecksumWriter) -> std::io::Result<()> {
        let text = self.settings.to_text();
        let reserved = self.slots.words[word::RESERVED].load(Ordering::Relaxed);
        let used = reserved.min(self.layout.ring.slots as u64) as usize;
        let mut packed_bytes = 0;
        for packed in self.columns.iter().filter_map(|column| column.packed.as_ref()) {
            // SAFETY: the gate is shut, so no process writes rows.
            packed_bytes += (0..used).map(|slot| unsafe { packed.packed(slot) }.len() as u64).sum::<u64>();
        }
        let length =
            file_bytes(&self.settings, &self.layout, used, text.len() as u64, packed_bytes).unwrap_or(0);
        out.head(&text, used, length)?;
        out.words(SAVED_WORDS.map(|at| self.slots.words[at].load(Ordering::Relaxed)))?;
        out.words(self.counters.iter().map(|cell| cell.load(Ordering::Relaxed)))?;
        out.words(self.tails.words().iter().map(|cell| cell.load(Ordering::Relaxed)))?;
        out.words32(self.slots.states[..used * STATE_WORDS].iter().map(|cell| cell.load(Ordering::Relaxed)))?;
        let out_of_memory = |error| std::io::Error::new(std::io::ErrorKind::OutOfMemory, error);
        let mut weights = vec_of_zeros(used).map_err(out_of_memory)?;
        self.tree().get_range(0, &mut weights).map_err(std::io::Error::other)?;
        out.words32(weights)?;
        if self.layout.back_words > 0 {
            out.words32(self.history.back[..used].iter().map(|cell| cell.load(Ordering::Relaxed)))?;
        }
        for column in &self.columns {
            match &column.packed {
                // SAFETY: the gate is shut, so no process writes rows.
                None => out.bytes(unsafe { column.rows(0, used) })?,
                Some(packed) => {
                    for slot in 0..used {
                        // SAFETY: as above.
                        let row = unsafe { packed.packed(slot) };
                        out.words32([row.len() as u32])?;
                        out.bytes(row)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads what [`Replay::write_to`] wrote from a replay with layout `written`.
    fn read_from(
        &self,
        input: &mut ChecksumReader<'_>,
        used: usize,
        written: &Layout,
    ) -> Result<(), ReplayError> {
        let bad = |reason: &str| {
            let path = input.path.display().to_string();
            ReplayError::File { path, reason: reason.to_owned() }
        };
        let no_row = || bad("a compressed row in it is damaged");
        let mut kept = [0; SAVED_WORDS.len()];
        input.words(&mut kept)?;
        input.cells64(&self.counters)?;
        let (first, max_weight) = (&self.counters[super::counter::FIRST], self.scale.max_weight());
        let counts = Counts {
            reserved: kept[0],
            marked: kept[1],
            cleared: kept[2],
            first: first.load(Ordering::Relaxed),
            largest: self.counters[super::counter::LARGEST].load(Ordering::Relaxed),
        };
        counts.check(written.ring, max_weight).map_err(|reason| bad(&reason))?;
        if used as u64 != counts.reserved.min(written.ring.slots as u64) {
            return Err(bad(&format!("{used} slots in use do not match {} rows", counts.reserved)));
        }
        self.counters[super::counter::CHECKSUMMED].store(0, Ordering::Relaxed); // Only used by mapped files.
        let relocation = Relocation::new(written.ring, self.layout.ring, counts.first, kept[0], kept[1])
            .ok_or_else(|| bad("its sequence numbers are too large for this capacity"))?;
        if !relocation.is_identity() {
            (kept[0], kept[1], kept[2]) = (relocation.reserved(), relocation.marked(), relocation.marked());
            first.store(relocation.first(), Ordering::Relaxed);
        }
        input.cells64(self.tails.words())?;
        self.tails.unlock_all();
        self.tails.check(written.ring.slots).map_err(|reason| bad(&reason))?;
        self.tails.relocate_rows(|row| relocation.row(row));
        let mut states = vec_of_zeros(used * STATE_WORDS)?;
        input.words32(&mut states)?;
        let mut weights = vec_of_zeros(used)?;
        input.words32(&mut weights)?;
        let mut back = vec_of_zeros(if written.back_words > 0 { used } else { 0 })?;
        input.words32(&mut back)?;
        let state = |slot: usize| std::array::from_fn(|which| states[slot * STATE_WORDS + which]);
        let weight = |slot: usize| weights[slot];
        SlotStates { ring: written.ring, counts, max_weight, used, state, weight, is_quiescent: true }
            .check()
            .map_err(|reason| bad(&reason))?;
        // If rows move, the oldest one moves to slot 0.
        let mut leaves = vec_of_zeros(used.min(self.layout.ring.slots))?;
        let mut ready = 0;
        for (slot, state) in states.chunks_exact(STATE_WORDS).enumerate() {
            let Some(to) = relocation.slot(slot) else { continue };
            let state = relocation.state(slot, state.try_into().unwrap_or_default());
            ready += u64::from(slots::is_ready(state));
            leaves[to] = if relocation.is_identity() || slots::is_ready(state) { weights[slot] } else { 0 };
            let cells = &self.slots.states[to * STATE_WORDS..][..STATE_WORDS];
            cells.iter().zip(state).for_each(|(cell, word)| cell.store(word, Ordering::Relaxed));
            if let Some(back) = back.get(slot) {
                self.history.back[to].store(relocation.distance(slot, *back), Ordering::Relaxed);
            }
        }
        self.tree().set_range(0, &leaves)?;
        kept[3] = ready;
        for (at, value) in SAVED_WORDS.into_iter().zip(kept) {
            self.slots.words[at].store(value, Ordering::Relaxed);
        }
        for column in &self.columns {
            match &column.packed {
                None => input.rows(column, used, &relocation)?,
                Some(packed) => {
                    let (mut row, mut whole) = (Vec::new(), Vec::new());
                    for slot in 0..used {
                        let mut length = [0];
                        input.words32(&mut length)?;
                        let length = length[0] as usize;
                        if length > column.row_bytes || length as u64 > input.left {
                            return Err(no_row());
                        }
                        row.clear();
                        reserve(&mut row, length)?;
                        row.resize(length, 0);
                        input.bytes(&mut row)?;
                        let is_ready = slots::is_ready(state(slot));
                        if row.is_empty() && is_ready {
                            return Err(bad(&format!("the row in slot {slot} is missing")));
                        }
                        let Some(to) = relocation.slot(slot).filter(|_| !row.is_empty()) else { continue };
                        if !packed.take_packed(to, &row, &mut whole)? {
                            return Err(no_row());
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Writes the file of a replay whose rows are stored elsewhere, such as on a CUDA device. The parts are given
/// one after the other, in the order described at the top of `file.rs`. If it is dropped before
/// [`FileWriter::finish`], no file is left.
pub struct FileWriter {
    out: Option<ChecksumWriter>,
    path: PathBuf,
    temporary: PathBuf,
    length: u64,
    given: u64,
}

impl FileWriter {
    /// Starts the file of a replay with these settings and `used` slots in use.
    ///
    /// # Errors
    /// [`ReplayError::Io`]; those of the settings; [`ReplayError::File`] if `used` is more than the number of
    /// slots, or rows are compressed.
    pub fn new(path: &Path, settings: &Settings, used: usize) -> Result<Self, ReplayError> {
        let layout = Replay::compute_layout(settings)?;
        let text = settings.to_text();
        let length = file_bytes(settings, &layout, used, text.len() as u64, 0);
        let fits = settings.compression == Compression::None && used <= layout.ring.slots;
        let Some(length) = length.filter(|_| fits) else {
            let reason = format!("{used} slots in use do not fit its settings");
            return Err(ReplayError::File { path: path.display().to_string(), reason });
        };
        let temporary = temporary_beside(path);
        let mut out = ChecksumWriter::create(&temporary).map_err(|error| io(path, &error))?;
        let begun = out.head(&text, used, length).map_err(|error| io(path, &error));
        let given = (8 * HEAD_WORDS + text.len()) as u64;
        let writer = Self { out: Some(out), path: path.to_owned(), temporary, length, given };
        begun.map(|()| writer)
    }

    /// Writes the next bytes.
    ///
    /// # Errors
    /// [`ReplayError::Io`].
    pub fn part(&mut self, bytes: &[u8]) -> Result<(), ReplayError> {
        self.given += bytes.len() as u64;
        match &mut self.out {
            Some(out) => out.bytes(bytes).map_err(|error| io(&self.path, &error)),
            None => Ok(()),
        }
    }

    /// Completes the file and renames it to its path.
    ///
    /// # Errors
    /// [`ReplayError::Io`]; [`ReplayError::File`] if the parts do not have the number of bytes that the
    /// settings require.
    pub fn finish(mut self) -> Result<(), ReplayError> {
        let (given, expected) = (self.given, self.length - 8);
        if given != expected {
            let reason = format!("its parts have {given} bytes, expected {expected}");
            return Err(ReplayError::File { path: self.path.display().to_string(), reason });
        }
        let Some(out) = self.out.take() else { return Ok(()) };
        rename_into_place(&self.temporary, &self.path, out.finish())
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if self.out.take().is_some() {
            let _ = std::fs::remove_file(&self.temporary); // Not finished.
        }
    }
}

/// Renames a file that was written to its path, or removes it if writing failed.
fn rename_into_place(temporary: &Path, path: &Path, written: std::io::Result<()>) -> Result<(), ReplayError> {
    let placed = written.and_then(|()| std::fs::rename(temporary, path));
    if let Err(error) = placed {
        let _ = std::fs::remove_file(temporary); // The first error is the one to report.
        return Err(io(path, &error));
    }
    // The rename is durable after the directory is synced. Some file systems cannot do that, and need not.
    if let Some(directory) = path.parent() {
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let _ = File::open(directory).and_then(|directory| directory.sync_all());
    }
    Ok(())
}

/// Size of a file in bytes, of which `packed_bytes` are in compressed rows. `None` if it overflows.
fn file_bytes(
    settings: &Settings,
    layout: &Layout,
    used: usize,
    settings_bytes: u64,
    packed_bytes: u64,
) -> Option<u64> {
    let words = HEAD_WORDS + SAVED_WORDS.len() + super::counter::COUNT + layout.tail_words + 1;
    let slot = 4 * (STATE_WORDS + 1) as u64 + if layout.back_words > 0 { 4 } else { 0 };
    let row = settings.fields.iter().try_fold(slot, |sum, field| {
        let packs = settings.compression.packs(field.row_bytes);
        sum.checked_add(if packs { 4 } else { field.row_bytes as u64 })
    })?;
    row.checked_mul(used as u64)?
        .checked_add(8 * words as u64)?
        .checked_add(settings_bytes)?
        .checked_add(packed_bytes)
}

fn head_sum(head: &[u64; HEAD_WORDS], settings: &[u8]) -> u64 {
    let mut sum = Checksum::new();
    sum.update(settings);
    head[..HEAD_WORDS - 1].iter().for_each(|word| sum.update(&word.to_le_bytes()));
    sum.finish()
}

/// A name in the same directory, so that the rename is atomic.
pub(super) fn temporary_beside(path: &Path) -> PathBuf {
    use std::sync::atomic::AtomicU32;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    // With a unique number, because two threads may save to one path at the same time.
    name.push(format!(
        ".{}-{}.tmp",
        std::process::id(),
        NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    ));
    path.with_file_name(name)
}

pub(super) fn io(path: &Path, error: &std::io::Error) -> ReplayError {
    if error.kind() == std::io::ErrorKind::OutOfMemory {
        return crate::memory::out_of_memory(0, error).into();
    }
    ReplayError::Io {
        path: path.display().to_string(),
        reason: error.to_string(),
        code: error.raw_os_error(),
    }
}

struct ChecksumWriter {
    file: std::io::BufWriter<File>,
    sum: Checksum,
}

impl ChecksumWriter {
    fn create(path: &Path) -> std::io::Result<Self> {
        let file = File::create_new(path)?;
        Ok(Self { file: std::io::BufWriter::with_capacity(1 << 20, file), sum: Checksum::new() })
    }

    fn head(&mut self, text: &str, used: usize, length: u64) -> std::io::Result<()> {
        let has_extra = text.contains("\nextra_rows ");
        let version = if has_extra { VERSION } else { VERSION_WITHOUT_EXTRA_ROWS };
        let mut head = [MAGIC, version, text.len() as u64, used as u64, length, 0];
        head[5] = head_sum(&head, text.as_bytes());
        self.words(head)?;
        self.bytes(text.as_bytes())
    }

    /// Writes the checksum and syncs the file to the disk.
    fn finish(mut self) -> std::io::Result<()> {
        let sum = std::mem::replace(&mut self.sum, Checksum::new()).finish();
        self.words([sum])?;
        self.file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()
    }

    fn bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.sum.update(bytes);
        self.file.write_all(bytes)
    }

    fn words(&mut self, words: impl IntoIterator<Item = u64>) -> std::io::Result<()> {
        words.into_iter().try_for_each(|word| self.bytes(&word.to_le_bytes()))
    }

    fn words32(&mut self, words32: impl IntoIterator<Item = u32>) -> std::io::Result<()> {
        words32.into_iter().try_for_each(|half| self.bytes(&half.to_le_bytes()))
    }
}

struct ChecksumReader<'a> {
    file: File,
    sum: Checksum,
    path: &'a Path,
    /// Number of bytes not read yet.
    left: u64,
}

impl ChecksumReader<'_> {
    fn bytes(&mut self, bytes: &mut [u8]) -> Result<(), ReplayError> {
        self.file.read_exact(bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                let (path, reason) = (self.path.display().to_string(), "it ends too early".to_owned());
                ReplayError::File { path, reason }
            }
            _ => io(self.path, &error),
        })?;
        self.left = self.left.saturating_sub(bytes.len() as u64);
        self.sum.update(bytes);
        Ok(())
    }

    fn words(&mut self, words: &mut [u64]) -> Result<(), ReplayError> {
        let mut bytes = vec_of_zeros(8 * words.len())?;
        self.bytes(&mut bytes)?;
        words.iter_mut().zip(bytes.as_chunks().0).for_each(|(word, b)| *word = u64::from_le_bytes(*b));
        Ok(())
    }

    fn words32(&mut self, words32: &mut [u32]) -> Result<(), ReplayError> {
        let mut bytes = vec_of_zeros(4 * words32.len())?;
        self.bytes(&mut bytes)?;
        words32.iter_mut().zip(bytes.as_chunks().0).for_each(|(half, b)| *half = u32::from_le_bytes(*b));
        Ok(())
    }

    fn cells64(&mut self, cells: &[AtomicU64]) -> Result<(), ReplayError> {
        for piece in cells.chunks(PIECE) {
            let mut words = vec![0; piece.len()];
            self.words(&mut words)?;
            piece.iter().zip(words).for_each(|(cell, word)| cell.store(word, Ordering::Relaxed));
        }
        Ok(())
    }

    /// Reads the rows of one column into their new slots.
    fn rows(&mut self, column: &Column, used: usize, relocation: &Relocation) -> Result<(), ReplayError> {
        if column.row_bytes == 0 {
            return Ok(());
        }
        if used == 0 {
            return Ok(());
        }
        let piece = (PIECE_BYTES / column.row_bytes).clamp(1, used);
        let mut bytes = vec_of_zeros(piece * column.row_bytes)?;
        for start in (0..used).step_by(piece) {
            let count = piece.min(used - start);
            let bytes = &mut bytes[..count * column.row_bytes];
            self.bytes(bytes)?;
            let mut from = 0;
            while from < count {
                let to = relocation.slot(start + from);
                let mut end = from + 1;
                // As many rows as have consecutive new slots.
                while end < count && relocation.slot(start + end) == to.map(|to| to + end - from) {
                    end += 1;
                }
                if let Some(to) = to {
                    // SAFETY: no other process uses this replay yet.
                    unsafe { column.write(to, &bytes[from * column.row_bytes..end * column.row_bytes]) };
                }
                from = end;
            }
        }
        Ok(())
    }
}
