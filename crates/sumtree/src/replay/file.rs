//! A replay as a file: everything that the next calls depend on, so that a run that resumes from it goes on exactly.
//!
//! Numbers are little-endian. A head (magic, version, lengths and its own checksum), the settings as text, the words
//! of the ring, the counters, the tails, then for the slots in use their states (generation, link, parked
//! weight), their weights, and the columns one after the other; a checksum of all of it at the end.
#![allow(unsafe_code)] // Whole columns as slices, while the gate is shut or before anybody else sees them.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use super::checksum::Checksum;
use super::slots::{LINK, STATE_WORDS, word};
use super::{Replay, ReplayError, Settings};
use crate::Region;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"parlbuf\n");
/// Of the format written here; older ones are read, newer ones are an error.
const VERSION: u64 = 1;
/// Magic, version, bytes of settings, slots in use, bytes of the file, checksum of these five and the settings.
const HEAD_WORDS: usize = 6;
const SETTINGS_BYTES_MAX: u64 = 1 << 20;
/// Cells are converted in pieces of so many.
const PIECE: usize = 4096;
/// Words of the ring that a file keeps.
const KEPT: [usize; 5] = [word::RESERVED, word::MARKED, word::CLEARED, word::READY, word::REAPED];

impl Replay {
    /// Writes the replay to `path`, atomically: a reader finds the old file or the new one, whatever happens. Adds and
    /// updates of others wait meanwhile, samples go on.
    ///
    /// # Errors
    /// [`ReplayError::Io`]; an old file then stays as it was.
    pub fn save(&self, path: &Path) -> Result<(), ReplayError> {
        let gate = self.at_rest()?;
        let temporary = temporary_beside(path);
        let written = File::create_new(&temporary).and_then(|file| {
            let mut out =
                Out { file: std::io::BufWriter::with_capacity(1 << 20, file), sum: Checksum::new() };
            self.write_to(&mut out)?;
            let file = out.file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
            file.sync_all()
        });
        drop(gate);
        let placed = written.and_then(|()| std::fs::rename(&temporary, path));
        if let Err(error) = placed {
            let _ = std::fs::remove_file(&temporary); // The first error is the one to report.
            return Err(io(path, &error));
        }
        // The name is only safe when the directory is on disk too; some file systems cannot do that, and need not.
        if let Some(directory) = path.parent() {
            let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
            let _ = File::open(directory).and_then(|directory| directory.sync_all());
        }
        Ok(())
    }

    /// A replay as it was when [`Replay::save`] wrote `path`, in private memory or under a new shared name.
    ///
    /// # Errors
    /// [`ReplayError::Io`]; [`ReplayError::File`] when the file is no replay, truncated, damaged or newer than this
    /// version; those of [`Replay::create_shared`]. Nothing is left behind.
    pub fn load(path: &Path, shared: Option<&str>) -> Result<Self, ReplayError> {
        let file = File::open(path).map_err(|error| io(path, &error))?;
        let length = file.metadata().map_err(|error| io(path, &error))?.len();
        let mut input = In { file, sum: Checksum::new(), path };
        let bad = |reason: String| ReplayError::File { path: path.display().to_string(), reason };
        if length < 8 * HEAD_WORDS as u64 {
            return Err(bad(format!("it has {length} bytes, fewer than its head")));
        }
        let mut head = [0u64; HEAD_WORDS];
        input.words(&mut head)?;
        if head[0] != MAGIC {
            return Err(bad("it does not begin as one".to_owned()));
        }
        if head[1] > VERSION {
            return Err(bad(format!("it has version {}, the newest known here is {VERSION}", head[1])));
        }
        if head[4] != length {
            return Err(bad(format!("it has {length} bytes, {} were written", head[4])));
        }
        let mut text = vec![0; head[2].min(SETTINGS_BYTES_MAX).min(length - 8 * HEAD_WORDS as u64) as usize];
        input.bytes(&mut text)?;
        if head[5] != head_sum(&head, &text) {
            return Err(bad("its head is damaged".to_owned()));
        }
        let settings = String::from_utf8(text).ok().and_then(|text| Settings::of_text(&text));
        let settings = settings.ok_or_else(|| bad("its settings cannot be read".to_owned()))?;
        let layout = Self::lay_out(&settings)?;
        let used = head[3] as usize;
        if used > layout.ring.slots || file_bytes(&settings, used, head[2], layout.tail_words) != Some(length)
        {
            return Err(bad(format!("{used} slots in use do not fit its settings")));
        }
        let region = match shared {
            Some(name) => Region::create_shared(name, layout.bytes)?,
            None => Region::heap(layout.bytes)?,
        };
        // Dropping it on an error closes it, which removes a shared name. Nobody can attach before it is complete.
        let replay = Self::make_hidden(region, settings, layout)?;
        replay.read_from(&mut input, used)?;
        let expected = std::mem::replace(&mut input.sum, Checksum::new()).finish();
        let mut found = [0];
        input.words(&mut found)?;
        if found[0] != expected {
            return Err(bad("its checksum is wrong: it is damaged".to_owned()));
        }
        replay.show()?;
        Ok(replay)
    }

