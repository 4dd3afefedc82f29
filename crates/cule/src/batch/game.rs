//! A game as a batch needs it: its ROM, the state of a fresh load, and how it is shown. Host only.

use super::pictures::Pictures;
use super::screen::Screen;
use super::{ObsType, Settings};
use crate::console::{Console, Options};
use crate::env::State;
use crate::games::rows::{self, ROWS};
use crate::machine::cart;
use crate::random::{self, Random};
use crate::rom::Rom;
use crate::threaded::Code;
use crate::{CuleError, games};

/// Draws of the environment's generator after which a boot counts as too long to be known in advance.
const MOST_DRAWS: u32 = 100_000;
/// The action code of FIRE.
const FIRE: u32 = 1;

/// One game of a batch.
pub(super) struct Game {
    pub row: usize,
    pub rom: Rom,
    pub code: Code,
    /// After loading, choosing mode and difficulty, and one reset.
    pub boot: State,
    /// After loading, before the first reset.
    pub loaded: State,
    pub boot_pictures: Pictures,
    /// Draws of the environment's generator in that boot; `None` when boot and draws depend on each other.
    pub boot_draws: Option<u32>,
    pub screen: Screen,
    pub height: usize,
    /// Actions that can be chosen, one bit per code.
    pub actions: u32,
    /// FIRE is sent after resets.
    pub fires: bool,
    options: Options,
    mode: Option<u32>,
    difficulty: Option<u32>,
}

impl Game {
    /// `full_actions` is set when games are mixed, so that all have the same actions.
    pub(super) fn new(
        rom: &Rom,
        row: usize,
        settings: &Settings,
        full_actions: bool,
    ) -> Result<Self, CuleError> {
        let options = Options {
            repeat_action_probability: settings.rules.keep as f32,
            max_num_frames_per_episode: settings.console_frame_limit,
            ..Options::default()
        };
        let mut game = Self {
            row,
            rom: rom.clone(),
            code: Code::plain(&[]),
            boot: bytemuck::Zeroable::zeroed(),
            loaded: bytemuck::Zeroable::zeroed(),
            boot_pictures: Pictures::default(),
            boot_draws: None,
            screen: Screen::new(ObsType::Ram, settings.channel_order, false, 210, None)?,
            height: 210,
            actions: if full_actions || settings.full_actions { ROWS[row].legal } else { ROWS[row].minimal },
            fires: false,
            options,
            mode: settings.mode,
            difficulty: settings.difficulty,
        };
        let console = game.boot_console(0)?;
        if cart::large_ram_bytes(&console.state().machine.cart) > 0 {
            return Err(CuleError::SchemeUnsupported { scheme: rom.scheme, size: rom.bytes.len() });
        }
        game.code = console.code.clone();
        game.boot = *console.state();
        game.loaded = Console::loaded(&game.rom, row, game.options);
        game.boot_pictures = Pictures::take(&console.board.picture, console.height());
        game.height = console.height();
        game.fires = settings.fire_reset && game.actions >> FIRE & 1 != 0;
        game.screen = Screen::new(
            settings.obs_type,
            settings.channel_order,
            console.is_pal(),
            game.height,
            if settings.obs_type == ObsType::Ram { None } else { settings.size },
        )?;
        let draws = draws_since(0, &console.env_random);
        let fixed = draws == Some(0) || (settings.rules.keep <= 0.0 && row != rows::ADVENTURE);
        game.boot_draws = draws.filter(|_| fixed);
        Ok(game)
    }

    /// A console that has been loaded, set and reset.
    pub(super) fn boot_console(&self, random_seed: u32) -> Result<Console, CuleError> {
        let mut console = Console::new(&self.rom, self.row, Options { random_seed, ..self.options })?;
        if let Some(mode) = self.mode {
            console.set_mode(mode)?;
        }
        if let Some(difficulty) = self.difficulty {
            console.set_difficulty(difficulty)?;
        }
        console.reset()?;
        Ok(console)
    }

    pub(super) fn name(&self) -> &'static str {
        games::names::NAMES[self.row]
    }

    pub(super) fn system_seed(&self) -> u32 {
        self.options.system_seed
    }

    pub(super) fn keep(&self) -> f32 {
        self.options.repeat_action_probability
    }
}

fn draws_since(seed: u32, later: &Random) -> Option<u32> {
    let mut random = random::seeded(seed);
    (0..MOST_DRAWS).find(|_| {
        let reached = random == *later;
        random::draw(&mut random);
        reached
    })
}
