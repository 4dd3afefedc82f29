//! Linux.

use std::ffi::CStr;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use memmap2::MmapRaw;

use super::Process;

/// Requests huge pages. Only advice: an error of the system changes nothing and is ignored.
pub(crate) fn advise_huge(map: &MmapRaw) {
    let _ = map.advise(memmap2::Advice::HugePage);
}

/// The folder of the files of shared memory: `/dev/shm`, or the temporary folder if it is missing or not writable.
pub(crate) fn shared_folder() -> PathBuf {
    if is_writable(c"/dev/shm") { PathBuf::from("/dev/shm") } else { std::env::temp_dir() }
}

/// Returns true if this process may create files in `dir`. In containers it may be missing or read-only.
fn is_writable(dir: &CStr) -> bool {
    // SAFETY: `dir` is a NUL-terminated string, and the call does not keep the pointer.
    unsafe { libc::access(dir.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}

/// Sets a file's length and allocates every page, so that a later write cannot fail with a bus error.
pub(crate) fn reserve(file: &File, bytes: usize) -> Result<()> {
    file.set_len(bytes as u64)?;
    // SAFETY: the descriptor is open for the length of the call; no memory is passed.
    let code = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) };
    if code == 0 { Ok(()) } else { Err(Error::from_raw_os_error(code)) }
}

/// Bytes of memory that the control group of this process may use, if it has a limit.
pub(crate) fn group_bytes() -> Option<u64> {
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok())
        .min()
}

/// Bytes that differ after each start of the machine; `None` if they are not available.
pub(crate) fn boot_id() -> Option<Vec<u8>> {
    std::fs::read("/proc/sys/kernel/random/boot_id").ok()
}

/// A number of the set of processes in which ids of processes are unique, 0 if it is not available.
pub(crate) fn process_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino())
}

/// The start of this process.
pub(crate) fn own_start() -> Option<u64> {
    process_stat("self").map(|(_, start)| start)
}

/// What is known of a process that exists.
pub(super) fn process_details(id: u32) -> Process {
    match process_stat(&id.to_string()) {
        Some(('Z' | 'X', _)) => Process::Ended,
        stat => Process::Running(stat.map(|(_, start)| start)),
    }
}

/// State letter and start time (clock ticks since boot) from `/proc/<pid>/stat`; `None` if it cannot be read.
fn process_stat(pid: &str) -> Option<(char, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name is in parentheses and may contain anything, so fields are counted from the last one:
    // state is field 3, start time field 22.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_folder_is_not_writable() {
        assert!(is_writable(c"/tmp"));
        assert!(!is_writable(c"/no/such/folder"));
    }
}
