//! Batches of environments that are stepped together, on CPU threads or a GPU.
//!
//! `cpu` runs the batch on threads, `cuda` on a GPU. Results do not depend on the number of threads, the
//! batch size or the order of completion, because environments share only ROMs and tables.

mod affinity;
mod branch;
mod config;
mod cpu;
pub mod cuda;
mod game;
mod outputs;
mod pictures;
mod pool;
mod queue;
mod rows;
mod screen;
mod slot;
mod states;
mod team;
mod variation;

pub use branch::{BranchOutputs, BranchReport, Branches};
pub use config::BatchConfig;
pub use cpu::{ConsoleStatus, CpuBatch};
pub use outputs::Outputs;
pub use pool::check_process;
pub use rows::{RowBatch, RowInputs, RowOutputs};
pub use screen::{ChannelOrder, ObsType};
pub use states::{VERSION as STATE_VERSION, console_bytes};
pub use variation::Variation;

use crate::env::rules::{self, StepRules};
use crate::env::state::{self, EnvSettings, Figures};
use crate::env::{Action, NOOP, full_strength};
use crate::machine::tia;

/// What an environment does after its episode has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Autoreset {
    /// The next step ignores its action and resets.
    NextStep,
    /// The environment is reset within the step that ends the episode; the last observation is in
    /// `final_obs`.
    SameStep,
    /// Nothing: the caller must reset it.
    Disabled,
}

/// How an unseeded reset prepares the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boot {
    /// Runs boot, RESET switch, mode selection and starting actions on the current RAM and generators.
    Exact,
    /// Copies the state that a freshly loaded console has after one reset.
    Snapshot,
}

/// Idle frames after a reset: their number, its generator, and whether FIRE comes before or after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Noops {
    /// FIRE, then `below(noop_max) - fire` idle frames, drawn from the environment's MT19937 (`fire` is 1 if
    /// FIRE is sent).
    AfterFire = state::NOOPS_AFTER_FIRE,
    /// `below(noop_max) + 1 - fire` idle frames, drawn from the environment's MT19937, then FIRE.
    BeforeFire = state::NOOPS_BEFORE_FIRE,
    /// 1 to `noop_max` idle frames (none if `noop_max` is 0), drawn from NumPy's generator, then FIRE.
    Numpy = state::NOOPS_NUMPY,
}

/// Why an environment cannot step or be shown before its first reset.
const NOT_RESET: &str = "has not been reset: call reset first";
/// Why an environment cannot step after the end of its episode, with [`Autoreset::Disabled`].
const HAS_ENDED: &str = "has ended and autoreset is disabled: reset it with options={\"reset_mask\": ...}";

/// Actions of both players in a step. In an environment for one player the second is NOOP.
type PlayerActions = [Action; 2];

/// The actions of number `at` among those of environments with `players` players each.
fn player_actions(actions: &[Action], players: u32, at: usize) -> PlayerActions {
    if players == 2 {
        [actions[2 * at], actions[2 * at + 1]]
    } else {
        [actions[at], full_strength(u32::from(NOOP))]
    }
}

/// Contents of the older planes of a stack after a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Zeros.
    Zeros,
    /// Copies of the first observation's plane.
    First,
}

