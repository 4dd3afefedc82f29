//! The boot of a console: reset, idle frames, RESET switch, mode selection, starting actions.
//!
//! Device subset.

use super::{
    Action, FrameRunner, NOOP, PADDLE_MIN, PADDLE_STEP, RESET, State, act, full_strength,
    set_bus_after_observation,
};
use crate::games::row::{self, Special};
use crate::games::table::GAMES;
use crate::games::{self, evaluate, select};
use crate::machine::input::{SWITCH_RESET, SWITCH_SELECT};
use crate::machine::{self, Board, cart};
use crate::random::{self, Random};

/// Idle frames after power-on.
pub const BOOT_FRAMES: u32 = 60;
/// Frames for which the RESET switch is held.
const RESET_FRAMES: u32 = 4;
/// A mode selection is given up after this many frames, which take some seconds to run. The longest selection
/// of a known game takes 2,500.
pub const SELECTION_FRAMES: u32 = 10_000;
/// A mode selection is also given up after this many consecutive open frames, whose program does not end its
/// picture: such a frame takes as long to run as ten frames of a game.
const MOST_OPEN_FRAMES: u32 = 120;
/// Mean number of frames per attempt of Adventure's selection.
const ADVENTURE_FRAMES: u32 = 130;
/// Double Dunk's menu: per entry, the bit in RAM and the bit of the mode.
const MENU: [[u32; 2]; 4] = [[0x08, 1], [0x10, 2], [0x04, 4], [0x20, 8]];
/// Its first entry, for two players.
const PLAYERS: [u32; 2] = [0x40, 16];

#[cfg(not(device))]
const _: () = assert!(RESET == row::RESET);

/// Settings of a boot.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BootRules {
    /// Probability of a sticky action, per frame.
    pub repeat_probability: f64,
    /// Frames for which an action of the mode selection is held.
    pub frame_skip: u32,
    /// 1 if the pictures of the boot are wanted, otherwise 0.
    pub draws: u32,
}

/// Number of frames that a mode selection has run.
#[repr(C)]
#[derive(Clone, Copy)]
struct Selection {
    spent: u32,
    /// Consecutive open frames at the end.
    open: u32,
}

/// Boots the console for a new episode. `core` is the console's own generator after the draws that `state`
/// has made, `random` the generator of sticky actions. Returns 0, or the number of frames after which the
/// mode selection was given up, because the ROM does not belong to the game.
#[inline(never)]
pub fn restart<R: FrameRunner>(
    runner: &mut R,
    state: &mut State,
    random: &mut Random,
    core: &mut Random,
    board: &mut Board,
    rules: &BootRules,
) -> u32 {
    state.env.episode_frame_number = 0;
    let middle: i32 = (PADDLE_MIN + state.env.paddle_max) / 2;
    state.env.paddle = [middle, middle];
    reset_console(runner, state, core, board, rules.draws != 0);
    emulate(runner, state, board, NOOP as u32, BOOT_FRAMES, 0);
    soft_reset(runner, state, board);
    let game: usize = state.env.game as usize;
    evaluate::start_values(&mut state.rules, game);
    state.rules.over = 0;
    let given_up: u32 = select_mode(runner, state, random, board, rules);
    if given_up != 0 {
        return given_up;
    }
    soft_reset(runner, state, board);
    let mut i: u32 = 0;
    while select::start_action(game, i) != select::NO_ACTION {
        emulate(runner, state, board, select::start_action(game, i) as u32, 1, 0);
        i += 1;
    }
    runner.end_boot(&mut state.machine, board, rules.draws != 0);
    0
}

/// Resets the machine. The timer and the cartridge RAM are drawn from the core generator.
#[inline(never)]
pub fn reset_console<R: FrameRunner>(
    runner: &mut R,
    state: &mut State,
    core: &mut Random,
    board: &mut Board,
    draws: bool,
) {
    let timer_draw: u32 = core_draw(state, core);
    let count: u32 = cart::reset_draws(&state.machine.cart);
    for i in 0..count {
        let byte: u8 = core_draw(state, core) as u8;
        cart::fill(&mut state.machine.cart, board, i, byte);
    }
    runner.begin_boot(&mut state.machine, board, timer_draw, draws);
}

fn core_draw(state: &mut State, core: &mut Random) -> u32 {
    state.machine.draws = state.machine.draws.wrapping_add(1);
    random::draw(core)
}

