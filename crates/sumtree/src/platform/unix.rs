//! What Linux and macOS share.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::{Process, process_details};

/// Bits of a process's number. The maximum of Linux is 2^22; that of macOS is smaller.
pub(crate) const PROCESS_BITS: u32 = 22;

/// The id of a process as a number of at most [`PROCESS_BITS`] bits, and the reverse.
pub(crate) fn process_number(id: u32) -> u64 {
    u64::from(id) & ((1 << PROCESS_BITS) - 1)
}

/// The id of the process with this number.
pub(crate) fn process_id(number: u64) -> u32 {
    number as u32
}

/// What is known of the process with this id.
pub(crate) fn process(id: u32) -> Process {
    // SAFETY: signal 0 only checks whether the process exists.
    let missing = unsafe { libc::kill(id as libc::pid_t, 0) } != 0
        && Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    if missing { Process::Ended } else { process_details(id) }
}

/// Calls `parent` and `child` in the two processes after each fork from now on. They may only do what is allowed
/// after a fork.
pub(crate) fn after_forks(parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: the handlers live as long as the program, or the library, which is never unloaded.
    unsafe { libc::pthread_atfork(None, Some(parent), Some(child)) };
}

/// Options that open a file for reading and writing, and create it so that only this user can open it.
pub(crate) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// Opens a file for reading and writing; `None` if the path is a symbolic link.
pub(crate) fn open_no_link(path: &Path) -> Result<Option<File>> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path);
    match file {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => Ok(None),
        other => other.map(Some),
    }
}

/// Returns true if `path` names the open `file` and not another one.
pub(crate) fn is_named(path: &Path, file: &File) -> bool {
    let identity = |meta: Metadata| (meta.dev(), meta.ino());
    let named = std::fs::symlink_metadata(path).map(identity);
    named.is_ok_and(|named| file.metadata().is_ok_and(|meta| identity(meta) == named))
}

/// Opens a file for reading. Never waits, not even for the writer of a pipe.
pub(crate) fn open_without_waiting(path: &Path) -> Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Why other users may have access to a file, `None` if only this user has.
pub(crate) fn owner_problem(_: &File, meta: &Metadata) -> Option<String> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let me = unsafe { libc::geteuid() };
    if meta.uid() != me {
        return Some(format!("it belongs to user {}, this process runs as user {me}", meta.uid()));
    }
    let mode = meta.mode() & 0o777;
    (mode & 0o077 != 0).then(|| format!("it has mode {mode:03o}, so other users can open it; expected 600"))
}

/// The error for a path that should be a regular file.
pub(crate) fn not_a_file(meta: &Metadata) -> Error {
    Error::from_raw_os_error(if meta.is_dir() { libc::EISDIR } else { libc::EINVAL })
}

/// Replaces this handle's exclusive lock of a file by a shared one. A shared lock stays.
pub(crate) fn lock_shared_only(file: &File) -> Result<()> {
    file.lock_shared()
}

/// Bytes of memory that the machine has.
pub(crate) fn machine_bytes() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    if pages > 0 && page > 0 { pages as u64 * page as u64 } else { u64::MAX }
}
