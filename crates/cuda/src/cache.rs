//! A cache of compiled kernels and of measurements of them on the disk, shared by all processes of a user.
//!
//! The name of a file is its key. A file is written under another name and renamed, so that it is complete, and it begins with
//! a hash of its contents: a damaged file counts as missing. If nothing can be written, kernels are compiled every time.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use md5::{Digest, Md5};

/// Environment variable with the parent folder of the cache.
pub const FOLDER_VARIABLE: &str = "PARL_CACHE_DIR";
const MAGIC: &[u8; 8] = b"parlkern";
const HASH_BYTES: usize = 16;

/// The folder: in `PARL_CACHE_DIR`, else in `parl` of the user's cache folder; `None` if neither is known.
pub fn folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let local = || if cfg!(windows) { named("LOCALAPPDATA").map(|folder| folder.join("parl")) } else { None };
    named(FOLDER_VARIABLE)
        .or_else(|| named("XDG_CACHE_HOME").map(|folder| folder.join("parl")))
        .or_else(local)
        .or_else(|| named("HOME").map(|folder| folder.join(".cache").join("parl")))
        .map(|folder| folder.join("kernels"))
}

/// A hash of everything that the contents of a file depend on.
pub fn key(parts: &[&[u8]]) -> String {
    let mut hash = Md5::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Extension of compiled kernels. Each kind of file has its own extension.
pub const KERNEL: &str = "kernel";

fn path(folder: &Path, key: &str, extension: &str) -> PathBuf {
    folder.join(format!("{key}.{extension}"))
}

/// Files with an extension, and their keys.
fn files(folder: &Path, extension: &str) -> Vec<(String, std::fs::DirEntry)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let files = entries.filter_map(Result::ok).filter_map(|entry| {
        let path = entry.path();
        let matches = path.extension().is_some_and(|found| found == extension);
        let key = path.file_stem().filter(|_| matches)?.to_str()?.to_string();
        Some((key, entry))
    });
    files.collect()
}

/// Keys of all files with an extension.
pub fn keys(folder: &Path, extension: &str) -> Vec<String> {
    files(folder, extension).into_iter().map(|(key, _)| key).collect()
}

/// Reads the contents under a key; `None` if there is no file or it is damaged.
pub fn load(folder: &Path, key: &str, extension: &str) -> Option<Vec<u8>> {
    let bytes = std::fs::read(path(folder, key, extension)).ok()?;
    let rest = bytes.strip_prefix(MAGIC)?;
    let (hash, image) = rest.split_at_checked(HASH_BYTES)?;
    (Md5::digest(image)[..] == *hash).then(|| image.to_vec())
}

/// Writes bytes under a key. Processes that do so at the same time write equal bytes; the last file remains.
///
/// # Errors
/// The error of the file system.
pub fn store(folder: &Path, key: &str, extension: &str, bytes: &[u8]) -> std::io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    std::fs::create_dir_all(folder)?;
    // Relaxed: the number only has to be unique.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let beside = folder.join(format!("{key}.{}.{number}.part", std::process::id()));
    let contents = [MAGIC, &Md5::digest(bytes)[..], bytes].concat();
    let written = std::fs::write(&beside, contents)
        .and_then(|()| std::fs::rename(&beside, path(folder, key, extension)));
    if written.is_err() {
        // The file may be incomplete or missing.
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// The number of kernels in the cache, and their size in bytes.
pub fn contents(folder: &Path) -> (usize, u64) {
    files(folder, KERNEL)
        .iter()
        .filter_map(|(_, entry)| entry.metadata().ok())
        .fold((0, 0), |(count, bytes), data| (count + 1, bytes + data.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("parl-cache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn keys_depend_on_the_borders_between_parts() {
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
        assert_eq!(key(&[b"ab", b"c"]).len(), 32);
    }

    #[test]
    fn files_are_read_back_unless_they_are_damaged() {
        let folder = fresh("damage");
        assert_eq!(load(&folder, "k", KERNEL), None);
        store(&folder, "k", KERNEL, b"machine code").unwrap();
        assert_eq!(load(&folder, "k", KERNEL).unwrap(), b"machine code");
        assert_eq!(contents(&folder), (1, 8 + 16 + 12));
        assert_eq!(load(&folder, "k", "choice"), None);
        let whole = std::fs::read(path(&folder, "k", KERNEL)).unwrap();
        for length in 0..whole.len() {
            std::fs::write(path(&folder, "k", KERNEL), &whole[..length]).unwrap();
            assert_eq!(load(&folder, "k", KERNEL), None, "{length} bytes");
        }
        let mut flipped = whole;
        flipped[30] ^= 1;
        std::fs::write(path(&folder, "k", KERNEL), flipped).unwrap();
        assert_eq!(load(&folder, "k", KERNEL), None);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn concurrent_writers_leave_one_complete_file() {
        let folder = fresh("writers");
        let image = vec![7u8; 1 << 20];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        store(&folder, "k", KERNEL, &image).unwrap();
                        assert_eq!(load(&folder, "k", KERNEL).unwrap(), image);
                    }
                });
            }
        });
        let names: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["k.kernel"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        assert!(store(Path::new("/proc/parl"), "k", "choice", b"x").is_err());
        assert_eq!(contents(Path::new("/proc/parl")), (0, 0));
    }
}
