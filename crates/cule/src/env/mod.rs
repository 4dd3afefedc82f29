//! One console with the rules of its game, frame by frame: converts actions to inputs, and RAM to reward,
//! lives and game over.
//!
//! Device subset. This module and its submodules run on CPUs and GPUs; only the [`FrameRunner`] differs.
//! [`step`] and [`reset`] are the step and the reset of an environment of a batch. [`rules`] defines when a
//! step stops and what it reports.

#![allow(
    missing_docs,
    clippy::precedence,
    clippy::needless_range_loop,
    clippy::manual_range_contains,
    clippy::manual_memcpy,
    clippy::assign_op_pattern,
    clippy::collapsible_match,
    clippy::needless_return,
    clippy::needless_late_init,
    clippy::manual_range_patterns,
    clippy::unnecessary_cast,
    clippy::nonminimal_bool,
    clippy::manual_is_multiple_of,
    clippy::implicit_saturating_sub,
    clippy::too_many_arguments,
    unused_parens,
    unused_assignments,
    reason = "the device subset has no ranges, iterators or methods; constants are named as in the chips' manuals"
)]

pub mod boot;
pub mod reset;
pub mod rules;
pub mod state;
pub mod step;
pub mod warp_schedule;

use bytemuck::{Pod, Zeroable};

use crate::games::evaluate;
use crate::games::row::{
    Game, HMOVE_BLANKS, LEFT_A, PADDLES_LEFT, PADDLES_RIGHT, RIGHT_A, SWAP_PADDLES, SWAP_PORTS,
};
use crate::games::table::GAMES;
use crate::games::{self, Rules};
use crate::machine::input::{Input, SWITCH_RESET, SWITCHES_IDLE};
use crate::machine::tia::Layout;
#[cfg(not(device))]
use crate::machine::{self, Plain};
use crate::machine::{Board, Machine, input};
use crate::random::{self, Random};

/// Action codes: no input, and the console's RESET switch, which `act` replaces by NOOP.
pub const NOOP: u8 = 0;
pub const RESET: u8 = 40;
/// Number of action codes of one player.
pub const ACTIONS: u8 = 18;
/// Smallest paddle resistance, and its change per frame at full strength.
pub const PADDLE_MIN: i32 = 27_450;
pub const PADDLE_STEP: i32 = 23_000;

/// Bits of directions and trigger.
const UP: u8 = 1;
const DOWN: u8 = 2;
const LEFT: u8 = 4;
const RIGHT: u8 = 8;
const FIRE: u8 = 16;
/// Directions and trigger that each action presses. The bits are in the order of the joystick's pins.
const PRESSED: [u8; 18] = [
    0,
    FIRE,
    UP,
    RIGHT,
    LEFT,
    DOWN,
    UP | RIGHT,
    UP | LEFT,
    DOWN | RIGHT,
    DOWN | LEFT,
    UP | FIRE,
    RIGHT | FIRE,
    LEFT | FIRE,
    DOWN | FIRE,
    UP | RIGHT | FIRE,
    UP | LEFT | FIRE,
    DOWN | RIGHT | FIRE,
    DOWN | LEFT | FIRE,
];

/// Runs the frames of a console: the fast interpreter of a CPU, the plain interpreter, or a form of a GPU.
/// All of them give the same machine.
pub trait FrameRunner {
    /// Runs one frame of a machine whose inputs are set. Pixels are made if `Machine::draw` is not 0.
    fn run_frame(&mut self, m: &mut Machine, board: &mut Board);
    /// Resets a machine at the start of a boot. `timer_draw` is one draw of the core generator; the caller
    /// has drawn the cartridge RAM before. `draws` is true if the pictures of the boot are wanted.
    fn begin_boot(&mut self, m: &mut Machine, board: &mut Board, timer_draw: u32, draws: bool);
    /// Ends a boot. If `draws` is true, its last two pictures must be on the board afterwards.
    fn end_boot(&mut self, m: &mut Machine, board: &mut Board, draws: bool);
    /// Begins a reset. `again` is true if it begins a second time, from the same state.
    fn begin_reset(&mut self, board: &mut Board, again: bool);
    /// The state of the console has been replaced by `EnvGame::boot` if `booted` is true, otherwise by
    /// `EnvGame::loaded`.
    fn replace_sound(&mut self, board: &mut Board, booted: bool);
    /// Ends an act, which makes sound from the registers as they are after its last frame. An act may have no
    /// frame, because the episode has ended.
    fn end_act(&mut self, board: &mut Board);
}

#[cfg(not(device))]
impl FrameRunner for Plain<'_> {
    fn run_frame(&mut self, m: &mut Machine, board: &mut Board) {
        machine::step(self, m, board);
    }

    fn begin_boot(&mut self, m: &mut Machine, board: &mut Board, timer_draw: u32, draws: bool) {
        machine::reset(m, board, self.rom, timer_draw);
        m.draw = u8::from(draws);
    }

    fn end_boot(&mut self, _: &mut Machine, _: &mut Board, _: bool) {}

    fn begin_reset(&mut self, _: &mut Board, _: bool) {}

    fn replace_sound(&mut self, _: &mut Board, _: bool) {}

    fn end_act(&mut self, _: &mut Board) {}
}

