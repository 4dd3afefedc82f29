//! Errors of the replay core.

use crate::SumTreeError;

/// Every error of the replay core.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// An error of the sum tree or of the memory that holds it.
    #[error(transparent)]
    Tree(#[from] SumTreeError),
    /// A setting is outside its allowed values.
    #[error("{what} is {value}, expected {bound}")]
    Setting {
        /// Name of the setting.
        what: &'static str,
        /// The value given.
        value: String,
        /// Allowed values.
        bound: String,
    },
    /// A field is missing, or cannot be used with these settings.
    #[error("field {name:?} {reason}")]
    Field {
        /// Name of the field.
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
        /// Number of rows given.
        rows: usize,
    },
    /// The number of an environment is not below `num_envs`.
    #[error("environment {env} at position {position} is outside 0 to {}", .num_envs.saturating_sub(1))]
    Env {
        /// The number given.
        env: i64,
        /// Position in the batch.
        position: usize,
        /// Number of environments.
        num_envs: usize,
    },
    /// The final observation of a truncated row is missing.
    #[error(
        "row {position} (environment {env}) is truncated: with autoreset {autoreset:?} its final observation is needed"
    )]
    FinalObservation {
        /// Position in the batch.
        position: usize,
        /// Environment of the row.
        env: usize,
        /// Autoreset mode of the replay.
        autoreset: &'static str,
    },
    /// The discount of a row is outside 0 to 1.
    #[error("discount {discount} at position {position} is outside 0 to 1")]
    Discount {
        /// The value given.
        discount: f64,
        /// Position in the batch.
        position: usize,
    },
    /// The reward of a row is NaN or infinite.
    #[error("reward {reward} at position {position} is not finite")]
    Reward {
        /// The value given.
        reward: f64,
        /// Position in the batch.
        position: usize,
    },
    /// No row can be sampled.
    #[error("nothing to sample: {}", unsampleable(*.rows, *.sampleable, *.n_step))]
    NotSampleable {
        /// Number of rows held.
        rows: u64,
        /// Number of rows whose window is complete.
        sampleable: u64,
        /// Length of the window, in steps.
        n_step: usize,
    },
    /// A ticket names a slot that this replay does not have.
    #[error("ticket {ticket:#x} at position {position} names slot {slot}, outside 0 to {}", .slots.saturating_sub(1))]
    Ticket {
        /// The ticket given.
        ticket: u64,
        /// Position in the batch.
        position: usize,
        /// The slot that the ticket names.
        slot: usize,
        /// Number of slots.
        slots: usize,
    },
    /// A ticket was issued by another replay, or the number is not a ticket.
    #[error("ticket {ticket:#x} at position {position} was not issued by this replay")]
    UnknownTicket {
        /// The ticket given.
        ticket: u64,
        /// Position in the batch.
        position: usize,
    },
    /// A shared replay of this name, or a file, exists with other settings.
    #[error("shared replay {name:?} exists with other settings: {reason}")]
    OtherReplay {
        /// Name of the shared memory, or path of the file.
        name: String,
        /// The first difference.
        reason: String,
    },
    /// A shared region does not hold a replay, or holds an incomplete one.
    #[error("shared memory {name:?} holds no replay of this version: {reason}")]
    NotAReplay {
        /// Name of the shared memory.
        name: String,
        /// What is missing.
        reason: String,
        /// Another process may still be creating it.
        unfinished: bool,
    },
    /// The process table of the region is full.
    #[error("this replay is already used by {max} processes, the maximum")]
    TooManyProcesses {
        /// Maximum number of processes.
        max: usize,
    },
    /// Rows of a mapped file differ from their checksum.
    #[error("{path}: the rows in slots {start}..{end} differ from their checksum: the file is damaged")]
    Rows {
        /// Path of the file.
        path: String,
        /// First slot of the damaged chunk.
        start: usize,
        /// Slot after the last one of the chunk.
        end: usize,
    },
    /// A compressed row cannot be decompressed, because it was loaded from a damaged file.
    #[error("field {name:?} of the row in slot {slot} is damaged")]
    Row {
        /// Name of the field.
        name: String,
        /// Slot of the row.
        slot: usize,
    },
    /// This process has closed the replay.
    #[error("this replay is closed")]
    Closed,
    /// A file could not be read or written.
    #[error("{path}: {reason}")]
    Io {
        /// Path of the file.
        path: String,
        /// Message of the operating system.
        reason: String,
        /// Error number (`errno`) of the operating system, if there is one.
        code: Option<i32>,
    },
    /// A file is not a replay, is damaged, or was written by a newer version.
    #[error("{path} is not a replay that this version can load: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

fn unsampleable(rows: u64, sampleable: u64, n_step: usize) -> String {
    match (rows, sampleable) {
        (0, _) => "the replay is empty".to_owned(),
        (_, 0) => {
            format!("none of the {rows} rows has the {n_step} steps and the observation after them yet")
        }
        _ => format!("{rows} rows are stored, and the {sampleable} that can be sampled have weight 0"),
    }
}
