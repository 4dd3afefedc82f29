//! State and settings of one environment of a batch, and the functions that run the frames of a step or
//! reset.
//!
//! Device subset. The CPU batch and the kernels call the same step ([`super::step`]) and reset
//! ([`super::reset`]). The board and three work pictures belong to the thread, not to the environment.
//! Pictures that later steps need and that cannot be made again by running the last two frames (the two of
//! the board, and one that was drawn over) are kept by the caller, which passes them to the next step as
//! `kept`.

use bytemuck::{Pod, Zeroable};

use super::rules::{Episode, StepRules};
use super::{FrameRunner, State};
use crate::env;
use crate::machine::input::Input;
use crate::machine::tia::rows;
use crate::machine::{Board, Machine, tia};
use crate::numpy_random::{self, NumpyRandom};
use crate::random::{self, Random};

/// A reset sends FIRE, then `below(noop_max) - fire` idle frames.
pub const NOOPS_AFTER_FIRE: u32 = 0;
/// A reset runs `below(noop_max) + 1 - fire` idle frames, then sends FIRE.
pub const NOOPS_BEFORE_FIRE: u32 = 1;
/// A reset runs 1 to `noop_max` idle frames, drawn from NumPy's generator, then sends FIRE.
pub const NOOPS_NUMPY: u32 = 2;

/// Value of `EnvGame::boot_draws` if the number of draws of a boot is not known in advance.
pub const UNKNOWN_DRAWS: u32 = 0xFFFF_FFFF;

/// Machine and inputs with which the last frames can be run again.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct LastFrames {
    /// The machine before the first of these frames.
    pub start: Machine,
    /// Inputs of the frames; those of the last frame come last.
    pub inputs: [Input; 2],
    /// Number of frames, at most two.
    pub count: u32,
    /// Number of consecutive last frames, at most two, that cover the whole picture.
    pub whole_frames: u32,
}

/// The state of an environment that has a fixed size, except the generator of sticky actions.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Head {
    /// The console with its rules.
    pub state: State,
    /// Its last frames.
    pub last_frames: LastFrames,
    /// Generator of frame skips, and of idle frames with `NOOPS_NUMPY`.
    pub numpy: NumpyRandom,
    /// Counters of the current episode.
    pub episode: Episode,
    /// Seed of the generator of sticky actions.
    pub random_seed: u32,
    /// Seed of the generator of idle frames.
    pub noop_seed: u32,
    /// Number of draws of that generator so far.
    pub noop_draws: u32,
    /// Index of the newest plane.
    pub newest: u32,
    /// The newest plane shows one frame, not the maximum of two.
    pub newest_is_single_frame: u8,
    /// The next reset starts from a freshly loaded console.
    pub needs_load: u8,
    /// The environment has been reset and can step.
    pub ready: u8,
    /// A lost life ended the episode; the next one continues the same game.
    pub continues: u8,
    /// Sum of rewards before clipping of the game's earlier episodes.
    pub earlier_return: i32,
    /// Steps of the game's earlier episodes.
    pub earlier_steps: i32,
    /// Keeps the size a multiple of eight.
    pub unused: u32,
}

/// Settings of all environments of a batch.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct EnvSettings {
    /// When steps stop and what they report.
    pub rules: StepRules,
    /// The value of [`LastFrames`] before any frame: all zeros.
    pub no_frames: LastFrames,
    /// Frames per step: fixed if both are equal, otherwise drawn from `skip[0]..skip[1]`.
    pub skip: [u32; 2],
    /// Planes in an observation.
    pub stack: u32,
    /// One of the `NOOPS_` constants.
    pub noops: u32,
    /// Bound of idle frames after a reset.
    pub noop_max: u32,
    /// Bytes of a kept picture: those of the highest picture of all games.
    pub picture_bytes: u32,
    /// Observations show pictures, not RAM.
    pub draws: u8,
    /// Observations show palette indices, of which no maximum is taken.
    pub indices: u8,
    /// Observations show the maximum of the last two frames.
    pub maxpool: u8,
    /// The frame on which a step ends early is shown, if it is one of the last two of the step.
    pub show_last_frame: u8,
    /// `terminated` and `truncated` may both be true in the same step.
    pub both_ends: u8,
    /// A lost life ends the episode, and the next episode continues the same game.
    pub life_continues: u8,
    /// After a reset the older planes are copies of the first one, not zeros.
    pub pads_first: u8,
    /// An unseeded reset copies the boot state instead of running the boot.
    pub snapshot: u8,
}