/// State of an environment besides its machine.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Env {
    /// Row of the game in the table of games.
    pub game: u32,
    /// Difficulty switches: bit 0 left at A, bit 1 right at A.
    pub difficulty: u32,
    /// Frames since loading.
    pub frame_number: i32,
    /// Frames since the last reset began.
    pub episode_frame_number: i32,
    /// Frames after which an episode is truncated, 0 = no limit.
    pub frame_limit: i32,
    /// An episode is truncated if fewer lives than this are left, 0 = no limit.
    pub life_limit: i32,
    /// Resistances of the players' paddles, and the largest possible one.
    pub paddle: [i32; 2],
    pub paddle_max: i32,
    /// Actions that the players hold (see sticky actions), and how far each moves a paddle per frame.
    pub held: [u32; 2],
    pub held_step: [i32; 2],
}

/// A console with its rules: everything its future depends on, except ROM, board and random generators.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct State {
    pub machine: Machine,
    pub rules: Rules,
    pub env: Env,
    /// Identifies the changes of the game's ROM and RAM; 0 without changes.
    pub variation: u32,
    /// Sum of the second player's rewards before clipping, in games that count them separately. Only batches
    /// for two players change it.
    pub second_return: i32,
    /// Keeps the size a multiple of eight.
    pub unused: u32,
}

/// Action of one player in a frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Action {
    /// Action code.
    pub code: u32,
    /// How far it moves a paddle, in units of resistance.
    pub step: i32,
}

/// An action at full paddle strength.
pub fn full_strength(code: u32) -> Action {
    Action { code, step: PADDLE_STEP }
}

fn has_flag(game: u32, flag: u16) -> bool {
    GAMES[game as usize].flags & flag != 0
}

/// The state after loading, before the first frame.
pub fn new(game: u32) -> Env {
    Env {
        game,
        difficulty: 0,
        frame_number: 0,
        episode_frame_number: 0,
        frame_limit: 0,
        life_limit: 0,
        paddle: [0, 0],
        paddle_max: GAMES[game as usize].paddle_max,
        held: [0, 0],
        held_step: [PADDLE_STEP, PADDLE_STEP],
    }
}

/// The visible rows of a game's picture. PAL pictures have 250 rows where the table says 210.
pub fn layout(game: u32, pal: bool) -> Layout {
    let row: &Game = &GAMES[game as usize];
    Layout {
        first_line: row.first_line,
        height: if pal && row.height == 210 { 250 } else { row.height },
        pal: pal as u8,
        hmove_blanks: (row.flags & HMOVE_BLANKS != 0) as u8,
    }
}

/// Inputs before the first frame of the environment: nothing pressed, paddles at resistance 0.
pub fn first_inputs(game: u32) -> Input {
    let mut inputs: Input = input::idle();
    if has_flag(game, PADDLES_LEFT) {
        inputs.resistance[0] = 0;
        inputs.resistance[1] = 0;
    }
    if has_flag(game, PADDLES_RIGHT) {
        inputs.resistance[2] = 0;
        inputs.resistance[3] = 0;
    }
    if has_flag(game, LEFT_A) {
        inputs.switches |= 0x40;
    }
    if has_flag(game, RIGHT_A) {
        inputs.switches |= 0x80;
    }
    inputs
}

/// Directions and trigger that an action presses; none for an unknown code.
fn pressed(code: u32) -> u8 {
    if code < ACTIONS as u32 { PRESSED[code as usize] } else { 0 }
}

fn move_paddle(env: &mut Env, player: usize, action: Action) {
    let lines: u8 = pressed(action.code);
    let mut to: i32 = env.paddle[player];
    if lines & RIGHT != 0 {
        to -= action.step;
    }
    if lines & LEFT != 0 {
        to += action.step;
    }
    if to < PADDLE_MIN {
        to = PADDLE_MIN;
    }
    if to > env.paddle_max {
        to = env.paddle_max;
    }
    env.paddle[player] = to;
}

/// Sets all inputs for one frame from the players' actions and the pressed console switches.
pub fn set_inputs(state: &mut State, a: Action, b: Action, switches: u8) {
    let env: &mut Env = &mut state.env;
    let game: u32 = env.game;
    let mut inputs: Input = first_inputs(game);
    let mut down: u8 = switches;
    if a.code == RESET as u32 {
        down |= SWITCH_RESET;
    }
    inputs.switches = (SWITCHES_IDLE | (env.difficulty as u8 & 3) << 6) & !down;
    if has_flag(game, PADDLES_LEFT) || has_flag(game, PADDLES_RIGHT) {
        move_paddle(env, 0, a);
        move_paddle(env, 1, b);
        // Player A's button is pin 4 and the paddle pin 9, unless they are exchanged with player B's.
        let swapped: usize = has_flag(game, SWAP_PADDLES) as usize;
        inputs.resistance[swapped] = env.paddle[0];
        inputs.resistance[1 - swapped] = env.paddle[1];
        if pressed(a.code) & FIRE != 0 {
            inputs.port_a &= !(0x80 >> swapped);
        }
        if pressed(b.code) & FIRE != 0 {
            inputs.port_a &= !(0x40 << swapped);
        }
    } else {
        let right: usize = has_flag(game, SWAP_PORTS) as usize;
        let player_a: u8 = pressed(a.code);
        let player_b: u8 = pressed(b.code);
        let left_port: u8 = if right == 0 { player_a } else { player_b };
        let right_port: u8 = if right == 0 { player_b } else { player_a };
        inputs.port_a = !((left_port & 15) << 4 | right_port & 15);
        if left_port & FIRE != 0 {
            inputs.trigger[0] = 0;
        }
        if right_port & FIRE != 0 {
            inputs.trigger[1] = 0;
        }
    }
    state.machine.input = inputs;
}

