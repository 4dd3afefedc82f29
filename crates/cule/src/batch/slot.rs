//! One environment of a CPU batch: its state, its stack of planes, and its step and reset. Host only.
//!
//! `env` defines the step and the reset for all batches. This module provides their buffers, which belong to
//! the thread, and shows or keeps the pictures that they ask for in [`StepOutput`].

use bytemuck::Zeroable;

use super::game::Game;
use super::pictures::Pictures;
use super::screen::Canvas;
use super::variation::{VariedRunner, poke};
use super::{PlayerActions, Report};
use crate::console::undrawn::{CpuRunner, SoundRunner, UndrawnFrames};
use crate::env::state::{self, EnvSettings, Head, StepOutput};
use crate::env::{reset, rules, step};
use crate::games::two_players::{self, Second};
use crate::machine::input::{self, Input};
use crate::machine::{self, Board, tia};
use crate::random::{self, Random};
use crate::sound::Sound;
use crate::{CuleError, memory};

/// Buffers of one thread, reused for every environment that it runs.
pub(super) struct Workspace {
    board: Box<Board>,
    /// Undrawn frames of a boot.
    undrawn: UndrawnFrames,
    canvas: Canvas,
    /// Inputs of the frames of a step.
    inputs: Vec<Input>,
    /// Pictures that a step makes outside of the board.
    pictures: Vec<u8>,
    /// Kept pictures of the environment that runs, decoded.
    kept: Vec<u8>,
    generators: Box<[Random; 2]>,
}

impl Workspace {
    pub(super) fn new(rules: &EnvSettings) -> Self {
        let pictures = |count: u32| vec![0; (count * rules.picture_bytes) as usize];
        Self {
            board: bytemuck::zeroed_box(),
            undrawn: UndrawnFrames::new(),
            canvas: Canvas::default(),
            inputs: vec![input::idle(); rules.skip[1] as usize],
            pictures: pictures(state::WORK_PICTURES),
            kept: pictures(state::KEPT_PICTURES),
            generators: Box::new([random::seeded(0); 2]),
        }
    }
}

/// The interpreter that runs the frames of a game, and makes `sound`.
fn runner<'a>(
    game: &'a Game,
    undrawn: &'a mut UndrawnFrames,
    sound: Option<&'a mut Sound>,
) -> VariedRunner<'a, CpuRunner<'a>> {
    let sound = sound.map(|sound| SoundRunner::new(sound, game.sounds.as_ref()));
    let cpu = CpuRunner { code: &game.code, undrawn, keeps_undrawn: false, sound };
    VariedRunner::new(cpu, game.changes.as_ref())
}

/// One environment.
#[derive(Clone)]
pub(super) struct Slot {
    pub game: usize,
    pub head: Head,
    pub random: Box<Random>,
    pub planes: Box<[u8]>,
    /// Kept pictures, if running the last two frames again does not reproduce what the screen shows.
    pub pictures: Option<Box<Pictures>>,
    /// Its sound, if it makes any.
    pub sound: Option<Box<Sound>>,
    /// Reward of the second player in the last step, if the game counts it separately.
    pub second_reward: i32,
}

impl Slot {
    /// Makes an environment that has not been reset.
    ///
    /// # Errors
    /// [`CuleError::OutOfMemory`] if the planes cannot be allocated.
    pub(super) fn new(
        index: usize,
        game: &Game,
        rules: &EnvSettings,
        entropy: u64,
    ) -> Result<Self, CuleError> {
        let size = (rules.stack as usize).saturating_mul(game.screen.size_bytes());
        let mut slot = Self {
            game: index,
            head: Zeroable::zeroed(),
            random: Box::new(random::seeded(0)),
            planes: memory::filled(0, size)?.into(),
            pictures: None,
            sound: game.sounds.as_ref().map(|[loaded, _]| Box::new(loaded.clone())),
            second_reward: 0,
        };
        state::seed(&mut slot.head, &mut slot.random, entropy, rules.noops);
        Ok(slot)
    }

    /// Resets the environment and shows the first observation of the new episode. `seed` seeds its generators
    /// first.
    ///
    /// # Errors
    /// [`CuleError::ModeSelection`] if the game does not reach its mode.
    pub(super) fn reset(
        &mut self,
        work: &mut Workspace,
        game: &Game,
        rules: &EnvSettings,
        seed: Option<u64>,
    ) -> Result<(), CuleError> {
        if let Some(seed) = seed {
            state::seed(&mut self.head, &mut self.random, seed, rules.noops);
        }
        let mut output = self.step_output(work, game, rules);
        self.put_registers(&mut work.board);
        let [spare, saved] = &mut *work.generators;
        let frames = reset::reset(
            &mut runner(game, &mut work.undrawn, self.sound.as_deref_mut()),
            &mut self.head,
            &mut output,
            &mut self.random,
            spare,
            saved,
            &mut work.board,
            &work.kept,
            &game.boot_pictures,
            rules,
            &game.env_game,
        );
        self.take_registers(&work.board);
        self.hold(game);
        if frames != 0 {
            return Err(CuleError::ModeSelection { game: game.name(), mode: game.env_game.mode, frames });
        }
        self.head.state.second_return = 0;
        self.show(&output, work, game, rules);
        self.keep(&output, work, game, rules);
        Ok(())
    }

