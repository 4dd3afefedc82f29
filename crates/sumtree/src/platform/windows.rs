//! Windows.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::windows::fs::{MetadataExt, OpenOptionsExt};
use std::os::windows::io::AsRawHandle;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use memmap2::MmapRaw;
use windows_sys::Win32::Foundation::{
    CloseHandle, ERROR_ACCESS_DENIED, FILETIME, HANDLE, LocalFree, WAIT_OBJECT_0,
};
use windows_sys::Win32::Security::Authorization::{GetSecurityInfo, SE_FILE_OBJECT};
use windows_sys::Win32::Security::{
    EqualSid, GetTokenInformation, OWNER_SECURITY_INFORMATION, PSID, TOKEN_OWNER, TOKEN_QUERY, TOKEN_USER,
    TokenOwner, TokenUser,
};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ATTRIBUTE_REPARSE_POINT, FILE_FLAG_OPEN_REPARSE_POINT,
    GetFileInformationByHandle,
};
use windows_sys::Win32::System::Registry::{HKEY_LOCAL_MACHINE, RRF_RT_REG_DWORD, RegGetValueW};
use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetProcessTimes, OpenProcess, OpenProcessToken, PROCESS_QUERY_LIMITED_INFORMATION,
    PROCESS_SYNCHRONIZE, WaitForSingleObject,
};
use windows_sys::w;

use super::Process;

/// Bits of a process's number: ids are multiples of 4 below 2^26.
pub(crate) const PROCESS_BITS: u32 = 24;
const ID_UNIT: u32 = 4;

/// The id of a process as a number of at most [`PROCESS_BITS`] bits.
pub(crate) fn process_number(id: u32) -> u64 {
    u64::from(id / ID_UNIT) & ((1 << PROCESS_BITS) - 1)
}

/// The id of the process with this number.
pub(crate) fn process_id(number: u64) -> u32 {
    number as u32 * ID_UNIT
}

/// A handle that is closed when it is dropped.
struct Owned(HANDLE);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the handle was opened by the function that made this value, and is closed once.
        unsafe { CloseHandle(self.0) };
    }
}

/// What is known of the process with this id.
pub(crate) fn process(id: u32) -> Process {
    // SAFETY: no memory is passed.
    let handle = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE, 0, id) };
    if handle.is_null() {
        // A process of another user may not be opened: whether it has ended is unknown.
        let denied = Error::last_os_error().raw_os_error() == Some(ERROR_ACCESS_DENIED as i32);
        return if denied { Process::Running(None) } else { Process::Ended };
    }
    let handle = Owned(handle);
    // SAFETY: the handle is open. With 0 the call does not wait.
    if unsafe { WaitForSingleObject(handle.0, 0) } == WAIT_OBJECT_0 {
        return Process::Ended; // Only a handle to it is left.
    }
    Process::Running(start(handle.0))
}

/// The start of this process.
pub(crate) fn own_start() -> Option<u64> {
    // SAFETY: the call has no preconditions; its result need not be closed.
    start(unsafe { GetCurrentProcess() })
}

/// Microseconds since 1601.
fn start(process: HANDLE) -> Option<u64> {
    let mut times = [FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 }; 4];
    let [creation, exit, kernel, user] = &mut times;
    // SAFETY: the handle is open, and each pointer is that of a FILETIME.
    let done = unsafe {
        GetProcessTimes(process, &raw mut *creation, &raw mut *exit, &raw mut *kernel, &raw mut *user)
    };
    (done != 0).then(|| (u64::from(creation.dwHighDateTime) << 32 | u64::from(creation.dwLowDateTime)) / 10)
}

/// Windows does not fork.
pub(crate) fn after_forks(_: extern "C" fn(), _: extern "C" fn()) {}

/// There are no transparent huge pages to request.
pub(crate) fn advise_huge(_: &MmapRaw) {}

/// The folder of the files of shared memory: the temporary folder of this user.
pub(crate) fn shared_folder() -> PathBuf {
    std::env::temp_dir()
}

/// Options that open a file for reading and writing. The user's temporary folder keeps other users out.
pub(crate) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}

/// Opens a file for reading and writing; `None` if the path is a symbolic link or another reparse point.
pub(crate) fn open_no_link(path: &Path) -> Result<Option<File>> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT).open(path)?;
    let is_link = file.metadata()?.file_attributes() & FILE_ATTRIBUTE_REPARSE_POINT != 0;
    Ok((!is_link).then_some(file))
}

/// Returns true if `path` names the open `file` and not another one.
pub(crate) fn is_named(path: &Path, file: &File) -> bool {
    let identity = |file: &File| {
        let mut info = BY_HANDLE_FILE_INFORMATION::default();
        // SAFETY: the handle is open, and the result is such a structure.
        let done = unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut info) };
        (done != 0).then_some((info.dwVolumeSerialNumber, info.nFileIndexHigh, info.nFileIndexLow))
    };
    let own = identity(file);
    own.is_some() && File::open(path).is_ok_and(|named| identity(&named) == own)
}

