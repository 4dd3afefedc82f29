//! What can go wrong, with the value and the bound in each message.

/// Every error of this crate.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SumTreeError {
    /// The capacity is zero or larger than [`crate::MAX_CAPACITY`].
    #[error("capacity {capacity} is outside 1..={max}")]
    Capacity {
        /// What was asked for.
        capacity: u64,
        /// The largest capacity there is.
        max: u64,
    },
    /// The fan-out is none of [`crate::FAN_OUTS`].
    #[error("fan-out {fan_out} is none of 4, 8, 16, 32, 64")]
    FanOut {
        /// What was asked for.
        fan_out: usize,
    },
    /// A leaf index outside the tree.
    #[error("leaf {index} at position {position} is outside 0..{capacity}")]
    Index {
        /// The index as it was given.
        index: i128,
        /// Where in the batch it stood.
        position: usize,
        /// Number of leaves.
        capacity: usize,
    },
    /// A weight that a leaf of this tree cannot hold.
    #[error("weight {weight} at position {position} is larger than {max}")]
    Weight {
        /// The weight as it was given.
        weight: u32,
        /// Where in the batch it stood.
        position: usize,
        /// The largest weight a leaf may hold.
        max: u32,
    },
    /// A priority that is not a finite number of at least zero.
    #[error("priority {priority} at position {position} is not a finite number >= 0")]
    Priority {
        /// The priority as it was given.
        priority: f64,
        /// Where in the batch it stood.
        position: usize,
    },
    /// A scale that is not a finite number above zero.
    #[error("scale {scale} is not a finite number > 0")]
    Scale {
        /// The scale as it was given.
        scale: f64,
    },
    /// A prefix sum at or beyond the total.
    #[error("prefix sum {prefix} at position {position} is outside 0..{total}")]
    Prefix {
        /// The prefix sum as it was given.
        prefix: u64,
        /// Where in the batch it stood.
        position: usize,
        /// The total that this call saw.
        total: u64,
    },
    /// Two slices that belong together differ in length.
    #[error("{what} has {got} entries, expected {expected}")]
    Length {
        /// Which slice.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The length of its partner.
        expected: usize,
    },
    /// Nothing can be drawn: every weight is zero.
    #[error("every weight is zero, so nothing can be drawn")]
    Empty,
    /// Fewer positive leaves than distinct draws were asked for.
    #[error("{asked} distinct leaves asked for, but only {positive} have a weight above zero")]
    TooFewLeaves {
        /// Number of draws.
        asked: usize,
        /// Number of leaves with positive weight that this call saw.
        positive: usize,
    },
    /// A learner's rank that its group does not have.
    #[error("rank {rank} is outside 0..{learners}")]
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
        /// What the node holds.
        stored: u64,
        /// What its children sum to.
        computed: u64,
    },
    /// The histogram of weights differs from the leaves.
    #[error("the histogram counts {stored} weights of {bits} significant bits, there are {counted}")]
    Histogram {
        /// Significant bits of the weights.
        bits: usize,
        /// What the histogram holds.
        stored: u64,
        /// What the leaves hold.
        counted: u64,
    },
    /// Shares of a mixture that are no shares of one.
    #[error("shares uniform {uniform} and newest {newest} are not at least 0 with a sum of at most 1")]
    Shares {
        /// The uniform share as it was given.
        uniform: f64,
        /// The newest share as it was given.
        newest: f64,
    },
    /// The memory is not to be had.
    #[error("{bytes} bytes of memory are not to be had: {reason}")]
    OutOfMemory {
        /// How much was asked for.
        bytes: u64,
        /// What the system said.
        reason: String,
    },
    /// A part of a region that lies outside it or is not aligned.
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
        "the memory at offset {offset} already holds something else than a tree of {capacity} leaves, fan-out {fan_out}"
    )]
    OtherLayout {
        /// Where the tree was to lie.
        offset: usize,
        /// Its capacity.
        capacity: usize,
        /// Its fan-out.
        fan_out: usize,
    },
    /// A name that a shared region cannot have.
    #[error(
        "shared memory name {name:?} is not 1 to 200 of the characters A-Z a-z 0-9 . _ - or starts with a dot"
    )]
    Name {
        /// The name as it was given.
        name: String,
    },
    /// A shared region that could not be made, opened or removed.
    #[error("shared memory {name:?} ({path}): {reason}")]
    Shared {
        /// Its name.
        name: String,
        /// The file behind the name.
        path: String,
        /// What is wrong, or what the system said.
        reason: String,
        /// The system's kind of error: `AlreadyExists` when the name is taken, `NotFound` when nothing has it,
        /// `UnexpectedEof` when its maker has not given it a size yet.
        kind: std::io::ErrorKind,
    },
    /// An instruction path that is unknown or not supported here.
    #[error("instruction path {name:?} is {reason}; there are scalar, arrays, neon, avx2 and avx512")]
    Path {
        /// The path as it was given.
        name: String,
        /// Why it cannot be taken.
        reason: &'static str,
    },
}
