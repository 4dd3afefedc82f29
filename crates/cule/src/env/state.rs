//! The state of one environment of a batch, the settings it plays by, and the frames of a step or reset as they run.
//!
//! Device subset. The CPU batch and the kernels call the same step ([`super::step`]) and reset ([`super::reset`]). A board
//! and three pictures to work in belong to the thread, not to the environment. Pictures that must outlive a step because
//! they cannot be made again (the two of the board, and one that was drawn over) are kept by the caller, which hands them
//! in as `kept`.

use bytemuck::{Pod, Zeroable};

use super::rules::{Episode, StepRules};
use super::{FrameRunner, State};
use crate::env;
use crate::machine::input::Input;
use crate::machine::tia::rows;
use crate::machine::{Board, Machine, tia};
use crate::numpy_random::{self, NumpyRandom};
use crate::random::{self, Random};

/// How many idle frames follow a reset: `below(noop_max) - fire` behind FIRE.
pub const NOOPS_AFTER_FIRE: u32 = 0;
/// `below(noop_max) + 1 - fire` before FIRE.
pub const NOOPS_BEFORE_FIRE: u32 = 1;
/// 1 to `noop_max` from NumPy's generator, then FIRE.
pub const NOOPS_NUMPY: u32 = 2;

/// The next episode goes on with the same game after a lost life.
pub const CONTINUES_LIFE: u8 = 1;
/// It does after a limit on frames or steps; the game's return ends there.
pub const CONTINUES_CUT: u8 = 2;

/// Number of draws of a boot that is not known in advance.
pub const UNKNOWN_DRAWS: u32 = 0xFFFF_FFFF;

/// The last frames that were run, enough to run them again.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Recent {
    /// The machine before the first of them.
    pub from: Machine,
    /// Their inputs, the last frame's at the end.
    pub inputs: [Input; 2],
    /// How many there are, at most two.
    pub count: u32,
    /// How many at the end were drawn in full.
    pub whole: u32,
}

/// Everything of an environment that has a fixed size, but the generator of sticky actions.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Head {
    /// The console with its rules.
    pub state: State,
    /// Its last frames.
    pub recent: Recent,
    /// Draws frame skips, and idle frames under `NOOPS_NUMPY`.
    pub numpy: NumpyRandom,
    /// What is counted within an episode.
    pub episode: Episode,
    /// Seed of the generator of sticky actions.
    pub random_seed: u32,
    /// Seed of the generator of idle frames.
    pub noop_seed: u32,
    /// Its draws so far.
    pub noop_draws: u32,
    /// Index of the newest plane.
    pub newest: u32,
    /// The last plane shows one frame, not the brighter of two.
    pub single: u8,
    /// Nothing has run since the console was loaded.
    pub unused: u8,
    /// The environment has been reset at least once.
    pub ready: u8,
    /// The episode ended and the next one goes on with the same game: 0 or one of the `CONTINUES_` constants.
    pub continues: u8,
    /// Rewards before clipping of the game's episodes before this one.
    pub carried: i32,
}

/// Settings of all environments of a batch.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct EnvSettings {
    /// When steps stop and what they report.
    pub rules: StepRules,
    /// Before the first frame of a step.
    pub none: Recent,
    /// Frames per step: both equal, or drawn from the first up to below the second.
    pub skip: [u32; 2],
    /// Planes in an observation.
    pub stack: u32,
    /// One of the `NOOPS_` constants.
    pub noops: u32,
    /// Bound of idle frames after a reset.
    pub noop_max: u32,
    /// Bytes of a kept picture: the highest one of all games.
    pub picture_bytes: u32,
    /// Observations show pictures, not RAM.
    pub draws: u8,
    /// Observations show palette indices, which are not pooled.
    pub indices: u8,
    /// The brighter of the last two frames is shown.
    pub maxpool: u8,
    /// The frame on which a step ends early is shown, if it is one of the last two.
    pub show_last_frame: u8,
    /// `terminated` and `truncated` may both be reported.
    pub both_ends: u8,
    /// A lost life ends the episode, and the next one goes on with the same game.
    pub life_continues: u8,
    /// Older planes after a reset are the first picture, not zeros.
    pub pads_first: u8,
    /// An unseeded reset puts a state in place instead of running the boot.
    pub snapshot: u8,
}

