//! A console's reset on the memory as it is: boot, RESET switch, mode selection, starting actions.
//!
//! Device subset. `console::boot` does the same for one console on the host, with the fast interpreter.

use super::{Head, LaneGame, play};
use crate::env::{self, NOOP, PADDLE_MIN, State, full};
use crate::games::{self, evaluate, rows, select};
use crate::machine::input::{SWITCH_RESET, SWITCH_SELECT};
use crate::machine::{self, Board, cart};
use crate::random::{self, Random};

/// Frames after power-on.
pub const BOOT_FRAMES: u32 = 60;
/// Frames that the RESET switch is held.
pub const RESET_FRAMES: u32 = 4;
/// Frames after which a mode selection is given up, some seconds. The longest one of a known game takes 2,500.
pub const SELECTION_FRAMES: u32 = 10_000;
/// Mean frames of a try of Adventure's.
pub const ADVENTURE_FRAMES: u32 = 130;
/// Double Dunk's menu: what RAM shows, and the bit of the mode.
pub const MENU: [[u32; 2]; 4] = [[0x08, 1], [0x10, 2], [0x04, 4], [0x20, 8]];

/// A console that is loaded, set and reset, as if it were new; `spare` is room for a generator. True when the mode is never shown.
#[inline(never)]
pub fn fresh(
    head: &mut Head,
    random: &mut Random,
    spare: &mut Random,
    board: &mut Board,
    rom: &[u8],
    game: &LaneGame,
    draw: bool,
) -> bool {
    head.state = game.loaded;
    random::seed(random, head.random_seed);
    core_generator(spare, &head.state, game);
    reset_console(&mut head.state, spare, board, rom);
    let failed: bool = restart(&mut head.state, random, spare, board, rom, game, draw);
    head.state.rules.mode = game.mode;
    head.state.env.difficulty = game.difficulty;
    restart(&mut head.state, random, spare, board, rom, game, draw) || failed
}

/// Starts an episode. True when the mode is never shown.
#[inline(never)]
pub fn restart(
    state: &mut State,
    random: &mut Random,
    spare: &mut Random,
    board: &mut Board,
    rom: &[u8],
    game: &LaneGame,
    draw: bool,
) -> bool {
    state.env.episode_frame_number = 0;
    let middle: i32 = (PADDLE_MIN + state.env.paddle_max) / 2;
    state.env.paddle = [middle, middle];
    core_generator(spare, state, game);
    reset_console(state, spare, board, rom);
    state.machine.draw = draw as u8;
    emulate(state, board, rom, NOOP as u32, BOOT_FRAMES, 0);
    soft_reset(state, board, rom);
    let number: usize = state.env.game as usize;
    evaluate::start_values(&mut state.rules, number);
    state.rules.over = 0;
    let failed: bool = select_mode(state, random, board, rom, game.keep);
    soft_reset(state, board, rom);
    let mut i: u32 = 0;
    while select::start_action(number, i) != select::NO_ACTION {
        emulate(state, board, rom, select::start_action(number, i) as u32, 1, 0);
        i += 1;
    }
    failed
}

/// Makes the console's own generator as it is where this console is.
#[inline(never)]
fn core_generator(core: &mut Random, state: &State, game: &LaneGame) {
    random::seed(core, game.system_seed);
    random::skip(core, state.machine.draws);
}

fn core_draw(state: &mut State, core: &mut Random) -> u32 {
    state.machine.draws = state.machine.draws.wrapping_add(1);
    random::draw(core)
}

#[inline(never)]
fn reset_console(state: &mut State, core: &mut Random, board: &mut Board, rom: &[u8]) {
    let timer_draw: u32 = core_draw(state, core);
    let draws: u32 = cart::reset_draws(&state.machine.cart);
    for i in 0..draws {
        let byte: u8 = core_draw(state, core) as u8;
        cart::fill(&mut state.machine.cart, board, i, byte);
    }
    machine::reset(&mut state.machine, board, rom, timer_draw);
}

/// `count` frames with an action and console switches, rules evaluated.
#[inline(never)]
fn emulate(state: &mut State, board: &mut Board, rom: &[u8], action: u32, count: u32, switches: u8) {
    for _ in 0..count {
        env::set_inputs(state, full(action), full(NOOP as u32), switches);
        play::emulate(state, board, rom);
    }
    env::look(state);
}

#[inline(never)]
fn soft_reset(state: &mut State, board: &mut Board, rom: &[u8]) {
    emulate(state, board, rom, NOOP as u32, RESET_FRAMES, SWITCH_RESET);
    state.env.held = [0, 0];
    state.env.held_step = [env::PADDLE_STEP, env::PADDLE_STEP];
}

/// Holds SELECT for `count` frames without looking at the rules, then one frame with it released.
#[inline(never)]
fn press_select(state: &mut State, board: &mut Board, rom: &[u8], count: u32) {
    for _ in 0..count {
        env::set_inputs(state, full(NOOP as u32), full(NOOP as u32), SWITCH_SELECT);
        play::step(&mut state.machine, board, rom);
    }
    emulate(state, board, rom, NOOP as u32, 1, 0);
    state.env.frame_number += 1;
    state.env.episode_frame_number += 1;
}

