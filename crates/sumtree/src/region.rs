//! Zeroed, page-aligned memory for everything that threads or processes share: an anonymous mapping, a named
//! shared one, or a file. Structures are placed at offsets in a region, so all kinds use the same code.
#![allow(unsafe_code)] // Views of mapped memory; each block states its invariants.

use std::fs::{File, OpenOptions};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use crate::memory::out_of_memory;
use crate::{SumTreeError, fork, platform};

/// Reason why a file of length 0 cannot be attached.
const EMPTY_FILE_REASON: &str =
    "it is empty: the process that created it has not set its size yet, or ended before it did";
/// Arrays in a region start at multiples of this: one cache line.
pub const LINE_BYTES: usize = 64;
/// The usual size of a huge page.
const HUGE_BYTES: usize = 2 << 20;

/// Zeroed bytes, page-aligned, unmapped when the last owner drops them.
///
/// Structures in one region must not overlap; the caller chooses their offsets.
#[derive(Debug)]
pub struct Region {
    map: MmapRaw,
    len: usize,
    name: Option<String>,
    /// Handle of the file of a shared region.
    shared_file: Option<File>,
    /// Path and handle of the file of a file region. Dropping the region releases the file's lock.
    file: Option<(PathBuf, File)>,
    /// [`crate::fork::seen`] when the region was made.
    forks: u32,
}

impl Region {
    /// Allocates `bytes` bytes of private memory, shared by the threads of this process. Requests huge pages.
    ///
    /// # Errors
    /// [`SumTreeError::OutOfMemory`] if the system refuses the memory, or the machine (or control group) has
    /// less.
    pub fn heap(bytes: usize) -> Result<Self, SumTreeError> {
        check_machine_memory(bytes)?;
        // The kernel aligns a mapping to huge pages if its length is a multiple of their size.
        let whole = if bytes < HUGE_BYTES / 2 { bytes.max(1) } else { bytes.next_multiple_of(HUGE_BYTES) };
        let map = MmapOptions::new().len(whole).map_anon().map_err(|e| out_of_memory(bytes, &e))?;
        let map = MmapRaw::from(map);
        platform::advise_huge(&map);
        Ok(Self { map, len: bytes, name: None, shared_file: None, file: None, forks: fork::seen() })
    }

    /// Creates `bytes` bytes of zeroed memory under a name. Other processes of the same user open it with
    /// [`Region::attach_shared`].
    ///
    /// The memory is a file that only this user can open, in `/dev/shm`, or in the temporary directory if `/dev/shm`
    /// is missing or not writable, and on other systems than Linux. The file exists until [`Region::unlink`]. It is
    /// locked until [`Region::unlock_shared`], or until this process ends.
    ///
    /// # Errors
    /// [`SumTreeError::Name`], [`SumTreeError::Shared`] if the name is taken, [`SumTreeError::OutOfMemory`].
    pub fn create_shared(name: &str, bytes: usize) -> Result<Self, SumTreeError> {
        let path = shared_path(name)?;
        check_machine_memory(bytes)?;
        let file = platform::private_file().create_new(true).open(&path);
        let file = file.map_err(|e| shared(name, &path, &e))?;
        // No other process locks it while it is empty. Without locks, as in some file systems, others only wait.
        let _ = file.lock();
        let reserved = platform::reserve(&file, bytes.max(1)).map_err(|e| out_of_memory(bytes.max(1), &e));
        match reserved.and_then(|()| map_shared(&file, bytes.max(1))) {
            Ok(map) => Ok(Self::shared(name, map, file, bytes)),
            Err(error) => {
                let _ = std::fs::remove_file(&path); // The first error is the one to report.
                Err(error)
            }
        }
    }

