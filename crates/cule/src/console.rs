//! A console with one game: loading, resets, mode selection, frames, pictures, saved states. Host only.

mod boot;
mod pictures;
mod rom_cache;
mod states;
pub(crate) mod undrawn;

pub use pictures::Drawing;
use pictures::ReadPredictor;
use undrawn::{CpuRunner, UndrawnFrames};

use crate::CuleError;
use crate::env::{self, Action, NOOP, State, full_strength};
use crate::fast_cpu::Code;
use crate::games::table::{GAME_COUNT, GAMES, UNKNOWN};
use crate::games::two_players;
use crate::machine::Board;
use crate::random::{self, Random};
use crate::rom::Rom;
use crate::sound::Sound;

/// Default seed of the core generator, which provides RAM at power-on, the timer at reset and cartridge RAM.
pub const SYSTEM_SEED: u32 = 4_753_849;

/// Settings of a console.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Seed of the environment's generator, used by sticky actions and two of Adventure's modes.
    pub random_seed: u32,
    /// Seed of the core generator.
    pub system_seed: u32,
    /// Probability that a frame repeats the previous action (sticky actions).
    pub repeat_action_probability: f32,
    /// Frames per call of [`Console::act`], at least 1.
    pub frame_skip: u32,
    /// Frames after which an episode is truncated, 0 = never.
    pub max_num_frames_per_episode: u32,
    /// Truncate the episode when fewer lives are left than after loading.
    pub truncate_on_loss_of_life: bool,
    /// When pixels are drawn.
    pub drawing: Drawing,
    /// Make sound.
    pub sound: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            random_seed: 0,
            system_seed: SYSTEM_SEED,
            repeat_action_probability: 0.0,
            frame_skip: 1,
            max_num_frames_per_episode: 0,
            truncate_on_loss_of_life: false,
            drawing: Drawing::EveryFrame,
            sound: false,
        }
    }
}

/// A console with a loaded ROM.
#[derive(Clone)]
pub struct Console {
    // A batch lends one console to many environments, for the duration of a reset or a step.
    pub(crate) state: State,
    pub(crate) board: Box<Board>,
    pub(crate) code: Code,
    pub(crate) options: Options,
    /// The core generator. May be behind `Machine::draws`; `core_draws` is its position.
    core_random: Random,
    core_draws: u32,
    pub(crate) env_random: Random,
    /// Frames that ran without pixels and that the picture buffers should show.
    undrawn: UndrawnFrames,
    /// Predicts which frames are read.
    read_predictor: ReadPredictor,
    /// Its sound, if it makes any. The registers are on the board.
    sound: Option<Box<Sound>>,
    /// Hash of the ROM image, compared when a saved state is loaded.
    fingerprint: u32,
}

/// Index of a game in the table of games.
///
/// # Errors
/// [`CuleError::GameUnknown`] if there is no game with this name.
pub fn game_row(game: &str) -> Result<usize, CuleError> {
    let (first, last) = (GAMES[0].name, GAMES[UNKNOWN - 1].name);
    GAMES[..UNKNOWN].iter().position(|row| row.name == game).ok_or_else(|| CuleError::GameUnknown {
        game: game.into(),
        count: UNKNOWN,
        first,
        last,
    })
}

impl Console {
    /// Creates a console with a ROM and the rules of a game: power-on, detection of the television, first
    /// reset.
    ///
    /// `game` is an index into the table of games; `games::table::UNKNOWN` has no rules. Data that depends on
    /// the ROM alone is computed once per process, so that further consoles with the same ROM are created in
    /// microseconds.
    ///
    /// # Errors
    /// An option is out of range, or the game's mode is never reached (the ROM is of another game).
    pub fn new(rom: &Rom, game: usize, options: Options) -> Result<Self, CuleError> {
        check(&options)?;
        if game >= GAME_COUNT {
            return Err(CuleError::Setting {
                name: "game",
                value: game.to_string(),
                bound: "an index into the table of games",
            });
        }
        Self::booted(&rom_cache::get(rom), game, options)
    }

