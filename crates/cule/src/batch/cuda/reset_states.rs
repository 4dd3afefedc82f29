//! Table of the reset states of a game: the console after the boot state and n idle frames, with FIRE held in
//! k of them, for every possible n and k. A reset on the device copies one of these instead of running the
//! frames. Host only.

use bytemuck::Zeroable;

use super::super::game::Game;
use super::super::screen::Canvas;
use crate::console::undrawn::{CpuRunner, UndrawnFrames};
use crate::env::state::{
    self, EnvSettings, FrameRun, MAX_RESET_STATE_FRAMES, NOOPS_AFTER_FIRE, ResetState, UNKNOWN_DRAWS,
    reset_state_number,
};
use crate::env::{self, NOOP, State};
use crate::machine::{Board, tia};

/// The action code of FIRE.
const FIRE: u32 = 1;

/// The reset states of one game.
pub(super) struct ResetStates {
    /// In the order of [`reset_state_number`].
    pub all: Vec<ResetState>,
    /// Frames of the longest reset. 0 if the game has no table: its boot is not known in advance, it has too
    /// many idle frames, or a reset ends the episode or shows older pictures than those of its last two
    /// frames.
    pub frames: u32,
    /// At least one frame did not reach the last row of the picture.
    pub has_short_frames: bool,
}

/// A console during a reset.
#[derive(Clone)]
struct ResetRun {
    state: State,
    frame_run: FrameRun,
}

impl ResetRun {
    /// Runs one more frame with an action held. Returns false if the episode has ended before or with this
    /// frame.
    fn run_frame(&mut self, code: u32, board: &mut Board, game: &Game) -> bool {
        if env::ended(&self.state) {
            return false;
        }
        self.state.env.held = [code, u32::from(NOOP)];
        self.state.env.held_step = [env::PADDLE_STEP, env::PADDLE_STEP];
        env::set_held_inputs(&mut self.state);
        self.state.machine.draw = 0;
        let undrawn = &mut UndrawnFrames::new();
        let mut runner = CpuRunner { code: &game.code, undrawn, keeps_undrawn: false, sound: None };
        state::run_env_frame(&mut runner, &mut self.frame_run, &mut self.state, board);
        self.state.rules.over == 0
    }

    fn reset_state(&self) -> ResetState {
        ResetState { state: self.state, last_frames: self.frame_run.last_frames }
    }
}

impl ResetStates {
    pub(super) fn new(game: &Game, rules: &EnvSettings) -> Self {
        let mut found = Self { all: vec![], frames: 0, has_short_frames: false };
        let most = rules.noop_max.max(1) + 1;
        let usable = found.fill(game, rules, most.min(MAX_RESET_STATE_FRAMES));
        if usable && game.env_game.boot_draws != UNKNOWN_DRAWS && most <= MAX_RESET_STATE_FRAMES {
            found.frames = most;
        } else {
            found.all.clear();
        }
        found
    }

    /// Computes all resets of up to `most` frames. Returns false if one of them cannot be used.
    fn fill(&mut self, game: &Game, rules: &EnvSettings, most: u32) -> bool {
        let noops = rules.noops;
        let after = noops == NOOPS_AFTER_FIRE;
        let count =
            if after { reset_state_number(noops, most, most) } else { reset_state_number(noops, most, 1) };
        self.all = vec![ResetState::zeroed(); count as usize + 1];
        let mut board: Box<Board> = bytemuck::zeroed_box();
        let (state, last_frames) = (game.env_game.boot, rules.no_frames);
        let mut run = ResetRun {
            state,
            frame_run: FrameRun { last_frames, before_newest: state.machine, continues_open: 0 },
        };
        if !after {
            let mut usable = self.add(noops, 0, 0, &run, rules);
            for frames in 1..=most {
                let mut fired = run.clone();
                usable &= game.env_game.fires == 0 || fired.run_frame(FIRE, &mut board, game);
                usable &= self.add(noops, frames, 1, &fired, rules);
                usable &= run.run_frame(u32::from(NOOP), &mut board, game);
                usable &= self.add(noops, frames, 0, &run, rules);
            }
            return usable;
        }
        // Sticky actions may hold FIRE for several frames; after that NOOP is held. Otherwise FIRE is held
        // for one frame.
        let fired_at_most = if game.env_game.fires == 0 {
            0
        } else if rules.rules.repeat_probability > 0.0 {
            most
        } else {
            1
        };
        let mut usable = true;
        for fired in 0..=fired_at_most {
            let mut idle = run.clone();
            usable &= self.add(noops, fired, fired, &idle, rules);
            for frames in fired + 1..=most {
                usable &= idle.run_frame(u32::from(NOOP), &mut board, game);
                usable &= self.add(noops, frames, fired, &idle, rules);
            }
            usable &= fired == fired_at_most || run.run_frame(FIRE, &mut board, game);
        }
        usable
    }

    /// The plane that an observation shows of each state after at least two frames; zeros for the others.
    pub(super) fn planes(&self, game: &Game) -> Vec<u8> {
        let size = game.screen.size_bytes();
        let mut planes = vec![0; size * self.all.len()];
        let mut board: Box<Board> = bytemuck::zeroed_box();
        let (mut undrawn, mut canvas) = (UndrawnFrames::new(), Canvas::default());
        let shown = self.all.iter().zip(planes.chunks_exact_mut(size));
        for (one, plane) in shown.filter(|(one, _)| one.last_frames.whole_frames == 2) {
            let mut machine = one.last_frames.start;
            let mut runner =
                CpuRunner { code: &game.code, undrawn: &mut undrawn, keeps_undrawn: false, sound: None };
            state::rerun(&mut runner, &mut machine, &one.last_frames.inputs, 0, 2, &mut board);
            let picture = &board.picture[usize::from(machine.tia.buffer & 1)][..game.height() * tia::WIDTH];
            game.screen.draw(&[picture], &mut canvas, plane);
        }
        planes
    }

    /// Stores one reset state. Returns false if its screen shows older pictures than those of its last two
    /// frames. Resets of fewer than two frames are exempt: the device runs their frames.
    fn add(&mut self, noops: u32, frames: u32, fired: u32, run: &ResetRun, rules: &EnvSettings) -> bool {
        self.all[reset_state_number(noops, frames, fired) as usize] = run.reset_state();
        let whole = frames < 2 || run.frame_run.last_frames.whole_frames >= 2;
        self.has_short_frames |= !whole || (frames == 1 && run.frame_run.last_frames.whole_frames < 1);
        whole || rules.draws == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_has_a_place_of_its_own() {
        for noops in 0..3 {
            let mut seen = vec![];
            for frames in 0..=MAX_RESET_STATE_FRAMES {
                let most = if noops == NOOPS_AFTER_FIRE { frames } else { frames.min(1) };
                seen.extend((0..=most).map(|fired| reset_state_number(noops, frames, fired)));
            }
            let count = seen.len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), count);
            // After FIRE the numbers form a full triangle. Otherwise there are two numbers per frame count,
            // and the second one of 0 frames is unused.
            let free = usize::from(noops != NOOPS_AFTER_FIRE);
            assert_eq!(*seen.last().unwrap() as usize, count - 1 + free);
        }
    }
}
