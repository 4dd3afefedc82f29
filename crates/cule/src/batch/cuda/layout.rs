//! Arguments of a kernel launch, with the layout of `kernels/layout.cuh`, and launch sizes. Host only.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};

use crate::env::State;
use crate::env::state::{Head, LastFrames};
use crate::machine::cart::Cart;
use crate::machine::{Line, Machine};

/// Environments that a block runs at a time: one per lane of its first warp.
pub const LANES: u32 = 32;
/// Maximum number of warps of a block that runs environments. Warps after the first only help to write
/// observations.
const MOST_WARPS: u32 = 4;
/// Threads per block of kernels in which each thread handles one byte.
pub const BYTE_THREADS: u32 = 256;
/// Marks a thread without an environment.
pub const NO_ENV: u32 = u32::MAX;
/// Number of kinds of faults that the device reports.
pub const FAULTS: usize = 6;
/// Marks an environment without saved pictures.
pub const NO_SAVED_PICTURES: u32 = u32::MAX;
/// Places for saved pictures (100 KB each) that are left when as many environments as expected have some.
const SPARE_SAVED_PICTURES: usize = 1024;
/// Words of a cartridge's RAM.
const CART_WORDS: usize = 32;
/// First words of the cartridge RAM in a head: that of the console, and that of its copy in `last_frames`.
pub const CART_AT: [usize; 2] = [
    (offset_of!(Head, state) + offset_of!(State, machine) + CART_RAM) / 4,
    (offset_of!(Head, last_frames) + offset_of!(LastFrames, start) + CART_RAM) / 4,
];
const CART_RAM: usize = offset_of!(Machine, cart) + offset_of!(Cart, ram);

/// Words of a machine's row in shared memory. The number is odd, so that the same word of 32 rows lies in 32
/// banks.
const ROW_WORDS: u32 = (size_of::<Machine>() as u32 / 4) | 1;
/// Pairs of words of a `Line` in shared memory, an odd number as well.
const LINE_PAIRS: u32 = (size_of::<Line>() as u32 / 8) | 1;
/// Bytes of a block's shared memory that hold the machines and lines of its lanes.
pub const SHARED_BYTES: u32 = LANES * (ROW_WORDS * 4 + LINE_PAIRS * 8);

/// Memory layout of a batch: device addresses, then sizes and counts. `Batch` in `kernels/layout.cuh` has the
/// same fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Plan {
    pub(super) heads: u64,
    pub(super) randoms: u64,
    pub(super) step_outputs: u64,
    pub(super) planes: u64,
    pub(super) saved_pictures: u64,
    pub(super) taken: u64,
    pub(super) kept: u64,
    pub(super) scratch: u64,
    pub(super) queue: u64,
    pub(super) queued: u64,
    pub(super) faults: u64,
    pub(super) order: u64,
    pub(super) env_games: u64,
    pub(super) games: u64,
    pub(super) rules: u64,
    pub(super) reset_states: u64,
    pub(super) reset_planes: u64,
    pub(super) roms: u64,
    pub(super) records: u64,
    pub(super) choices: u64,
    pub(super) boot_pictures: u64,
    pub(super) reductions: u64,
    pub(super) cells: u64,
    pub(super) weights: u64,
    pub(super) blends: u64,
    pub(super) tables: u64,
    pub(super) count: u32,
    pub(super) threads: u32,
    pub(super) board_bytes: u32,
    pub(super) scratch_bytes: u32,
    pub(super) saved_count: u32,
    pub(super) reset_state_count: u32,
    pub(super) plane_bytes: u32,
    pub(super) stack: u32,
    pub(super) inputs_per_env: u32,
    pub(super) boot_bytes: u32,
    pub(super) cell_count: u32,
    pub(super) weight_count: u32,
    pub(super) blend_count: u32,
    pub(super) table_bytes: u32,
    pub(super) cart_ram: u32,
    pub(super) lanes: u32,
}

