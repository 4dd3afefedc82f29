//! What depends on the operating system: shared memory, files that only this user may open, processes and forks.
//!
//! Each system has one file with the same functions: `linux` and `macos` with what they share in `unix`, and `windows`.
//! Nothing else in this crate calls the system except through the standard library and memmap2.
#![allow(unsafe_code)] // Functions of the system; each block states its reason.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(target_os = "macos")]
pub(crate) use macos::*;
#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;

#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
compile_error!("sumtree has no platform module for this system: there are Linux, macOS and Windows");

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    /// No process has this id, or it has ended and only its exit status is left.
    Ended,
    /// It runs. Its start, in a unit and from an origin of the system; `None` if that cannot be read.
    Running(Option<u64>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_has_the_same_start_each_time() {
        let Process::Running(Some(start)) = process(std::process::id()) else { panic!("no start") };
        assert_eq!(own_start(), Some(start));
        assert!(boot_id().is_some_and(|id| !id.is_empty()) && boot_id() == boot_id());
        assert!((1 << 28..1 << 50).contains(&machine_bytes()), "{}", machine_bytes());
    }

    #[test]
    fn reserved_bytes_are_on_the_disk() {
        let path = std::env::temp_dir().join(format!("sumtree-reserve-{}", std::process::id()));
        let file = private_file().create_new(true).open(&path).unwrap();
        assert_eq!(owner_problem(&file, &file.metadata().unwrap()), None);
        let reserved = reserve(&file, 1 << 16);
        let length = file.metadata().unwrap().len();
        std::fs::remove_file(&path).unwrap();
        reserved.unwrap();
        assert_eq!(length, 1 << 16);
        #[cfg(unix)]
        assert!(std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512 >= 1 << 16);
    }
}
