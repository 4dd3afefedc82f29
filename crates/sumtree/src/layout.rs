//! Index arithmetic of a tree: how many entries each level has, where it is stored, and which entries are
//! siblings. Computes only; it accesses no memory of a tree.
//!
//! Level 0 holds the leaves (u32). Level 1 holds the sums of groups of `fan_out` leaves (u32, or u64 if it is
//! the top), higher levels the sums of groups of the level below (u64). The first level with at most
//! [`TOP_MAX`] sums is the *top*, the last level that is stored; each sample call computes its own prefix
//! sums of it. A level has as many entries as its children need, rounded up to whole groups and cache lines,
//! so a tree of N leaves takes about N * K / (K - 1) entries for any N.

use crate::SumTreeError;
use crate::region::LINE_BYTES;

/// The fan-outs a tree can have.
pub const FAN_OUTS: [usize; 5] = [4, 8, 16, 32, 64];
/// The default fan-out: 16 u32 leaves fill one cache line.
pub const DEFAULT_FAN_OUT: usize = 16;
/// The largest number of leaves of one tree.
pub const MAX_CAPACITY: u64 = 1 << 32;

/// The first level with at most this many sums is the top. Large, so that writers rarely update the same sum;
/// small enough that each sample call can compute all prefix sums. Tiny under loom, so that small trees have
/// inner levels.
pub(crate) const TOP_MAX: usize = if cfg!(loom) { 2 } else { 1024 };
/// Largest number of children of an inner node: searching wider nodes costs more than the level they save.
const INNER_MAX: usize = 32;
/// Largest number of levels: 2^32 leaves at fan-out 4 with a top of 2^10 sums have levels 0 to 11; with the
/// top of 2 sums under loom, 0 to 16.
pub(crate) const LEVELS_MAX: usize = 17;
/// Words of the header in front of the levels: 64 u64 counters.
pub(crate) const HEADER_WORDS: usize = 64;

/// One level: an array of entries in groups of siblings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Level {
    /// Number of entries with a child below; for the leaves, the capacity.
    pub used: usize,
    /// Number of entries stored: `used` rounded up to whole groups and whole cache lines.
    pub stored: usize,
    /// Number of siblings that share a parent; 0 for the top, which has no parent.
    pub group: usize,
    /// The entry of this level above leaf `i` is `i >> shift`.
    pub shift: u32,
    /// Bytes of one entry, 4 or 8.
    pub width: usize,
    /// Byte offset from the start of the tree.
    pub offset: usize,
}

/// Shape of one tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub capacity: usize,
    pub fan_out: usize,
    levels: [Level; LEVELS_MAX],
    len: usize,
    pub bytes: usize,
}

impl Layout {
    /// Levels from the leaves to the top.
    pub fn levels(&self) -> &[Level] {
        &self.levels[..self.len]
    }

    pub fn new(capacity: u64, fan_out: usize) -> Result<Self, SumTreeError> {
        if capacity == 0 || capacity > MAX_CAPACITY || usize::try_from(capacity).is_err() {
            return Err(SumTreeError::Capacity { capacity, max: MAX_CAPACITY });
        }
        if !FAN_OUTS.contains(&fan_out) {
            return Err(SumTreeError::FanOut { fan_out });
        }
        let capacity = capacity as usize;
        let mut out = Self { capacity, fan_out, levels: Default::default(), len: 0, bytes: HEADER_WORDS * 8 };
        let (mut used, mut group, mut shift) = (capacity, fan_out, 0);
        loop {
            // The leaves always have a level above them; a level of sums has one if it is too large for a
            // top.
            let top = out.len > 0 && used <= TOP_MAX;
            let width = if out.len == 0 || (out.len == 1 && !top) { 4 } else { 8 };
            let group_here = if top { 0 } else { group };
            let unit = (LINE_BYTES / width).max(group_here);
            let stored = used.div_ceil(unit) * unit;
            out.levels[out.len] = Level { used, stored, group: group_here, shift, width, offset: out.bytes };
            out.len += 1;
            out.bytes += stored * width;
            if top {
                return Ok(out);
            }
            used = used.div_ceil(group);
            shift += group.trailing_zeros();
            // Writers would contend for a top of fewer than 64 sums: use a smaller last group instead.
            group = fan_out.min(INNER_MAX);
            if used.div_ceil(group) < 64 {
                group = group.min(16);
            }
        }
    }
}