impl Plan {
    /// Address of the boards and work pictures of the lanes, and bytes of each lane.
    pub fn scratch(&self) -> (u64, u32) {
        (self.scratch, self.scratch_bytes)
    }

    /// Address and bytes of the planes of all environments.
    pub fn planes(&self) -> (u64, u64) {
        (self.planes, u64::from(self.count) * u64::from(self.stack) * u64::from(self.plane_bytes))
    }
}

/// Arguments of one launch; 0 if the kernel does not use them.
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
    pub(super) obs_stride: u64,
    pub(super) mode: u32,
    pub(super) wide_actions: u32,
    pub(super) row_count: u32,
    pub(super) row_bytes: u32,
    pub(super) writes: u32,
    pub(super) threshold: f32,
    pub(super) slides: u32,
    pub(super) unused: u32,
}

/// The environment of each thread. A warp has at most `lanes` environments, all of one game; its other threads
/// have [`NO_ENV`].
pub fn order(playing: &[usize], lanes: u32) -> Vec<u32> {
    let mut order = vec![];
    for game in 0..playing.iter().max().map_or(0, |most| most + 1) {
        let envs: Vec<u32> = (0..playing.len() as u32).filter(|&env| playing[env as usize] == game).collect();
        for warp in envs.chunks(lanes as usize) {
            order.extend(warp);
            order.resize(order.len().next_multiple_of(LANES as usize), NO_ENV);
        }
    }
    order
}

/// An upper bound of the length of [`order`] for any assignment of environments to games.
pub fn most_threads(envs: usize, games: usize, lanes: u32) -> u32 {
    let partial = games.saturating_sub(1).min(envs);
    ((envs.div_ceil(lanes.max(1) as usize) + partial) * LANES as usize) as u32
}

/// Environments of a warp: as few as let all of them run at the same time, since those that share a warp wait
/// for each other where their programs differ.
pub fn lanes(envs: usize, resident: u32) -> u32 {
    (envs.div_ceil(resident.max(1) as usize) as u32).clamp(1, LANES)
}

/// Number of stored words of a head, with or without cartridge RAM.
pub fn head_words(cart_ram: bool) -> usize {
    size_of::<Head>() / 4 - if cart_ram { 0 } else { 2 * CART_WORDS }
}

/// Returns true if word `word` of a head is cartridge RAM.
pub fn is_cart_ram(word: usize) -> bool {
    CART_AT.iter().any(|&at| (at..at + CART_WORDS).contains(&word))
}

/// Number of places for saved pictures: one per environment of the games with short frames
/// (`short_frame_envs`), one for each environment whose reset runs fewer than two frames, on average, plus
/// [`SPARE_SAVED_PICTURES`], but at most one per environment.
///
/// At most two of the `noop_max` numbers of idle frames of a reset are that small.
pub fn saved_pictures(envs: usize, short_frame_envs: usize, noop_max: usize) -> usize {
    let short_resets = (2 * envs).div_ceil(noop_max.max(2));
    (short_frame_envs + short_resets + SPARE_SAVED_PICTURES).min(envs)
}

/// Number of blocks to run `groups` groups of lanes if `resident` warps are resident at a time, and warps per
/// block. If there are fewer groups than resident warps, blocks get additional warps that help to write
/// observations.
pub fn blocks_and_warps(groups: u32, resident: u32) -> (u32, u32) {
    let resident = resident.max(1);
    (groups.min(resident), (resident / groups.max(1)).clamp(1, MOST_WARPS))
}