    /// Switches permanently from the fast CPU to the plain interpreter. The results are equal.
    pub fn use_plain_interpreter(&mut self) {
        let bytes = self.code.rom_bytes() as usize;
        self.code = Code::plain(&self.code.image()[..bytes]);
    }

    /// Steps `frame_skip` frames with an action of player A. Returns the sum of their rewards.
    ///
    /// Action codes that the game does not use have no effect. After the end of the episode no frame runs and
    /// the reward is 0.
    pub fn act(&mut self, action: u8) -> i32 {
        self.act_two(full_strength(u32::from(action)), full_strength(u32::from(NOOP)))
    }

    /// As [`Console::act`], for two players, with a paddle movement for each.
    pub fn act_two(&mut self, a: Action, b: Action) -> i32 {
        let repeat_probability = f64::from(self.options.repeat_action_probability);
        let draws_last = match self.options.drawing {
            Drawing::EveryFrame => true,
            Drawing::OnRequest => false,
            Drawing::Predicted => self.read_predictor.next(),
        };
        let mut total = 0i32;
        for left in (0..self.options.frame_skip).rev() {
            let draws = self.options.drawing == Drawing::EveryFrame || draws_last && left == 0;
            let mut runner =
                CpuRunner { code: &self.code, undrawn: &mut self.undrawn, keeps_undrawn: true, sound: None };
            self.state.machine.draw = u8::from(draws);
            let (state, random) = (&mut self.state, &mut self.env_random);
            total = total.wrapping_add(env::act(
                &mut runner,
                state,
                random,
                &mut self.board,
                repeat_probability,
                a,
                b,
            ));
        }
        if let Some(sound) = &mut self.sound {
            sound.act(&self.board.sound);
        }
        total
    }

    /// The 512 samples of the last act (`sound::SAMPLES`); `None` without [`Options::sound`].
    pub fn audio(&self) -> Option<&[u8]> {
        self.sound.as_ref().map(|sound| sound.samples())
    }

    /// The sound with its registers, for another console or environment.
    pub(crate) fn copy_sound(&self) -> Option<Box<Sound>> {
        let mut sound = self.sound.clone()?;
        sound.registers = self.board.sound;
        Some(sound)
    }

    // ------------------------------------------------------------ accessors

    /// Index of the game in the table of games.
    pub fn game(&self) -> usize {
        self.state.env.game as usize
    }