/// Data of one game that its environments share.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct EnvGame {
    /// The boot state: after loading, setting mode and difficulty, and one reset.
    pub boot: State,
    /// The state after loading, before the first reset.
    pub loaded: State,
    /// Probability of a sticky action while booting.
    pub repeat_probability: f64,
    /// Draws of the generator of sticky actions up to `boot`, or `UNKNOWN_DRAWS`.
    pub boot_draws: u32,
    /// Seed of the console's own generator.
    pub system_seed: u32,
    /// Mode that is set after loading.
    pub mode: u32,
    /// Difficulty that is set after loading.
    pub difficulty: u32,
    /// 1 if resets send FIRE, otherwise 0.
    pub fires: u32,
    /// Rows of the picture.
    pub height: u32,
    /// The action space, one bit per action code.
    pub actions: u32,
    /// Index of the color table.
    pub television: u32,
    /// Offset of its ROM among the ROMs of the batch.
    pub rom_at: u32,
    /// Bytes of the ROM.
    pub rom_bytes: u32,
    /// Index of its first reset state among those of the batch.
    pub reset_states_at: u32,
    /// Frames of its longest reset state. 0 if it has no reset states: then every reset runs its frames.
    pub reset_state_frames: u32,
}

/// Start of an episode: the console after the boot state and a number of frames with NOOP or FIRE held.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct ResetState {
    /// The console.
    pub state: State,
    /// Its last frames.
    pub last_frames: LastFrames,
}

/// Index of the reset state after `frames` frames, `fired` of them with FIRE held: the first ones with
/// `NOOPS_AFTER_FIRE`, otherwise at most one, the last.
pub fn reset_state_number(noops: u32, frames: u32, fired: u32) -> u32 {
    if noops == NOOPS_AFTER_FIRE { frames * (frames + 1) / 2 + fired } else { 2 * frames + fired }
}

/// Maximum number of frames of a reset state. Games with longer resets have no reset states.
pub const MAX_RESET_STATE_FRAMES: u32 = 64;

/// Picture number: no picture.
pub const NO_PICTURE: u8 = 255;
/// Picture number of the first work picture. Numbers 0 and 1 are the two pictures of the board.
pub const FIRST_WORK_PICTURE: u8 = 2;
/// Number of work pictures.
pub const WORK_PICTURES: u32 = 3;
/// Maximum number of kept pictures: the two of the board, and one that was drawn over.
pub const KEPT_PICTURES: u32 = 3;
/// Bit of `StepOutput::kept`: the pictures to keep are still on the board and in the first work picture; the
/// caller copies them.
pub const KEPT_FRESH: u8 = 0x80;

/// No plane is added.
pub const PUSH_NOTHING: u8 = 0;
/// Adds a plane made from the pictures.
pub const PUSH_PICTURES: u8 = 1;
/// Adds a copy of the newest plane.
pub const PUSH_COPY: u8 = 2;
/// Adds a plane with the console RAM.
pub const PUSH_RAM: u8 = 3;
/// Adds the plane of a reset state.
pub const PUSH_RESET_PLANE: u8 = 4;
/// Fills the older planes with zeros.
pub const CLEAR_ZERO: u8 = 1;
/// Fills the older planes with copies of the added plane.
pub const CLEAR_FIRST: u8 = 2;

/// Instructions of a step or reset to its caller: what to add to the observation, and which pictures to keep.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct StepOutput {
    /// Numbers of the pictures whose pixelwise maximum is shown, padded with `NO_PICTURE`.
    pub picture: [u8; 3],
    /// One of the `PUSH_` constants.
    pub push: u8,
    /// Number of kept pictures: 0, 2 or `KEPT_PICTURES`, possibly with the bit `KEPT_FRESH`.
    pub kept: u8,
    /// Change of the older planes: 0 or one of the `CLEAR_` constants.
    pub clear: u8,
    /// The environment must be reset within this step.
    pub reset_due: u8,
    /// Keeps the size a multiple of eight.
    pub unused: u8,
}

/// Count of the integers that are reported per environment, in this order: reward, reward before clipping,
/// lives, frame number, episode frame number, number of the environment; then for an episode that ended:
/// lives, frame number, episode frame number, return and length; then the return of the game so far.
pub const NUMBERS: usize = 12;

/// Count of the flags that are reported per environment, in this order: terminated, truncated, ended, game
/// over.
pub const FLAGS: usize = 4;

/// Reported figures of a step or reset.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Figures {
    /// See [`NUMBERS`].
    pub number: [i32; NUMBERS],
    /// See [`FLAGS`].
    pub flag: [u8; FLAGS],
}

/// Running state of the frames of one step or reset.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FrameRun {
    /// The last two frames.
    pub last_frames: LastFrames,
    /// The machine before the newest frame.
    pub before_newest: Machine,
    /// The newest frame continued an open one.
    pub continues_open: u32,
}

/// Returns true if the frame has ended and its beam is past the last row of the picture.
pub fn is_whole(m: &Machine) -> bool {
    m.unfinished == 0 && m.tia.beam >= m.tia.window_end - m.tia.base
}

