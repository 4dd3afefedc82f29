//! The step of an environment: runs its frames, draws those that are needed, and selects the pictures to
//! show.
//!
//! Device subset.

use super::rules::{self, Episode, StepRules};
use super::state::{
    EnvGame, EnvSettings, FIRST_WORK_PICTURE, Figures, FrameRun, Head, KEPT_FRESH, KEPT_PICTURES, NO_PICTURE,
    PUSH_COPY, PUSH_PICTURES, PUSH_RAM, StepOutput, copy_from_board, copy_picture, copy_to_board, figures,
    height_bytes, rerun, run_env_frame,
};
use crate::env::{self, Action, FrameRunner, State};
use crate::machine::input::Input;
use crate::machine::{Board, Machine};
use crate::numpy_random;
use crate::random::Random;

/// Runs one step with an action of each player. `kept` are the environment's kept pictures; `work` and `inputs` are buffers
/// for work pictures and for the inputs of the frames.
#[inline(never)]
pub fn step<R: FrameRunner>(
    runner: &mut R,
    head: &mut Head,
    output: &mut StepOutput,
    random: &mut Random,
    board: &mut Board,
    work: &mut [u8],
    kept: &[u8],
    inputs: &mut [Input],
    settings: &EnvSettings,
    game: &EnvGame,
    action: Action,
    second: Action,
) {
    let mut skip: u32 = settings.skip[0];
    if settings.skip[1] != skip {
        skip = numpy_random::integers(&mut head.numpy, settings.skip[0], settings.skip[1]);
    }
    let careful: bool = output.kept != 0;
    if careful {
        copy_to_board(board, kept, settings.picture_bytes as usize, game);
    }
    let start: Machine = head.state.machine;
    let mut frame_run: FrameRun =
        FrameRun { last_frames: settings.no_frames, before_newest: start, continues_open: 0 };
    rules::begin_step(&mut head.episode);
    let shown_frames: u32 = if settings.maxpool != 0 || settings.show_last_frame != 0 { 2 } else { 1 };
    let mut ran: usize = 0;
    let mut stopped_at: u32 = 0;
    let mut left: u32 = skip;
    while left > 0 && stopped_at == 0 {
        let mut reward: i32 = 0;
        if env::begin_frame(&mut head.state, random, settings.rules.repeat_probability, action, second) {
            inputs[ran] = head.state.machine.input;
            ran += 1;
            head.state.machine.draw = (settings.draws != 0 && (careful || left <= shown_frames)) as u8;
            reward = run_env_frame(runner, &mut frame_run, &mut head.state, board);
        }
        runner.end_act(board);
        rules::count(&mut head.episode, &head.state, reward);
        if rules::stops(&settings.rules, &head.episode, &head.state) {
            stopped_at = left;
        }
        left -= 1;
    }
    // The frames that an early stop leaves out are acts without a frame.
    for _ in 0..left {
        runner.end_act(board);
    }
    rules::end_step(&settings.rules, &mut head.episode, &head.state);
    head.continues = continues(settings.life_continues, &settings.rules, &head.episode, &head.state) as u8;
    output.picture = [NO_PICTURE, NO_PICTURE, NO_PICTURE];
    output.clear = 0;
    head.newest = (head.newest + 1) % settings.stack;
    if settings.draws == 0 {
        output.push = PUSH_RAM;
        head.last_frames = frame_run.last_frames;
        return;
    }
    // Stopping on the last frame counts as an early stop only if that frame is not shown.
    let early: u32 = if stopped_at > 1 || settings.show_last_frame == 0 { stopped_at } else { 0 };
    show_step(
        runner, head, output, board, work, kept, inputs, ran, settings, game, &start, &frame_run, early, skip,
    );
}

/// Whether the next episode continues the same game, which neither its end nor a limit has ended.
fn continues(life_continues: u8, rules: &StepRules, episode: &Episode, state: &State) -> bool {
    let over: bool = env::ended(state) || rules::truncated(rules, episode, state);
    life_continues != 0 && episode.ended != 0 && !over
}