/// The largest weight that a leaf may hold. The sum of a group of such leaves fits in u32: 28 bits up to
/// fan-out 16, 27 bits at 32, 26 bits at 64.
#[must_use]
pub const fn max_weight(fan_out: usize) -> u32 {
    match fan_out {
        64 => (1 << 26) - 1,
        32 => (1 << 27) - 1,
        _ => (1 << 28) - 1,
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// 2^20 leaves at fan-out 16 have levels of 2^16 and 2^12 sums and a top of 2^8; 2^24 leaves have one
    /// level more.
    #[test]
    fn default_shape() {
        let used = |n, k| Layout::new(n, k).unwrap().levels().iter().map(|l| l.used).collect::<Vec<_>>();
        assert_eq!(used(1 << 20, 16), [1 << 20, 1 << 16, 1 << 12, 1 << 8]);
        assert_eq!(used(1 << 24, 16), [1 << 24, 1 << 20, 1 << 16, 1 << 12, 1 << 8]);
        assert_eq!(used(1 << 20, 32), [1 << 20, 1 << 15, 1 << 10]);
        assert_eq!(used(1 << 20, 64), [1 << 20, 1 << 14, 1 << 9]);
        assert_eq!(used(1, 4), [1, 1]);
        assert_eq!(used(100_001, 16), [100_001, 6251, 391]);
    }

    /// A sibling group starts at a multiple of its own size or of a cache line, whichever is smaller, so it
    /// spans as few lines as possible. Memory is proportional to N, not to the next power of K.
    #[test]
    fn groups_are_aligned_and_memory_follows_capacity() {
        for k in FAN_OUTS {
            for n in [1, 3, 5, 63, 64, 65, 1000, 1025, 4097, 65_537, 1_000_003, (1 << 24) + 1] {
                let layout = Layout::new(n, k).unwrap();
                let mut end = HEADER_WORDS * 8;
                for (i, level) in layout.levels().iter().enumerate() {
                    assert_eq!(level.offset, end, "levels follow each other");
                    assert_eq!(level.offset % LINE_BYTES, 0);
                    let group_bytes = level.group * level.width;
                    assert!(
                        group_bytes.is_multiple_of(LINE_BYTES)
                            || LINE_BYTES.is_multiple_of(group_bytes.max(1))
                    );
                    assert!(level.stored >= level.used && level.stored - level.used < 64.max(level.group));
                    assert_eq!(level.used, (n as usize).div_ceil(1 << level.shift));
                    assert_eq!(level.group == 0, i + 1 == layout.levels().len());
                    end = level.offset + level.stored * level.width;
                }
                assert_eq!(layout.bytes, end);
                // 4 bytes a leaf, 4 per group of K, 8 per group above; rounding adds at most a few cache
                // lines per level.
                let (nf, kf) = (n as f64, k as f64);
                let bound = 4.0 * nf * (1.0 + 1.0 / kf) + 8.0 * nf / (kf * kf.min(16.0)) * 1.4 + 5000.0;
                assert!(
                    (layout.bytes as f64) < bound.max(8.0 * 1024.0 + 4.0 * nf * (1.0 + 2.0 / kf) + 1000.0)
                );
            }
        }
    }

    #[test]
    fn bad_shapes_are_errors() {
        assert!(matches!(Layout::new(0, 16), Err(SumTreeError::Capacity { capacity: 0, .. })));
        assert!(matches!(Layout::new(MAX_CAPACITY + 1, 16), Err(SumTreeError::Capacity { .. })));
        for k in [0, 1, 2, 3, 5, 12, 128, usize::MAX] {
            assert_eq!(Layout::new(10, k), Err(SumTreeError::FanOut { fan_out: k }));
        }
    }

    /// Sums are stored shifted left by `SUM_SHIFT` bits, and one bit is their sign.
    #[test]
    fn the_largest_sums_fit_when_encoded() {
        for k in FAN_OUTS {
            for capacity in [1, 1 << 10, 1025 << 12, 1 << 31, MAX_CAPACITY] {
                let layout = Layout::new(capacity, k).unwrap();
                let shift = layout.levels().last().unwrap().shift;
                let largest = (capacity as u128).min(1 << shift) * u128::from(max_weight(k));
                assert!(largest < 1 << (63 - crate::node::SUM_SHIFT), "{capacity} {k}");
            }
        }
    }

    #[test]
    fn a_group_of_largest_weights_fits_u32() {
        for k in FAN_OUTS {
            assert!(k as u64 * u64::from(max_weight(k)) <= u64::from(u32::MAX));
        }
    }
}