/// Runs `count` frames with an action and console switches, and evaluates the game's rules after each.
#[inline(never)]
fn emulate<R: FrameRunner>(
    runner: &mut R,
    state: &mut State,
    board: &mut Board,
    action: u32,
    count: u32,
    switches: u8,
) {
    for _ in 0..count {
        super::set_inputs(state, full_strength(action), full_strength(NOOP as u32), switches);
        super::emulate(runner, state, board);
    }
    set_bus_after_observation(state);
}

#[inline(never)]
fn soft_reset<R: FrameRunner>(runner: &mut R, state: &mut State, board: &mut Board) {
    emulate(runner, state, board, NOOP as u32, RESET_FRAMES, SWITCH_RESET);
    state.env.held = [0, 0];
    state.env.held_step = [PADDLE_STEP, PADDLE_STEP];
}

/// Holds SELECT for `count` frames whose rules are not evaluated, then one frame with it released.
#[inline(never)]
fn press_select<R: FrameRunner>(runner: &mut R, state: &mut State, board: &mut Board, count: u32) {
    for _ in 0..count {
        super::set_inputs(state, full_strength(NOOP as u32), full_strength(NOOP as u32), SWITCH_SELECT);
        runner.run_frame(&mut state.machine, board);
    }
    emulate(runner, state, board, NOOP as u32, 1, 0);
    state.env.frame_number += 1;
    state.env.episode_frame_number += 1;
}

/// Holds an action of player A for `rules.frame_skip` frames, which are one act.
#[inline(never)]
fn press<R: FrameRunner>(
    runner: &mut R,
    state: &mut State,
    random: &mut Random,
    board: &mut Board,
    rules: &BootRules,
    code: u32,
) {
    let none: Action = full_strength(NOOP as u32);
    for _ in 0..rules.frame_skip {
        act(runner, state, random, board, rules.repeat_probability, full_strength(code), none);
    }
    runner.end_act(board);
}

/// Returns true if the selection may go on for about `frames` frames. A ROM of another game may never show
/// the mode.
fn can_continue(selection: &Selection, frames: u32) -> bool {
    selection.spent + frames <= SELECTION_FRAMES && selection.open <= MOST_OPEN_FRAMES
}

fn count_frames(selection: &mut Selection, state: &State, frames: u32) {
    selection.spent += frames;
    selection.open = if state.machine.unfinished == 0 { 0 } else { selection.open + frames };
}

fn peek(state: &State, address: i32) -> i32 {
    games::byte(&state.machine.riot.ram, address)
}

fn mode_reached(state: &State) -> bool {
    let m: &machine::Machine = &state.machine;
    select::reached(state.env.game as usize, state.rules.mode as i32, &m.riot.ram, &m.cart.ram)
}

/// Selects the mode. Returns 0, or the number of frames after which the selection was given up.
#[inline(never)]
fn select_mode<R: FrameRunner>(
    runner: &mut R,
    state: &mut State,
    random: &mut Random,
    board: &mut Board,
    rules: &BootRules,
) -> u32 {
    let game: usize = state.env.game as usize;
    let special: Special = GAMES[game].special;
    if special == Special::Adventure {
        return select_adventure(runner, state, random, board, rules);
    }
    if special == Special::DoubleDunk {
        return select_double_dunk(runner, state, random, board, rules);
    }
    if special == Special::Gopher {
        soft_reset(runner, state, board);
    }
    if special == Special::Berzerk {
        for _ in 0..20 {
            press(runner, state, random, board, rules, NOOP as u32);
        }
    }
    let frames: u32 = select::press_frames(game, state.rules.mode);
    if frames == select::NO_SELECTION {
        return 0;
    }
    let first: u32 = select::first_press(game);
    if first > 0 {
        press_select(runner, state, board, first);
    }
    let mut selection: Selection = Selection { spent: 0, open: 0 };
    while !mode_reached(state) {
        if !can_continue(&selection, frames + 1) {
            return selection.spent;
        }
        press_select(runner, state, board, frames);
        count_frames(&mut selection, state, frames + 1);
    }
    select::on_reached(&mut state.rules, game, selection.spent > 0, &state.machine.riot.ram);
    soft_reset(runner, state, board);
    if special == Special::VideoCube {
        return select_cube(runner, state, random, board, rules);
    }
    0
}

