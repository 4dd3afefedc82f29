//! Creating, opening and closing replays in private and shared memory.

use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::checksum::Checksum;
use super::columns::Column;
use super::frames::History;
use super::layout::{HEADER_BYTES, Layout, Ring};
use super::process::{ENTRY_WORDS, PROCESSES, Processes};
use super::settings::readable;
use super::slots::{OPERATION_WORDS, OPERATIONS_MAX, STATE_WORDS, Slots, word};
use super::tails::{Tails, Window};
use super::{Replay, ReplayError, Settings, TreeWeights, counter};
use crate::region::{Cells, shared_path};
use crate::sync::{AtomicU64, Ordering};
use crate::{DEFAULT_SCALE, Region, Scale, SumTree, SumTreeError};

/// Indices of the words of the header.
pub(super) mod header {
    /// [`super::MAGIC`], written after everything else is in place.
    pub const MAGIC: usize = 0;
    pub const SETTINGS_BYTES: usize = 1;
    pub const SETTINGS_HASH: usize = 2;
    pub const REGION_BYTES: usize = 3;
    /// Id of the process that created the region, which removes the shared name when it closes the replay.
    pub const CREATOR: usize = 4;
    /// A number that is different for regions that had the same name one after the other.
    pub const CREATION_ID: usize = 5;
    /// Mapped files: boot id at the last write (`BOOT`), and whether the disk may lack changes (`DIRTY`).
    pub const BOOT: usize = 6;
    pub const DIRTY: usize = 7;
    /// Checksum of [`CONSTANT_WORDS`], which never change: settings, sizes, creator and creation id.
    pub const CHECKSUM: usize = 8;
    /// Mapped files: [`super::UNSEALED`], or the checksum of everything but the rows, by the last to close
    /// it.
    pub const SEAL: usize = 9;
    pub const COUNT: usize = 10;

    /// The words covered by [`CHECKSUM`].
    pub const CONSTANT_WORDS: [usize; 5] =
        [SETTINGS_BYTES, SETTINGS_HASH, REGION_BYTES, CREATOR, CREATION_ID];
}

