//! One environment: its console, generators and stack of planes; its step and reset. Host only.
//!
//! A console is a few hundred bytes and has no picture: pixels are made on the thread's own board, and only for the
//! frames that are shown. That is exact as long as the last two frames were drawn in full, for then nothing older is
//! visible. Where it is not (a short or an open frame), or where an older picture is asked for, the picture is made
//! again from the machine as it was two frames before. An environment whose pictures cannot be made from there keeps
//! them (`pictures`) and draws every frame, until two whole frames have been seen again.

use bytemuck::Zeroable;

use super::game::Game;
use super::pictures::Pictures;
use super::screen::Canvas;
use super::{Boot, Noops, ObsType, Padding, Report, Settings};
use crate::console::Console;
use crate::env::{self, Action, NOOP, State, full};
use crate::lane::{self, Head, Recent, is_whole};
use crate::machine::input::Input;
use crate::machine::{self, Board, Machine, tia};
use crate::numpy_random;
use crate::random::{self, Random};
use crate::step;
use crate::threaded::{self, Code};
use crate::{CuleError, memory};

const FIRE: u32 = 1;

/// What a thread works in.
pub(super) struct Work {
    /// Lends its board to every step, and itself to resets.
    console: Console,
    canvas: Canvas,
    inputs: Vec<Input>,
    /// Room for the generator of idle frames.
    spare: Box<Random>,
}

impl Work {
    pub(super) fn new(console: Console) -> Self {
        Self { console, canvas: Canvas::default(), inputs: vec![], spare: Box::new(random::seeded(0)) }
    }
}

/// One environment.
pub(super) struct Slot {
    pub game: usize,
    pub head: Head,
    pub random: Box<Random>,
    pub planes: Box<[u8]>,
    pub pictures: Option<Box<Pictures>>,
}

impl Slot {
    /// One that has not been reset.
    ///
    /// # Errors
    /// [`CuleError::OutOfMemory`] where its planes find no room.
    pub(super) fn new(
        index: usize,
        game: &Game,
        settings: &Settings,
        entropy: u64,
    ) -> Result<Self, CuleError> {
        let size = settings.stack.saturating_mul(game.screen.size_bytes());
        let mut slot = Self {
            game: index,
            head: Zeroable::zeroed(),
            random: Box::new(random::seeded(0)),
            planes: memory::filled(0, size)?.into(),
            pictures: None,
        };
        slot.seed(entropy, settings);
        Ok(slot)
    }

    fn seed(&mut self, seed: u64, settings: &Settings) {
        lane::seed(&mut self.head, &mut self.random, seed, settings.noops as u32);
    }

    // ------------------------------------------------------------ reset

    /// Brings the console to the first observation of an episode.
    pub(super) fn reset(
        &mut self,
        work: &mut Work,
        game: &Game,
        settings: &Settings,
        seed: Option<u64>,
    ) -> Result<(), CuleError> {
        if let Some(seed) = seed {
            self.seed(seed, settings);
        }
        let soft = self.head.continues != 0 && self.head.unused == 0;
        let fire = u32::from(game.fires);
        let idle = lane::idle_frames(
            &mut self.head,
            &mut work.spare,
            settings.noops as u32,
            settings.noop_max,
            fire,
        );
        let mut acts = vec![u32::from(NOOP); idle as usize];
        if fire != 0 {
            let at = if settings.noops == Noops::AfterFire { 0 } else { acts.len() };
            acts.insert(at, FIRE);
        }
        let before = (self.head, self.random.clone());
        self.begin(work, game, settings, &acts, soft, false)?;
        if self.head.recent.whole < 2 && settings.obs_type != ObsType::Ram {
            (self.head, self.random) = before;
            self.begin(work, game, settings, &acts, soft, true)?;
        }
        self.head.unused = 0;
        self.head.ready = 1;
        self.head.carried = lane::reset::carried(&self.head, soft);
        self.head.continues = 0;
        self.head.episode = step::begin_episode(&self.head.state);
        self.head.single = 1;
        let size = game.screen.size_bytes();
        if !soft {
            self.planes.fill(0);
        }
        self.advance(settings);
        let plane = self.head.newest as usize * size..(self.head.newest as usize + 1) * size;
        if settings.obs_type == ObsType::Ram {
            self.planes[plane.clone()].copy_from_slice(&self.head.state.machine.riot.ram);
        } else {
            let [last, _] = shown(&self.head.state, &work.console.board, game.height);
            game.screen.draw(last, None, &mut work.canvas, &mut self.planes[plane.clone()]);
        }
        if settings.padding == Padding::First && !soft {
            for other in (0..settings.stack).filter(|&other| other != self.head.newest as usize) {
                self.planes.copy_within(plane.clone(), other * size);
            }
        }
        Ok(())
    }

