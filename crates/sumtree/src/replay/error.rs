//! What can go wrong with a replay.

use crate::SumTreeError;

/// Every error of the replay core.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// An error of the tree or of the memory beneath.
    #[error(transparent)]
    Tree(#[from] SumTreeError),
    /// A setting that makes no replay.
    #[error("{what} {value} is outside {bound}")]
    Setting {
        /// Which setting.
        what: &'static str,
        /// The value as it was given.
        value: String,
        /// What is allowed.
        bound: String,
    },
    /// A field that a replay with these settings needs, or that it cannot use.
    #[error("field {name:?} {reason}")]
    Field {
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// An array of rows has the wrong number of bytes.
    #[error("field {name:?} has {got} bytes, expected {expected} ({rows} rows)")]
    RowBytes {
        /// Name of the field.
        name: String,
        /// Bytes given.
        got: usize,
        /// Bytes expected.
        expected: usize,
        /// Rows that were announced.
        rows: usize,
    },
    /// An environment that the replay was not made for.
    #[error("environment {env} at position {position} is outside 0..{num_envs}")]
    Env {
        /// The number as it was given.
        env: i64,
        /// Where in the batch it stood.
        position: usize,
        /// Number of environments.
        num_envs: usize,
    },
    /// A truncated row without the observation that its environment ended on.
    #[error(
        "row {position} (environment {env}) is truncated: with autoreset {autoreset:?} its final observation is needed"
    )]
    FinalObservation {
        /// Where in the batch it stood.
        position: usize,
        /// Its environment.
        env: usize,
        /// How environments are reset.
        autoreset: &'static str,
    },
    /// A discount of a row that is none.
    #[error("discount {discount} at position {position} is outside 0..=1")]
    Discount {
        /// The value as it was given.
        discount: f64,
        /// Where in the batch it stood.
        position: usize,
    },
    /// A reward of a row that is NaN or infinite.
    #[error("reward {reward} at position {position} is not finite")]
    Reward {
        /// The value as it was given.
        reward: f64,
        /// Where in the batch it stood.
        position: usize,
    },
    /// Nothing can be sampled yet.
    #[error(
        "nothing to sample: {rows} rows are stored and {sampleable} of them can be sampled, all with weight 0 or still waiting for the end of their {n_step}-step window"
    )]
    NotSampleable {
        /// Rows held.
        rows: u64,
        /// Rows whose window is complete.
        sampleable: u64,
        /// Length of the window.
        n_step: usize,
    },
    /// A ticket that this replay cannot have given out.
    #[error("ticket {ticket:#x} at position {position} names slot {slot}, outside 0..{slots}")]
    Ticket {
        /// The ticket as it was given.
        ticket: u64,
        /// Where in the batch it stood.
        position: usize,
        /// The slot it names.
        slot: usize,
        /// Number of slots.
        slots: usize,
    },
    /// A ticket that another replay issued, or a number that is no ticket.
    #[error("ticket {ticket:#x} at position {position} was not issued by this replay")]
    UnknownTicket {
        /// The ticket as it was given.
        ticket: u64,
        /// Where in the batch it stood.
        position: usize,
    },
    /// A shared replay of this name exists and is another one.
    #[error("shared replay {name:?} exists with other settings: {reason}")]
    OtherReplay {
        /// Its name.
        name: String,
        /// The difference.
        reason: String,
    },
    /// A shared region that holds no replay, or one that was never finished.
    #[error("shared memory {name:?} holds no replay of this version: {reason}")]
    NotAReplay {
        /// Its name.
        name: String,
        /// What is missing.
        reason: String,
        /// It may be one that its maker has not finished yet.
        unfinished: bool,
    },
    /// More processes than one region has room for.
    #[error("{max} processes use this replay already, the most there can be")]
    TooManyProcesses {
        /// The most there can be.
        max: usize,
    },
    /// Rows of a mapped file that are not what was stored.
    #[error("{path}: the rows in slots {start}..{end} differ from their checksum: the file is damaged")]
    Rows {
        /// The file.
        path: String,
        /// The first slot of a chunk.
        start: usize,
        /// The slot after its last one.
        end: usize,
    },
    /// A row that is not what was stored: it came from a damaged file.
    #[error("field {name:?} of the row in slot {slot} is damaged")]
    Row {
        /// Name of the field.
        name: String,
        /// Where the row is.
        slot: usize,
    },
    /// The replay was closed by this process.
    #[error("this replay is closed")]
    Closed,
    /// A file that could not be read or written.
    #[error("{path}: {reason}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        reason: String,
        /// Its error number, where there is one.
        code: Option<i32>,
    },
    /// A file that is no replay, is damaged, or is newer than this version.
    #[error("{path} is not a replay that this version can load: {reason}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}
