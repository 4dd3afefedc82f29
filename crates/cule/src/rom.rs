//! ROM files: search path, identification by MD5, detection of the cartridge scheme. Host only.
//!
//! No ROM is shipped. A file is searched under the given path, then in the folders named by `PARL_ROMS_DIR`,
//! `ALE_ROMS_DIR` and `ALE_ROM_DIR`, then in the folders that the caller adds (Python adds that of an
//! installed ale-py).

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};

use crate::CuleError;
use crate::games::row::Game;
use crate::games::table::{GAMES, UNKNOWN};

/// Environment variables that name a folder of ROMs, in search order.
pub const FOLDER_VARIABLES: [&str; 3] = ["PARL_ROMS_DIR", "ALE_ROMS_DIR", "ALE_ROM_DIR"];
/// Maximum size of an image in bytes.
pub const MAX_BYTES: usize = 512 * 1024;
/// File name extensions, tried in this order.
const EXTENSIONS: [&str; 3] = ["bin", "a26", "rom"];

/// Bank-switching scheme: how a cartridge maps its image to the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the schemes' own")]
pub enum Scheme {
    K2 = 0,
    K4 = 1,
    F8 = 2,
    F8SC = 3,
    F6 = 4,
    F6SC = 5,
    E0 = 6,
    FE = 7,
    DPC = 8,
    F4 = 9,
    F4SC = 10,
    /// CBS RAM, 12 KiB; also written FASC.
    FA = 11,
    E7 = 12,
    /// Tigervision.
    T3F = 13,
    T3E = 14,
    UA = 15,
    /// Commavid.
    CV = 16,
    /// 64 KiB; each access to $1FF0 selects the next of 16 banks.
    MB = 17,
    /// Named by ale-py, which maps no address for it; never detected.
    X0840 = 18,
    /// F8 that starts with bank 0.
    F8Low = 19,
    /// Megacart, 128 KiB; recognized, not emulated.
    MC = 20,
    /// Supercharger; recognized, not emulated.
    AR = 21,
}

/// A ROM image and its identification.
#[derive(Clone, Debug)]
pub struct Rom {
    /// Content of the file.
    pub bytes: Vec<u8>,
    /// MD5 of the image, lower-case hexadecimal.
    pub md5: String,
    /// Scheme of the cartridge.
    pub scheme: Scheme,
}

/// The known games, each with the MD5 of its ROM.
pub fn known() -> &'static [Game] {
    &GAMES[..UNKNOWN]
}

/// Returns the game with this name.
pub fn known_game(game: &str) -> Option<&'static Game> {
    known().iter().find(|row| row.name == game)
}

/// Returns the game whose ROM has this MD5.
pub fn known_md5(md5: &str) -> Option<&'static Game> {
    known().iter().find(|row| row.md5 == md5)
}