/// Settings of a batch, except its games and its number of environments.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// When steps stop and what they report.
    pub rules: StepRules,
    /// Frames per step: fixed if both are equal, otherwise drawn from `first..second`.
    pub frame_skip: (u32, u32),
    /// Show the brighter of the last two frames.
    pub maxpool: bool,
    /// Planes in an observation.
    pub stack: usize,
    /// Contents of the older planes after a reset.
    pub padding: Padding,
    /// Idle frames after a reset.
    pub noops: Noops,
    /// Bound of the number of idle frames, see [`Noops`].
    pub noop_max: u32,
    /// Send FIRE once after a reset, in games whose actions include it.
    pub fire_reset: bool,
    /// A lost life ends the episode, and the next episode continues the same game. Limits on frames and steps
    /// count the whole game and end it.
    pub life_continues: bool,
    /// Show the frame on which a step ends early, if it is one of the last two of the step. The second to
    /// last frame is shown alone, without maximum.
    pub show_last_frame: bool,
    /// `terminated` and `truncated` may both be true in the same step. If false, `terminated` clears
    /// `truncated`.
    pub both_ends: bool,
    /// How an unseeded reset prepares the console.
    pub boot: Boot,
    /// What an environment does after its episode has ended.
    pub autoreset: Autoreset,
    /// What an observation shows.
    pub obs_type: ObsType,
    /// Position of the color channels.
    pub channel_order: ChannelOrder,
    /// Rows and columns of an observation; `None` is the native size.
    pub size: Option<(usize, usize)>,
    /// Use the game's full set of legal actions instead of the minimal one.
    pub full_actions: bool,
    /// Game mode; `None` is the game's first mode.
    pub mode: Option<u32>,
    /// Difficulty switches; `None` keeps the game's default.
    pub difficulty: Option<u32>,
    /// Frames, counted from the start of a reset, after which an episode is truncated; 0 = no limit.
    pub console_frame_limit: u32,
    /// Make sound. Batches on CPU threads only.
    pub sound: bool,
    /// For each of the games, what differs from these settings; empty if nothing does.
    pub variations: Vec<Variation>,
    /// Players of an environment, 1 or 2. With 2 there are twice as many actions: both of an environment are
    /// side by side. Batches on CPU threads only.
    pub players: u32,
}

impl Default for Settings {
    /// Stacks of four gray pictures of 84 x 84, four frames a step, sticky actions with probability 0.25, up to
    /// 29 idle frames, rewards clipped to -1, 0 and 1.
    fn default() -> Self {
        Self {
            rules: StepRules {
                repeat_probability: 0.25,
                frame_limit: 108_000,
                step_limit: 0,
                life: rules::LIFE_IGNORED,
                clip: rules::CLIP_CLAMP,
            },
            frame_skip: (4, 4),
            maxpool: true,
            stack: 4,
            padding: Padding::Zeros,
            noops: Noops::AfterFire,
            noop_max: 30,
            fire_reset: true,
            life_continues: false,
            show_last_frame: false,
            both_ends: false,
            boot: Boot::Snapshot,
            autoreset: Autoreset::NextStep,
            obs_type: ObsType::Gray,
            channel_order: ChannelOrder::Last,
            size: Some((84, 84)),
            full_actions: false,
            mode: None,
            difficulty: None,
            console_frame_limit: 0,
            sound: false,
            variations: vec![],
            players: 1,
        }
    }
}

impl Settings {
    /// Maximum number of frames of a step.
    fn max_frames(&self) -> usize {
        let (low, high) = self.frame_skip;
        (if low == high { high } else { high - 1 }) as usize
    }

    /// Converts to the settings of single environments that play one of `games`.
    fn of_envs(&self, games: &[game::Game]) -> EnvSettings {
        let height = games.iter().map(game::Game::height).max().unwrap_or(0);
        EnvSettings {
            rules: self.rules,
            no_frames: bytemuck::Zeroable::zeroed(),
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

/// Result of a step or reset of one environment, except its observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of the environment.
    pub env_id: u32,
    /// Reward, clipped.
    pub reward: i32,
    /// Reward before clipping.
    pub raw_reward: i32,
    /// The episode ended by the rules of the game.
    pub terminated: bool,
    /// The episode was ended by a limit.
    pub truncated: bool,
    /// An episode ended in this step. Only then are the three `final_` figures, `episode_return`,
    /// `episode_length` and the two `game_` figures valid.
    pub ended: bool,
    /// Lives left.
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
    /// Sum of the episode's rewards before clipping.
    pub episode_return: i32,
    /// Steps of the episode.
    pub episode_length: i32,
    /// The game ended with the episode, or a limit ended both. False if a lost life ended the episode and the
    /// next one continues the game.
    pub game_over: bool,
    /// Sum of rewards before clipping over all episodes of the current game.
    pub game_return: i32,
    /// Of the second player, in batches for two players: reward, clipped.
    pub second_reward: i32,
    /// Its reward before clipping.
    pub second_raw_reward: i32,
    /// Sum of its rewards before clipping in the episode that ended.
    pub second_return: i32,
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
            ..Self::default()
        }
    }
}