/// Runs one frame of a machine whose inputs are set. Returns the reward.
#[inline(never)]
pub fn run_env_frame<R: FrameRunner>(
    runner: &mut R,
    frame_run: &mut FrameRun,
    state: &mut State,
    board: &mut Board,
) -> i32 {
    let last_frames: &mut LastFrames = &mut frame_run.last_frames;
    last_frames.start = if last_frames.count == 0 { state.machine } else { frame_run.before_newest };
    frame_run.before_newest = state.machine;
    last_frames.count = if last_frames.count < 2 { last_frames.count + 1 } else { 2 };
    frame_run.continues_open = (state.machine.unfinished != 0) as u32;
    last_frames.inputs[0] = last_frames.inputs[1];
    last_frames.inputs[1] = state.machine.input;
    env::emulate(runner, state, board);
    if frame_run.continues_open == 0 && is_whole(&state.machine) {
        last_frames.whole_frames =
            if last_frames.whole_frames < 2 { last_frames.whole_frames + 1 } else { 2 };
    } else {
        last_frames.whole_frames = 0;
    }
    env::count_frame(state)
}

/// Runs frames `from..to` of `inputs` again, drawing all of them. The sound registers remain those of the
/// newest frame.
#[inline(never)]
pub fn rerun<R: FrameRunner>(
    runner: &mut R,
    machine: &mut Machine,
    inputs: &[Input],
    from: usize,
    to: usize,
    board: &mut Board,
) {
    let sound: [u8; 8] = board.sound;
    for i in from..to {
        machine.input = inputs[i];
        machine.draw = 1;
        runner.run_frame(machine, board);
    }
    board.sound = sound;
}

/// Seeds all generators of an environment. The next reset starts from a freshly loaded console.
#[inline(never)]
pub fn seed(head: &mut Head, random: &mut Random, seed: u64, noops: u32) {
    let words: [u32; 8] = numpy_random::seed_words(seed);
    head.numpy = numpy_random::seeded(words[0] as u64);
    head.noop_seed = seed as u32;
    head.noop_draws = 0;
    head.random_seed = if noops == NOOPS_NUMPY { words[1] } else { seed as u32 };
    random::seed(random, head.random_seed);
    head.needs_load = 1;
}

/// Draws a number below `n` from the environment's generator of idle frames, which is rebuilt in `spare` from
/// its seed and its number of draws.
#[inline(never)]
pub fn draw_below(head: &mut Head, spare: &mut Random, n: u32) -> u32 {
    let mut product: u64 = 0;
    let mut found: bool = false;
    while !found {
        let drawn: u32 = if head.noop_draws < random::EARLY_DRAWS {
            random::early_draw(head.noop_seed, head.noop_draws)
        } else {
            random::seed(spare, head.noop_seed);
            random::skip(spare, head.noop_draws);
            random::draw(spare)
        };
        head.noop_draws += 1;
        product = drawn as u64 * n as u64;
        found = product as u32 >= n || product as u32 >= n.wrapping_neg() % n;
    }
    (product >> 32) as u32
}

/// Draws the number of idle frames of a reset.
#[inline(never)]
pub fn idle_frames(head: &mut Head, spare: &mut Random, noops: u32, noop_max: u32, fire: u32) -> u32 {
    let bound: u32 = if noop_max > 1 { noop_max } else { 1 };
    if noops == NOOPS_AFTER_FIRE {
        let idle: u32 = draw_below(head, spare, bound);
        return if idle > fire { idle - fire } else { 0 };
    }
    if noops == NOOPS_BEFORE_FIRE {
        let idle: u32 = draw_below(head, spare, bound);
        return idle + 1 - fire;
    }
    if noop_max == 0 {
        return 0;
    }
    numpy_random::integers(&mut head.numpy, 1, noop_max + 1)
}

/// Figures of the current state, with the reward and flags of a step at 0.
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

/// Copies picture `buffer` of the board into `to`.
#[inline(never)]
pub fn copy_from_board(to: &mut [u8], to_at: usize, board: &mut Board, buffer: usize, game: &EnvGame) {
    rows::expand_all(board, buffer, game.height as usize);
    copy_picture(to, to_at, &board.picture[buffer], 0, height_bytes(game));
}

/// Copies two pictures to the board. The second one begins at byte `apart` of `pictures`.
#[inline(never)]
pub fn copy_to_board(board: &mut Board, pictures: &[u8], apart: usize, game: &EnvGame) {
    copy_picture(&mut board.picture[0], 0, pictures, 0, height_bytes(game));
    copy_picture(&mut board.picture[1], 0, pictures, apart, height_bytes(game));
    rows::mark_all_as_bytes(board);
}

/// Bytes of a game's picture.
pub fn height_bytes(game: &EnvGame) -> usize {
    game.height as usize * tia::WIDTH
}
