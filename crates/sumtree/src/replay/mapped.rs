//! A replay whose memory is a file: larger than the machine's if need be, and there again when it is opened.
//!
//! The region is mapped shared, so what a process wrote is in the file however the process ends. Processes hold a
//! shared lock on the file; who gets it alone knows that all others are gone, forgets what they held and has the sums
//! mended. What the *machine* loses when it goes down is another matter: the disk has pages in any order. So a word
//! of the file says whether something was written since the last flush, and such a file is refused.

use std::path::Path;

use super::file::{io, temporary_beside};
use super::layout::HEADER_BYTES;
use super::open::{header, text_sum};
use super::{Replay, ReplayError, Settings};
use crate::Region;
use crate::sync::Ordering;

/// Values of the word that says whether the disk may lack something.
const CLEAN: u64 = 0;
/// Being written to the disk.
const BECOMING: u64 = 1;
const DIRTY: u64 = 2;

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
            // Under another name first, so that nobody ever sees half a replay, nor a killed process leaves one.
            let temporary = temporary_beside(path);
            let region = Region::create_file(&temporary, layout.bytes).map_err(|e| io(path, &e))?;
            let made = Self::make_named(region, path, settings.clone(), layout);
            let placed = made.and_then(|replay| {
                let linked = std::fs::hard_link(&temporary, path);
                linked.map(|()| replay).map_err(|error| io(path, &error))
            });
            let _ = std::fs::remove_file(&temporary); // The file has its own name now, or is not wanted.
            match placed {
                Err(ReplayError::Io { code: Some(libc::EEXIST), .. }) => {} // Somebody else was first.
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
        let bad = |reason: String| ReplayError::File { path: path.display().to_string(), reason };
        let (region, is_alone) = Region::open_file(path).map_err(|error| io(path, &error))?;
        let replay = Self::of_region(&path.display().to_string(), region).map_err(|error| match error {
            ReplayError::NotAReplay { reason, .. } => bad(reason),
            other => other,
        })?;
        let header = replay.header()?;
        if is_alone {
            let was_dirty = header[header::DIRTY].load(Ordering::Relaxed) != CLEAN;
            if was_dirty && header[header::BOOT].load(Ordering::Relaxed) != boot() {
                let _ = replay.slots.processes.retire(); // Left as it was found.
                return Err(bad("the machine went down while rows were being written to it".to_owned()));
            }
            if !replay.slots.links_fit() || !replay.tails.move_rows(Some) {
                let _ = replay.slots.processes.retire();
                return Err(bad("it names rows that are not there: it is damaged".to_owned()));
            }
            header[header::BOOT].store(boot(), Ordering::Relaxed);
            replay.slots.processes.forget_all()?;
            replay.slots.forget_all();
            replay.tails.forget_holders();
            drop(replay.at_rest()?);
            replay.region.share_file().map_err(|error| io(path, &error))?;
        }
        Ok(replay)
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

/// Which run of the machine this is; 0 where that is not to be had.
fn boot() -> u64 {
    std::fs::read("/proc/sys/kernel/random/boot_id").map_or(0, |id| text_sum(&id))
}
