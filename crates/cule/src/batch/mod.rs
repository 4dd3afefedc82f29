//! Many environments at once: one RL step of each, on CPU threads or a GPU.
//!
//! `cpu` is the batch that runs on threads. A batch gives the same numbers whatever the number of threads, the batch
//! size or the order of completion: environments share nothing but ROMs and tables.

mod affinity;
mod cpu;
pub mod cuda;
mod game;
mod pictures;
mod pool;
mod queue;
mod screen;
mod slot;
mod states;
mod team;

pub use cpu::{CpuBatch, Facts, Layout, Outputs};
pub use screen::{ChannelOrder, ObsType};

use crate::CuleError;
use crate::env::Action;
use crate::env::rules::StepRules;
use crate::env::state::{self, EnvSettings, Figures};
use crate::machine::tia;

/// What an ended environment does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Autoreset {
    /// The next step ignores its action and resets.
    NextStep,
    /// It is reset within the step; the last observation is in `final_obs`.
    SameStep,
    /// Nothing, until it is reset by the caller.
    Disabled,
}

/// How an unseeded reset brings a console to its first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boot {
    /// Boot, RESET switch, mode selection and starting actions run on the RAM and generators as they are.
    Exact,
    /// The state that loading and resetting give is put in place.
    Snapshot,
}

/// Idle frames after a reset: how many, from which generator, and where FIRE comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Noops {
    /// `below(noop_max) - fire` of them behind FIRE; MT19937 of the environment.
    AfterFire = state::NOOPS_AFTER_FIRE,
    /// `below(noop_max) + 1 - fire` of them before FIRE; MT19937 of the environment.
    BeforeFire = state::NOOPS_BEFORE_FIRE,
    /// 1 to `noop_max` from NumPy's generator, none with `noop_max` 0; then FIRE.
    Numpy = state::NOOPS_NUMPY,
}

/// What the older planes of a stack hold after a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Zeros.
    Zeros,
    /// The first picture.
    First,
}

/// Everything that makes a batch what it is, except games and number of environments.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// When steps stop and what they report.
    pub rules: StepRules,
    /// Frames per step: both equal, or drawn from the first up to below the second.
    pub frame_skip: (u32, u32),
    /// Show the brighter of the last two frames.
    pub maxpool: bool,
    /// Planes in an observation.
    pub stack: usize,
    /// Older planes after a reset.
    pub padding: Padding,
    /// Idle frames after a reset.
    pub noops: Noops,
    /// Their bound.
    pub noop_max: u32,
    /// FIRE once after a reset, in games that have it.
    pub fire_reset: bool,
    /// A lost life ends the episode, and the next one goes on with the same game.
    pub life_continues: bool,
    /// The frame on which a step ends early is shown, if it is one of the last two: the last but one alone.
    pub show_last_frame: bool,
    /// `terminated` and `truncated` may both be reported.
    pub both_ends: bool,
    /// What a reset does.
    pub boot: Boot,
    /// What follows an end.
    pub autoreset: Autoreset,
    /// What is observed.
    pub obs_type: ObsType,
    /// Where color channels stand.
    pub channel_order: ChannelOrder,
    /// Rows and columns of an observation, the native ones where it is `None`.
    pub size: Option<(usize, usize)>,
    /// All actions that the game knows, not only those that do something.
    pub full_actions: bool,
    /// Game mode, the game's first where it is `None`.
    pub mode: Option<u32>,
    /// Difficulty switches.
    pub difficulty: Option<u32>,
    /// Frames, counted from the start of a reset, after which an episode is truncated; 0 = never.
    pub console_frame_limit: u32,
}