/// Number of blocks of `size` threads for `threads` threads; `None` if a launch cannot have that many.
pub fn blocks(threads: u64, size: u32) -> Option<u32> {
    let blocks = threads.div_ceil(u64::from(size)).max(1);
    u32::try_from(blocks).ok().filter(|&blocks| blocks <= i32::MAX as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_of_all_environments_finds_places() {
        // Six standard deviations above the mean of a binomial distribution.
        for envs in [1024, 4096, 32_768, 131_072] {
            let mean = envs as f64 * 2.0 / 30.0;
            let most = (mean + 6.0 * mean.sqrt()).min(envs as f64);
            let places = saved_pictures(envs, 0, 30);
            assert!((most as usize..=envs).contains(&places), "{envs} environments, {places} places");
        }
        assert_eq!(saved_pictures(5000, 0, 0), 5000);
        assert_eq!(saved_pictures(256, 0, 30), 256);
        assert_eq!(saved_pictures(100_000, 50_000, 1000), 50_000 + 200 + 1024);
    }

    #[test]
    fn a_warp_has_one_game() {
        // 40 environments, the last three of another game: two warps and one.
        let playing: Vec<usize> = (0..40).map(|env| usize::from(env >= 37)).collect();
        let order = order(&playing, LANES);
        assert_eq!(order.len(), 96);
        for warp in order.chunks(32) {
            let games: Vec<usize> =
                warp.iter().filter(|&&env| env != NO_ENV).map(|&env| playing[env as usize]).collect();
            assert!(games.iter().all(|&game| game == games[0]));
        }
        let mut seen: Vec<u32> = order.into_iter().filter(|&env| env != NO_ENV).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..40).collect::<Vec<u32>>());
    }

    #[test]
    fn few_environments_are_spread_over_all_warps() {
        assert_eq!([1, 1056, 4096, 32_768, 1 << 20].map(|envs| lanes(envs, 1056)), [1, 1, 4, 32, 32]);
        assert_eq!(lanes(7, 0), 7);
        let order = order(&[0, 0, 0, 1, 0], 3);
        let starts: Vec<&[u32]> = order.chunks(LANES as usize).map(|warp| &warp[..4]).collect();
        assert_eq!(starts, [[0, 1, 2, NO_ENV], [4, NO_ENV, NO_ENV, NO_ENV], [3, NO_ENV, NO_ENV, NO_ENV]]);
    }

    #[test]
    fn few_groups_have_helpers_and_many_take_turns() {
        // 1,056 warps are resident on 132 multiprocessors.
        assert_eq!(blocks_and_warps(8, 1056), (8, 4));
        assert_eq!(blocks_and_warps(400, 1056), (400, 2));
        assert_eq!(blocks_and_warps(1024, 1056), (1024, 1));
        assert_eq!(blocks_and_warps(4096, 1056), (1056, 1));
        assert_eq!(blocks_and_warps(3, 0), (1, 1));
    }

    #[test]
    fn heads_without_cartridge_ram_are_below_a_kilobyte() {
        // 1,248 bytes less 2 x 128.
        assert_eq!([head_words(true), head_words(false)], [312, 248]);
        assert_eq!((0..312).filter(|&word| is_cart_ram(word)).count(), 64);
    }

    #[test]
    fn a_word_of_all_rows_lies_in_as_many_banks() {
        const BANKS: u32 = 32;
        for word in 0..ROW_WORDS {
            let banks: std::collections::HashSet<u32> =
                (0..LANES).map(|lane| (lane * ROW_WORDS + word) % BANKS).collect();
            assert_eq!(banks.len(), BANKS as usize, "word {word}");
        }
        // A row holds a machine, and its start is aligned for one.
        assert!(ROW_WORDS as usize * 4 >= size_of::<Machine>());
        assert_eq!(align_of::<Machine>(), 4);
        // 472 bytes and a word, and a line of 248 bytes: with the memory beside them, 8 blocks take 195 KiB of the 228 of an H200.
        assert_eq!(SHARED_BYTES, 32 * (476 + 248));
    }

    #[test]
    fn blocks_cover_threads() {
        assert_eq!([blocks(1, 32), blocks(32, 32), blocks(33, 32)], [Some(1), Some(1), Some(2)]);
        // 2^31 blocks are one too many.
        assert_eq!(blocks((1 << 31) * 256, 256), None);
        assert_eq!(blocks(((1 << 31) - 1) * 256, 256), Some((1 << 31) - 1));
    }
}
