//! The reset of an environment: boot or snapshot, idle frames and FIRE, and the first picture.
//!
//! Device subset.

use super::rules::{self, Episode};
use super::state::{
    CLEAR_FIRST, CLEAR_ZERO, EnvGame, EnvSettings, FrameRun, Head, NO_PICTURE, NOOPS_AFTER_FIRE,
    PUSH_PICTURES, PUSH_RAM, PUSH_RESET_PLANE, ResetState, StepOutput, UNKNOWN_DRAWS, copy_to_board,
    height_bytes, idle_frames, reset_state_number, run_env_frame,
};
use super::step::{keep_pictures, restore_previous_pictures};
use crate::env::boot::{self, BootRules};
use crate::env::{self, FrameRunner, NOOP, full_strength};
use crate::machine::Board;
use crate::random::{self, Random};

/// The action code of FIRE.
const FIRE: u32 = 1;
/// No reset state was copied.
pub const NO_RESET_STATE: u32 = 0xFFFF_FFFF;

/// Returns true if [`copy_reset_state`] can do the next reset: it begins with the boot state, and the game
/// has reset states.
pub fn can_copy_reset_state(head: &Head, settings: &EnvSettings, game: &EnvGame) -> bool {
    let soft: bool = head.continues != 0 && head.needs_load == 0;
    let snapshot: bool = head.needs_load != 0 || settings.snapshot != 0;
    game.reset_state_frames != 0 && snapshot && !soft
}

/// Resets as [`reset`] does, if [`can_copy_reset_state`]: makes the same random draws and copies the reset state
/// that they lead to. Returns its number, or [`NO_RESET_STATE`] if it has run one frame or none instead, since
/// pictures of the boot are still visible.
#[inline(never)]
pub fn copy_reset_state<R: FrameRunner>(
    runner: &mut R,
    head: &mut Head,
    output: &mut StepOutput,
    random: &mut Random,
    spare: &mut Random,
    board: &mut Board,
    boot_pictures: &[u8],
    states: &[ResetState],
    settings: &EnvSettings,
    game: &EnvGame,
) -> u32 {
    let mut found: u32 = NO_RESET_STATE;
    let idle: u32 = idle_frames(head, spare, settings.noops, settings.noop_max, game.fires);
    random::skip(random, game.boot_draws);
    let acts: u32 = idle + game.fires;
    let fire_at: u32 = if settings.noops == NOOPS_AFTER_FIRE { 0 } else { idle };
    output.kept = 0;
    if acts < 2 && settings.draws != 0 {
        // The pictures of the boot are still visible, so the frames run on top of these.
        head.state = game.boot;
        copy_to_board(board, boot_pictures, height_bytes(game), game);
        let mut frame_run: FrameRun = FrameRun {
            last_frames: settings.no_frames,
            before_newest: head.state.machine,
            continues_open: 0,
        };
        for i in 0..acts {
            let code: u32 = if game.fires != 0 && i == fire_at { FIRE } else { NOOP as u32 };
            // The episode cannot end here: then the game would have no reset states.
            env::begin_frame(
                &mut head.state,
                random,
                settings.rules.repeat_probability,
                full_strength(code),
                full_strength(0),
            );
            head.state.machine.draw = 1;
            run_env_frame(runner, &mut frame_run, &mut head.state, board);
        }
        head.last_frames = frame_run.last_frames;
        keep_pictures(output, head.last_frames.whole_frames);
    } else {
        let mut fired: u32 = 0;
        let mut held: bool = false;
        for i in 0..acts {
            let chance: f64 = random::draw(random) as f64 / 4_294_967_296.0;
            if chance >= settings.rules.repeat_probability {
                held = game.fires != 0 && i == fire_at;
            }
            if held {
                fired += 1;
            }
            // The draw of the second player.
            random::draw(random);
        }
        found = game.reset_states_at + reset_state_number(settings.noops, acts, fired);
        head.state = states[found as usize].state;
        head.last_frames = states[found as usize].last_frames;
    }
    finish(head, output, settings, false);
    if found != NO_RESET_STATE && settings.draws != 0 {
        output.push = PUSH_RESET_PLANE;
    }
    found
}

/// Sets the counters and the picture to show after a reset. `soft`: the reset continues the game, whose
/// frames and steps count towards the limits.
fn finish(head: &mut Head, output: &mut StepOutput, settings: &EnvSettings, soft: bool) {
    head.needs_load = 0;
    head.ready = 1;
    head.continues = 0;
    let before: Episode = head.episode;
    head.episode = rules::begin_episode(&head.state);
    if soft {
        head.episode.frames = before.frames;
        head.episode.steps = before.steps;
        head.earlier_return = head.earlier_return.wrapping_add(before.total);
    } else {
        head.earlier_return = 0;
    }
    head.earlier_steps = head.episode.steps;
    head.newest_is_single_frame = 1;
    head.newest = (head.newest + 1) % settings.stack;
    output.picture = [NO_PICTURE, NO_PICTURE, NO_PICTURE];
    output.push = PUSH_RAM;
    output.clear = 0;
    if settings.draws != 0 {
        output.picture[0] = head.state.machine.tia.buffer & 1;
        output.push = PUSH_PICTURES;
    }
    if !soft {
        output.clear = if settings.pads_first != 0 { CLEAR_FIRST } else { CLEAR_ZERO };
    }
}

