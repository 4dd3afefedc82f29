//! Errors of this crate. Each message names the value and the bound.

/// Errors of trees and of regions.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SumTreeError {
    /// The capacity is zero or larger than [`crate::MAX_CAPACITY`].
    #[error("capacity is {capacity}, expected 1 to {max}")]
    Capacity {
        /// The requested value.
        capacity: u64,
        /// The largest capacity.
        max: u64,
    },
    /// The fan-out is not one of [`crate::FAN_OUTS`].
    #[error("fan_out is {fan_out}, expected 4, 8, 16, 32 or 64")]
    FanOut {
        /// The requested value.
        fan_out: usize,
    },
    /// A leaf index outside the tree.
    #[error("leaf {index} at position {position} is outside 0 to {}", .capacity.saturating_sub(1))]
    Index {
        /// The index as it was given.
        index: i128,
        /// Its position in the batch.
        position: usize,
        /// Number of leaves.
        capacity: usize,
    },
    /// A weight that a leaf of this tree cannot hold.
    #[error("weight {weight} at position {position} is larger than {max}")]
    Weight {
        /// The weight as it was given.
        weight: u32,
        /// Its position in the batch.
        position: usize,
        /// The largest weight a leaf may hold.
        max: u32,
    },
    /// A priority that is not a finite number of at least zero.
    #[error("priority {priority} at position {position} is {}", if .priority.is_finite() { "below 0" } else { "not finite" })]
    Priority {
        /// The priority as it was given.
        priority: f64,
        /// Its position in the batch.
        position: usize,
    },
    /// A scale that is not a finite number above zero.
    #[error("scale {scale} is not a finite number > 0")]
    Scale {
        /// The scale as it was given.
        scale: f64,
    },
    /// A prefix sum at or beyond the total.
    #[error("prefix sum {prefix} at position {position} is outside 0 <= p < {total}")]
    Prefix {
        /// The prefix sum as it was given.
        prefix: u64,
        /// Its position in the batch.
        position: usize,
        /// The total as read by this call.
        total: u64,
    },
    /// Two slices that belong together differ in length.
    #[error("{what} has {got} entries, expected {expected}")]
    Length {
        /// Which slice.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The expected length.
        expected: usize,
    },
    /// Nothing can be drawn: every weight is zero.
    #[error("every weight is zero, so nothing can be drawn")]
    Empty,
    /// Fewer leaves have a weight above zero than distinct leaves were requested.
    #[error("{asked} distinct leaves asked for, but only {positive} have a weight above zero")]
    TooFewLeaves {
        /// Number of draws.
        asked: usize,
        /// Number of leaves with a weight above zero, as read by this call.
        positive: usize,
    },
    /// The rank of a learner is not below the number of learners.
    #[error("rank is {rank}, expected 0 to {} with {learners} learners", .learners.saturating_sub(1))]
    Rank {
        /// The rank as it was given.
        rank: u32,
        /// Number of learners.
        learners: u32,
    },
    /// An inner node differs from the sum of its children.
    #[error("node {node} of level {level} holds {stored}, its children sum to {computed}")]
    Inconsistent {
        /// Level, 1 is the one above the leaves.
        level: usize,
        /// Node within the level.
        node: usize,
        /// The sum in the node.
        stored: u64,
        /// The sum of its children.
        computed: u64,
    },
    /// The histogram of weights differs from the leaves.
    #[error("the histogram counts {stored} weights of {bits} significant bits, there are {counted}")]
    Histogram {
        /// Significant bits of the weights.
        bits: usize,
        /// Their number according to the histogram.
        stored: u64,
        /// Their number among the leaves.
        counted: u64,
    },
    /// The shares of a mixture are negative or sum to more than one.
    #[error("shares uniform {uniform} and newest {newest} must be at least 0 and have a sum of at most 1")]
    Shares {
        /// The uniform share as it was given.
        uniform: f64,
        /// The newest share as it was given.
        newest: f64,
    },
    /// The memory cannot be allocated.
    #[error("cannot allocate {bytes} bytes of memory: {reason}")]
    OutOfMemory {
        /// Number of bytes requested.
        bytes: u64,
        /// The reason that the system gave.
        reason: String,
    },
    /// A part of a region is outside it or not aligned.
    #[error(
        "bytes {offset}..{offset}+{bytes} do not fit a region of {len} bytes, or {offset} is not a multiple of 64"
    )]
    OutsideRegion {
        /// First byte.
        offset: usize,
        /// Number of bytes.
        bytes: usize,
        /// Length of the region.
        len: usize,
    },
    /// A part of a region already holds a tree of another shape.
    #[error(
        "the memory at offset {offset} already holds something other than a tree of {capacity} leaves, fan-out {fan_out}"
    )]
    OtherLayout {
        /// Offset of the requested tree.
        offset: usize,
        /// Its capacity.
        capacity: usize,
        /// Its fan-out.
        fan_out: usize,
    },
    /// The name is not valid for a shared region.
    #[error(
        "shared memory name {name:?} is not 1 to 200 of the characters A-Z a-z 0-9 . _ - or starts with a dot"
    )]
    Name {
        /// The name as it was given.
        name: String,
    },
    /// A shared region could not be created, opened or removed.
    #[error("shared memory {name:?} ({path}): {reason}")]
    Shared {
        /// Its name.
        name: String,
        /// The file behind the name.
        path: String,
        /// What is wrong, or the error of the system.
        reason: String,
        /// The system's kind of error: `AlreadyExists` if the name is taken, `NotFound` if it does not exist,
        /// `UnexpectedEof` if its size has not been set yet.
        kind: std::io::ErrorKind,
    },
    /// The instruction path is unknown or not supported by this machine.
    #[error("instruction path {name:?} is {reason}; it has {}", crate::path::supported_names())]
    Path {
        /// The path as it was given.
        name: String,
        /// Why it cannot be used.
        reason: &'static str,
    },
}