    /// Boots and runs `acts`. Pixels are made for the last two frames, or for all with `everything`.
    fn begin(
        &mut self,
        work: &mut Work,
        game: &Game,
        settings: &Settings,
        acts: &[u32],
        soft: bool,
        everything: bool,
    ) -> Result<(), CuleError> {
        let board = &mut work.console.board;
        let snapshot = self.head.unused != 0 || settings.boot == Boot::Snapshot;
        if soft {
            if everything {
                self.show(board, game);
            }
        } else if let (true, Some(draws)) = (snapshot, game.boot_draws) {
            self.head.state = game.boot;
            for _ in 0..draws {
                random::draw(&mut self.random);
            }
            if everything {
                game.boot_pictures.put(&mut board.picture, game.height);
            }
        } else if self.head.unused != 0 {
            // Boot and sticky draws depend on each other: nothing is known in advance.
            let console = game.boot_console(self.head.random_seed)?;
            self.head.state = *console.state();
            *self.random = console.env_random;
            if everything {
                Pictures::take(&console.board.picture, game.height).put(&mut board.picture, game.height);
            }
        } else {
            self.restart(&mut work.console, game, everything)?;
        }
        let mut roll = Roll::new();
        for (i, &code) in acts.iter().enumerate() {
            env::hold(&mut self.head.state, &mut self.random, settings.rules.keep, full(code), full(0));
            if env::ended(&self.head.state) {
                continue;
            }
            env::set_held_inputs(&mut self.head.state);
            let state = &mut self.head.state;
            state.machine.draw = u8::from(everything || i + 2 >= acts.len());
            roll.frame(state, &mut work.console.board, &game.code);
            if state.rules.over != 0 {
                self.restart(&mut work.console, game, everything)?;
                roll = Roll::new();
            }
        }
        self.head.recent = roll.recent;
        self.keep_pictures(&work.console.board, game, everything);
        Ok(())
    }

    /// `reset_game` on the console as it is.
    fn restart(&mut self, console: &mut Console, game: &Game, draw: bool) -> Result<(), CuleError> {
        console.code.clone_from(&game.code);
        console.state = self.head.state;
        console.env_random = *self.random;
        console.options.repeat_action_probability = game.keep();
        console.set_drawing(draw);
        let result = console.reset();
        self.head.state = console.state;
        *self.random = console.env_random;
        result
    }

    // ------------------------------------------------------------ step

