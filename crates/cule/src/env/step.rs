//! The step of an environment: runs its frames, draws those that are needed, and selects the pictures to
//! show.
//!
//! Device subset.

use super::rules::{self, Episode, StepRules};
use super::state::{
    CONTINUES_CUT, CONTINUES_LIFE, EnvGame, EnvSettings, Extra, Figures, Head, KEPT_FRESH, KEPT_PICTURES,
    NONE, PUSH_AGAIN, PUSH_PICTURES, PUSH_RAM, Roll, WORK, copy_picture, figures, frame, height_bytes,
    put_pictures, rerun, take_picture,
};
use crate::env::{self, Action, FrameRunner, NOOP, State, full};
use crate::machine::input::Input;
use crate::machine::{Board, Machine};
use crate::numpy_random;
use crate::random::Random;

/// Runs one step with an action. `kept` are the environment's kept pictures; `work` and `inputs` are buffers
/// for work pictures and for the inputs of the frames.
#[inline(never)]
pub fn step<R: FrameRunner>(
    runner: &mut R,
    head: &mut Head,
    extra: &mut Extra,
    random: &mut Random,
    board: &mut Board,
    work: &mut [u8],
    kept: &[u8],
    inputs: &mut [Input],
    settings: &EnvSettings,
    game: &EnvGame,
    action: Action,
) {
    let mut skip: u32 = settings.skip[0];
    if settings.skip[1] != skip {
        skip = numpy_random::integers(&mut head.numpy, settings.skip[0], settings.skip[1]);
    }
    let careful: bool = extra.kept != 0;
    if careful {
        put_pictures(board, kept, settings.picture_bytes as usize, game);
    }
    let start: Machine = head.state.machine;
    let mut roll: Roll = Roll { recent: settings.none, middle: start, open: 0 };
    rules::begin_step(&mut head.episode);
    let shown_frames: u32 = if settings.maxpool != 0 || settings.show_last_frame != 0 { 2 } else { 1 };
    let mut ran: usize = 0;
    let mut stopped_at: u32 = 0;
    let mut left: u32 = skip;
    while left > 0 && stopped_at == 0 {
        let mut reward: i32 = 0;
        if env::begin_frame(&mut head.state, random, settings.rules.keep, action, full(NOOP as u32)) {
            inputs[ran] = head.state.machine.input;
            ran += 1;
            head.state.machine.draw = (settings.draws != 0 && (careful || left <= shown_frames)) as u8;
            reward = frame(runner, &mut roll, &mut head.state, board);
        }
        rules::count(&mut head.episode, &head.state, reward);
        if rules::stops(&settings.rules, &head.episode, &head.state) {
            stopped_at = left;
        }
        left -= 1;
    }
    rules::end_step(&settings.rules, &mut head.episode, &head.state);
    head.continues = continues(settings.life_continues, &settings.rules, &head.episode, &head.state);
    extra.picture = [NONE, NONE, NONE];
    extra.clear = 0;
    head.newest = (head.newest + 1) % settings.stack;
    if settings.draws == 0 {
        extra.push = PUSH_RAM;
        head.recent = roll.recent;
        return;
    }
    // Stopping on the last frame counts as an early stop only if that frame is not shown.
    let early: u32 = if stopped_at > 1 || settings.show_last_frame == 0 { stopped_at } else { 0 };
    show_step(
        runner, head, extra, board, work, kept, inputs, ran, settings, game, &start, &roll, early, skip,
    );
}

/// Whether the next episode continues the same game: 0 or one of the `CONTINUES_` constants.
fn continues(life_continues: u8, rules: &StepRules, episode: &Episode, state: &State) -> u8 {
    if life_continues == 0 || episode.ended == 0 || env::ended(state) {
        return 0;
    }
    if rules::truncated(rules, episode, state) { CONTINUES_CUT } else { CONTINUES_LIFE }
}