/// "parl" and the version of the layout.
pub(super) const MAGIC: u64 = 0x7061_726c_0000_0004;
/// The seal of a file that is open, or was not closed.
pub(super) const UNSEALED: u64 = 0x6e6f_7420_636c_6f73;
/// Time between two attempts to attach to a replay that another process is creating, and the number of attempts after
/// which the caller is asked whether to wait longer.
const ATTACH_INTERVAL: Duration = Duration::from_millis(2);
const ATTEMPTS_PER_QUESTION: u32 = 50;
/// How long to wait for a file that does not exist or has no length yet.
const FILE_TIMEOUT: Duration = Duration::from_millis(20);
const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// The FNV-1a hash, for short texts.
pub(super) fn hash_text(text: &[u8]) -> u64 {
    text.iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A random tag for the tickets of a new replay. It changes only the laps and sets a bit above them, so
/// neither 0 nor a slot number is a valid ticket. Tickets stay below 2^63, for libraries without unsigned
/// integers.
fn new_tag() -> u64 {
    // The process id is hashed because a forked process has the hash keys of its parent.
    let random = RandomState::new().hash_one(std::process::id());
    ((Ring::LAP_MASK + 1) | (random & Ring::LAP_MASK)) << 32
}

/// Checksum of the words of the header that never change.
fn constant_words_checksum(header: &[AtomicU64]) -> u64 {
    let mut sum = Checksum::new();
    sum.update(&MAGIC.to_le_bytes());
    for at in header::CONSTANT_WORDS {
        sum.update(&header[at].load(Ordering::Relaxed).to_le_bytes());
    }
    sum.finish()
}

impl Replay {
    /// Creates a replay in private memory, for the threads of this process.
    ///
    /// # Errors
    /// [`ReplayError::Setting`], [`ReplayError::Field`]; [`ReplayError::Tree`] if memory cannot be allocated.
    pub fn heap(settings: Settings) -> Result<Self, ReplayError> {
        let layout = Self::compute_layout(&settings)?;
        let region = Region::heap(layout.bytes)?;
        Self::create(region, settings, layout)
    }

    /// Creates a replay in shared memory under a new name, which this process removes when it closes the
    /// replay.
    ///
    /// # Errors
    /// As [`Replay::heap`]; [`SumTreeError::Shared`] if the name exists.
    pub fn create_shared(name: &str, settings: Settings) -> Result<Self, ReplayError> {
        settings.check_private()?;
        let layout = Self::compute_layout(&settings)?;
        let region = Region::create_shared(name, layout.bytes)?;
        Self::create(region, settings, layout)
    }

    /// Opens the replay that another process (or this one) created under `name`. Waits while it is created.
    ///
    /// # Errors
    /// [`ReplayError::Tree`] if there is none, [`ReplayError::NotAReplay`] if it is something else.
    pub fn attach_shared(name: &str) -> Result<Self, ReplayError> {
        Self::attach_shared_while(name, || true)
    }

    /// As [`Replay::attach_shared`], but waits only while `goes_on` returns true.
    ///
    /// # Errors
    /// As [`Replay::attach_shared`]; [`ReplayError::NotAReplay`] if another process is still creating it.
    pub fn attach_shared_while(name: &str, mut goes_on: impl FnMut() -> bool) -> Result<Self, ReplayError> {
        Self::attach(name, true, &mut goes_on)
    }

    /// As [`Replay::attach_shared_while`]. Unless `registers`, this process is not registered yet.
    fn attach(name: &str, registers: bool, goes_on: &mut dyn FnMut() -> bool) -> Result<Self, ReplayError> {
        let (start, mut attempts) = (Instant::now(), 0);
        loop {
            attempts += 1;
            match Self::try_attach(name, registers) {
                // Its creator may have just begun.
                Err(ReplayError::Tree(SumTreeError::Shared {
                    kind: ErrorKind::UnexpectedEof | ErrorKind::NotFound,
                    ..
                })) if start.elapsed() <= FILE_TIMEOUT => {}
                Err(ReplayError::NotAReplay { unfinished: true, .. })
                    if attempts % ATTEMPTS_PER_QUESTION != 0 || goes_on() => {}
                other => return other,
            }
            std::thread::sleep(ATTACH_INTERVAL);
        }
    }

    /// Removes a replay whose creator has ended before it was complete.
    fn try_attach(name: &str, registers: bool) -> Result<Self, ReplayError> {
        let region = Arc::new(Region::attach_shared(name)?);
        let made = Self::from_region(name, Arc::clone(&region), registers);
        // The creator holds the lock until the replay is complete, so the first word is read again under the lock.
        if matches!(made, Err(ReplayError::NotAReplay { unfinished: true, .. })) && region.try_lock_shared() {
            let header = Cells::<AtomicU64>::in_region(&region, 0, header::COUNT)?;
            if header[header::MAGIC].load(Ordering::Acquire) == 0 {
                region.unlink_own();
            }
        }
        made
    }

    /// Opens the replay under `name`, or creates it if no process uses one. A replay that no process uses was
    /// left behind by killed processes and is replaced.
    ///
    /// # Errors
    /// As [`Replay::create_shared`] and [`Replay::attach_shared`]; [`ReplayError::OtherReplay`] if its
    /// settings are different.
    pub fn open_shared(name: &str, settings: Settings) -> Result<Self, ReplayError> {
        Self::open_shared_while(name, settings, || true)
    }

    /// As [`Replay::open_shared`], but waits for another process that creates it only while `goes_on` returns true.
    ///
    /// # Errors
    /// As [`Replay::open_shared`]; [`ReplayError::NotAReplay`] if another process is still creating it.
    pub fn open_shared_while(
        name: &str,
        settings: Settings,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<Self, ReplayError> {
        Self::compute_layout(&settings)?;
        for _ in 0..100 {
            match Self::create_shared(name, settings.clone()) {
                Err(ReplayError::Tree(SumTreeError::Shared { kind: ErrorKind::AlreadyExists, .. })) => {}
                other => return other,
            }
            let found = match Self::attach(name, false, &mut goes_on) {
                // It was removed in the meantime: create it.
                Err(ReplayError::Tree(SumTreeError::Shared { kind: ErrorKind::NotFound, .. })) => continue,
                other => other?,
            };
            let (magic, processes) = (&found.header()?[header::MAGIC], &found.slots.processes);
            if processes.alive_count() == 0 {
                // Of the processes that find it at the same time, one removes it, under the lock as in `try_attach`. The
                // others wait for a new replay, as those that attach later; one that attached before sees this below.
                if found.region.try_lock_shared() {
                    if magic.compare_exchange(MAGIC, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                        found.unlink();
                    }
                } else {
                    std::thread::sleep(ATTACH_INTERVAL);
                }
                continue;
            }
            processes.register_now()?;
            if magic.load(Ordering::Acquire) == MAGIC {
                return found.same_settings(name, &settings);
            }
        }
        let reason = "other processes created and removed it during 100 attempts to open it".to_owned();
        let path = shared_path(name)?.display().to_string();
        let kind = ErrorKind::ResourceBusy;
        Err(SumTreeError::Shared { name: name.to_owned(), path, reason, kind }.into())
    }

    pub(super) fn same_settings(self, name: &str, settings: &Settings) -> Result<Self, ReplayError> {
        let (ours, theirs) = (settings.to_text(), self.settings.to_text());
        if ours == theirs {
            return Ok(self);
        }
        let reason = match ours.lines().zip(theirs.lines()).find(|(a, b)| a != b) {
            Some((a, b)) => format!("{:?} there, {:?} here", readable(b), readable(a)),
            None => "one has more fields".to_owned(),
        };
        Err(ReplayError::OtherReplay { name: name.to_owned(), reason })
    }

    /// Closes the replay in this process. The shared name is removed when the creator or the last process
    /// closes it; the memory is freed when no process has it mapped. Closing again does nothing.
    pub fn close(&self) {
        let processes = &self.slots.processes;
        if !processes.is_registered() {
            return; // Closed before, or inherited by a forked process that never used it.
        }
        // A forked child that used its copy of the handle is not the creator.
        let own = u64::from(std::process::id());
        let is_creator = self.is_creator
            && self.header().is_ok_and(|header| header[header::CREATOR].load(Ordering::Relaxed) == own);
        if self.region.path().is_some() {
            let _ = self.flush(); // Closing cannot fail. Without the flush, a crash of the machine may damage the file.
        }
        self.slots.close();
        self.seal_if_last();
        self.region.release_file();
        if is_creator || processes.alive_count() == 0 {
            self.unlink();
        }
    }

    /// Removes the name of shared memory: no other process can attach any more; those attached keep the
    /// memory. [`Replay::close`] does this too.
    pub fn unlink(&self) {
        self.region.unlink_own();
    }

    pub(super) fn header(&self) -> Result<Cells<AtomicU64>, SumTreeError> {
        Cells::in_region(&self.region, 0, header::COUNT)
    }

    pub(super) fn compute_layout(settings: &Settings) -> Result<Layout, ReplayError> {
        let roles = settings.roles()?;
        let rows = settings.window_rows(&roles);
        if settings.capacity < rows {
            let bound = format!("at least {rows}, the rows of one n-step window");
            return Err(super::settings::setting("capacity", settings.capacity, bound));
        }
        Layout::new(settings, rows, settings.to_text().len())
    }

    fn create(region: Region, settings: Settings, layout: Layout) -> Result<Self, ReplayError> {
        let replay = Self::create_unpublished(region, settings, layout)?;
        replay.publish_region()?;
        Ok(replay)
    }

    /// Lets other processes attach.
    pub(super) fn publish_region(&self) -> Result<(), ReplayError> {
        // Release: pairs with the Acquire in `from_region`; everything else is in place.
        self.header()?[header::MAGIC].store(MAGIC, Ordering::Release);
        self.region.unlock_shared();
        Ok(())
    }

    /// Creates a replay to which no process can attach yet.
    pub(super) fn create_unpublished(
        region: Region,
        settings: Settings,
        layout: Layout,
    ) -> Result<Self, ReplayError> {
        let region = Arc::new(region);
        let text = settings.to_text();
        let header = Cells::<AtomicU64>::in_region(&region, 0, header::COUNT)?;
        let blob = Cells::<AtomicU64>::in_region(&region, layout.settings, text.len().div_ceil(8))?;
        for (cell, bytes) in blob.iter().zip(text.as_bytes().chunks(8)) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            cell.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        let creation_id = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64);
        for (at, value) in [
            (header::SETTINGS_BYTES, text.len() as u64),
            (header::SETTINGS_HASH, hash_text(text.as_bytes())),
            (header::REGION_BYTES, layout.bytes as u64),
            (header::CREATOR, u64::from(std::process::id())),
            (header::CREATION_ID, creation_id ^ u64::from(std::process::id()) << 40),
        ] {
            header[at].store(value, Ordering::Relaxed);
        }
        header[header::CHECKSUM].store(constant_words_checksum(&header), Ordering::Relaxed);
        header[header::SEAL].store(UNSEALED, Ordering::Relaxed);
        let seed = settings.seed;
        let replay = Self::from_parts(region, settings, layout, true, true)?;
        replay.counters[counter::SEED].store(seed, Ordering::Relaxed);
        replay.counters[counter::TAG].store(new_tag(), Ordering::Relaxed);
        // Until a priority is given, the largest is 1.
        let mut one = [0];
        let largest = replay.weights_of(super::Priorities::F64(&[1.0]), &mut one)?;
        replay.counters[counter::LARGEST].store(u64::from(largest), Ordering::Relaxed);
        Ok(replay)
    }

    /// The replay in an existing region. Unless `registers`, nothing is written and this process is not
    /// registered.
    pub(super) fn from_region(name: &str, region: Arc<Region>, registers: bool) -> Result<Self, ReplayError> {
        let not =
            |reason: String| ReplayError::NotAReplay { name: name.to_owned(), reason, unfinished: false };
        if region.len() < HEADER_BYTES {
            return Err(not(format!("it has {} bytes", region.len())));
        }
        let header = Cells::<AtomicU64>::in_region(&region, 0, header::COUNT)?;
        // Acquire: pairs with the Release in `publish_region`.
        let magic = header[header::MAGIC].load(Ordering::Acquire);
        if magic != MAGIC {
            let reason = match magic {
                0 => "another process is still creating it".to_owned(),
                _ => format!("its first word is {magic:#x}, expected {MAGIC:#x}"),
            };
            return Err(ReplayError::NotAReplay { name: name.to_owned(), reason, unfinished: magic == 0 });
        }
        let get = |at: usize| header[at].load(Ordering::Relaxed);
        if get(header::CHECKSUM) != constant_words_checksum(&header) {
            return Err(not("its header is damaged".to_owned()));
        }
        if get(header::REGION_BYTES) != region.len() as u64
            || get(header::SETTINGS_BYTES) > SETTINGS_BYTES_MAX
        {
            return Err(not(format!("it has {} bytes, not {}", region.len(), get(header::REGION_BYTES))));
        }
        let length = get(header::SETTINGS_BYTES) as usize;
        let blob = Cells::<AtomicU64>::in_region(&region, HEADER_BYTES, length.div_ceil(8))?;
        let mut text: Vec<u8> =
            blob.iter().flat_map(|cell| cell.load(Ordering::Relaxed).to_le_bytes()).collect();
        text.truncate(length);
        if hash_text(&text) != get(header::SETTINGS_HASH) {
            return Err(not("its settings are damaged".to_owned()));
        }
        let settings = String::from_utf8(text)
            .ok()
            .and_then(|text| Settings::from_text(&text).filter(|settings| settings.to_text() == text));
        let settings = settings.ok_or_else(|| not("its settings cannot be read".to_owned()))?;
        let layout = Self::compute_layout(&settings)?;
        if layout.bytes != region.len() {
            return Err(not(format!("it has {} bytes, not {}", region.len(), layout.bytes)));
        }
        if !registers {
            // The first word of a tree is not 0. If it were, the tree would be created below.
            let tree = Cells::<AtomicU64>::in_region(&region, layout.tree, 1)?;
            if tree[0].load(Ordering::Relaxed) == 0 {
                return Err(not("it has no tree of weights".to_owned()));
            }
        }
        Self::from_parts(region, settings, layout, false, registers)
    }

    fn from_parts(
        region: Arc<Region>,
        settings: Settings,
        layout: Layout,
        is_creator: bool,
        registers: bool,
    ) -> Result<Self, ReplayError> {
        let roles = settings.roles()?;
        let window = Window::new(&settings, !roles.rebuilt.is_empty());
        let slots = layout.ring.slots;
        let private = region.name().is_none() && region.path().is_none();
        let columns = settings
            .fields
            .iter()
            .zip(&layout.columns)
            .map(|(field, offset)| {
                Column::new(&region, *offset, slots, field.row_bytes, settings.compression)
            })
            .collect::<Result<_, _>>()?;
        let back = Cells::in_region(&region, layout.back, layout.back_words)?;
        let history = Arc::new(History { back, ring: layout.ring });
        let is_mapped = region.path().is_some();
        let process_cells = Cells::in_region(&region, layout.processes, PROCESSES * ENTRY_WORDS)?;
        let tail_cells = Cells::in_region(&region, layout.tails, layout.tail_words)?;
        let tree = SumTree::in_region(&region, layout.tree, slots as u64, settings.fan_out)?;
        // A process that shares the memory may be killed while it writes, which must not block the others.
        let tree = if private { tree.exclusive() } else { tree };
        let mut replay = Self {
            scale: Scale::new(DEFAULT_SCALE, settings.fan_out)?,
            slots: Slots {
                ring: layout.ring,
                words: Cells::in_region(&region, layout.words, word::COUNT)?,
                operations: Cells::in_region(&region, layout.operations, OPERATIONS_MAX * OPERATION_WORDS)?,
                states: Cells::in_region(&region, layout.states, STATE_WORDS * slots)?,
                weights: TreeWeights(tree),
                processes: match registers {
                    true => Processes::new(process_cells, private)?,
                    false => Processes::unregistered(process_cells, private),
                },
            },
            tails: Tails::new(tail_cells, window.rows, Arc::clone(&history)),
            history,
            outputs: roles.sources(&settings),
            row_bytes: Vec::new(),
            steps: Vec::new(),
            counters: Cells::in_region(&region, layout.counters, counter::COUNT)?,
            columns,
            region,
            settings,
            layout,
            roles,
            window,
            is_creator,
            is_mapped,
        };
        (replay.row_bytes, replay.steps) =
            replay.outputs().iter().map(|output| (output.row_bytes, output.steps)).unzip();
        Ok(replay)
    }
}