    fn write_to(&self, out: &mut Out) -> std::io::Result<()> {
        let text = self.settings.to_text();
        let reserved = self.slots.words[word::RESERVED].load(Ordering::Relaxed);
        let used = reserved.min(self.layout.ring.slots as u64) as usize;
        let settings_bytes = text.len() as u64;
        let length = file_bytes(&self.settings, used, settings_bytes, self.layout.tail_words).unwrap_or(0);
        let mut head = [MAGIC, VERSION, settings_bytes, used as u64, length, 0];
        head[5] = head_sum(&head, text.as_bytes());
        out.words(head)?;
        out.bytes(text.as_bytes())?;
        out.words(KEPT.map(|at| self.slots.words[at].load(Ordering::Relaxed)))?;
        out.words(self.counters.iter().map(|cell| cell.load(Ordering::Relaxed)))?;
        out.words(self.tails.words().iter().map(|cell| cell.load(Ordering::Relaxed)))?;
        out.halves(self.slots.states[..used * STATE_WORDS].iter().map(|cell| cell.load(Ordering::Relaxed)))?;
        let mut weights = vec![0; used];
        self.tree().get_range(0, &mut weights).map_err(std::io::Error::other)?;
        out.halves(weights)?;
        for column in &self.columns {
            // SAFETY: the gate is shut, so nobody writes rows.
            out.bytes(unsafe { column.all(used) })?;
        }
        let sum = std::mem::replace(&mut out.sum, Checksum::new()).finish();
        out.words([sum])
    }

    fn read_from(&self, input: &mut In<'_>, used: usize) -> Result<(), ReplayError> {
        let mut kept = [0; KEPT.len()];
        input.words(&mut kept)?;
        for (at, value) in KEPT.into_iter().zip(kept) {
            self.slots.words[at].store(value, Ordering::Relaxed);
        }
        input.cells64(&self.counters)?;
        input.cells64(self.tails.words())?;
        self.tails.unlock_all();
        let states = &self.slots.states[..used * STATE_WORDS];
        input.cells32(states)?;
        if states.chunks(STATE_WORDS).any(|state| state[LINK].load(Ordering::Relaxed) as usize > used) {
            let reason = "it links to a row that is not there".to_owned();
            return Err(ReplayError::File { path: input.path.display().to_string(), reason });
        }
        let mut start = 0;
        while start < used {
            let mut weights = vec![0; PIECE.min(used - start)];
            input.halves(&mut weights)?;
            self.tree().set_range(start, &weights)?;
            start += weights.len();
        }
        for column in &self.columns {
            // SAFETY: nobody else has this replay yet.
            input.bytes(unsafe { column.all_mut(used) })?;
        }
        Ok(())
    }
}

/// Bytes of a whole file, `None` where they overflow.
fn file_bytes(settings: &Settings, used: usize, settings_bytes: u64, tail_words: usize) -> Option<u64> {
    let words = HEAD_WORDS + KEPT.len() + super::counter::COUNT + tail_words + 1;
    let row = settings.fields.iter().try_fold(16u64, |sum, field| sum.checked_add(field.row_bytes as u64))?;
    row.checked_mul(used as u64)?.checked_add(8 * words as u64)?.checked_add(settings_bytes)
}

fn head_sum(head: &[u64; HEAD_WORDS], settings: &[u8]) -> u64 {
    let mut sum = Checksum::new();
    sum.update(settings);
    head[..HEAD_WORDS - 1].iter().for_each(|word| sum.update(&word.to_le_bytes()));
    sum.finish()
}

/// A name in the same directory, so that renaming is one step.
fn temporary_beside(path: &Path) -> PathBuf {
    use std::sync::atomic::AtomicU32;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    // A number of its own: two threads may save to one path at once.
    name.push(format!(
        ".{}-{}.tmp",
        std::process::id(),
        NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    ));
    path.with_file_name(name)
}

fn io(path: &Path, error: &std::io::Error) -> ReplayError {
    ReplayError::Io {
        path: path.display().to_string(),
        reason: error.to_string(),
        code: error.raw_os_error(),
    }
}

struct Out {
    file: std::io::BufWriter<File>,
    sum: Checksum,
}

impl Out {
    fn bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.sum.update(bytes);
        self.file.write_all(bytes)
    }

    fn words(&mut self, words: impl IntoIterator<Item = u64>) -> std::io::Result<()> {
        words.into_iter().try_for_each(|word| self.bytes(&word.to_le_bytes()))
    }

    fn halves(&mut self, halves: impl IntoIterator<Item = u32>) -> std::io::Result<()> {
        halves.into_iter().try_for_each(|half| self.bytes(&half.to_le_bytes()))
    }
}

struct In<'a> {
    file: File,
    sum: Checksum,
    path: &'a Path,
}

impl In<'_> {
    fn bytes(&mut self, bytes: &mut [u8]) -> Result<(), ReplayError> {
        self.file.read_exact(bytes).map_err(|error| io(self.path, &error))?;
        self.sum.update(bytes);
        Ok(())
    }

    fn words(&mut self, words: &mut [u64]) -> Result<(), ReplayError> {
        let mut bytes = vec![0; 8 * words.len()];
        self.bytes(&mut bytes)?;
        words.iter_mut().zip(bytes.as_chunks().0).for_each(|(word, b)| *word = u64::from_le_bytes(*b));
        Ok(())
    }

    fn halves(&mut self, halves: &mut [u32]) -> Result<(), ReplayError> {
        let mut bytes = vec![0; 4 * halves.len()];
        self.bytes(&mut bytes)?;
        halves.iter_mut().zip(bytes.as_chunks().0).for_each(|(half, b)| *half = u32::from_le_bytes(*b));
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

    fn cells32(&mut self, cells: &[AtomicU32]) -> Result<(), ReplayError> {
        for piece in cells.chunks(PIECE) {
            let mut halves = vec![0; piece.len()];
            self.halves(&mut halves)?;
            piece.iter().zip(halves).for_each(|(cell, half)| cell.store(half, Ordering::Relaxed));
        }
        Ok(())
    }
}