/// MD5 of an image, lower-case hexadecimal.
pub fn md5_hex(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().fold(String::with_capacity(32), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The folders that the environment variables name, followed by `more`.
pub fn folders(more: &[PathBuf]) -> Vec<PathBuf> {
    FOLDER_VARIABLES
        .iter()
        .filter_map(std::env::var_os)
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .chain(more.iter().cloned())
        .collect()
}

/// Returns the file of a game: `game_or_path` itself if it is a file, else the first match in [`folders`].
///
/// # Errors
/// [`CuleError::RomNotFound`] with all files that were searched for.
pub fn locate(game_or_path: &str, more: &[PathBuf]) -> Result<PathBuf, CuleError> {
    locate_in(game_or_path, &folders(more))
}

fn locate_in(game_or_path: &str, folders: &[PathBuf]) -> Result<PathBuf, CuleError> {
    let path = Path::new(game_or_path);
    if path.is_file() {
        return Ok(path.to_path_buf());
    }
    let mut looked = vec![];
    // A name with a folder or an extension refers to one file only.
    if path.components().count() == 1 && path.extension().is_none() {
        for folder in folders {
            for extension in EXTENSIONS {
                let file = folder.join(format!("{game_or_path}.{extension}"));
                if file.is_file() {
                    return Ok(file);
                }
                looked.push(file);
            }
        }
    } else {
        looked.push(path.to_path_buf());
    }
    Err(CuleError::RomNotFound { game: game_or_path.into(), looked })
}

/// Reads an image from a file.
///
/// # Errors
/// The file cannot be read, or an error of [`from_bytes`].
pub fn read(path: &Path) -> Result<Rom, CuleError> {
    let unreadable = |source| CuleError::RomUnreadable { path: path.to_path_buf(), source };
    let size = fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_BYTES as u64 {
        return Err(CuleError::RomSize { size: size as usize, max: MAX_BYTES });
    }
    from_bytes(fs::read(path).map_err(unreadable)?)
}

/// Identifies an image.
///
/// # Errors
/// No cartridge has an image of this size, or the scheme is not emulated.
pub fn from_bytes(bytes: Vec<u8>) -> Result<Rom, CuleError> {
    let md5 = md5_hex(&bytes);
    let scheme = detect(&bytes, &md5)?;
    if matches!(scheme, Scheme::MC | Scheme::AR) {
        return Err(CuleError::SchemeUnsupported { scheme, size: bytes.len() });
    }
    Ok(Rom { bytes, md5, scheme })
}

/// Returns the image as the machine maps it: without a repeated half, padded with zeros to whole banks.
pub fn image(rom: &Rom) -> Vec<u8> {
    let length = match rom.scheme {
        Scheme::K2 => 2048,
        Scheme::K4 => 4096,
        Scheme::DPC => 12_288,
        _ => rom.bytes.len().next_multiple_of(2048).max(4096),
    };
    // A small Commavid image is not padded.
    let length = if rom.scheme == Scheme::CV { rom.bytes.len() } else { length };
    let mut bytes = rom.bytes[..rom.bytes.len().min(length)].to_vec();
    bytes.resize(length, 0);
    bytes
}

/// Returns the position in the file of the byte at `address`, which the processor sees in `bank`.
///
/// A cartridge without bank switching (2K, 4K) has no banks. In others, `bank` is the number of a block of 4 KiB
/// of the file. An address of a cartridge has bit 12 set, as $F000 to $FFFF have; its lower 12 bits are the
/// position in the block.
///
/// # Errors
/// [`CuleError::Patch`] if the cartridge has no such byte.
pub fn position(rom: &Rom, bank: Option<u32>, address: u32) -> Result<usize, CuleError> {
    let fail = |reason: String| Err(CuleError::Patch { bank, address, reason });
    let size = image(rom).len().min(rom.bytes.len());
    let banks = size.div_ceil(4096);
    if address > 0xFFFF || address & 0x1000 == 0 {
        return fail("a cartridge is at 0xF000 to 0xFFFF, or where else bit 12 of the address is set".into());
    }
    let within = (address & 0xFFF) as usize;
    match bank {
        None if size <= 4096 => Ok(within % size),
        Some(_) if size <= 4096 => fail("its cartridge has no banks: give the address alone".into()),
        None => fail(format!("its cartridge has {banks} banks: give the bank and the address")),
        Some(bank) => {
            let at = bank as usize * 4096 + within;
            if bank as usize >= banks || at >= size {
                let last = banks - 1;
                return fail(format!("its cartridge has {size} bytes in the banks 0 to {last}"));
            }
            Ok(at)
        }
    }
}

/// Returns a ROM with bytes replaced: per byte the bank, the address (see [`position`]) and the value.
///
/// # Errors
/// [`CuleError::Patch`] if the cartridge does not have one of the bytes.
pub fn patched(rom: &Rom, patches: &[(Option<u32>, u32, u8)]) -> Result<Rom, CuleError> {
    let mut bytes = rom.bytes.clone();
    let half = image(rom).len();
    for &(bank, address, value) in patches {
        let at = position(rom, bank, address)?;
        // A file may hold the image twice.
        for copy in (at..bytes.len()).step_by(half).take(if rom.bytes.len() == 2 * half { 2 } else { 1 }) {
            bytes[copy] = value;
        }
    }
    Ok(Rom { md5: md5_hex(&bytes), bytes, scheme: rom.scheme })
}

/// Reads the file of a game and compares its MD5 with the table of games.
///
/// `allow_unknown`: accept a file that is not the known ROM of this name.
///
/// # Errors
/// The file is missing, unreadable, of no known cartridge, or has another MD5 than the game of its name.
pub fn load(game_or_path: &str, more: &[PathBuf], allow_unknown: bool) -> Result<Rom, CuleError> {
    let path = locate(game_or_path, more)?;
    let rom = read(&path)?;
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_ascii_lowercase();
    match known_game(&stem) {
        Some(game) if game.md5 != rom.md5 && !allow_unknown => {
            Err(CuleError::RomWrongMd5 { game: stem, found: rom.md5, expected: game.md5.into() })
        }
        _ => Ok(rom),
    }
}

// ---------------------------------------------------------------- detection

/// True if one of `patterns` occurs `count` times. The search is ale-py's: the last position is never
/// compared, and one byte is skipped after a match.
fn contains<const L: usize>(image: &[u8], patterns: &[[u8; L]], count: usize) -> bool {
    patterns.iter().any(|pattern| {
        let mut found = 0;
        let mut at = 0;
        while at + L < image.len() {
            if image[at..at + L] == *pattern {
                found += 1;
                if found == count {
                    return true;
                }
                at += L;
            }
            at += 1;
        }
        false
    })
}

/// True if the first 256 bytes of every 4 KiB have the same value: the address range of the superchip's RAM.
fn is_superchip(image: &[u8]) -> bool {
    image.chunks(4096).all(|bank| bank[..256].iter().all(|&byte| byte == bank[0]))
}

fn is_e0(image: &[u8]) -> bool {
    const ACCESSES: [[u8; 3]; 6] = [
        [0x8D, 0xE0, 0x1F],
        [0x8D, 0xE0, 0x5F],
        [0x8D, 0xE9, 0xFF],
        [0xAD, 0xE9, 0xFF],
        [0xAD, 0xED, 0xFF],
        [0xAD, 0xF3, 0xBF],
    ];
    contains(image, &ACCESSES, 1)
}

fn is_fe(image: &[u8]) -> bool {
    const CODE: [[u8; 5]; 4] = [
        [0x20, 0x00, 0xD0, 0xC6, 0xC5],
        [0x20, 0xC3, 0xF8, 0xA5, 0x82],
        [0xD0, 0xFB, 0x20, 0x73, 0xFE],
        [0x20, 0x00, 0xF0, 0x84, 0xD6],
    ];
    contains(image, &CODE, 1)
}

/// True if the RAM window holds 512 bytes of one value, and bytes beside it differ.
fn is_e7(image: &[u8]) -> bool {
    let value = image[0x3800];
    image[0x3800..0x3A00].iter().all(|&byte| byte == value)
        && image[0x37E0..0x3800].iter().chain(&image[0x3A00..0x3A20]).any(|&byte| byte != value)
}

fn is_cv(image: &[u8]) -> bool {
    contains(image, &[[0x9D, 0xFF, 0xF3], [0x99, 0x00, 0xF4]], 1)
}

fn is_3e(image: &[u8]) -> bool {
    contains(image, &[[0x85, 0x3E, 0xA9, 0x00]], 1)
}

fn is_3f(image: &[u8]) -> bool {
    contains(image, &[[0x85, 0x3F]], 2)
}

/// 3E or 3F if their signature is found, else `otherwise`.
fn tigervision_or(image: &[u8], otherwise: Scheme) -> Scheme {
    if is_3e(image) {
        Scheme::T3E
    } else if is_3f(image) {
        Scheme::T3F
    } else {
        otherwise
    }
}

/// Detects the scheme of an image from its MD5, size and content.
///
/// # Errors
/// [`CuleError::RomSize`] if no scheme fits.
pub fn detect(image: &[u8], md5: &str) -> Result<Scheme, CuleError> {
    const F8_FROM_BANK_0: [&str; 2] =
        ["bc24440b59092559a1ec26055fd1270e", "75ee371ccfc4f43e7d9b8f24e1266b55"];
    const SUPERCHARGER_LOAD: usize = 8448;
    let size = image.len();
    let unknown = || CuleError::RomSize { size, max: MAX_BYTES };
    if size == 0 || size > MAX_BYTES {
        return Err(unknown());
    }
    if F8_FROM_BANK_0.contains(&md5) {
        return Ok(Scheme::F8Low);
    }
    Ok(match size {
        _ if size.is_multiple_of(SUPERCHARGER_LOAD) => Scheme::AR,
        2048 | 4096 if is_cv(image) => Scheme::CV,
        2048 => Scheme::K2,
        4096 if image[..2048] == image[2048..] => Scheme::K2,
        4096 => Scheme::K4,
        8192 if is_superchip(image) => Scheme::F8SC,
        8192 if image[..4096] == image[4096..] => Scheme::K4,
        8192 if is_e0(image) => Scheme::E0,
        8192 if is_3e(image) => Scheme::T3E,
        8192 if is_3f(image) => Scheme::T3F,
        8192 if contains(image, &[[0x8D, 0x40, 0x02]], 1) => Scheme::UA,
        8192 if is_fe(image) => Scheme::FE,
        8192 => Scheme::F8,
        10240 | 10495 | 10496 => Scheme::DPC,
        12288 => Scheme::FA,
        16384 if is_superchip(image) => Scheme::F6SC,
        16384 if is_e7(image) => Scheme::E7,
        16384 => tigervision_or(image, Scheme::F6),
        32768 if is_superchip(image) => Scheme::F4SC,
        32768 => tigervision_or(image, Scheme::F4),
        65536 => tigervision_or(image, Scheme::MB),
        131_072 => tigervision_or(image, Scheme::MC),
        _ if is_3e(image) => Scheme::T3E,
        _ if is_3f(image) => Scheme::T3F,
        _ => return Err(unknown()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(image: &[u8]) -> Scheme {
        detect(image, "").unwrap()
    }

    /// An image of `size` bytes of $02 in which the 4 KiB blocks do not start with a constant range.
    fn plain(size: usize) -> Vec<u8> {
        let mut image = vec![2; size];
        for (i, bank) in image.chunks_mut(4096).enumerate() {
            bank[1] = 0x10 + i as u8;
        }
        image
    }

    fn with(mut image: Vec<u8>, at: usize, part: &[u8]) -> Vec<u8> {
        image[at..at + part.len()].copy_from_slice(part);
        image
    }

    #[test]
    fn sizes_decide_first() {
        for (size, scheme) in [
            (2048, Scheme::K2),
            (4096, Scheme::K4),
            (8192, Scheme::F8),
            (10240, Scheme::DPC),
            (10495, Scheme::DPC),
            (10496, Scheme::DPC),
            (12288, Scheme::FA),
            (16384, Scheme::F6),
            (32768, Scheme::F4),
            (65536, Scheme::MB),
            (131_072, Scheme::MC),
            (8448, Scheme::AR),
            (2 * 8448, Scheme::AR),
        ] {
            assert_eq!(detected(&plain(size)), scheme, "{size} bytes");
        }
    }

    #[test]
    fn constant_first_pages_mean_a_superchip() {
        assert_eq!(detected(&[2; 8192]), Scheme::F8SC);
        assert_eq!(detected(&[2; 16384]), Scheme::F6SC);
        assert_eq!(detected(&[2; 32768]), Scheme::F4SC);
    }

    #[test]
    fn equal_halves_are_one_half() {
        assert_eq!(detected(&[2; 4096]), Scheme::K2);
        let half = plain(4096);
        assert_eq!(detected(&[half.clone(), half].concat()), Scheme::K4);
    }

    #[test]
    fn the_last_position_is_never_looked_at() {
        let signature = [0x8D, 0xE0, 0x1F];
        assert_eq!(detected(&with(plain(8192), 8192 - 3, &signature)), Scheme::F8);
        assert_eq!(detected(&with(plain(8192), 8192 - 4, &signature)), Scheme::E0);
    }

    #[test]
    fn one_byte_is_skipped_after_a_match() {
        assert_eq!(detected(&with(plain(8192), 1000, &[0x85, 0x3F, 0x85, 0x3F])), Scheme::F8);
        assert_eq!(detected(&with(plain(8192), 1000, &[0x85, 0x3F, 0, 0x85, 0x3F])), Scheme::T3F);
    }

    #[test]
    fn signatures_name_the_other_schemes() {
        assert_eq!(detected(&with(plain(8192), 500, &[0x85, 0x3E, 0xA9, 0])), Scheme::T3E);
        assert_eq!(detected(&with(plain(8192), 500, &[0x8D, 0x40, 0x02])), Scheme::UA);
        assert_eq!(detected(&with(plain(8192), 500, &[0x20, 0x00, 0xF0, 0x84, 0xD6])), Scheme::FE);
        assert_eq!(detected(&with(plain(4096), 500, &[0x99, 0x00, 0xF4])), Scheme::CV);
        assert_eq!(detected(&with(plain(16384), 0x37FF, &[7])), Scheme::E7);
        // Without a differing neighbor, the constant range is not a RAM window.
        assert_eq!(detected(&plain(16384)), Scheme::F6);
        // Other sizes are Tigervision or an error.
        assert_eq!(detected(&with(plain(6144), 500, &[0x85, 0x3F, 0, 0x85, 0x3F])), Scheme::T3F);
    }

    #[test]
    fn other_sizes_are_refused_with_the_value() {
        for size in [0, 1, 100, 2047, 4097, MAX_BYTES + 1] {
            let error = detect(&vec![2; size], "").unwrap_err();
            assert!(error.to_string().contains(&format!("{size} bytes")), "{error}");
        }
    }

    #[test]
    fn unmodelled_cartridges_are_refused_by_name() {
        let error = from_bytes(plain(8448)).unwrap_err();
        assert!(matches!(error, CuleError::SchemeUnsupported { scheme: Scheme::AR, size: 8448 }), "{error}");
    }

    #[test]
    fn the_table_is_whole() {
        assert!(known().iter().all(|row| row.md5.len() == 32 && !row.cartridge.is_empty()));
        for row in known() {
            assert_eq!(known_game(row.name).unwrap().md5, row.md5);
            assert_eq!(known_md5(row.md5).unwrap().name, row.name);
        }
    }

    #[test]
    fn md5_of_nothing() {
        assert_eq!(md5_hex(b""), "d41d8cd98f00b204e9800998ecf8427e");
    }

    #[test]
    fn a_missing_rom_says_where_it_was_looked_for() {
        let folders = [PathBuf::from("/nowhere/a"), PathBuf::from("/nowhere/b")];
        let text = locate_in("pong", &folders).unwrap_err().to_string();
        assert!(text.contains("/nowhere/a/pong.bin") && text.contains("/nowhere/b/pong.a26"), "{text}");
        assert!(text.contains("pip install ale-py"), "{text}");
        let text = locate_in("some/file.bin", &folders).unwrap_err().to_string();
        assert!(text.contains("some/file.bin") && !text.contains("/nowhere"), "{text}");
    }

    #[test]
    fn folders_are_searched_in_order_and_names_checked() {
        let folder = std::env::temp_dir().join(format!("cule-rom-{}", std::process::id()));
        let (first, second) = (folder.join("1"), folder.join("2"));
        fs::create_dir_all(&first).unwrap();
        fs::create_dir_all(&second).unwrap();
        fs::write(second.join("pong.bin"), plain(2048)).unwrap();
        let folders = [first.clone(), second.clone()];
        assert_eq!(locate_in("pong", &folders).unwrap(), second.join("pong.bin"));
        fs::write(first.join("pong.a26"), plain(2048)).unwrap();
        assert_eq!(locate_in("pong", &folders).unwrap(), first.join("pong.a26"));
        let path = second.join("pong.bin");
        let path = path.to_str().unwrap();
        let error = load(path, &[], false).unwrap_err();
        assert!(matches!(error, CuleError::RomWrongMd5 { .. }), "{error}");
        assert_eq!(load(path, &[], true).unwrap().scheme, Scheme::K2);
        fs::remove_dir_all(folder).unwrap();
    }
}