    /// Opens the region that [`Region::create_shared`] created under `name`, in this or another process.
    ///
    /// # Errors
    /// [`SumTreeError::Name`]; [`SumTreeError::Shared`] if it does not exist, or is not a file that only this
    /// user can open; [`SumTreeError::OutOfMemory`].
    pub fn attach_shared(name: &str) -> Result<Self, SumTreeError> {
        let path = shared_path(name)?;
        let file = platform::open_no_link(&path).map_err(|e| shared(name, &path, &e))?;
        let file = file.ok_or_else(|| refused(name, &path, "it is a symbolic link".to_owned()))?;
        let meta = file.metadata().map_err(|e| shared(name, &path, &e))?;
        if !meta.is_file() {
            return Err(refused(name, &path, "it is not a regular file".to_owned()));
        }
        if let Some(reason) = platform::owner_problem(&file, &meta) {
            return Err(refused(name, &path, reason));
        }
        if meta.len() == 0 {
            let error = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, EMPTY_FILE_REASON);
            return Err(shared(name, &path, &error));
        }
        let bytes = meta.len() as usize;
        Ok(Self::shared(name, map_shared(&file, bytes)?, file, bytes))
    }

    fn shared(name: &str, map: MmapRaw, file: File, len: usize) -> Self {
        let (name, shared_file) = (Some(name.to_owned()), Some(file));
        Self { map, len, name, shared_file, file: None, forks: fork::seen() }
    }

    /// Tries to lock the file of a shared region. Its creator has it locked until [`Region::unlock_shared`].
    #[must_use]
    pub fn try_lock_shared(&self) -> bool {
        self.shared_file.as_ref().is_some_and(|file| file.try_lock().is_ok())
    }

    /// Releases the lock of the file of a shared region.
    pub fn unlock_shared(&self) {
        if let Some(file) = &self.shared_file {
            let _ = file.unlock(); // Dropping the region does it too.
        }
    }

    /// Removes the name of a shared region if it still refers to this region and not to a later one. Processes that
    /// have mapped the memory keep it; no other process can attach.
    pub fn unlink_own(&self) {
        if let (Some(name), Some(file)) = (&self.name, &self.shared_file)
            && let Ok(path) = shared_path(name)
            && platform::is_named(&path, file)
        {
            let _ = std::fs::remove_file(path); // Another process may remove it at the same moment.
        }
    }

    /// Creates the file `path` with mode 0600 and maps `bytes` bytes of it, all zero. It may be larger than
    /// the machine's memory.
    ///
    /// # Errors
    /// Errors of the system, for example if the file exists or the disk is full.
    pub fn create_file(path: &Path, bytes: usize) -> std::io::Result<Self> {
        let file = platform::private_file().create_new(true).open(path)?;
        file.lock_shared()?;
        let made = platform::reserve(&file, bytes.max(1)).map_err(|reason| {
            std::io::Error::other(format!("cannot allocate {bytes} bytes on the disk: {reason}"))
        });
        let made = made.and_then(|()| Self::map_file(path, file, bytes));
        if made.is_err() {
            let _ = std::fs::remove_file(path); // The first error is the one to report.
        }
        made
    }

    /// Maps a file that [`Region::create_file`] created. The second value is true if no other process has the
    /// file open; in that case other processes wait in this function until [`Region::share_file`].
    ///
    /// # Errors
    /// Errors of the system.
    pub fn open_file(path: &Path) -> std::io::Result<(Self, bool)> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(platform::not_a_file(&meta));
        }
        let is_exclusive = match file.try_lock() {
            Ok(()) => true,
            Err(std::fs::TryLockError::WouldBlock) => {
                // Waits for a process that had the file alone and is repairing it.
                file.lock_shared()?;
                false
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        };
        let bytes = file.metadata()?.len() as usize;
        Ok((Self::map_file(path, file, bytes)?, is_exclusive))
    }

    fn map_file(path: &Path, file: File, bytes: usize) -> std::io::Result<Self> {
        let map = MmapOptions::new().len(bytes.max(1)).map_raw(&file)?;
        Ok(Self {
            map,
            len: bytes,
            name: None,
            shared_file: None,
            file: Some((path.to_owned(), file)),
            forks: fork::seen(),
        })
    }

    /// Lets other processes open the file.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn share_file(&self) -> std::io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |(_, file)| platform::lock_shared_only(file))
    }

    /// Releases this handle's lock and tries to lock the file exclusively. Returns true if no other process
    /// has the file open; no process can open it then until this handle unlocks it.
    #[must_use]
    pub fn try_lock_file_exclusive(&self) -> bool {
        // Unlock first: of two processes that close at once and both hold a shared lock, neither could get
        // the exclusive one.
        self.file.as_ref().is_some_and(|(_, file)| file.unlock().is_ok() && file.try_lock().is_ok())
    }

    /// Releases the file's lock, also for processes that share this handle since a fork.
    pub fn unlock_file(&self) {
        if let Some((_, file)) = &self.file {
            let _ = file.unlock(); // Dropping the region does it too.
        }
    }

    /// Releases the file's lock when this process no longer uses the file, unless another process may share the
    /// handle since a fork. The lock then remains until both processes have dropped the region.
    pub fn release_file(&self) {
        if fork::seen() == self.forks {
            self.unlock_file();
        }
    }

    /// Writes changes of the first `bytes` bytes to the disk.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn flush(&self, bytes: usize) -> std::io::Result<()> {
        self.map.flush_range(0, bytes.min(self.len))
    }

    /// Path of the file, or `None` if the region is in memory.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|(path, _)| path.as_path())
    }

    /// Records the new path of the file after it has been renamed.
    pub fn set_path(&mut self, path: &Path) {
        if let Some((old, _)) = &mut self.file {
            *old = path.to_owned();
        }
    }

    /// Removes the name of a shared region. Processes that have mapped the memory keep it; no other process
    /// can attach.
    ///
    /// # Errors
    /// [`SumTreeError::Name`]; [`SumTreeError::Shared`] if it does not exist.
    pub fn unlink(name: &str) -> Result<(), SumTreeError> {
        let path = shared_path(name)?;
        std::fs::remove_file(&path).map_err(|e| shared(name, &path, &e))
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the region has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of a shared region, `None` for private memory.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns a pointer to `bytes` bytes from `offset`, valid as long as the region. Other threads and
    /// processes may write there at any time: use atomics, or a protocol that excludes them.
    ///
    /// # Errors
    /// [`SumTreeError::OutsideRegion`] if the bytes do not fit or `offset` is not a multiple of
    /// [`LINE_BYTES`].
    pub fn bytes(&self, offset: usize, bytes: usize) -> Result<*mut u8, SumTreeError> {
        let end = offset.checked_add(bytes);
        if !offset.is_multiple_of(LINE_BYTES) || end.is_none_or(|end| end > self.len()) {
            return Err(SumTreeError::OutsideRegion { offset, bytes, len: self.len() });
        }
        Ok(self.map.as_mut_ptr().wrapping_add(offset))
    }
}