/// Selects the pictures that a step shows, and draws those that are missing.
#[inline(never)]
fn show_step<R: FrameRunner>(
    runner: &mut R,
    head: &mut Head,
    output: &mut StepOutput,
    board: &mut Board,
    work: &mut [u8],
    kept: &[u8],
    inputs: &[Input],
    ran: usize,
    settings: &EnvSettings,
    game: &EnvGame,
    start: &Machine,
    frame_run: &FrameRun,
    early: u32,
    skip: u32,
) {
    let careful: bool = output.kept != 0;
    let pool: bool = settings.maxpool != 0 && skip > 1;
    let whole: u32 = frame_run.last_frames.whole_frames;
    let size: usize = settings.picture_bytes as usize;
    let mut machine: Machine = *start;
    let mut second: bool = false;
    output.push = PUSH_PICTURES;
    if early == 0 {
        if pool && frame_run.continues_open != 0 {
            // A frame that continues an open one draws over it, so the picture of the frame before goes to a
            // work picture.
            restore_previous_pictures(runner, head, output, board, kept, settings, game);
            rerun_keeping_both(runner, &mut machine, inputs, ran, board, work, game);
            if !careful {
                copy_beam(&mut head.state.machine, &machine);
            }
            second = true;
        } else if !careful && whole < 2 {
            // The screen shows older pictures: all frames of the step run again and draw on the pictures
            // before the step.
            rerun_step(runner, head, output, board, kept, inputs, ran, settings, game, start);
        }
        let last: u8 = head.state.machine.tia.buffer & 1;
        output.picture[0] = last;
        if pool && settings.indices == 0 {
            output.picture[1] = if second { FIRST_WORK_PICTURE } else { last ^ 1 };
        }
        head.newest_is_single_frame = !pool as u8;
    } else if early == 2 && settings.show_last_frame != 0 {
        // The step stopped on the first of the two frames whose maximum would have been shown: it is shown
        // alone.
        if !careful && whole < 1 {
            rerun_step(runner, head, output, board, kept, inputs, ran, settings, game, start);
        }
        output.picture[0] = head.state.machine.tia.buffer & 1;
        head.newest_is_single_frame = 1;
    } else if early == 1 && pool {
        // The step stopped on its last frame, which is not shown. Shown is the maximum of the frame before it
        // and of the pictures before the step.
        if whole >= 2 {
            let other: usize = ((head.state.machine.tia.buffer & 1) ^ 1) as usize;
            copy_from_board(work, 0, board, other, game);
        } else {
            restore_previous_pictures(runner, head, output, board, kept, settings, game);
            rerun_keeping_both(runner, &mut machine, inputs, ran, board, work, game);
        }
        restore_previous_pictures(runner, head, output, board, kept, settings, game);
        let last: u8 = start.tia.buffer & 1;
        output.picture = [FIRST_WORK_PICTURE, last, NO_PICTURE];
        if head.newest_is_single_frame == 0 {
            output.picture[2] = last ^ 1;
            if output.kept == KEPT_PICTURES as u8 {
                output.picture[2] = FIRST_WORK_PICTURE + 2;
                copy_picture(work, 2 * size, kept, 2 * size, height_bytes(game));
            }
        }
        if head.continues != 0 && whole < 2 {
            // The board is used again below, so its pictures are copied to work pictures.
            output.picture[1] = FIRST_WORK_PICTURE + 1;
            copy_from_board(work, size, board, last as usize, game);
            if output.picture[2] == last ^ 1 {
                output.picture[2] = FIRST_WORK_PICTURE + 2;
                copy_from_board(work, 2 * size, board, (last ^ 1) as usize, game);
            }
        }
        head.newest_is_single_frame = 0;
    } else {
        output.push = PUSH_COPY;
    }
    if early != 0 && head.continues != 0 && whole < 2 {
        rerun_step(runner, head, output, board, kept, inputs, ran, settings, game, start);
    }
    head.last_frames = frame_run.last_frames;
    if early == 0 || head.continues != 0 {
        keep_pictures(output, whole);
        if output.kept != 0 && second {
            output.kept = KEPT_PICTURES as u8 | KEPT_FRESH;
        }
    }
}

/// Runs all frames of a step again and draws them, on the pictures before the step.
#[inline(never)]
fn rerun_step<R: FrameRunner>(
    runner: &mut R,
    head: &mut Head,
    output: &StepOutput,
    board: &mut Board,
    kept: &[u8],
    inputs: &[Input],
    ran: usize,
    settings: &EnvSettings,
    game: &EnvGame,
    start: &Machine,
) {
    let mut machine: Machine = *start;
    restore_previous_pictures(runner, head, output, board, kept, settings, game);
    rerun(runner, &mut machine, inputs, 0, ran, board);
    copy_beam(&mut head.state.machine, &machine);
}

/// Corrects the beam of an open frame, which lags if the frame was not drawn, to its position in the drawn
/// frame.
fn copy_beam(m: &mut Machine, drawn: &Machine) {
    if m.unfinished != 0 {
        m.tia = drawn.tia;
    }
}

/// Runs all frames of a step again and draws them. The picture of the second to last frame goes to the first
/// work picture.
#[inline(never)]
fn rerun_keeping_both<R: FrameRunner>(
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
    copy_from_board(work, 0, board, buffer, game);
    rerun(runner, machine, inputs, before, ran, board);
}

/// Restores on the board the pictures of the last two frames before a step.
#[inline(never)]
pub fn restore_previous_pictures<R: FrameRunner>(
    runner: &mut R,
    head: &Head,
    output: &StepOutput,
    board: &mut Board,
    kept: &[u8],
    settings: &EnvSettings,
    game: &EnvGame,
) {
    if output.kept != 0 {
        copy_to_board(board, kept, settings.picture_bytes as usize, game);
    } else {
        let mut machine: Machine = head.last_frames.start;
        rerun(runner, &mut machine, &head.last_frames.inputs, 2 - head.last_frames.count as usize, 2, board);
    }
}

/// Requests that the pictures on the board are kept, unless running the last two frames again makes them:
/// `whole` is 2.
pub fn keep_pictures(output: &mut StepOutput, whole: u32) {
    output.kept = if whole >= 2 { 0 } else { 2 | KEPT_FRESH };
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
        now.number[10] = episode.steps - head.earlier_steps;
        now.number[11] = head.earlier_return.wrapping_add(episode.total);
        now.flag[3] = (head.continues == 0) as u8;
    }
    now
}
