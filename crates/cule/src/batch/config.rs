//! What a batch is made of: its games, environments and threads, with their bounds. Host only.

use std::sync::Mutex;

use super::game::Game;
use super::pool::thread_count;
use super::slot::Slot;
use super::{Autoreset, ChannelOrder, ObsType, Settings, variation};
use crate::CuleError;
use crate::env::ACTIONS;
use crate::env::state::EnvSettings;
use crate::random::Random;
use crate::rom::Rom;
use crate::sound::SAMPLES;

/// Games, environments and threads of a batch.
pub struct BatchConfig<'a> {
    /// ROMs and their rows in the table of games.
    pub games: &'a [(Rom, usize)],
    /// Per environment, the index of its game in `games`.
    pub assignment: &'a [usize],
    /// Number of threads; 0 for one per core.
    pub threads: usize,
    /// Pins thread i to core number `affinity + i` of those that the process may use. The calling thread,
    /// which is thread 0 of a synchronous batch, is not pinned.
    pub affinity: Option<usize>,
    /// Results per `recv`. If it is below the number of environments, the batch is asynchronous.
    pub batch_size: usize,
    /// `recv` returns results in the order of `send`.
    pub ordered: bool,
    /// Results include console RAM.
    pub wants_ram: bool,
    /// Seed of environments that the caller never seeds.
    pub entropy: u64,
}

/// Shape of an observation, with its stack.
pub(super) fn obs_shape(game: &Game, settings: &Settings) -> Vec<usize> {
    let mut shape = game.screen.shape();
    if settings.obs_type == ObsType::Rgb && settings.channel_order == ChannelOrder::First {
        shape[0] *= settings.stack;
    } else {
        shape.insert(0, settings.stack);
    }
    shape
}

/// The action codes of an action space with one bit per code, ascending.
pub(super) fn action_codes(actions: u32) -> Vec<u8> {
    (0..ACTIONS).filter(|&code| actions >> code & 1 != 0).collect()
}

/// Checks that `assignment` gives each of `envs` environments one of `games` games.
pub(super) fn check_assignment(assignment: &[usize], envs: usize, games: usize) -> Result<(), CuleError> {
    if assignment.len() != envs {
        return Err(CuleError::Count { what: "games", found: assignment.len(), expected: envs });
    }
    match assignment.iter().position(|&game| game >= games) {
        Some(env) => {
            Err(CuleError::EnvState { env, reason: "is to play a game that the batch does not have" })
        }
        None => Ok(()),
    }
}

/// Bytes of memory that the environments and threads of a batch need, without the caller's observations.
pub(super) fn needed_bytes(config: &BatchConfig<'_>, settings: &Settings, game: &Game) -> usize {
    /// Stack and buffers of a thread.
    const THREAD_BYTES: usize = 4 << 20;
    let envs = config.assignment.len();
    let planes = settings.stack.saturating_mul(game.screen.size_bytes());
    // An asynchronous batch has separate buffers for results. The 64 bytes are the overhead of allocations.
    let copies = if config.batch_size == envs {
        1
    } else {
        2 + usize::from(settings.autoreset == Autoreset::SameStep)
    };
    let env = size_of::<Mutex<Slot>>() + size_of::<Random>() + 64;
    let frames = settings.with_longest_steps(config.games.len()).max_frames();
    let audio = if settings.sound { frames * SAMPLES } else { 0 };
    let env = planes.saturating_add(audio).saturating_mul(copies).saturating_add(env);
    let threads = thread_count(config.threads, envs) * THREAD_BYTES;
    envs.saturating_mul(env).saturating_add(threads)
}

/// Seed of an environment that the caller never seeds.
pub(super) fn entropy_of(config: &BatchConfig<'_>, env: usize) -> u64 {
    config.entropy.wrapping_add(0x9E37_79B9_7F4A_7C15u64.wrapping_mul(env as u64))
}

/// Loads the games of a batch. Their observations must have the same size.
pub(super) fn load_games(config: &BatchConfig<'_>, settings: &Settings) -> Result<Vec<Game>, CuleError> {
    let mixed = config.games.iter().any(|(_, row)| *row != config.games[0].1);
    let games = config
        .games
        .iter()
        .enumerate()
        .map(|(i, (rom, row))| Game::new(rom, *row, &settings.of_game(i), mixed))
        .collect::<Result<Vec<_>, _>>()?;
    let shape = games[0].screen.shape();
    if let Some(other) = games.iter().find(|game| game.screen.shape() != shape) {
        return Err(CuleError::Setting {
            name: "the size of an observation",
            value: format!(
                "{shape:?} for {} and {:?} for {}",
                games[0].name(),
                other.screen.shape(),
                other.name()
            ),
            bound: "one size for all games: set img_height and img_width",
        });
    }
    Ok(games)
}

/// The environments' settings of each game.
pub(super) fn env_settings(settings: &Settings, games: &[Game]) -> Vec<EnvSettings> {
    (0..games.len()).map(|game| settings.of_game(game).of_envs(games)).collect()
}

pub(super) fn check_frame_skip((low, high): (u32, u32)) -> Result<(), CuleError> {
    if low == 0 || high < low || high > 10_000 {
        let value = format!("{low}..{high}");
        return Err(CuleError::Setting { name: "frameskip", value, bound: "1 to 10000 frames" });
    }
    Ok(())
}

/// Checks the numbers of a batch against their bounds.
pub(super) fn check(config: &BatchConfig<'_>, settings: &Settings) -> Result<(), CuleError> {
    let setting = |name, value: String, bound| Err(CuleError::Setting { name, value, bound });
    let envs = config.assignment.len();
    if envs == 0 || config.games.is_empty() {
        return setting("num_envs", envs.to_string(), "at least 1");
    }
    if config.batch_size == 0 || config.batch_size > envs {
        return setting("batch_size", config.batch_size.to_string(), "1 to num_envs");
    }
    if settings.stack == 0 || settings.stack > 1024 {
        return setting("stack_num", settings.stack.to_string(), "1 to 1024");
    }
    check_frame_skip(settings.frame_skip)?;
    variation::check(settings, config.games.len())?;
    if settings.players == 0 || settings.players > 2 {
        return setting("players", settings.players.to_string(), "1 or 2");
    }
    if settings.noop_max > 100_000 {
        return setting("noop_max", settings.noop_max.to_string(), "at most 100000");
    }
    Ok(())
}