impl Settings {
    /// As environments take them, with games of these.
    fn of_envs(&self, games: &[game::Game]) -> EnvSettings {
        let height = games.iter().map(game::Game::height).max().unwrap_or(0);
        EnvSettings {
            rules: self.rules,
            none: bytemuck::Zeroable::zeroed(),
            skip: self.frame_skip.into(),
            stack: self.stack as u32,
            noops: self.noops as u32,
            noop_max: self.noop_max,
            picture_bytes: (height * tia::WIDTH) as u32,
            draws: u8::from(self.obs_type != ObsType::Ram),
            indices: u8::from(self.obs_type == ObsType::Index),
            maxpool: u8::from(self.maxpool),
            show_last_frame: u8::from(self.show_last_frame),
            both_ends: u8::from(self.both_ends),
            life_continues: u8::from(self.life_continues),
            pads_first: u8::from(self.padding == Padding::First),
            snapshot: u8::from(self.boot == Boot::Snapshot),
        }
    }
}

/// What a step says of one environment, beside its observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of the environment.
    pub env_id: u32,
    /// Reward, clipped.
    pub reward: i32,
    /// Reward before clipping.
    pub raw_reward: i32,
    /// The episode is over.
    pub terminated: bool,
    /// The episode was cut.
    pub truncated: bool,
    /// An episode ended in this step; the three `final_` figures, the two `episode_` sums and the two `game_` figures are its own.
    pub ended: bool,
    /// Lives.
    pub lives: i32,
    /// Frames since the console was loaded.
    pub frame_number: i32,
    /// Frames since the last reset.
    pub episode_frame_number: i32,
    /// Lives at the end of an episode.
    pub final_lives: i32,
    /// Frame number at the end of an episode.
    pub final_frame_number: i32,
    /// Episode frame number at the end of an episode.
    pub final_episode_frame_number: i32,
    /// Sum of rewards before clipping.
    pub episode_return: i32,
    /// Steps.
    pub episode_length: i32,
    /// The game ended with the episode: the next one begins another game, or this one was cut.
    pub game_over: bool,
    /// As `episode_return`, of all episodes of the game so far.
    pub game_return: i32,
}

impl From<Figures> for Report {
    fn from(figures: Figures) -> Self {
        let [terminated, truncated, ended, game_over] = figures.flag.map(|flag| flag != 0);
        let [reward, raw_reward, lives, frame_number, episode_frame_number, env_id, rest @ ..] =
            figures.number;
        let [final_lives, final_frame_number, final_episode_frame_number, rest @ ..] = rest;
        let [episode_return, episode_length, game_return] = rest;
        Self {
            env_id: env_id as u32,
            reward,
            raw_reward,
            terminated,
            truncated,
            ended,
            lives,
            frame_number,
            episode_frame_number,
            final_lives,
            final_frame_number,
            final_episode_frame_number,
            episode_return,
            episode_length,
            game_over,
            game_return,
        }
    }
}

/// Environments that are stepped together.
pub trait Batch {
    /// How many environments there are.
    fn num_envs(&self) -> usize;

    /// Resets the environments of `mask`, all without one; `seeds` has one entry per environment. Every row of `out`
    /// is written.
    ///
    /// # Errors
    /// A seed or mask does not fit, or a console cannot reach its first frame.
    fn reset(
        &mut self,
        seeds: Option<&[Option<i64>]>,
        mask: Option<&[bool]>,
        out: Outputs<'_>,
    ) -> Result<(), CuleError>;

    /// One step of every environment.
    ///
    /// # Errors
    /// There is not one action per environment, or an environment has not been reset.
    fn step(&mut self, actions: &[Action], out: Outputs<'_>) -> Result<(), CuleError>;

    /// Bytes of one row of [`Batch::save`] for these environments.
    fn state_bytes(&self, envs: &[usize]) -> usize;

    /// Writes one row per environment of `envs`.
    ///
    /// # Errors
    /// `out` has another size.
    fn save(&self, envs: &[usize], out: &mut [u8]) -> Result<(), CuleError>;

    /// Puts row i of `rows` into environment `envs[i]`. All rows are checked before the first is used.
    ///
    /// # Errors
    /// A row is no state of that environment: another game, other settings, another version, or a flipped bit.
    fn load(&mut self, envs: &[usize], rows: &[u8]) -> Result<(), CuleError>;
}
