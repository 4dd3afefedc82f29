//! macOS.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use memmap2::MmapRaw;

use super::Process;

/// There are no huge pages to request.
pub(crate) fn advise_huge(_: &MmapRaw) {}

/// The folder of the files of shared memory: the temporary folder, which only this user can open. Their pages are also
/// written to the disk. `shm_open` would not do that, but allows names of 31 bytes at most.
pub(crate) fn shared_folder() -> PathBuf {
    std::env::temp_dir()
}

/// Sets a file's length and allocates its blocks, so that a later write cannot fail with a bus error.
pub(crate) fn reserve(file: &File, bytes: usize) -> Result<()> {
    let have = file.metadata()?.len();
    let missing = (bytes as u64).saturating_sub(have);
    if missing > 0 {
        let mut store = libc::fstore_t {
            fst_flags: libc::F_ALLOCATEALL,
            fst_posmode: libc::F_PEOFPOSMODE,
            fst_offset: 0,
            fst_length: missing as libc::off_t,
            fst_bytesalloc: 0,
        };
        // SAFETY: the descriptor is open for the length of the call, and `store` is what this command takes.
        let code = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_PREALLOCATE, &raw mut store) };
        if code == -1 {
            let error = Error::last_os_error();
            // File systems without this command allocate as they are written to.
            if !matches!(error.raw_os_error(), Some(libc::ENOTSUP | libc::EOPNOTSUPP)) {
                return Err(error);
            }
        }
    }
    file.set_len(bytes as u64)
}

/// There are no control groups.
pub(crate) fn group_bytes() -> Option<u64> {
    None
}

/// Bytes that differ after each start of the machine; `None` if they are not available.
pub(crate) fn boot_id() -> Option<Vec<u8>> {
    let mut id = vec![0u8; 64];
    let mut bytes = id.len();
    // SAFETY: the name is NUL-terminated, and `bytes` is the size of the buffer.
    let code = unsafe {
        libc::sysctlbyname(
            c"kern.bootsessionuuid".as_ptr(),
            id.as_mut_ptr().cast(),
            &raw mut bytes,
            std::ptr::null_mut(),
            0,
        )
    };
    id.truncate(bytes);
    (code == 0 && !id.is_empty()).then_some(id)
}

/// Ids of processes are unique on the machine.
pub(crate) fn process_namespace() -> u64 {
    0
}

/// The start of this process.
pub(crate) fn own_start() -> Option<u64> {
    process_info(std::process::id()).map(|info| start(&info))
}

/// What is known of a process that exists.
pub(super) fn process_details(id: u32) -> Process {
    match process_info(id) {
        Some(info) if info.pbi_status == libc::SZOMB => Process::Ended,
        info => Process::Running(info.map(|info| start(&info))),
    }
}

/// Microseconds since 1970.
fn start(info: &libc::proc_bsdinfo) -> u64 {
    info.pbi_start_tvsec.wrapping_mul(1_000_000).wrapping_add(info.pbi_start_tvusec)
}

fn process_info(id: u32) -> Option<libc::proc_bsdinfo> {
    const BYTES: usize = size_of::<libc::proc_bsdinfo>();
    let mut info = std::mem::MaybeUninit::<libc::proc_bsdinfo>::zeroed();
    // SAFETY: the buffer has as many bytes as are passed. With 1 as argument zombies are found too.
    let bytes = unsafe {
        libc::proc_pidinfo(id as i32, libc::PROC_PIDTBSDINFO, 1, info.as_mut_ptr().cast(), BYTES as i32)
    };
    // SAFETY: the call has filled all of it; it contains only integers.
    (bytes == BYTES as i32).then(|| unsafe { info.assume_init() })
}