/// What a batch knows of one of its games.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct EnvGame {
    /// After loading, choosing mode and difficulty, and one reset.
    pub boot: State,
    /// After loading, before the first reset.
    pub loaded: State,
    /// Probability of keeping an action while booting.
    pub keep: f64,
    /// Draws of the generator of sticky actions in `boot`, or `UNKNOWN_DRAWS`.
    pub boot_draws: u32,
    /// Seed of the console's own generator.
    pub system_seed: u32,
    /// Mode and difficulty that are chosen after loading.
    pub mode: u32,
    /// As `mode`.
    pub difficulty: u32,
    /// FIRE is sent after resets.
    pub fires: u32,
    /// Rows of the picture.
    pub height: u32,
    /// Actions that can be chosen, one bit per code.
    pub actions: u32,
    /// Which of the color tables applies.
    pub television: u32,
    /// Where its ROM begins among those of the batch.
    pub rom_at: u32,
    /// Bytes of the ROM.
    pub rom_bytes: u32,
    /// Where its starts begin among those of the batch.
    pub reset_states_at: u32,
    /// Frames of the longest start, 0 when there are none: every reset then runs its frames.
    pub reset_state_frames: u32,
}

/// An episode's start from the boot state: the console after some frames of nothing and of FIRE.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct ResetState {
    /// The console.
    pub state: State,
    /// Its last frames.
    pub recent: Recent,
}

/// Which start it is: of `frames` frames, FIRE is held in `fired`. After FIRE they are the first ones; before it there is
/// one at most, the last.
pub fn reset_state_number(noops: u32, frames: u32, fired: u32) -> u32 {
    if noops == NOOPS_AFTER_FIRE { frames * (frames + 1) / 2 + fired } else { 2 * frames + fired }
}

/// Frames of starts above which there are none.
pub const MAX_RESET_STATE_FRAMES: u32 = 64;

/// No picture.
pub const NONE: u8 = 255;
/// The two pictures of the board come first, then those to work in, of which this is the first.
pub const WORK: u8 = 2;
/// Pictures to work in.
pub const WORK_PICTURES: u32 = 3;
/// Kept pictures: two of the board, one that was drawn over.
pub const KEPT_PICTURES: u32 = 3;
/// Bit of `Extra::kept`: they are still where they were made, on the board and first among those to work in.
pub const KEPT_FRESH: u8 = 0x80;

/// The planes stay as they are.
pub const PUSH_NOTHING: u8 = 0;
/// A plane of the pictures comes in.
pub const PUSH_PICTURES: u8 = 1;
/// The newest plane comes in once more.
pub const PUSH_AGAIN: u8 = 2;
/// Console RAM comes in.
pub const PUSH_RAM: u8 = 3;
/// The older planes become zeros.
pub const CLEAR_ZERO: u8 = 1;
/// The older planes become what comes in.
pub const CLEAR_FIRST: u8 = 2;

/// What a step or reset has left to show, and what it has kept.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Extra {
    /// Pictures that are shown together, the brightest pixel of all, `NONE` where there are fewer.
    pub picture: [u8; 3],
    /// One of the `PUSH_` constants.
    pub push: u8,
    /// Kept pictures: 0, 2 or `KEPT_PICTURES`, with `KEPT_FRESH`.
    pub kept: u8,
    /// What happens to older planes: 0 or one of the `CLEAR_` constants.
    pub clear: u8,
    /// A reset is due within the step.
    pub due: u8,
    /// Keeps the size a multiple of eight.
    pub unused: u8,
}

/// Whole numbers that are reported of each environment, in this order: reward, reward before clipping, lives, frame
/// number, episode frame number, number of the environment; then of an episode that ended lives, frame number, episode
/// frame number, return and length; then the return of the game so far.
pub const NUMBERS: usize = 12;

/// Flags that are reported of each environment, in this order: terminated, truncated, ended, and the game has ended too.
pub const FLAGS: usize = 4;

/// What a step or reset says.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Figures {
    /// See [`NUMBERS`].
    pub number: [i32; NUMBERS],
    /// See [`FLAGS`].
    pub flag: [u8; FLAGS],
}

/// The frames of one step or reset as they run.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Roll {
    /// The last two.
    pub recent: Recent,
    /// The machine before the newest frame.
    pub middle: Machine,
    /// The newest frame went on with an open one.
    pub open: u32,
}

/// The picture ends where the beam stands; true when that is below the last row.
pub fn is_whole(m: &Machine) -> bool {
    m.unfinished == 0 && m.tia.beam >= m.tia.window_end - m.tia.base
}

