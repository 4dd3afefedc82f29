//! One game of a batch: its ROM, its state after loading, and its conversion to observations. Host only.

use super::screen::Screen;
use super::variation::{self, Variation};
use super::{ObsType, Settings};
use crate::CuleError;
use crate::console::{Console, Options};
use crate::env::state::{self, EnvGame};
use crate::fast_cpu::Code;
use crate::games::row::{Score, Special};
use crate::games::table::GAMES;
use crate::games::two_players::{self, Second, TWO_PLAYERS, TwoPlayers};
use crate::machine::{cart, tia};
use crate::observe::palette;
use crate::random::{self, Random};
use crate::rom::Rom;
use crate::sound::Sound;

/// If a boot draws more numbers than this from the environment's generator, its number of draws counts as
/// unknown.
const MOST_DRAWS: u32 = 100_000;
/// The action code of FIRE.
const FIRE: u32 = 1;

/// One game of a batch.
pub(super) struct Game {
    pub row: usize,
    pub rom: Rom,
    pub code: Code,
    /// Data that all environments of the game share.
    pub env_game: EnvGame,
    /// Palette indices of the last two frames of the boot, one picture behind the other.
    pub boot_pictures: Vec<u8>,
    /// The sound of `EnvGame::loaded` and `EnvGame::boot`, if environments make sound.
    pub sounds: Option<[Sound; 2]>,
    pub screen: Screen,
    /// Changes of its RAM, if there are any.
    pub changes: Option<Variation>,
    /// Reward of the second player, in a batch for two.
    pub second: Option<Second>,
    options: Options,
    mode: Option<u32>,
    difficulty: Option<u32>,
}

impl Game {
    /// Loads the ROM and boots one console. `full_actions` is true for batches of several games, so that all
    /// games have the same actions.
    pub(super) fn new(
        rom: &Rom,
        row: usize,
        settings: &Settings,
        full_actions: bool,
    ) -> Result<Self, CuleError> {
        let two = if settings.players == 2 { Some(two_players(row)?) } else { None };
        let options = Options {
            repeat_action_probability: settings.rules.repeat_probability as f32,
            max_num_frames_per_episode: settings.console_frame_limit,
            sound: settings.sound,
            ..Options::default()
        };
        let mut game = Self {
            row,
            rom: rom.clone(),
            code: Code::plain(&[]),
            env_game: bytemuck::Zeroable::zeroed(),
            boot_pictures: vec![],
            sounds: None,
            screen: Screen::new(ObsType::Ram, settings.channel_order, false, 210, None)?,
            changes: settings
                .variations
                .first()
                .filter(|one| !one.ram.is_empty() || !one.hold.is_empty())
                .cloned(),
            second: two.map(|two| two.second),
            options,
            mode: settings.mode.or(two.and_then(|two| two.modes.first().copied())),
            difficulty: settings.difficulty,
        };
        let console = game.boot_console()?;
        if cart::large_ram_bytes(&console.state().machine.cart) > 0 {
            return Err(CuleError::SchemeUnsupported { scheme: rom.scheme, size: rom.bytes.len() });
        }
        let height = console.height();
        let mut boot = *console.state();
        boot.variation = variation::fingerprint(rom, row, settings.variations.first());
        if let Some(changes) = &game.changes {
            variation::poke(&mut boot.machine.riot.ram, &changes.ram);
            variation::poke(&mut boot.machine.riot.ram, &changes.hold);
        }
        let all_actions = full_actions || settings.full_actions;
        let actions = if all_actions { GAMES[row].legal } else { GAMES[row].minimal };
        let draws = draws_since(0, &console.env_random);
        let fixed = draws == Some(0)
            || (settings.rules.repeat_probability <= 0.0 && GAMES[row].special != Special::Adventure);
        let (mut loaded, loaded_sound) = Console::loaded(&game.rom, row, options);
        loaded.variation = boot.variation;
        let acts = settings.max_frames();
        game.sounds = loaded_sound
            .zip(console.copy_sound())
            .map(|(loaded, boot)| [loaded.with_acts(acts), boot.with_acts(acts)]);
        game.env_game = EnvGame {
            boot,
            loaded,
            repeat_probability: f64::from(options.repeat_action_probability),
            boot_draws: draws.filter(|_| fixed).unwrap_or(state::UNKNOWN_DRAWS),
            system_seed: options.system_seed,
            mode: boot.rules.mode,
            difficulty: boot.env.difficulty,
            fires: u32::from(settings.fire_reset && actions >> FIRE & 1 != 0),
            height: height as u32,
            actions,
            television: if console.is_pal() { palette::PAL } else { palette::NTSC } as u32,
            rom_bytes: console.code.image().len() as u32,
            ..bytemuck::Zeroable::zeroed()
        };
        let pictures = console.board.picture.iter().flat_map(|picture| &picture[..height * tia::WIDTH]);
        game.boot_pictures = pictures.copied().collect();
        game.screen = Screen::new(
            settings.obs_type,
            settings.channel_order,
            console.is_pal(),
            height,
            if settings.obs_type == ObsType::Ram { None } else { settings.size },
        )?;
        game.code = console.code;
        Ok(game)
    }

    /// Loads a console, sets mode and difficulty, and resets it.
    fn boot_console(&self) -> Result<Console, CuleError> {
        let mut console = Console::new(&self.rom, self.row, self.options)?;
        if let Some(mode) = self.mode {
            console.set_mode_for(mode, self.second.is_some())?;
        }
        if let Some(difficulty) = self.difficulty {
            console.set_difficulty(difficulty)?;
        }
        console.reset()?;
        Ok(console)
    }

    /// True if both are the same game with the same image.
    pub(super) fn has_rom_of(&self, other: &Self) -> bool {
        (self.row, &self.rom.md5) == (other.row, &other.rom.md5)
    }

    /// The second player's score, in a batch for two and a game that counts it separately.
    pub(super) fn second_score(&self) -> Option<&Score> {
        match &self.second {
            Some(Second::Score(score)) => Some(score),
            _ => None,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        GAMES[self.row].name
    }

    /// Rows of the game's picture.
    pub(super) fn height(&self) -> usize {
        self.env_game.height as usize
    }
}

/// The entry of a game for two players.
fn two_players(row: usize) -> Result<&'static TwoPlayers, CuleError> {
    two_players::of(row).ok_or_else(|| CuleError::OnePlayer {
        game: GAMES[row].name,
        available: TWO_PLAYERS.iter().map(|two| two.game).collect(),
    })
}

/// Number of draws that lead from a generator seeded with `seed` to `later`; `None` above [`MOST_DRAWS`].
fn draws_since(seed: u32, later: &Random) -> Option<u32> {
    let mut random = random::seeded(seed);
    (0..MOST_DRAWS).find(|_| {
        let reached = random == *later;
        random::draw(&mut random);
        reached
    })
}
