//! The configuration of Atari environments: a mapping of Python, checked and converted to the settings of `cule`.

use std::path::PathBuf;

use cule::batch::{Autoreset, Boot, ChannelOrder, Noops, ObsType, Padding, Settings, Variation};
use cule::env::rules::{self, StepRules};
use cule::{CuleError, console, rom};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;

/// The configuration of an `AtariBatch`: a mapping with these keys.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Config {
    pub(crate) games: Vec<String>,
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) assignment: Vec<usize>,
    pub(crate) num_threads: usize,
    pub(crate) thread_affinity_offset: Option<usize>,
    pub(crate) batch_size: usize,
    pub(crate) ordered: bool,
    pub(crate) ram_info: bool,
    sound: bool,
    pub(crate) entropy: u64,
    repeat_action_probability: f64,
    max_num_frames_per_episode: i64,
    max_num_steps_per_episode: i64,
    console_frame_limit: u32,
    life: String,
    reward_clip: String,
    frameskip: (u32, u32),
    maxpool: bool,
    stack_num: usize,
    padding: String,
    noops: String,
    noop_max: u32,
    use_fire_reset: bool,
    show_last_frame: bool,
    both_ends: bool,
    boot: String,
    autoreset: String,
    obs_type: String,
    channels_first: bool,
    size: Option<(usize, usize)>,
    full_action_space: bool,
    pub(crate) continuous: bool,
    pub(crate) continuous_action_threshold: f32,
    mode: Option<u32>,
    difficulty: Option<u32>,
    pub(crate) players: u32,
    /// What differs from these settings in each of `games`; empty if nothing does.
    variations: Vec<GameVariation>,
}

/// Bank if the cartridge has several, address and value of a byte of a ROM.
pub(crate) type Patch = (Option<u32>, u32, u8);

/// An entry of `variations`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct GameVariation {
    mode: Option<u32>,
    difficulty: Option<u32>,
    repeat_action_probability: f64,
    frameskip: (u32, u32),
    patches: Vec<Patch>,
    ram: Vec<(u8, u8)>,
    hold: Vec<(u8, u8)>,
}

/// The entry of `table` with the name `value`, or a ValueError that lists the names.
fn choose<T: Copy>(name: &str, value: &str, table: &[(&str, T)]) -> PyResult<T> {
    table.iter().find(|(key, _)| *key == value).map(|(_, entry)| *entry).ok_or_else(|| {
        let known: Vec<&str> = table.iter().map(|(key, _)| *key).collect();
        PyValueError::new_err(format!("{name} is {value:?}, expected one of {known:?}"))
    })
}

/// The probability of sticky actions as consoles store it: in single precision.
fn probability(value: f64) -> PyResult<f64> {
    if value.is_nan() {
        return Err(PyValueError::new_err("repeat_action_probability is nan, expected 0 to 1"));
    }
    Ok(f64::from(value as f32))
}

impl GameVariation {
    fn settings(&self) -> PyResult<Variation> {
        Ok(Variation {
            mode: self.mode,
            difficulty: self.difficulty,
            repeat_probability: probability(self.repeat_action_probability)?,
            frame_skip: self.frameskip,
            ram: self.ram.clone(),
            hold: self.hold.clone(),
        })
    }
}

impl Config {
    pub(crate) fn settings(&self) -> PyResult<Settings> {
        let life = [
            ("plain", rules::LIFE_IGNORED),
            ("reports", rules::LIFE_REPORTS),
            ("ends", rules::LIFE_ENDS),
            ("continues", rules::LIFE_ENDS_LATE),
            ("any", rules::ANY_LIFE_ENDS),
        ];
        let clip = [("none", rules::CLIP_NONE), ("clamp", rules::CLIP_CLAMP), ("sign", rules::CLIP_SIGN)];
        Ok(Settings {
            rules: StepRules {
                repeat_probability: probability(self.repeat_action_probability)?,
                frame_limit: self.max_num_frames_per_episode.clamp(0, i64::from(i32::MAX)) as i32,
                step_limit: self.max_num_steps_per_episode.clamp(0, i64::from(i32::MAX)) as i32,
                life: choose("life_loss", &self.life, &life)?,
                clip: choose("reward_clip", &self.reward_clip, &clip)?,
            },
            frame_skip: self.frameskip,
            maxpool: self.maxpool,
            stack: self.stack_num,
            padding: choose(
                "padding",
                &self.padding,
                &[("zero", Padding::Zeros), ("reset", Padding::First)],
            )?,
            noops: choose(
                "noops",
                &self.noops,
                &[
                    ("after_fire", Noops::AfterFire),
                    ("before_fire", Noops::BeforeFire),
                    ("numpy", Noops::Numpy),
                ],
            )?,
            noop_max: self.noop_max,
            fire_reset: self.use_fire_reset,
            life_continues: self.life == "continues",
            show_last_frame: self.show_last_frame,
            both_ends: self.both_ends,
            boot: choose("boot", &self.boot, &[("exact", Boot::Exact), ("snapshot", Boot::Snapshot)])?,
            autoreset: choose(
                "autoreset_mode",
                &self.autoreset,
                &[
                    ("NextStep", Autoreset::NextStep),
                    ("SameStep", Autoreset::SameStep),
                    ("Disabled", Autoreset::Disabled),
                ],
            )?,
            obs_type: choose(
                "obs_type",
                &self.obs_type,
                &[
                    ("gray", ObsType::Gray),
                    ("rgb", ObsType::Rgb),
                    ("index", ObsType::Index),
                    ("ram", ObsType::Ram),
                ],
            )?,
            channel_order: if self.channels_first { ChannelOrder::First } else { ChannelOrder::Last },
            size: self.size,
            full_actions: self.full_action_space || self.continuous,
            mode: self.mode,
            difficulty: self.difficulty,
            console_frame_limit: self.console_frame_limit,
            sound: self.sound,
            players: self.players,
            variations: self.variations.iter().map(GameVariation::settings).collect::<PyResult<_>>()?,
        })
    }

    pub(crate) fn check_assignment(&self) -> PyResult<()> {
        if self.assignment.iter().any(|&game| game >= self.games.len()) {
            let count = self.games.len();
            return Err(PyIndexError::new_err(format!(
                "an environment's game is outside 0 to {}",
                count.saturating_sub(1)
            )));
        }
        Ok(())
    }

    /// Loads the ROMs, and returns them with their rows in the table of games.
    pub(crate) fn load(&self) -> Result<Vec<(rom::Rom, usize)>, CuleError> {
        let load = |(i, game): (usize, &String)| {
            let rom = rom::load(game, &self.folders, false)?;
            let patches = self.variations.get(i).map_or(&[][..], |one| &one.patches);
            let rom = if patches.is_empty() { rom } else { rom::patched(&rom, patches)? };
            Ok((rom, console::game_row(game)?))
        };
        self.games.iter().enumerate().map(load).collect()
    }
}
