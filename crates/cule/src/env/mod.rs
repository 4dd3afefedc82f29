//! One console with its game's rules, frame by frame: actions become inputs, RAM becomes reward, lives and the end.
//!
//! Device subset. What is written here and below runs on CPUs and GPUs alike: what differs is a [`FrameRunner`].
//! [`step`] and [`reset`] are those of an environment of a batch, [`rules`] say when a step stops and what it reports.

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

/// Action codes: no input, and the console's RESET switch, which `act` does not let through.
pub const NOOP: u8 = 0;
pub const RESET: u8 = 40;
/// Codes of one player.
pub const ACTIONS: u8 = 18;
/// Smallest paddle resistance, and how far a full push moves it in a frame.
pub const PADDLE_MIN: i32 = 27_450;
pub const PADDLE_STEP: i32 = 23_000;

/// Directions and trigger of an action.
const UP: u8 = 1;
const DOWN: u8 = 2;
const LEFT: u8 = 4;
const RIGHT: u8 = 8;
const FIRE: u8 = 16;
/// What each action presses, in the order of the joystick's pins.
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

/// What runs the frames of a console: the fast interpreter of a CPU, the plain one, or a form of a GPU. All leave the same
/// machine.
pub trait FrameRunner {
    /// Runs one frame of a machine whose inputs are set. `Machine::draw` says whether its pixels are made.
    fn run_frame(&mut self, m: &mut Machine, board: &mut Board);
    /// Resets a machine that is to run a boot. `timer_draw` is one draw of the core generator; cartridge RAM has been drawn
    /// before. `draws` says whether the pictures of the boot are wanted.
    fn begin_boot(&mut self, m: &mut Machine, board: &mut Board, timer_draw: u32, draws: bool);
    /// After a boot: its last two pictures are there, where they are wanted.
    fn end_boot(&mut self, m: &mut Machine, board: &mut Board, draws: bool);
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
}

/// What the environment adds to the machine.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Env {
    /// Row of the game.
    pub game: u32,
    /// Difficulty switches: bit 0 left at A, bit 1 right at A.
    pub difficulty: u32,
    /// Frames since loading.
    pub frame_number: i32,
    /// Frames since the last reset began.
    pub episode_frame_number: i32,
    /// Frames after which an episode is cut, 0 = never.
    pub frame_limit: i32,
    /// Lives below which an episode is cut, 0 = never.
    pub life_limit: i32,
    /// Resistances of the players' paddles, and the largest one.
    pub paddle: [i32; 2],
    pub paddle_max: i32,
    /// Actions kept while they stick, and how far they move a paddle.
    pub held: [u32; 2],
    pub held_step: [i32; 2],
}

/// A console with its rules: everything that makes its future, except ROM, board and random generators.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct State {
    pub machine: Machine,
    pub rules: Rules,
    pub env: Env,
    /// Keeps the size a multiple of eight.
    pub unused: u32,
}

/// What a player does in a frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Action {
    /// Action code.
    pub code: u32,
    /// How far it moves a paddle.
    pub step: i32,
}

/// An action with a full push.
pub fn full(code: u32) -> Action {
    Action { code, step: PADDLE_STEP }
}

fn has(game: u32, flag: u16) -> bool {
    GAMES[game as usize].flags & flag != 0
}

/// Before the first frame after loading.
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

/// The picture's window for a game; `height` differs from the row's for PAL.
pub fn layout(game: u32, pal: bool) -> Layout {
    let row: &Game = &GAMES[game as usize];
    Layout {
        first_line: row.first_line,
        height: if pal && row.height == 210 { 250 } else { row.height },
        pal: pal as u8,
        hmove_blanks: (row.flags & HMOVE_BLANKS != 0) as u8,
    }
}

/// Inputs before the first frame of the environment: nothing touched, paddles at no resistance.
pub fn first_inputs(game: u32) -> Input {
    let mut inputs: Input = input::idle();
    if has(game, PADDLES_LEFT) {
        inputs.resistance[0] = 0;
        inputs.resistance[1] = 0;
    }
    if has(game, PADDLES_RIGHT) {
        inputs.resistance[2] = 0;
        inputs.resistance[3] = 0;
    }
    if has(game, LEFT_A) {
        inputs.switches |= 0x40;
    }
    if has(game, RIGHT_A) {
        inputs.switches |= 0x80;
    }
    inputs
}