/// Video Cube: moves the stick until the cube of the mode is shown.
#[inline(never)]
fn select_cube<R: FrameRunner>(
    runner: &mut R,
    state: &mut State,
    random: &mut Random,
    board: &mut Board,
    rules: &BootRules,
) -> u32 {
    let mode: i32 = state.rules.mode as i32;
    let cube: i32 = if mode >= 100 { mode / 100 } else { 1 };
    let mut selection: Selection = Selection { spent: 0, open: 0 };
    while games::digits(peek(state, 0x9F) as u8) != cube {
        if !can_continue(&selection, rules.frame_skip) {
            return selection.spent;
        }
        press(runner, state, random, board, rules, 3);
        count_frames(&mut selection, state, rules.frame_skip);
    }
    0
}

/// Adventure: presses SELECT for random numbers of frames until the mode is shown.
#[inline(never)]
fn select_adventure<R: FrameRunner>(
    runner: &mut R,
    state: &mut State,
    random: &mut Random,
    board: &mut Board,
    rules: &BootRules,
) -> u32 {
    let mode: i32 = state.rules.mode as i32;
    let mut selection: Selection = Selection { spent: 0, open: 0 };
    while (peek(state, 0xDD) >> 1) & 3 != mode {
        if !can_continue(&selection, ADVENTURE_FRAMES) {
            return selection.spent;
        }
        let frames: u32 = 2 + random::draw(random) % 256;
        press_select(runner, state, board, frames);
        press(runner, state, random, board, rules, NOOP as u32);
        count_frames(&mut selection, state, ADVENTURE_FRAMES);
    }
    soft_reset(runner, state, board);
    0
}

/// Double Dunk: sets the entries of a menu with the stick.
#[inline(never)]
fn select_double_dunk<R: FrameRunner>(
    runner: &mut R,
    state: &mut State,
    random: &mut Random,
    board: &mut Board,
    rules: &BootRules,
) -> u32 {
    press_select(runner, state, board, 1);
    let mut given_up: u32 = double_dunk_set(runner, state, random, board, rules, PLAYERS);
    if given_up == 0 {
        given_up = double_dunk_down(runner, state, random, board, rules);
    }
    let mut entry: usize = 0;
    while given_up == 0 && entry < 4 {
        given_up = double_dunk_entry(runner, state, random, board, rules, entry);
        entry += 1;
    }
    if given_up != 0 {
        return given_up;
    }
    soft_reset(runner, state, board);
    press(runner, state, random, board, rules, 10);
    press(runner, state, random, board, rules, NOOP as u32);
    0
}

/// Moves down to the next entry of the menu and sets it.
#[inline(never)]
fn double_dunk_entry<R: FrameRunner>(
    runner: &mut R,
    state: &mut State,
    random: &mut Random,
    board: &mut Board,
    rules: &BootRules,
    entry: usize,
) -> u32 {
    let given_up: u32 = double_dunk_down(runner, state, random, board, rules);
    if given_up != 0 {
        return given_up;
    }
    double_dunk_set(runner, state, random, board, rules, MENU[entry])
}

/// Sets the current entry of the menu: its bit in RAM as its bit of the mode.
#[inline(never)]
fn double_dunk_set<R: FrameRunner>(
    runner: &mut R,
    state: &mut State,
    random: &mut Random,
    board: &mut Board,
    rules: &BootRules,
    entry: [u32; 2],
) -> u32 {
    let on: bool = state.rules.mode & entry[1] != 0;
    let mut selection: Selection = Selection { spent: 0, open: 0 };
    while (peek(state, 0x80) as u32 & entry[0] != 0) != on {
        if !can_continue(&selection, 2 * rules.frame_skip) {
            return selection.spent;
        }
        press(runner, state, random, board, rules, if on { 3 } else { 4 });
        press(runner, state, random, board, rules, NOOP as u32);
        count_frames(&mut selection, state, 2 * rules.frame_skip);
    }
    0
}

#[inline(never)]
fn double_dunk_down<R: FrameRunner>(
    runner: &mut R,
    state: &mut State,
    random: &mut Random,
    board: &mut Board,
    rules: &BootRules,
) -> u32 {
    let line: i32 = peek(state, 0xB0);
    let mut selection: Selection = Selection { spent: 0, open: 0 };
    while peek(state, 0xB0) == line {
        if !can_continue(&selection, 2 * rules.frame_skip) {
            return selection.spent;
        }
        press(runner, state, random, board, rules, 5);
        press(runner, state, random, board, rules, NOOP as u32);
        count_frames(&mut selection, state, 2 * rules.frame_skip);
    }
    0
}