/// Resets the environment, up to the first observation of the new episode. `boot_pictures` are the last two
/// pictures of the game's boot; `spare` and `saved` are buffers for generators. Returns 0, or the number of
/// frames after which the mode selection was given up, because the ROM does not belong to the game.
#[inline(never)]
pub fn reset<R: FrameRunner>(
    runner: &mut R,
    head: &mut Head,
    output: &mut StepOutput,
    random: &mut Random,
    spare: &mut Random,
    saved: &mut Random,
    board: &mut Board,
    kept: &[u8],
    boot_pictures: &[u8],
    settings: &EnvSettings,
    game: &EnvGame,
) -> u32 {
    let soft: bool = head.continues != 0 && head.needs_load == 0;
    let fire: u32 = game.fires;
    let idle: u32 = idle_frames(head, spare, settings.noops, settings.noop_max, fire);
    let before: Head = *head;
    *saved = *random;
    let mut given_up: u32 = 0;
    let mut everything: bool = false;
    let mut complete: bool = false;
    while !complete {
        runner.begin_reset(board, everything);
        given_up = boot_and_idle(
            runner,
            head,
            output,
            random,
            spare,
            board,
            kept,
            boot_pictures,
            settings,
            game,
            idle,
            soft,
            everything,
        );
        // If the screen shows older pictures than those of the last two frames, the reset runs again and
        // draws all frames.
        complete = given_up != 0 || everything || head.last_frames.whole_frames >= 2 || settings.draws == 0;
        if !complete {
            *head = before;
            *random = *saved;
            everything = true;
        }
    }
    finish(head, output, settings, soft);
    head.ready = (given_up == 0) as u8;
    given_up
}

/// Boots, then runs idle frames and FIRE. Draws the last two frames, or all frames if `everything` is true.
#[inline(never)]
fn boot_and_idle<R: FrameRunner>(
    runner: &mut R,
    head: &mut Head,
    output: &mut StepOutput,
    random: &mut Random,
    spare: &mut Random,
    board: &mut Board,
    kept: &[u8],
    boot_pictures: &[u8],
    settings: &EnvSettings,
    game: &EnvGame,
    idle: u32,
    soft: bool,
    everything: bool,
) -> u32 {
    let snapshot: bool = head.needs_load != 0 || settings.snapshot != 0;
    if soft {
        if everything {
            restore_previous_pictures(runner, head, output, board, kept, settings, game);
        }
    } else if snapshot && game.boot_draws != UNKNOWN_DRAWS {
        head.state = game.boot;
        runner.replace_sound(board, true);
        random::skip(random, game.boot_draws);
        if everything {
            copy_to_board(board, boot_pictures, height_bytes(game), game);
        }
    } else {
        // A freshly loaded console gets here only if the number of draws of its boot is not known in advance.
        let anew: bool = head.needs_load != 0;
        let given_up: u32 = boot_console(runner, head, random, spare, board, game, anew, everything);
        if given_up != 0 {
            return given_up;
        }
    }
    let acts: u32 = idle + game.fires;
    let fire_at: u32 = if settings.noops == NOOPS_AFTER_FIRE { 0 } else { idle };
    let mut frame_run: FrameRun =
        FrameRun { last_frames: settings.no_frames, before_newest: head.state.machine, continues_open: 0 };
    for i in 0..acts {
        let code: u32 = if game.fires != 0 && i == fire_at { FIRE } else { NOOP as u32 };
        if !env::begin_frame(
            &mut head.state,
            random,
            settings.rules.repeat_probability,
            full_strength(code),
            full_strength(0),
        ) {
            // The last frame that ran was not known to be the last one, so it may not have been drawn.
            if !everything {
                frame_run.last_frames.whole_frames = 0;
            }
            runner.end_act(board);
            continue;
        }
        head.state.machine.draw = (everything || i + 2 >= acts) as u8;
        run_env_frame(runner, &mut frame_run, &mut head.state, board);
        runner.end_act(board);
        if head.state.rules.over != 0 {
            let given_up: u32 = boot_console(runner, head, random, spare, board, game, false, everything);
            if given_up != 0 {
                return given_up;
            }
            frame_run.last_frames = settings.no_frames;
        }
    }
    head.last_frames = frame_run.last_frames;
    // The pictures on the board are exact only if all frames were drawn.
    if head.last_frames.whole_frames >= 2 || everything {
        keep_pictures(output, head.last_frames.whole_frames);
    }
    0
}

/// Boots the console in its current state. With `anew` it is loaded, booted once and set to its mode and
/// difficulty before. `core` is a buffer for a generator. Returns 0, or the number of frames after which the
/// mode selection was given up.
#[inline(never)]
fn boot_console<R: FrameRunner>(
    runner: &mut R,
    head: &mut Head,
    random: &mut Random,
    core: &mut Random,
    board: &mut Board,
    game: &EnvGame,
    anew: bool,
    draws: bool,
) -> u32 {
    let mut rules: BootRules =
        BootRules { repeat_probability: game.repeat_probability, frame_skip: 1, draws: 0 };
    if anew {
        head.state = game.loaded;
        runner.replace_sound(board, false);
        random::seed(random, head.random_seed);
    }
    random::seed(core, game.system_seed);
    random::skip(core, head.state.machine.draws);
    if anew {
        boot::reset_console(runner, &mut head.state, core, board, false);
        let given_up: u32 = boot::restart(runner, &mut head.state, random, core, board, &rules);
        if given_up != 0 {
            return given_up;
        }
        head.state.rules.mode = game.mode;
        head.state.env.difficulty = game.difficulty;
    }
    rules.draws = draws as u32;
    boot::restart(runner, &mut head.state, random, core, board, &rules)
}
