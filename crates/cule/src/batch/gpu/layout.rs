//! What a launch is told, as `kernels/layout.cuh` has it, and how many threads it has. Host only.

use bytemuck::{Pod, Zeroable};

/// Threads of a block in which every thread plays: one warp.
pub const PLAY_THREADS: u32 = 32;
/// Threads of a block in which every thread makes a byte.
pub const BYTE_THREADS: u32 = 256;
/// The thread has no environment.
pub const NOBODY: u32 = u32::MAX;
/// Kinds of faults that the device counts.
pub const FAULTS: usize = 4;

/// Where everything of a batch lies: device addresses, then counts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Plan {
    pub(super) heads: u64,
    pub(super) randoms: u64,
    pub(super) boards: u64,
    pub(super) kept: u64,
    pub(super) planes: u64,
    pub(super) inputs: u64,
    pub(super) extras: u64,
    pub(super) faults: u64,
    pub(super) order: u64,
    pub(super) playing: u64,
    pub(super) games: u64,
    pub(super) rules: u64,
    pub(super) roms: u64,
    pub(super) boot_pictures: u64,
    pub(super) reductions: u64,
    pub(super) cells: u64,
    pub(super) weights: u64,
    pub(super) blends: u64,
    pub(super) tables: u64,
    pub(super) count: u32,
    pub(super) threads: u32,
    pub(super) board_bytes: u32,
    pub(super) kept_bytes: u32,
    pub(super) plane_bytes: u32,
    pub(super) stack: u32,
    pub(super) inputs_per_env: u32,
    pub(super) boot_bytes: u32,
    pub(super) cell_count: u32,
    pub(super) weight_count: u32,
    pub(super) blend_count: u32,
    pub(super) table_bytes: u32,
}

/// Arguments of one launch, 0 where a kernel does not need them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Call {
    pub(super) obs: u64,
    pub(super) final_obs: u64,
    pub(super) ram: u64,
    pub(super) numbers: u64,
    pub(super) flags: u64,
    pub(super) actions: u64,
    pub(super) seeds: u64,
    pub(super) mask: u64,
    pub(super) envs: u64,
    pub(super) rows: u64,
    pub(super) mode: u32,
    pub(super) wide_actions: u32,
    pub(super) row_count: u32,
    pub(super) row_bytes: u32,
    pub(super) writes: u32,
    pub(super) unused: u32,
}

/// Threads to environments: those of one game side by side, filled up to whole warps.
pub fn order(playing: &[usize]) -> Vec<u32> {
    let mut order = vec![];
    for game in 0..playing.iter().max().map_or(0, |most| most + 1) {
        order.extend((0..playing.len() as u32).filter(|&env| playing[env as usize] == game));
        order.resize(order.len().next_multiple_of(PLAY_THREADS as usize), NOBODY);
    }
    order
}

/// Blocks of `size` threads for `threads` of them; `None` when there would be more than a launch can have.
pub fn blocks(threads: u64, size: u32) -> Option<u32> {
    let blocks = threads.div_ceil(u64::from(size)).max(1);
    u32::try_from(blocks).ok().filter(|&blocks| blocks <= i32::MAX as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warp_has_one_game() {
        // 40 environments, the last three of another game: two warps and one.
        let playing: Vec<usize> = (0..40).map(|env| usize::from(env >= 37)).collect();
        let order = order(&playing);
        assert_eq!(order.len(), 96);
        for warp in order.chunks(32) {
            let games: Vec<usize> =
                warp.iter().filter(|&&env| env != NOBODY).map(|&env| playing[env as usize]).collect();
            assert!(games.iter().all(|&game| game == games[0]));
        }
        let mut seen: Vec<u32> = order.into_iter().filter(|&env| env != NOBODY).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..40).collect::<Vec<u32>>());
    }

    #[test]
    fn blocks_cover_threads() {
        assert_eq!([blocks(1, 32), blocks(32, 32), blocks(33, 32)], [Some(1), Some(1), Some(2)]);
        // 2^31 blocks are one too many.
        assert_eq!(blocks((1 << 31) * 256, 256), None);
        assert_eq!(blocks(((1 << 31) - 1) * 256, 256), Some((1 << 31) - 1));
    }
}