    /// One step with an action; an ended episode stays as it is.
    pub(super) fn step(&mut self, work: &mut Work, game: &Game, settings: &Settings, action: Action) {
        let (low, high) = settings.frame_skip;
        let skip = if low == high { low } else { numpy_random::integers(&mut self.head.numpy, low, high) };
        let draws = settings.obs_type != ObsType::Ram;
        let careful = self.pictures.is_some();
        if let Some(pictures) = &self.pictures {
            pictures.put(&mut work.console.board.picture, game.height);
        }
        let board = &mut *work.console.board;
        let start = self.head.state.machine;
        let state = &mut self.head.state;
        let episode = &mut self.head.episode;
        let mut roll = Roll::new();
        work.inputs.clear();
        step::begin_step(episode);
        let shown_frames = if settings.maxpool || settings.show_last_frame { 2 } else { 1 };
        let mut stopped_at = None;
        for left in (1..=skip).rev() {
            env::hold(state, &mut self.random, settings.rules.keep, action, full(u32::from(NOOP)));
            let mut reward = 0;
            if !env::ended(state) {
                env::set_held_inputs(state);
                work.inputs.push(state.machine.input);
                state.machine.draw = u8::from(draws && (careful || left <= shown_frames));
                reward = roll.frame(state, board, &game.code);
            }
            step::count(episode, state, reward);
            if step::stops(&settings.rules, episode, state) {
                stopped_at = Some(left);
                break;
            }
        }
        step::end_step(&settings.rules, episode, state);
        let recent = roll.recent;
        self.head.continues =
            lane::advance::continues(u8::from(settings.life_continues), &settings.rules, episode, state);
        // An end on the last frame is an early stop only where that frame is not shown.
        let early = stopped_at.filter(|&left| left > 1 || !settings.show_last_frame);
        if !draws {
            self.advance(settings);
            let at = self.head.newest as usize * 128;
            self.planes[at..at + 128].copy_from_slice(&self.head.state.machine.riot.ram);
            self.head.recent = recent;
            return;
        }
        if !careful && recent.whole < 2 && early.is_none() {
            // Something older shows: all frames of the step again, drawn, on the pictures before them.
            self.show(board, game);
            let drawn = rerun(start, &work.inputs, board, &game.code);
            follow(&mut self.head.state.machine, &drawn);
        }
        let pool = settings.maxpool && skip > 1;
        // A frame that goes on with an open one draws over it: the picture of the frame before is made apart.
        let second = (pool && roll.open && early.is_none()).then(|| self.rerun_apart(work, game, &start));
        let board = &*work.console.board;
        if early.is_none() {
            let [last, before] = shown(&self.head.state, board, game.height);
            let before = pool.then_some(second.as_deref().unwrap_or(before));
            self.push(game, settings, |out| game.screen.draw(last, before, &mut work.canvas, out));
            self.head.single = u8::from(!pool);
        } else if early == Some(2) && settings.show_last_frame {
            // The first of the two frames that would have been pooled stands alone.
            let board = &mut *work.console.board;
            if !careful && recent.whole < 1 {
                self.show(board, game);
                let drawn = rerun(start, &work.inputs, board, &game.code);
                follow(&mut self.head.state.machine, &drawn);
            }
            let [last, _] = shown(&self.head.state, board, game.height);
            self.push(game, settings, |out| game.screen.draw(last, None, &mut work.canvas, out));
            self.head.single = 1;
        } else if early == Some(1) && pool {
            self.push_stopped(work, game, settings, &start);
        } else {
            self.push_again(settings);
        }
        if early.is_some() && self.head.continues != 0 && recent.whole < 2 {
            let board = &mut *work.console.board;
            self.show(board, game);
            let drawn = rerun(start, &work.inputs, board, &game.code);
            follow(&mut self.head.state.machine, &drawn);
        }
        self.head.recent = recent;
        if early.is_none() || self.head.continues != 0 {
            self.keep_pictures(&work.console.board, game, true);
            if let (Some(pictures), Some(second)) = (&mut self.pictures, second) {
                pictures.add(&second);
            }
        }
    }

    /// All frames of a step again, drawn; gives the picture of the last but one.
    fn rerun_apart(&self, work: &mut Work, game: &Game, start: &Machine) -> Vec<u8> {
        let board = &mut *work.console.board;
        self.show(board, game);
        let (earlier, last) = work.inputs.split_at(work.inputs.len().saturating_sub(1));
        let machine = rerun(*start, earlier, board, &game.code);
        let second = buffers(board, machine.tia.buffer, game.height)[0].to_vec();
        rerun(machine, last, board, &game.code);
        second
    }