/// Computes reward, lives and game over from the RAM after a frame.
pub fn evaluate(state: &mut State) {
    let game: usize = state.env.game as usize;
    evaluate::evaluate(&mut state.rules, game, &state.machine.riot.ram, &state.machine.cart.ram);
    // In the reference, the rules read RAM over the bus, which changes the byte on the data lines.
    state.machine.bus = games::byte(&state.machine.riot.ram, games::last_read(game)) as u32;
}

/// Sets the data bus as the reference leaves it after a block of frames: it reads all RAM over the bus, and
/// the last byte stays on the data lines.
pub fn set_bus_after_observation(state: &mut State) {
    state.machine.bus = state.machine.riot.ram[127] as u32;
}

/// Runs one frame of a console whose inputs are set, and evaluates the game's rules.
pub fn emulate<R: FrameRunner>(runner: &mut R, state: &mut State, board: &mut Board) {
    runner.run_frame(&mut state.machine, board);
    evaluate(state);
}

/// Runs one frame with the players' actions and returns the reward. No frame runs if the episode has ended.
#[inline(never)]
pub fn act<R: FrameRunner>(
    runner: &mut R,
    state: &mut State,
    random: &mut Random,
    board: &mut Board,
    repeat_probability: f64,
    a: Action,
    b: Action,
) -> i32 {
    if !begin_frame(state, random, repeat_probability, a, b) {
        return 0;
    }
    emulate(runner, state, board);
    count_frame(state)
}

/// Lives left, as reported to programs.
pub fn lives(state: &State) -> i32 {
    games::lives(&state.rules, state.env.game as usize)
}

/// Returns true if a limit on frames or lives has ended the episode.
pub fn truncated(state: &State) -> bool {
    let env: &Env = &state.env;
    if env.frame_limit > 0 && env.episode_frame_number >= env.frame_limit {
        return true;
    }
    lives(state) < env.life_limit
}

/// Returns true if the episode has ended: no frame runs until the next reset.
pub fn ended(state: &State) -> bool {
    state.rules.over != 0 || truncated(state)
}

/// Replaces an action that is not legal in the game by NOOP.
pub fn legal_action(game: u32, action: Action) -> Action {
    let mut code: u32 = NOOP as u32;
    if action.code < ACTIONS as u32 && GAMES[game as usize].legal >> action.code & 1 != 0 {
        code = action.code;
    }
    Action { code, step: action.step }
}

/// Sets the inputs for a frame with the players' actions. Returns false if the episode has ended and no frame
/// may run.
pub fn begin_frame(
    state: &mut State,
    random: &mut Random,
    repeat_probability: f64,
    a: Action,
    b: Action,
) -> bool {
    apply_sticky_actions(state, random, repeat_probability, a, b);
    if ended(state) {
        return false;
    }
    set_held_inputs(state);
    true
}

/// Sticky actions: each player keeps the previous action with probability `repeat_probability`. Makes one
/// draw per player and frame.
fn apply_sticky_actions(
    state: &mut State,
    random: &mut Random,
    repeat_probability: f64,
    a: Action,
    b: Action,
) {
    let chance_a: f64 = random::draw(random) as f64 / 4_294_967_296.0;
    if chance_a >= repeat_probability {
        state.env.held[0] = a.code;
        state.env.held_step[0] = a.step;
    }
    let chance_b: f64 = random::draw(random) as f64 / 4_294_967_296.0;
    if chance_b >= repeat_probability {
        state.env.held[1] = b.code;
        state.env.held_step[1] = b.step;
    }
}

/// Sets the inputs of one frame from the held actions.
pub fn set_held_inputs(state: &mut State) {
    let game: u32 = state.env.game;
    let a: Action = legal_action(game, Action { code: state.env.held[0], step: state.env.held_step[0] });
    let b: Action = legal_action(game, Action { code: state.env.held[1], step: state.env.held_step[1] });
    set_inputs(state, a, b, 0);
}

/// Counts a frame after it has run, and returns its reward.
pub fn count_frame(state: &mut State) -> i32 {
    set_bus_after_observation(state);
    state.env.frame_number += 1;
    state.env.episode_frame_number += 1;
    state.rules.reward
}