    /// Runs one step with an action of each player. If the episode has ended, no frame runs.
    pub(super) fn step(
        &mut self,
        work: &mut Workspace,
        game: &Game,
        rules: &EnvSettings,
        actions: PlayerActions,
    ) {
        let output = self.run(work, game, rules, actions);
        self.show(&output, work, game, rules);
        self.keep(&output, work, game, rules);
    }

    /// Runs the frames of a step and draws those that it shows, but adds no plane and keeps no pictures.
    pub(super) fn run(
        &mut self,
        work: &mut Workspace,
        game: &Game,
        rules: &EnvSettings,
        [action, second]: PlayerActions,
    ) -> StepOutput {
        let before = game.second_score().map(|score| (score, self.head.state.machine.riot.ram));
        let mut output = self.step_output(work, game, rules);
        self.put_registers(&mut work.board);
        step::step(
            &mut runner(game, &mut work.undrawn, self.sound.as_deref_mut()),
            &mut self.head,
            &mut output,
            &mut self.random,
            &mut work.board,
            &mut work.pictures,
            &work.kept,
            &mut work.inputs,
            rules,
            &game.env_game,
            action,
            second,
        );
        self.take_registers(&work.board);
        if let Some((score, before)) = before {
            let state = &mut self.head.state;
            self.second_reward = two_players::earned(score, &before, &state.machine.riot.ram);
            state.second_return = state.second_return.wrapping_add(self.second_reward);
        }
        self.hold(game);
        output
    }

    /// Sets the bytes of RAM that the game's variation holds.
    fn hold(&mut self, game: &Game) {
        if let Some(changes) = &game.changes {
            poke(&mut self.head.state.machine.riot.ram, &changes.hold);
        }
    }

    /// Makes the next reset begin a game of another variation, which `game` is.
    pub(super) fn change_game(&mut self, index: usize, game: &Game, same_rom: bool) {
        self.game = index;
        self.head.continues = 0;
        self.head.state.rules.mode = game.env_game.mode;
        self.head.state.env.difficulty = game.env_game.difficulty;
        self.head.state.variation = game.env_game.boot.variation;
        if !same_rom {
            // The next reset loads the other cartridge.
            self.mark_failed();
        }
    }

    /// Seeds the generators as a seeded reset does, without the reset.
    pub(super) fn reseed(&mut self, seed: u64, rules: &EnvSettings) {
        let needs_load = self.head.needs_load;
        state::seed(&mut self.head, &mut self.random, seed, rules.noops);
        self.head.needs_load = needs_load;
    }

    /// Puts the sound registers on the board of the thread.
    fn put_registers(&self, board: &mut Board) {
        if let Some(sound) = &self.sound {
            board.sound = sound.registers;
        }
    }

    /// Takes the sound registers from the board of the thread.
    fn take_registers(&mut self, board: &Board) {
        if let Some(sound) = &mut self.sound {
            sound.registers = board.sound;
        }
    }

    /// Decodes the kept pictures into `work.kept`. Returns the `StepOutput` with their number, for a step or
    /// reset.
    fn step_output(&self, work: &mut Workspace, game: &Game, rules: &EnvSettings) -> StepOutput {
        let mut output = StepOutput::zeroed();
        if let Some(pictures) = &self.pictures {
            output.kept = pictures.count(game.height()) as u8;
            pictures.decode(&mut work.kept, rules.picture_bytes as usize, game.height());
        }
        output
    }

    /// Keeps the pictures that a step or reset asks to be kept, or drops the old ones if `output.kept` is 0.
    fn keep(&mut self, output: &StepOutput, work: &Workspace, game: &Game, rules: &EnvSettings) {
        if output.kept == 0 {
            self.pictures = None;
        } else if output.kept & state::KEPT_FRESH != 0 {
            let all = [0, 1, state::FIRST_WORK_PICTURE].map(|number| picture(work, number, game, rules));
            let count = usize::from(output.kept & !state::KEPT_FRESH);
            self.pictures = Some(Box::new(Pictures::encode(all.into_iter().take(count), game.height())));
        }
    }

    /// Writes the plane that a step or reset shows into the ring of planes.
    fn show(&mut self, output: &StepOutput, work: &mut Workspace, game: &Game, rules: &EnvSettings) {
        let stack = rules.stack as usize;
        let size = self.planes.len() / stack;
        let newest = self.head.newest as usize;
        if output.clear == state::CLEAR_ZERO {
            self.planes.fill(0);
        }
        let plane = newest * size..(newest + 1) * size;
        match output.push {
            state::PUSH_PICTURES => {
                let mut canvas = std::mem::take(&mut work.canvas);
                let shown = output.picture.map(|number| picture(work, number, game, rules));
                let count = output.picture.iter().filter(|&&number| number != state::NO_PICTURE).count();
                game.screen.draw(&shown[..count], &mut canvas, &mut self.planes[plane.clone()]);
                work.canvas = canvas;
            }
            state::PUSH_COPY => {
                let before = (newest + stack - 1) % stack * size;
                self.planes.copy_within(before..before + size, plane.start);
            }
            _ => self.planes[plane.clone()].copy_from_slice(&self.head.state.machine.riot.ram),
        }
        if output.clear == state::CLEAR_FIRST {
            for other in (0..stack).filter(|&other| other != newest) {
                self.planes.copy_within(plane.clone(), other * size);
            }
        }
    }