    /// The step stopped on its last frame, which is not shown: the frame before it, pooled with the plane before.
    fn push_stopped(&mut self, work: &mut Work, game: &Game, settings: &Settings, start: &Machine) {
        let second = self.rerun_apart(work, game, start);
        let board = &mut *work.console.board;
        self.show(board, game);
        let [last, before] = buffers(board, start.tia.buffer, game.height);
        let apart = self.pictures.as_ref().and_then(|pictures| pictures.added(game.height));
        let before = (self.head.single == 0).then_some(apart.as_deref().unwrap_or(before));
        let earlier = game.screen.pooled(last, before, &mut work.canvas);
        self.push(game, settings, |out| game.screen.draw_over(&second, &earlier, &mut work.canvas, out));
        self.head.single = 0;
    }

    /// Puts the pictures of the last two frames on the board.
    fn show(&self, board: &mut Board, game: &Game) {
        if let Some(pictures) = &self.pictures {
            pictures.put(&mut board.picture, game.height);
        } else {
            let recent = &self.head.recent;
            rerun(recent.from, &recent.inputs[2 - recent.count as usize..], board, &game.code);
        }
    }

    /// Keeps the pictures on the board if they cannot be made again; `exact` says that they are all there.
    fn keep_pictures(&mut self, board: &Board, game: &Game, exact: bool) {
        if self.head.recent.whole >= 2 {
            self.pictures = None;
        } else if exact {
            self.pictures = Some(Box::new(Pictures::take(&board.picture, game.height)));
        }
    }

    fn advance(&mut self, settings: &Settings) {
        self.head.newest = (self.head.newest + 1) % settings.stack as u32;
    }

    fn push(&mut self, game: &Game, settings: &Settings, draw: impl FnOnce(&mut [u8])) {
        self.advance(settings);
        let size = game.screen.size_bytes();
        let at = self.head.newest as usize * size;
        draw(&mut self.planes[at..at + size]);
    }

    /// The newest plane once more.
    fn push_again(&mut self, settings: &Settings) {
        let size = self.planes.len() / settings.stack;
        let at = self.head.newest as usize * size;
        self.advance(settings);
        self.planes.copy_within(at..at + size, self.head.newest as usize * size);
    }

    // ------------------------------------------------------------ what it shows

    /// The stack, oldest plane first.
    pub(super) fn observe(&self, settings: &Settings, out: &mut [u8]) {
        let size = self.planes.len() / settings.stack;
        let split = (self.head.newest as usize + 1) % settings.stack * size;
        let (newer, older) = self.planes.split_at(split);
        out[..older.len()].copy_from_slice(older);
        out[older.len()..].copy_from_slice(newer);
    }

    /// Nothing of what there is can be relied on: the next reset begins with a fresh load.
    pub(super) fn give_up(&mut self) {
        self.head.ready = 0;
        self.head.unused = 1;
        self.pictures = None;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.head.episode.ended != 0
    }

    /// Figures of the console as it stands, without those of a step.
    pub(super) fn figures(&self, id: usize) -> Report {
        Report {
            env_id: id as u32,
            lives: env::lives(&self.head.state),
            frame_number: self.head.state.env.frame_number,
            episode_frame_number: self.head.state.env.episode_frame_number,
            ..Report::default()
        }
    }

    /// Figures of the step that has just run.
    pub(super) fn report(&self, id: usize, settings: &Settings) -> Report {
        let (episode, state) = (&self.head.episode, &self.head.state);
        let terminated = step::terminated(&settings.rules, episode, state);
        let now = self.figures(id);
        let mut report = Report {
            reward: step::clipped(&settings.rules, episode.reward),
            raw_reward: episode.reward,
            terminated,
            truncated: step::truncated(&settings.rules, episode, state)
                && (settings.both_ends || !terminated),
            ended: episode.ended != 0,
            ..now
        };
        if report.ended {
            report.final_lives = now.lives;
            report.final_frame_number = now.frame_number;
            report.final_episode_frame_number = now.episode_frame_number;
            report.episode_return = episode.total;
            report.episode_length = episode.steps;
            report.game_return = self.head.carried.wrapping_add(episode.total);
            report.game_over = self.head.continues != lane::CONTINUES_LIFE;
        }
        report
    }