/// Opens a file for reading.
pub(crate) fn open_without_waiting(path: &Path) -> Result<File> {
    File::open(path)
}

/// Why other users may have access to a file, `None` if it belongs to this user.
pub(crate) fn owner_problem(file: &File, _: &Metadata) -> Option<String> {
    match is_own(file) {
        Ok(true) => None,
        Ok(false) => Some("it belongs to another user".to_owned()),
        Err(error) => Some(format!("its owner cannot be read: {error}")),
    }
}

/// Returns true if the file belongs to the user of this process, or to the group to which the files that this process
/// creates belong (an administrator's).
fn is_own(file: &File) -> Result<bool> {
    let (mut owner, mut descriptor): (PSID, _) = (null_mut(), null_mut());
    // SAFETY: the handle is open; the two results are pointers, and the others are not asked for.
    let code = unsafe {
        GetSecurityInfo(
            file.as_raw_handle(),
            SE_FILE_OBJECT,
            OWNER_SECURITY_INFORMATION,
            &raw mut owner,
            null_mut(),
            null_mut(),
            null_mut(),
            &raw mut descriptor,
        )
    };
    if code != 0 {
        return Err(Error::from_raw_os_error(code as i32));
    }
    let same = token_sids().map(|buffers| {
        // SAFETY: each buffer begins with a pointer to a SID in it: TOKEN_USER and TOKEN_OWNER. `owner` is a SID.
        buffers.iter().any(|buffer| unsafe { EqualSid(*buffer.as_ptr().cast::<PSID>(), owner) } != 0)
    });
    // SAFETY: GetSecurityInfo allocated the descriptor, which is not used any more.
    unsafe { LocalFree(descriptor) };
    same
}

/// The user of this process and the owner of the files that it creates, each as the words of a structure that begins with
/// the pointer to a SID.
fn token_sids() -> Result<[Vec<usize>; 2]> {
    const {
        assert!(size_of::<TOKEN_USER>() >= size_of::<PSID>() && size_of::<TOKEN_OWNER>() == size_of::<PSID>())
    };
    let mut token: HANDLE = null_mut();
    // SAFETY: the handle of this process needs not be closed; the result is a handle.
    if unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) } == 0 {
        return Err(Error::last_os_error());
    }
    let token = Owned(token);
    let read = |what| {
        let mut words = vec![0usize; 32]; // A SID has at most 68 bytes.
        let (mut used, bytes) = (0, size_of_val(&words[..]) as u32);
        // SAFETY: the token is open, and the buffer has as many bytes as are passed.
        let done =
            unsafe { GetTokenInformation(token.0, what, words.as_mut_ptr().cast(), bytes, &raw mut used) };
        if done == 0 { Err(Error::last_os_error()) } else { Ok(words) }
    };
    Ok([read(TokenUser)?, read(TokenOwner)?])
}

/// Sets a file's length. NTFS allocates its clusters, since the file is not sparse.
pub(crate) fn reserve(file: &File, bytes: usize) -> Result<()> {
    file.set_len(bytes as u64)
}

/// The error for a path that should be a regular file.
pub(crate) fn not_a_file(meta: &Metadata) -> Error {
    if meta.is_dir() { ErrorKind::IsADirectory.into() } else { ErrorKind::InvalidInput.into() }
}

/// Replaces this handle's exclusive lock of a file by a shared one. A shared lock stays.
pub(crate) fn lock_shared_only(file: &File) -> Result<()> {
    // A handle may hold both; unlocking then releases the exclusive one, or one of two shared ones.
    file.lock_shared()?;
    file.unlock()
}

/// Bytes of memory that the machine has.
pub(crate) fn machine_bytes() -> u64 {
    let mut status = MEMORYSTATUSEX { dwLength: size_of::<MEMORYSTATUSEX>() as u32, ..Default::default() };
    // SAFETY: the structure has the size that it states.
    if unsafe { GlobalMemoryStatusEx(&raw mut status) } == 0 { u64::MAX } else { status.ullTotalPhys }
}

/// There are no control groups.
pub(crate) fn group_bytes() -> Option<u64> {
    None
}

/// The number of starts of the machine, which the system counts; `None` if it is not available.
pub(crate) fn boot_id() -> Option<Vec<u8>> {
    let key = w!(r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters");
    let (mut value, mut bytes) = (0u32, size_of::<u32>() as u32);
    // SAFETY: both names end with a NUL, and the result has as many bytes as are passed.
    let code = unsafe {
        RegGetValueW(
            HKEY_LOCAL_MACHINE,
            key,
            w!("BootId"),
            RRF_RT_REG_DWORD,
            null_mut(),
            (&raw mut value).cast(),
            &raw mut bytes,
        )
    };
    (code == 0).then(|| value.to_le_bytes().to_vec())
}

/// Ids of processes are unique on the machine.
pub(crate) fn process_namespace() -> u64 {
    0
}