    /// Name of the game.
    pub fn game_name(&self) -> &'static str {
        GAMES[self.game()].name
    }

    /// State of the machine, the game's rules and the environment.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The console's 128 bytes of RAM.
    pub fn ram(&self) -> &[u8; 128] {
        &self.state.machine.riot.ram
    }

    /// Writes a byte of console RAM.
    ///
    /// # Errors
    /// [`CuleError::RamIndex`] if `index` is not below 128.
    pub fn set_ram(&mut self, index: usize, value: u8) -> Result<(), CuleError> {
        *self.state.machine.riot.ram.get_mut(index).ok_or(CuleError::RamIndex { index })? = value;
        Ok(())
    }

    /// Lives left, as reported for this game.
    pub fn lives(&self) -> i32 {
        env::lives(&self.state)
    }

    /// True if the game has ended.
    pub fn game_over(&self) -> bool {
        self.state.rules.over != 0
    }

    /// True if the episode was truncated.
    pub fn truncated(&self) -> bool {
        env::truncated(&self.state)
    }

    /// Frames since loading.
    pub fn frame_number(&self) -> i32 {
        self.state.env.frame_number
    }

    /// Frames since the last reset.
    pub fn episode_frame_number(&self) -> i32 {
        self.state.env.episode_frame_number
    }

    /// Minimal action set (actions with an effect), ascending.
    pub fn minimal_actions(&self) -> Vec<u8> {
        actions(GAMES[self.game()].minimal)
    }

    /// Legal action set, ascending.
    pub fn legal_actions(&self) -> Vec<u8> {
        actions(GAMES[self.game()].legal)
    }

    /// Modes of the game, ascending.
    pub fn modes(&self) -> &'static [u32] {
        GAMES[self.game()].modes
    }

    /// Difficulties of the game, ascending.
    pub fn difficulties(&self) -> &'static [u32] {
        GAMES[self.game()].difficulties
    }

    /// The players' last actions, which sticky actions repeat, with their paddle movements.
    pub fn held(&self) -> [Action; 2] {
        let env = &self.state.env;
        [0, 1].map(|player| Action { code: env.held[player], step: env.held_step[player] })
    }

    /// Replaces the actions that [`Console::held`] returns. Saved states do not contain them, as in ale-py:
    /// after loading a state, a console continues with the last action it had before.
    pub fn set_held(&mut self, actions: [Action; 2]) {
        self.state.env.held = actions.map(|action| action.code);
        self.state.env.held_step = actions.map(|action| action.step);
    }

    /// Reseeds the environment's generator.
    pub fn reseed(&mut self, seed: u32) {
        self.options.random_seed = seed;
        self.env_random = random::seeded(seed);
    }

    /// Mode that the following resets select.
    pub fn mode(&self) -> u32 {
        self.state.rules.mode
    }

    /// Current difficulty.
    pub fn difficulty(&self) -> u32 {
        self.state.env.difficulty
    }

    /// Sets the mode that the following resets select.
    ///
    /// # Errors
    /// [`CuleError::Mode`] if the game does not have this mode.
    pub fn set_mode(&mut self, mode: u32) -> Result<(), CuleError> {
        self.set_mode_for(mode, false)
    }

    /// As [`Console::set_mode`], with the modes for two players if `two` is true.
    pub(crate) fn set_mode_for(&mut self, mode: u32, two: bool) -> Result<(), CuleError> {
        let more = two_players::of(self.game()).filter(|_| two).map_or(&[][..], |entry| entry.modes);
        if !self.modes().contains(&mode) && !more.contains(&mode) {
            let mut available = [self.modes(), more].concat();
            available.sort_unstable();
            available.dedup();
            return Err(CuleError::Mode { game: self.game_name(), mode, available });
        }
        self.state.rules.mode = mode;
        Ok(())
    }

    /// Sets the difficulty switches, from the next frame on.
    ///
    /// # Errors
    /// [`CuleError::Difficulty`] if the game does not have this difficulty.
    pub fn set_difficulty(&mut self, difficulty: u32) -> Result<(), CuleError> {
        if !self.difficulties().contains(&difficulty) {
            let available = self.difficulties().to_vec();
            return Err(CuleError::Difficulty { game: self.game_name(), difficulty, available });
        }
        self.state.env.difficulty = difficulty;
        Ok(())
    }

    /// True if the television is PAL.
    pub fn is_pal(&self) -> bool {
        self.state.machine.tia.layout.pal != 0
    }

    /// Number of rows of the picture. A row has 160 pixels.
    pub fn height(&self) -> usize {
        (self.state.machine.tia.layout.height as usize).max(200)
    }
}

fn actions(set: u32) -> Vec<u8> {
    (0..env::ACTIONS).filter(|&action| set >> action & 1 != 0).collect()
}

fn check(options: &Options) -> Result<(), CuleError> {
    let probability = options.repeat_action_probability;
    if !(0.0..=1.0).contains(&probability) {
        let value = probability.to_string();
        return Err(CuleError::Setting { name: "repeat_action_probability", value, bound: "0 to 1" });
    }
    if options.frame_skip == 0 || options.frame_skip > 1000 {
        let value = options.frame_skip.to_string();
        return Err(CuleError::Setting { name: "frame_skip", value, bound: "1 to 1000" });
    }
    if options.max_num_frames_per_episode > i32::MAX as u32 {
        let value = options.max_num_frames_per_episode.to_string();
        return Err(CuleError::Setting {
            name: "max_num_frames_per_episode",
            value,
            bound: "0 to 2147483647",
        });
    }
    Ok(())
}