/// What an action presses; an unknown one presses nothing.
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
    if has(game, PADDLES_LEFT) || has(game, PADDLES_RIGHT) {
        move_paddle(env, 0, a);
        move_paddle(env, 1, b);
        // Player A's button is pin 4 and the pot pin 9, unless they are exchanged with player B's.
        let swapped: usize = has(game, SWAP_PADDLES) as usize;
        inputs.resistance[swapped] = env.paddle[0];
        inputs.resistance[1 - swapped] = env.paddle[1];
        if pressed(a.code) & FIRE != 0 {
            inputs.port_a &= !(0x80 >> swapped);
        }
        if pressed(b.code) & FIRE != 0 {
            inputs.port_a &= !(0x40 << swapped);
        }
    } else {
        let right: usize = has(game, SWAP_PORTS) as usize;
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

/// Works out what the RAM of a frame means.
pub fn evaluate(state: &mut State) {
    let game: usize = state.env.game as usize;
    evaluate::evaluate(&mut state.rules, game, &state.machine.riot.ram, &state.machine.cart.ram);
    // The reference's rule reads RAM over the bus.
    state.machine.bus = games::byte(&state.machine.riot.ram, games::last_read(game)) as u32;
}

/// The reference copies RAM out over the bus after a block of frames: its last byte stays on the data lines.
pub fn look(state: &mut State) {
    state.machine.bus = state.machine.riot.ram[127] as u32;
}

/// One frame with inputs set, its rule evaluated.
pub fn emulate<R: FrameRunner>(runner: &mut R, state: &mut State, board: &mut Board) {
    runner.run_frame(&mut state.machine, board);
    evaluate(state);
}

/// One frame of players' actions, none once the episode has ended; its reward.
#[inline(never)]
pub fn act<R: FrameRunner>(
    runner: &mut R,
    state: &mut State,
    random: &mut Random,
    board: &mut Board,
    keep: f64,
    a: Action,
    b: Action,
) -> i32 {
    if !begin_frame(state, random, keep, a, b) {
        return 0;
    }
    emulate(runner, state, board);
    count_frame(state)
}

/// The lives a program is told.
pub fn lives(state: &State) -> i32 {
    games::lives(&state.rules, state.env.game as usize)
}

/// True when the episode was cut, by frames or by a lost life.
pub fn truncated(state: &State) -> bool {
    let env: &Env = &state.env;
    if env.frame_limit > 0 && env.episode_frame_number >= env.frame_limit {
        return true;
    }
    lives(state) < env.life_limit
}

/// True when no more frames run before the next reset.
pub fn ended(state: &State) -> bool {
    state.rules.over != 0 || truncated(state)
}

/// An action that the game does not let through is none.
pub fn legal(game: u32, action: Action) -> Action {
    let mut code: u32 = NOOP as u32;
    if action.code < ACTIONS as u32 && GAMES[game as usize].legal >> action.code & 1 != 0 {
        code = action.code;
    }
    Action { code, step: action.step }
}

/// Before a frame of players' actions: false once the episode has ended, and no frame runs.
pub fn begin_frame(state: &mut State, random: &mut Random, keep: f64, a: Action, b: Action) -> bool {
    hold(state, random, keep, a, b);
    if ended(state) {
        return false;
    }
    set_held_inputs(state);
    true
}

/// Sticky actions: one draw per player and frame says whether the action before is kept. `keep` is the probability.
fn hold(state: &mut State, random: &mut Random, keep: f64, a: Action, b: Action) {
    let chance_a: f64 = random::draw(random) as f64 / 4_294_967_296.0;
    if chance_a >= keep {
        state.env.held[0] = a.code;
        state.env.held_step[0] = a.step;
    }
    let chance_b: f64 = random::draw(random) as f64 / 4_294_967_296.0;
    if chance_b >= keep {
        state.env.held[1] = b.code;
        state.env.held_step[1] = b.step;
    }
}

/// The inputs of one frame, from the actions that are held.
pub fn set_held_inputs(state: &mut State) {
    let game: u32 = state.env.game;
    let a: Action = legal(game, Action { code: state.env.held[0], step: state.env.held_step[0] });
    let b: Action = legal(game, Action { code: state.env.held[1], step: state.env.held_step[1] });
    set_inputs(state, a, b, 0);
}

/// After a frame of players' actions: its reward.
pub fn count_frame(state: &mut State) -> i32 {
    look(state);
    state.env.frame_number += 1;
    state.env.episode_frame_number += 1;
    state.rules.reward
}