/// Selects the pictures that a step shows, and draws those that are missing.
#[inline(never)]
fn show_step<R: FrameRunner>(
    runner: &mut R,
    head: &mut Head,
    extra: &mut Extra,
    board: &mut Board,
    work: &mut [u8],
    kept: &[u8],
    inputs: &[Input],
    ran: usize,
    settings: &EnvSettings,
    game: &EnvGame,
    start: &Machine,
    roll: &Roll,
    early: u32,
    skip: u32,
) {
    let careful: bool = extra.kept != 0;
    let pool: bool = settings.maxpool != 0 && skip > 1;
    let whole: u32 = roll.recent.whole;
    let size: usize = settings.picture_bytes as usize;
    let mut machine: Machine = *start;
    let mut second: bool = false;
    extra.push = PUSH_PICTURES;
    if early == 0 {
        if pool && roll.open != 0 {
            // A frame that continues an open one draws over it, so the picture of the frame before goes to a
            // work picture.
            put_before(runner, head, extra, board, kept, settings, game);
            rerun_apart(runner, &mut machine, inputs, ran, board, work, game);
            if !careful {
                follow(&mut head.state.machine, &machine);
            }
            second = true;
        } else if !careful && whole < 2 {
            // The screen shows older pictures: all frames of the step run again and draw on the pictures
            // before the step.
            rerun_step(runner, head, extra, board, kept, inputs, ran, settings, game, start);
        }
        let last: u8 = head.state.machine.tia.buffer & 1;
        extra.picture[0] = last;
        if pool && settings.indices == 0 {
            extra.picture[1] = if second { WORK } else { last ^ 1 };
        }
        head.single = !pool as u8;
    } else if early == 2 && settings.show_last_frame != 0 {
        // The step stopped on the first of the two frames whose maximum would have been shown: it is shown
        // alone.
        if !careful && whole < 1 {
            rerun_step(runner, head, extra, board, kept, inputs, ran, settings, game, start);
        }
        extra.picture[0] = head.state.machine.tia.buffer & 1;
        head.single = 1;
    } else if early == 1 && pool {
        // The step stopped on its last frame, which is not shown. Shown is the maximum of the frame before it
        // and of the pictures before the step.
        if whole >= 2 {
            let other: usize = ((head.state.machine.tia.buffer & 1) ^ 1) as usize;
            take_picture(work, 0, board, other, game);
        } else {
            put_before(runner, head, extra, board, kept, settings, game);
            rerun_apart(runner, &mut machine, inputs, ran, board, work, game);
        }
        put_before(runner, head, extra, board, kept, settings, game);
        let last: u8 = start.tia.buffer & 1;
        extra.picture = [WORK, last, NONE];
        if head.single == 0 {
            extra.picture[2] = last ^ 1;
            if extra.kept == KEPT_PICTURES as u8 {
                extra.picture[2] = WORK + 2;
                copy_picture(work, 2 * size, kept, 2 * size, height_bytes(game));
            }
        }
        if head.continues != 0 && whole < 2 {
            // The board is used again below, so its pictures are copied to work pictures.
            extra.picture[1] = WORK + 1;
            take_picture(work, size, board, last as usize, game);
            if extra.picture[2] == last ^ 1 {
                extra.picture[2] = WORK + 2;
                take_picture(work, 2 * size, board, (last ^ 1) as usize, game);
            }
        }
        head.single = 0;
    } else {
        extra.push = PUSH_AGAIN;
    }
    if early != 0 && head.continues != 0 && whole < 2 {
        rerun_step(runner, head, extra, board, kept, inputs, ran, settings, game, start);
    }
    head.recent = roll.recent;
    if early == 0 || head.continues != 0 {
        keep_pictures(extra, whole);
        if extra.kept != 0 && second {
            extra.kept = KEPT_PICTURES as u8 | KEPT_FRESH;
        }
    }
}

/// Runs all frames of a step again and draws them, on the pictures before the step.
#[inline(never)]
fn rerun_step<R: FrameRunner>(
    runner: &mut R,
    head: &mut Head,
    extra: &Extra,
    board: &mut Board,
    kept: &[u8],
    inputs: &[Input],
    ran: usize,
    settings: &EnvSettings,
    game: &EnvGame,
    start: &Machine,
) {
    let mut machine: Machine = *start;
    put_before(runner, head, extra, board, kept, settings, game);
    rerun(runner, &mut machine, inputs, 0, ran, board);
    follow(&mut head.state.machine, &machine);
}

/// Corrects the beam of an open frame, which lags if the frame was not drawn, to its position in the drawn
/// frame.
fn follow(m: &mut Machine, drawn: &Machine) {
    if m.unfinished != 0 {
        m.tia = drawn.tia;
    }
}

/// Runs all frames of a step again and draws them. The picture of the second to last frame goes to the first
/// work picture.
#[inline(never)]
fn rerun_apart<R: FrameRunner>(
    runner: &mut R,
    machine: &mut Machine,
    inputs: &[Input],
    ran: usize,
    board: &mut Board,
    work: &mut [u8],
    game: &EnvGame,
) {
    let before: usize = if ran > 0 { ran - 1 } else { 0 };
    rerun(runner, machine, inputs, 0, before, board);
    let buffer: usize = (machine.tia.buffer & 1) as usize;
    take_picture(work, 0, board, buffer, game);
    rerun(runner, machine, inputs, before, ran, board);
}

/// Restores on the board the pictures of the last two frames before a step.
#[inline(never)]
pub fn put_before<R: FrameRunner>(
    runner: &mut R,
    head: &Head,
    extra: &Extra,
    board: &mut Board,
    kept: &[u8],
    settings: &EnvSettings,
    game: &EnvGame,
) {
    if extra.kept != 0 {
        put_pictures(board, kept, settings.picture_bytes as usize, game);
    } else {
        let mut machine: Machine = head.recent.from;
        rerun(runner, &mut machine, &head.recent.inputs, 2 - head.recent.count as usize, 2, board);
    }
}

/// Requests that the pictures on the board are kept, unless running the last two frames again makes them:
/// `whole` is 2.
pub fn keep_pictures(extra: &mut Extra, whole: u32) {
    extra.kept = if whole >= 2 { 0 } else { 2 | KEPT_FRESH };
}

/// Figures of the last step.
#[inline(never)]
pub fn report(head: &Head, id: u32, settings: &EnvSettings) -> Figures {
    let episode: &Episode = &head.episode;
    let state: &State = &head.state;
    let terminated: bool = rules::terminated(&settings.rules, episode, state);
    let cut: bool = rules::truncated(&settings.rules, episode, state);
    let mut now: Figures = figures(head, id);
    now.number[0] = rules::clipped(&settings.rules, episode.reward);
    now.number[1] = episode.reward;
    now.flag[0] = terminated as u8;
    now.flag[1] = (cut && (settings.both_ends != 0 || !terminated)) as u8;
    now.flag[2] = (episode.ended != 0) as u8;
    if episode.ended != 0 {
        now.number[6] = now.number[2];
        now.number[7] = now.number[3];
        now.number[8] = now.number[4];
        now.number[9] = episode.total;
        now.number[10] = episode.steps;
        now.number[11] = head.carried.wrapping_add(episode.total);
        now.flag[3] = (head.continues != CONTINUES_LIFE) as u8;
    }
    now
}
