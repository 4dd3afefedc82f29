//! Compiled kernels on the disk, and how games are played by them, shared by all processes of a user.
//!
//! A file is its key; it appears whole or not at all (written beside its place and renamed), and carries a hash of what
//! it holds, so that a damaged one is made anew. Where nothing can be written, kernels are compiled every time.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use md5::{Digest, Md5};

/// Names the folder.
pub const FOLDER_VARIABLE: &str = "PARL_CACHE_DIR";
const MAGIC: &[u8; 8] = b"parlkern";
const HASH_BYTES: usize = 16;

/// The folder: `PARL_CACHE_DIR`, or `parl` in the user's cache; `None` where there is neither.
pub fn folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named(FOLDER_VARIABLE)
        .or_else(|| named("XDG_CACHE_HOME").map(|folder| folder.join("parl")))
        .or_else(|| named("HOME").map(|folder| folder.join(".cache").join("parl")))
        .map(|folder| folder.join("kernels"))
}

/// A name for everything that makes a compiled kernel what it is.
pub fn key(parts: &[&[u8]]) -> String {
    let mut hash = Md5::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a file holds, and how its name ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A compiled kernel.
    Kernel,
    /// How a game is played.
    Choice,
}

impl Kind {
    fn ending(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Choice => "choice",
        }
    }
}

fn place(folder: &Path, key: &str, kind: Kind) -> PathBuf {
    folder.join(format!("{key}.{}", kind.ending()))
}

/// Files of a kind, with their keys.
fn files(folder: &Path, kind: Kind) -> Vec<(String, std::fs::DirEntry)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let of_kind = entries.filter_map(Result::ok).filter_map(|entry| {
        let path = entry.path();
        let fits = path.extension().is_some_and(|ending| ending == kind.ending());
        let key = path.file_stem().filter(|_| fits)?.to_str()?.to_string();
        Some((key, entry))
    });
    of_kind.collect()
}

/// Keys of all that is kept of a kind.
pub fn keys(folder: &Path, kind: Kind) -> Vec<String> {
    files(folder, kind).into_iter().map(|(key, _)| key).collect()
}

/// What is kept under a key; `None` when there is nothing, or it is damaged.
pub fn load(folder: &Path, key: &str, kind: Kind) -> Option<Vec<u8>> {
    let bytes = std::fs::read(place(folder, key, kind)).ok()?;
    let rest = bytes.strip_prefix(MAGIC)?;
    let (hash, image) = rest.split_at_checked(HASH_BYTES)?;
    (Md5::digest(image)[..] == *hash).then(|| image.to_vec())
}

/// Keeps bytes under a key. Several processes may do so at once: the last one wins, and all are alike.
///
/// # Errors
/// What the file system says.
pub fn store(folder: &Path, key: &str, kind: Kind, image: &[u8]) -> std::io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    std::fs::create_dir_all(folder)?;
    // Relaxed: only the number has to be new.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let beside = folder.join(format!("{key}.{}.{number}.part", std::process::id()));
    let bytes = [MAGIC, &Md5::digest(image)[..], image].concat();
    let written =
        std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, place(folder, key, kind)));
    if written.is_err() {
        // Half a file is of no use; that it may not be there is no error.
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// How many kernels are kept, and their bytes.
pub fn contents(folder: &Path) -> (usize, u64) {
    files(folder, Kind::Kernel)
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
    fn keys_tell_parts_apart() {
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
        assert_eq!(key(&[b"ab", b"c"]).len(), 32);
    }

    #[test]
    fn what_is_kept_comes_back_and_what_is_damaged_does_not() {
        let folder = fresh("damage");
        assert_eq!(load(&folder, "k", Kind::Kernel), None);
        store(&folder, "k", Kind::Kernel, b"machine code").unwrap();
        assert_eq!(load(&folder, "k", Kind::Kernel).unwrap(), b"machine code");
        assert_eq!(contents(&folder), (1, 8 + 16 + 12));
        assert_eq!(load(&folder, "k", Kind::Choice), None);
        let whole = std::fs::read(place(&folder, "k", Kind::Kernel)).unwrap();
        for length in 0..whole.len() {
            std::fs::write(place(&folder, "k", Kind::Kernel), &whole[..length]).unwrap();
            assert_eq!(load(&folder, "k", Kind::Kernel), None, "{length} bytes");
        }
        let mut flipped = whole;
        flipped[30] ^= 1;
        std::fs::write(place(&folder, "k", Kind::Kernel), flipped).unwrap();
        assert_eq!(load(&folder, "k", Kind::Kernel), None);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn many_writers_leave_one_whole_file() {
        let folder = fresh("writers");
        let image = vec![7u8; 1 << 20];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        store(&folder, "k", Kind::Kernel, &image).unwrap();
                        assert_eq!(load(&folder, "k", Kind::Kernel).unwrap(), image);
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
    fn a_place_that_takes_nothing_is_an_error_not_a_panic() {
        assert!(store(Path::new("/proc/parl"), "k", Kind::Choice, b"x").is_err());
        assert_eq!(contents(Path::new("/proc/parl")), (0, 0));
    }
}