/// One frame of the player's.
#[inline(never)]
fn act(state: &mut State, random: &mut Random, board: &mut Board, rom: &[u8], keep: f64, action: u32) {
    env::hold(state, random, keep, full(action), full(NOOP as u32));
    if !env::ended(state) {
        env::set_held_inputs(state);
        play::emulate(state, board, rom);
        env::count_frame(state);
    }
}

fn peek(state: &State, address: i32) -> i32 {
    games::byte(&state.machine.riot.ram, address)
}

fn mode_reached(state: &State) -> bool {
    let m: &machine::Machine = &state.machine;
    select::reached(state.env.game as usize, state.rules.mode as i32, &m.riot.ram, &m.cart.ram)
}

#[inline(never)]
fn select_mode(state: &mut State, random: &mut Random, board: &mut Board, rom: &[u8], keep: f64) -> bool {
    let game: usize = state.env.game as usize;
    if game == rows::ADVENTURE {
        return select_adventure(state, random, board, rom, keep);
    }
    if game == rows::DOUBLE_DUNK {
        return select_double_dunk(state, random, board, rom, keep);
    }
    if game == rows::GOPHER {
        soft_reset(state, board, rom);
    }
    if game == rows::BERZERK {
        for _ in 0..20 {
            act(state, random, board, rom, keep, NOOP as u32);
        }
    }
    let frames: u32 = select::press_frames(game);
    if frames == select::NO_SELECTION {
        return false;
    }
    let first: u32 = select::first_press(game);
    if first > 0 {
        press_select(state, board, rom, first);
    }
    let mut pressed: bool = false;
    let mut left: u32 = SELECTION_FRAMES / (frames + 1);
    while !mode_reached(state) {
        if left == 0 {
            return true;
        }
        left -= 1;
        press_select(state, board, rom, frames);
        pressed = true;
    }
    select::on_reached(&mut state.rules, game, pressed, &state.machine.riot.ram);
    soft_reset(state, board, rom);
    if game == rows::VIDEO_CUBE {
        let mode: i32 = state.rules.mode as i32;
        let cube: i32 = if mode >= 100 { mode / 100 } else { 1 };
        left = SELECTION_FRAMES;
        while games::digits(peek(state, 0x9F) as u8) != cube {
            if left == 0 {
                return true;
            }
            left -= 1;
            act(state, random, board, rom, keep, 3);
        }
    }
    false
}

/// Adventure: presses of random length.
#[inline(never)]
fn select_adventure(
    state: &mut State,
    random: &mut Random,
    board: &mut Board,
    rom: &[u8],
    keep: f64,
) -> bool {
    let mode: i32 = state.rules.mode as i32;
    let mut left: u32 = SELECTION_FRAMES / ADVENTURE_FRAMES;
    while (peek(state, 0xDD) >> 1) & 3 != mode {
        if left == 0 {
            return true;
        }
        left -= 1;
        let frames: u32 = 2 + random::draw(random) % 256;
        press_select(state, board, rom, frames);
        act(state, random, board, rom, keep, NOOP as u32);
    }
    soft_reset(state, board, rom);
    false
}

/// Double Dunk: a menu walked with the stick.
#[inline(never)]
fn select_double_dunk(
    state: &mut State,
    random: &mut Random,
    board: &mut Board,
    rom: &[u8],
    keep: f64,
) -> bool {
    press_select(state, board, rom, 1);
    if double_dunk_down(state, random, board, rom, keep) {
        return true;
    }
    for entry in 0..4usize {
        if double_dunk_down(state, random, board, rom, keep) {
            return true;
        }
        let on: bool = state.rules.mode & MENU[entry][1] != 0;
        let mut left: u32 = SELECTION_FRAMES / 2;
        while (peek(state, 0x80) as u32 & MENU[entry][0] != 0) != on {
            if left == 0 {
                return true;
            }
            left -= 1;
            act(state, random, board, rom, keep, if on { 3 } else { 4 });
            act(state, random, board, rom, keep, NOOP as u32);
        }
    }
    soft_reset(state, board, rom);
    act(state, random, board, rom, keep, 10);
    act(state, random, board, rom, keep, NOOP as u32);
    false
}

#[inline(never)]
fn double_dunk_down(
    state: &mut State,
    random: &mut Random,
    board: &mut Board,
    rom: &[u8],
    keep: f64,
) -> bool {
    let line: i32 = peek(state, 0xB0);
    let mut left: u32 = SELECTION_FRAMES / 2;
    while peek(state, 0xB0) == line {
        if left == 0 {
            return true;
        }
        left -= 1;
        act(state, random, board, rom, keep, 5);
        act(state, random, board, rom, keep, NOOP as u32);
    }
    false
}