    /// Palette indices of the last frame, and whether they are PAL's.
    pub(super) fn picture(&self, work: &mut Work, game: &Game) -> (Vec<u8>, bool) {
        let board = &mut *work.console.board;
        self.show(board, game);
        let [last, _] = shown(&self.head.state, board, game.height);
        (last.to_vec(), self.head.state.machine.tia.layout.pal != 0)
    }

    /// Checks what came from elsewhere: counters and registers that index something.
    pub(super) fn check(&self, game: &Game, settings: &Settings) -> Result<(), String> {
        let head = &self.head;
        if head.ready == 0 && head.unused != 0 {
            // It has not been reset: its console is not plugged in yet.
            return self.check_counters(settings);
        }
        machine::check(&head.state.machine, &game.boot.machine)?;
        if head.recent.count > 0 {
            machine::check(&head.recent.from, &game.boot.machine)?;
        }
        if head.state.env.game != game.row as u32 {
            return Err(format!("game {}, expected {}", head.state.env.game, game.row));
        }
        self.check_counters(settings)
    }

    fn check_counters(&self, settings: &Settings) -> Result<(), String> {
        let head = &self.head;
        let counters = head.newest as usize >= settings.stack || head.recent.count > 2;
        if counters || self.random.position as usize > random::STATE_WORDS {
            return Err("counters out of their ranges".into());
        }
        Ok(())
    }
}

/// The frames of one step or reset as they run.
#[derive(Clone)]
pub(super) struct Roll {
    pub recent: Recent,
    /// The machine before the newest frame.
    middle: Machine,
    /// The newest frame went on with an open one.
    open: bool,
}

impl Roll {
    pub(super) fn new() -> Self {
        Self { recent: Zeroable::zeroed(), middle: Zeroable::zeroed(), open: false }
    }

    /// Runs one frame with its inputs set, and gives its reward.
    pub(super) fn frame(&mut self, state: &mut State, board: &mut Board, code: &Code) -> i32 {
        let recent = &mut self.recent;
        recent.from = if recent.count == 0 { state.machine } else { self.middle };
        self.middle = state.machine;
        recent.count = (recent.count + 1).min(2);
        self.open = state.machine.unfinished != 0;
        recent.inputs = [recent.inputs[1], state.machine.input];
        threaded::step(&mut state.machine, board, code);
        env::evaluate(state);
        recent.whole = if !self.open && is_whole(&state.machine) { (recent.whole + 1).min(2) } else { 0 };
        env::count_frame(state)
    }
}

/// Runs frames again, drawing all of them; the machine after them.
fn rerun(mut from: Machine, inputs: &[Input], board: &mut Board, code: &Code) -> Machine {
    for &input in inputs {
        from.input = input;
        from.draw = 1;
        threaded::step(&mut from, board, code);
    }
    from
}

/// Brings the beam of an open frame, which lags where no pixels were made, to where it was when they were.
fn follow(m: &mut Machine, drawn: &Machine) {
    if m.unfinished != 0 {
        m.tia = drawn.tia;
    }
}

/// The picture of the last frame and that of the frame before.
fn shown<'a>(state: &State, board: &'a Board, height: usize) -> [&'a [u8]; 2] {
    buffers(board, state.machine.tia.buffer, height)
}

fn buffers(board: &Board, buffer: u8, height: usize) -> [&[u8]; 2] {
    let picture = |buffer: u8| &board.picture[buffer as usize & 1][..height * tia::WIDTH];
    [picture(buffer), picture(buffer ^ 1)]
}
