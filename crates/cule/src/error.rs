//! What can go wrong, with the value and the bound in every message.

use std::path::PathBuf;

use crate::rom::Scheme;

/// The error of every fallible call of this crate.
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
        /// Files that were looked for, in order.
        looked: Vec<PathBuf>,
    },
    /// A file exists and cannot be read.
    #[error("cannot read the ROM {}: {source}", path.display())]
    RomUnreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The bytes under a known game's name are not that game.
    #[error("the ROM named `{game}` has md5 {found}, expected {expected}")]
    RomWrongMd5 {
        /// Name of the game.
        game: String,
        /// Hash of the bytes, lower-case hexadecimal.
        found: String,
        /// Hash of the known game.
        expected: String,
    },
    /// The size belongs to no cartridge.
    #[error(
        "a ROM of {size} bytes fits no cartridge: known sizes are 2, 4, 8, 10, 12, 16, 32 and 64 KiB, at most {max} bytes"
    )]
    RomSize {
        /// Bytes in the image.
        size: usize,
        /// Most bytes an image may have.
        max: usize,
    },
    /// The cartridge is recognised, and its hardware is not modelled.
    #[error("cartridge scheme {scheme:?} ({size} bytes) is not supported")]
    SchemeUnsupported {
        /// What the image was taken for.
        scheme: Scheme,
        /// Bytes in the image.
        size: usize,
    },
    /// No game has this name.
    #[error("unknown game `{game}`: {count} names are known, from `{first}` to `{last}`")]
    GameUnknown {
        /// The name given.
        game: String,
        /// How many names there are.
        count: usize,
        /// First name in alphabetical order.
        first: &'static str,
        /// Last name in alphabetical order.
        last: &'static str,
    },
    /// The game has no such mode.
    #[error("mode {mode} is not one of {game}'s modes {available:?}")]
    Mode {
        /// The game.
        game: &'static str,
        /// The mode asked for.
        mode: u32,
        /// What there is.
        available: Vec<u32>,
    },
    /// The game has no such difficulty.
    #[error("difficulty {difficulty} is not one of {game}'s difficulties {available:?}")]
    Difficulty {
        /// The game.
        game: &'static str,
        /// The difficulty asked for.
        difficulty: u32,
        /// What there is.
        available: Vec<u32>,
    },
    /// A setting is out of its range.
    #[error("{name} is {value}, expected {bound}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// The value given.
        value: String,
        /// What is allowed.
        bound: &'static str,
    },
    /// A RAM index is out of range.
    #[error("RAM index {index} is outside 0..128")]
    RamIndex {
        /// The index given.
        index: usize,
    },
    /// A buffer to be filled has the wrong length.
    #[error("{what} needs a buffer of {expected} bytes, this one has {found}")]
    BufferLength {
        /// What was to be written.
        what: &'static str,
        /// Bytes needed.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// Saved bytes do not describe a state of this console.
    #[error("not a saved state of this console: {reason}")]
    State {
        /// What does not fit, with the values.
        reason: String,
    },
    /// A batch was given another number of something than it has environments.
    #[error("{found} {what} for {expected} environments")]
    Count {
        /// What was counted.
        what: &'static str,
        /// How many were given.
        found: usize,
        /// How many are needed.
        expected: usize,
    },
    /// An environment was asked for something that it cannot do now.
    #[error("environment {env} {reason}")]
    EnvState {
        /// Number of the environment.
        env: usize,
        /// Why not, and what to do.
        reason: &'static str,
    },
    /// Waiting would never end.
    #[error(
        "recv would wait for ever: {pending} results are on their way, a batch has {batch_size}; call send first"
    )]
    NothingPending {
        /// Results that will come.
        pending: usize,
        /// Results in a batch.
        batch_size: usize,
    },
    /// The system has no such amount of memory to give.
    #[error("{bytes} bytes of memory cannot be allocated")]
    OutOfMemory {
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// The system gives no more threads.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// What the system says.
        reason: String,
    },
    /// The process was forked: its threads are in the other one.
    #[error(
        "this batch was made in process {made_in} and its threads live there, not in process {here}: make it anew"
    )]
    Forked {
        /// Process that made the batch.
        made_in: u32,
        /// Process that asks.
        here: u32,
    },
    /// Something went wrong in one environment, which must be reset. The others have done what was asked of them.
    #[error("environment {env}: {source}")]
    Environment {
        /// Number of the environment.
        env: usize,
        /// What went wrong.
        source: Box<CuleError>,
    },
    /// A bug: an environment fell over. The others are unharmed.
    #[error("it panicked: {message}")]
    Panicked {
        /// What the panic said.
        message: String,
    },
    /// An action of a batch on a device does not exist; it was taken for no input.
    #[error("an action of environment {env} was outside 0..{count}; it did nothing")]
    Action {
        /// The environment with the largest number that got one.
        env: usize,
        /// Actions there are.
        count: u32,
    },
    /// CUDA is not available, or a call failed.
    #[error(transparent)]
    Cuda(#[from] cuda::CudaError),
    /// A mode selection did not come to its end.
    #[error("mode {mode} of {game} was not reached within {frames} frames: does the ROM belong to the game?")]
    ModeSelection {
        /// The game.
        game: &'static str,
        /// The mode wanted.
        mode: u32,
        /// Frames spent.
        frames: u32,
    },
}

fn list(paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        return "no place (neither PARL_ROMS_DIR nor ALE_ROMS_DIR nor ALE_ROM_DIR is set)".into();
    }
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