    // ------------------------------------------------------------ observation and figures

    /// Writes the stack of planes into `out`, oldest plane first.
    pub(super) fn observe(&self, rules: &EnvSettings, out: &mut [u8]) {
        let stack = rules.stack as usize;
        let size = self.planes.len() / stack;
        let split = (self.head.newest as usize + 1) % stack * size;
        let (newer, older) = self.planes.split_at(split);
        out[..older.len()].copy_from_slice(older);
        out[older.len()..].copy_from_slice(newer);
    }

    /// Marks the state as unusable after a failure: the next reset starts from a freshly loaded cartridge.
    pub(super) fn mark_failed(&mut self) {
        self.head.ready = 0;
        self.head.needs_load = 1;
        self.pictures = None;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.head.episode.ended != 0
    }

    /// Figures of the current state, with the reward and flags of a step at 0.
    pub(super) fn figures(&self, id: usize) -> Report {
        state::figures(&self.head, id as u32).into()
    }

    /// Figures of the last step.
    pub(super) fn report(&self, id: usize, game: &Game, rules: &EnvSettings) -> Report {
        let mut report: Report = step::report(&self.head, id as u32, rules).into();
        match game.second {
            None => {}
            Some(Second::Negative) => {
                report.second_reward = -report.reward;
                report.second_raw_reward = report.raw_reward.wrapping_neg();
                report.second_return = report.episode_return.wrapping_neg();
            }
            Some(Second::Score(_)) => {
                report.second_reward = rules::clipped(&rules.rules, self.second_reward);
                report.second_raw_reward = self.second_reward;
                if report.ended {
                    report.second_return = self.head.state.second_return;
                }
            }
        }
        report
    }

    /// Palette indices of the last frame, and whether the television is PAL.
    pub(super) fn picture(&self, work: &mut Workspace, game: &Game, rules: &EnvSettings) -> (Vec<u8>, bool) {
        let output = self.step_output(work, game, rules);
        step::restore_previous_pictures(
            &mut runner(game, &mut work.undrawn, None),
            &self.head,
            &output,
            &mut work.board,
            &work.kept,
            rules,
            &game.env_game,
        );
        let t = &self.head.state.machine.tia;
        (picture(work, t.buffer & 1, game, rules).to_vec(), t.layout.pal != 0)
    }

    /// Checks a loaded state: counters and registers that are used as indices must be in range.
    pub(super) fn check(&self, game: &Game, rules: &EnvSettings) -> Result<(), String> {
        let head = &self.head;
        if head.ready == 0 && head.needs_load != 0 {
            // Not reset yet: no cartridge has been loaded, so there is no machine to check.
            return self.check_counters(rules);
        }
        machine::check(&head.state.machine, &game.env_game.boot.machine)?;
        if head.last_frames.count > 0 {
            machine::check(&head.last_frames.start, &game.env_game.boot.machine)?;
        }
        if head.state.env.game != game.row as u32 {
            return Err(format!("game {}, expected {}", head.state.env.game, game.row));
        }
        let (state, own) = (&head.state, &game.env_game);
        if (state.rules.mode, state.env.difficulty) != (own.mode, own.difficulty) {
            return Err(format!(
                "it is of mode {} and difficulty {}, its environment has mode {} and difficulty {}",
                state.rules.mode, state.env.difficulty, own.mode, own.difficulty
            ));
        }
        if state.variation != own.boot.variation {
            return Err("it is of a game with other changes of ROM or RAM than its environment".into());
        }
        self.check_counters(rules)
    }

    fn check_counters(&self, rules: &EnvSettings) -> Result<(), String> {
        let head = &self.head;
        let counters = head.newest as usize >= rules.stack as usize || head.last_frames.count > 2;
        if counters || self.random.position as usize > random::STATE_WORDS {
            return Err("a counter is out of range".into());
        }
        Ok(())
    }
}

/// Picture `number`: of the board, or a work picture. Empty for `NO_PICTURE`.
fn picture<'a>(work: &'a Workspace, number: u8, game: &Game, rules: &EnvSettings) -> &'a [u8] {
    let size = game.height() * tia::WIDTH;
    match number {
        state::NO_PICTURE => &[],
        0..state::FIRST_WORK_PICTURE => &work.board.picture[usize::from(number)][..size],
        _ => {
            &work.pictures[usize::from(number - state::FIRST_WORK_PICTURE) * rules.picture_bytes as usize..]
                [..size]
        }
    }
}