/// Marks the atomic types that may be placed in mapped memory.
///
/// # Safety
/// Every bit pattern, all zeros included, is a value of the type, and several threads and processes may use
/// shared references at once.
pub unsafe trait SharedCell: Sync {
    /// A cell holding zero.
    fn zero() -> Self;
}

macro_rules! shared_cell {
    ($($atomic:ty),*) => { $(
        // SAFETY: an atomic integer; every bit pattern is a value.
        unsafe impl SharedCell for $atomic {
            fn zero() -> Self { Self::new(0) }
        }
    )* };
}
shared_cell!(std::sync::atomic::AtomicU32, std::sync::atomic::AtomicU64);
#[cfg(loom)]
shared_cell!(crate::sync::AtomicU32, crate::sync::AtomicU64);

/// An array of atomics in a region. The array keeps the region alive.
///
/// Under `cfg(loom)` the array owns separate cells, because loom must see every access; the region is then
/// used for the bounds check only.
pub struct Cells<A> {
    #[cfg(not(loom))]
    start: *const A,
    #[cfg(not(loom))]
    len: usize,
    #[cfg(not(loom))]
    _region: Arc<Region>,
    #[cfg(loom)]
    cells: Vec<A>,
}

impl<A: SharedCell> Cells<A> {
    /// The array of `len` cells at byte `offset` of `region`.
    ///
    /// # Errors
    /// [`SumTreeError::OutsideRegion`].
    pub fn in_region(region: &Arc<Region>, offset: usize, len: usize) -> Result<Self, SumTreeError> {
        const { assert!(align_of::<A>() <= LINE_BYTES || cfg!(loom)) };
        let cell = if cfg!(loom) { 1 } else { size_of::<A>() };
        let bytes = len.saturating_mul(cell);
        let start = region.bytes(offset, bytes)?.cast_const();
        #[cfg(not(loom))]
        return Ok(Self { start: start.cast(), len, _region: Arc::clone(region) });
        #[cfg(loom)]
        {
            let _ = start;
            Ok(Self { cells: (0..len).map(|_| A::zero()).collect() })
        }
    }
}