/// Runs one frame with its inputs set, and gives its reward.
#[inline(never)]
pub fn frame<R: FrameRunner>(runner: &mut R, roll: &mut Roll, state: &mut State, board: &mut Board) -> i32 {
    let recent: &mut Recent = &mut roll.recent;
    recent.from = if recent.count == 0 { state.machine } else { roll.middle };
    roll.middle = state.machine;
    recent.count = if recent.count < 2 { recent.count + 1 } else { 2 };
    roll.open = (state.machine.unfinished != 0) as u32;
    recent.inputs[0] = recent.inputs[1];
    recent.inputs[1] = state.machine.input;
    env::emulate(runner, state, board);
    if roll.open == 0 && is_whole(&state.machine) {
        recent.whole = if recent.whole < 2 { recent.whole + 1 } else { 2 };
    } else {
        recent.whole = 0;
    }
    env::count_frame(state)
}

/// Runs frames `from..to` of `inputs` again, drawing all of them.
#[inline(never)]
pub fn rerun<R: FrameRunner>(
    runner: &mut R,
    machine: &mut Machine,
    inputs: &[Input],
    from: usize,
    to: usize,
    board: &mut Board,
) {
    for i in from..to {
        machine.input = inputs[i];
        machine.draw = 1;
        runner.run_frame(machine, board);
    }
}

/// Seeds the generators of an environment that has not run.
#[inline(never)]
pub fn seed(head: &mut Head, random: &mut Random, seed: u64, noops: u32) {
    let words: [u32; 8] = numpy_random::seed_words(seed);
    head.numpy = numpy_random::seeded(words[0] as u64);
    head.noop_seed = seed as u32;
    head.noop_draws = 0;
    head.random_seed = if noops == NOOPS_NUMPY { words[1] } else { seed as u32 };
    random::seed(random, head.random_seed);
    head.unused = 1;
}

/// The next number below `n` of the environment's generator of idle frames, which is made again in `spare`.
#[inline(never)]
pub fn below(head: &mut Head, spare: &mut Random, n: u32) -> u32 {
    random::seed(spare, head.noop_seed);
    random::skip(spare, head.noop_draws);
    let mut product: u64 = 0;
    let mut found: bool = false;
    while !found {
        head.noop_draws += 1;
        let drawn: u32 = random::draw(spare);
        product = drawn as u64 * n as u64;
        found = product as u32 >= n || product as u32 >= n.wrapping_neg() % n;
    }
    (product >> 32) as u32
}

/// Idle frames of the reset that begins.
#[inline(never)]
pub fn idle_frames(head: &mut Head, spare: &mut Random, noops: u32, noop_max: u32, fire: u32) -> u32 {
    let bound: u32 = if noop_max > 1 { noop_max } else { 1 };
    if noops == NOOPS_AFTER_FIRE {
        let idle: u32 = below(head, spare, bound);
        return if idle > fire { idle - fire } else { 0 };
    }
    if noops == NOOPS_BEFORE_FIRE {
        let idle: u32 = below(head, spare, bound);
        return idle + 1 - fire;
    }
    if noop_max == 0 {
        return 0;
    }
    numpy_random::integers(&mut head.numpy, 1, noop_max + 1)
}

/// Figures of the console as it stands, without those of a step.
pub fn figures(head: &Head, id: u32) -> Figures {
    let env: &env::Env = &head.state.env;
    Figures {
        number: [
            0,
            0,
            env::lives(&head.state),
            env.frame_number,
            env.episode_frame_number,
            id as i32,
            0,
            0,
            0,
            0,
            0,
            0,
        ],
        flag: [0; FLAGS],
    }
}

/// Copies `bytes` bytes between pictures.
#[inline(never)]
pub fn copy_picture(to: &mut [u8], to_at: usize, from: &[u8], from_at: usize, bytes: usize) {
    to[to_at..to_at + bytes].copy_from_slice(&from[from_at..from_at + bytes]);
}

/// Copies a picture of the board.
#[inline(never)]
pub fn take_picture(to: &mut [u8], to_at: usize, board: &mut Board, buffer: usize, game: &EnvGame) {
    rows::expand_all(board, buffer, game.height as usize);
    copy_picture(to, to_at, &board.picture[buffer], 0, height_bytes(game));
}

/// Puts two pictures on the board, so many bytes apart.
#[inline(never)]
pub fn put_pictures(board: &mut Board, pictures: &[u8], apart: usize, game: &EnvGame) {
    copy_picture(&mut board.picture[0], 0, pictures, 0, height_bytes(game));
    copy_picture(&mut board.picture[1], 0, pictures, apart, height_bytes(game));
    rows::forget(board);
}

/// Bytes of a game's picture.
pub fn height_bytes(game: &EnvGame) -> usize {
    game.height as usize * tia::WIDTH
}
