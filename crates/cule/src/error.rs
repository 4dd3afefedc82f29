//! The error type of the crate. Every message contains the value and the bound.

use std::path::PathBuf;

use crate::rom::Scheme;

/// Error of all fallible functions of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CuleError {
    /// No file was found for a game's name.
    #[error(
        "no ROM for `{game}`: looked for {}; put the ROM there, set PARL_ROMS_DIR, or run `pip install ale-py`",
        list(.looked)
    )]
    RomNotFound {
        /// Name of the game.
        game: String,
        /// Files that were searched for, in order.
        looked: Vec<PathBuf>,
    },
    /// The file exists but cannot be read.
    #[error("cannot read the ROM {}: {source}", path.display())]
    RomUnreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file with a known game's name has another MD5 than that game.
    #[error("the ROM named `{game}` has md5 {found}, expected {expected}")]
    RomWrongMd5 {
        /// Name of the game.
        game: String,
        /// MD5 of the bytes, lower-case hexadecimal.
        found: String,
        /// MD5 of the known game.
        expected: String,
    },
    /// No cartridge type has an image of this size.
    #[error(
        "a ROM of {size} bytes fits no cartridge: known sizes are 2, 4, 8, 10, 12, 16, 32 and 64 KiB, at most {max} bytes"
    )]
    RomSize {
        /// Bytes in the image.
        size: usize,
        /// Maximum size of an image in bytes.
        max: usize,
    },
    /// The cartridge scheme is recognized but not emulated.
    #[error("cartridge scheme {scheme:?} ({size} bytes) is not supported")]
    SchemeUnsupported {
        /// The scheme that was detected.
        scheme: Scheme,
        /// Bytes in the image.
        size: usize,
    },
    /// There is no game with this name.
    #[error("unknown game `{game}`: {count} names are known, from `{first}` to `{last}`")]
    GameUnknown {
        /// The name given.
        game: String,
        /// Number of known names.
        count: usize,
        /// First name in alphabetical order.
        first: &'static str,
        /// Last name in alphabetical order.
        last: &'static str,
    },
    /// The game does not have this mode.
    #[error("mode {mode} is not one of {game}'s modes {available:?}")]
    Mode {
        /// The game.
        game: &'static str,
        /// The requested mode.
        mode: u32,
        /// Modes of the game.
        available: Vec<u32>,
    },
    /// There are no rules for two players of the game.
    #[error("{game} has no rules for two players: players=2 is for {}", available.join(", "))]
    OnePlayer {
        /// The game.
        game: &'static str,
        /// The games that two can play.
        available: Vec<&'static str>,
    },
    /// The game does not have this difficulty.
    #[error("difficulty {difficulty} is not one of {game}'s difficulties {available:?}")]
    Difficulty {
        /// The game.
        game: &'static str,
        /// The requested difficulty.
        difficulty: u32,
        /// Difficulties of the game.
        available: Vec<u32>,
    },
    /// A setting is out of its range.
    #[error("{name} is {value}, expected {bound}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// The value given.
        value: String,
        /// The allowed values.
        bound: &'static str,
    },
    /// A patch of a ROM is for a byte that the cartridge does not have.
    #[error("patches: {} is not a byte of the ROM: {reason}", place(*.bank, *.address))]
    Patch {
        /// The bank, if one was given.
        bank: Option<u32>,
        /// The address.
        address: u32,
        /// What does not fit.
        reason: String,
    },
    /// A RAM index is out of range.
    #[error("RAM index {index} is outside 0 to 127")]
    RamIndex {
        /// The index given.
        index: usize,
    },
    /// An output buffer has the wrong length.
    #[error("{what} needs a buffer of {expected} bytes, this one has {found}")]
    BufferLength {
        /// What the buffer is for.
        what: &'static str,
        /// Required length in bytes.
        expected: usize,
        /// Given length in bytes.
        found: usize,
    },
    /// The console makes no sound.
    #[error("this console makes no sound: sound is False, make it with sound=True")]
    NoSound,
    /// The bytes are not a saved state of this console.
    #[error("not a saved state of this console: {reason}")]
    State {
        /// What does not fit, with the value.
        reason: String,
    },
    /// A row of states is not a saved state.
    #[error("row {row} of states: {source}")]
    StateRow {
        /// Index of the row.
        row: usize,
        /// What does not fit.
        source: Box<CuleError>,
    },
    /// The number of items passed to a batch is not its number of environments.
    #[error("{found} {what} for {expected} environments")]
    Count {
        /// Kind of the items.
        what: &'static str,
        /// Number of items given.
        found: usize,
        /// Number of environments.
        expected: usize,
    },
    /// An environment cannot do this in its current state.
    #[error("environment {env} {reason}")]
    EnvState {
        /// Index of the environment.
        env: usize,
        /// The reason, and what to do.
        reason: &'static str,
    },
    /// `recv` would block forever.
    #[error(
        "recv would wait for ever: {pending} results are pending, a batch has {batch_size}; call send first"
    )]
    NothingPending {
        /// Number of pending results.
        pending: usize,
        /// Number of results per batch.
        batch_size: usize,
    },
    /// A memory allocation failed.
    #[error("{bytes} bytes of memory cannot be allocated")]
    OutOfMemory {
        /// Requested size in bytes.
        bytes: usize,
    },
    /// Threads cannot be started.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// Requested number of threads.
        threads: usize,
        /// The error of the operating system.
        reason: String,
    },
    /// The process was forked: the batch's threads exist in the parent process only.
    #[error(
        "this batch was created in process {made_in}; its threads live there, not in process {here}: create a new batch"
    )]
    Forked {
        /// Process that created the batch.
        made_in: u32,
        /// Process that uses it.
        here: u32,
    },
    /// A thread of the parent process was using a console during the fork, so its copy is half-changed.
    #[error(
        "another thread used this console while process {here} was forked, so it cannot be used there: create a new console"
    )]
    UsedDuringFork {
        /// The forked process.
        here: u32,
    },
    /// A step or reset of one environment failed; it must be reset. The other environments are not affected.
    #[error("environment {env}: {source}")]
    Environment {
        /// Index of the environment.
        env: usize,
        /// The error.
        source: Box<CuleError>,
    },
    /// An environment panicked, which is a bug. The other environments are not affected.
    #[error("it panicked: {message}")]
    Panicked {
        /// Message of the panic.
        message: String,
    },
    /// An action of a batch on a device is out of range. The environment was stepped without input.
    #[error("an action of environment {env} was outside 0 to {}; it did nothing", .count.saturating_sub(1))]
    Action {
        /// The highest index of an environment with such an action.
        env: usize,
        /// Number of actions.
        count: u32,
    },
    /// CUDA is not available, or a call failed.
    #[error(transparent)]
    Cuda(#[from] cuda::CudaError),
    /// The mode of the game was not reached.
    #[error("mode {mode} of {game} was not reached within {frames} frames: does the ROM belong to the game?")]
    ModeSelection {
        /// The game.
        game: &'static str,
        /// The requested mode.
        mode: u32,
        /// Number of frames run.
        frames: u32,
    },
}

fn place(bank: Option<u32>, address: u32) -> String {
    bank.map_or_else(|| format!("0x{address:04X}"), |bank| format!("{bank}:0x{address:04X}"))
}

fn list(paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        return "no file, since none of PARL_ROMS_DIR, ALE_ROMS_DIR and ALE_ROM_DIR is set".into();
    }
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