#[cfg(not(loom))]
// SAFETY: the array is only ever reached through shared references to `A: SharedCell`, which is Sync; the region
// that holds it is kept alive by the Arc.
unsafe impl<A: SharedCell> Send for Cells<A> {}
#[cfg(not(loom))]
// SAFETY: as above.
unsafe impl<A: SharedCell> Sync for Cells<A> {}

impl<A: SharedCell> Deref for Cells<A> {
    type Target = [A];

    #[inline(always)]
    #[cfg(not(loom))]
    fn deref(&self) -> &[A] {
        // SAFETY: `in_region` checked that `len` cells from `start` lie inside the region and that `start` is
        // aligned; the region outlives self; zeroed memory, and whatever others store, is valid for SharedCell.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    #[cfg(loom)]
    fn deref(&self) -> &[A] {
        &self.cells
    }
}

fn map_shared(file: &File, bytes: usize) -> Result<MmapRaw, SumTreeError> {
    let map = MmapOptions::new().len(bytes).map_raw(file).map_err(|e| out_of_memory(bytes, &e))?;
    platform::advise_huge(&map);
    Ok(map)
}

pub(crate) fn shared_path(name: &str) -> Result<PathBuf, SumTreeError> {
    let fine = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
    if name.is_empty() || name.len() > 200 || name.starts_with('.') || !name.bytes().all(fine) {
        return Err(SumTreeError::Name { name: name.to_owned() });
    }
    Ok(platform::shared_folder().join(name))
}

fn shared(name: &str, path: &Path, error: &std::io::Error) -> SumTreeError {
    SumTreeError::Shared {
        name: name.to_owned(),
        path: path.display().to_string(),
        reason: error.to_string(),
        kind: error.kind(),
    }
}

/// Error for a file that exists but is not safe for sharing memory.
fn refused(name: &str, path: &Path, reason: String) -> SumTreeError {
    let kind = std::io::ErrorKind::PermissionDenied;
    SumTreeError::Shared { name: name.to_owned(), path: path.display().to_string(), reason, kind }
}

/// Returns an error if the machine, or the control group of this process, has less memory than `bytes`. An
/// anonymous mapping may succeed far beyond that, and the process would be killed later, when it writes the
/// pages.
#[inline]
pub(crate) fn check_machine_memory(bytes: usize) -> Result<(), SumTreeError> {
    const CHECKED_BYTES_MIN: usize = 64 << 20;
    if bytes < CHECKED_BYTES_MIN {
        return Ok(());
    }
    check_memory_limit(bytes)
}

#[cold]
fn check_memory_limit(bytes: usize) -> Result<(), SumTreeError> {
    let limit = memory_limit_bytes();
    if bytes as u64 > limit {
        let reason = format!("this machine or its control group has {limit} bytes");
        return Err(SumTreeError::OutOfMemory { bytes: bytes as u64, reason });
    }
    Ok(())
}

fn memory_limit_bytes() -> u64 {
    platform::group_bytes().unwrap_or(u64::MAX).min(platform::machine_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unique(tag: &str) -> String {
        format!("sumtree-test-{tag}-{}", std::process::id())
    }

    #[test]
    fn heap_is_zeroed_and_aligned() {
        let region = Arc::new(Region::heap(10_000).unwrap());
        assert_eq!(region.len(), 10_000);
        assert_eq!(region.bytes(0, 1).unwrap() as usize % 4096, 0);
        let cells = Cells::<std::sync::atomic::AtomicU32>::in_region(&region, 64, 100).unwrap();
        assert!(cells.iter().all(|c| c.load(std::sync::atomic::Ordering::Relaxed) == 0));
    }

    #[test]
    fn parts_outside_or_unaligned_are_errors() {
        let region = Region::heap(1000).unwrap();
        for (offset, bytes) in [(0, 1001), (960, 41), (8, 8), (usize::MAX - 63, 128)] {
            assert_eq!(
                region.bytes(offset, bytes),
                Err(SumTreeError::OutsideRegion { offset, bytes, len: 1000 })
            );
        }
    }

    /// Asking for more than any machine has is an error, not an abort or a kill at the first touch.
    #[test]
    fn too_much_memory_is_an_error() {
        for bytes in [1 << 50, usize::MAX / 2, usize::MAX] {
            assert!(matches!(Region::heap(bytes), Err(SumTreeError::OutOfMemory { .. })), "{bytes}");
        }
        let name = unique("huge");
        assert!(matches!(Region::create_shared(&name, 1 << 50), Err(SumTreeError::OutOfMemory { .. })));
        assert!(matches!(Region::attach_shared(&name), Err(SumTreeError::Shared { .. })));
    }

    #[test]
    fn shared_round_trip_private_to_user() {
        use std::sync::atomic::Ordering::SeqCst;
        type Words = Cells<std::sync::atomic::AtomicU64>;
        let name = unique("round");
        let a = Arc::new(Region::create_shared(&name, 4096).unwrap());
        #[cfg(unix)]
        assert_eq!(
            std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(shared_path(&name).unwrap()).unwrap())
                & 0o777,
            0o600
        );
        assert!(matches!(Region::create_shared(&name, 4096), Err(SumTreeError::Shared { .. })));
        let b = Arc::new(Region::attach_shared(&name).unwrap());
        assert_eq!((b.len(), b.name()), (4096, Some(name.as_str())));
        Words::in_region(&a, 64, 4).unwrap()[3].store(77, SeqCst);
        Region::unlink(&name).unwrap();
        assert_eq!(Words::in_region(&b, 64, 4).unwrap()[3].load(SeqCst), 77);
        assert!(matches!(Region::attach_shared(&name), Err(SumTreeError::Shared { .. })));
        assert!(matches!(Region::unlink(&name), Err(SumTreeError::Shared { .. })));
    }

    #[test]
    #[cfg(unix)]
    fn open_to_others_or_linked_is_refused() {
        use std::os::unix::fs::OpenOptionsExt;
        let name = unique("open");
        let path = shared_path(&name).unwrap();
        OpenOptions::new().write(true).create_new(true).mode(0o666).open(&path).unwrap().set_len(64).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(matches!(Region::attach_shared(&name), Err(SumTreeError::Shared { .. })));
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert!(matches!(Region::attach_shared(&name), Err(SumTreeError::Shared { .. })));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn names_are_checked() {
        let long = "x".repeat(201);
        for name in ["", ".hidden", "..", "a/b", "a b", "ä", long.as_str()] {
            assert!(matches!(Region::attach_shared(name), Err(SumTreeError::Name { .. })), "{name}");
        }
    }
}
