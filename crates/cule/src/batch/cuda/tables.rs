//! Games and tables in the form that the kernels read. Host only.

use super::super::Settings;
use super::super::game::Game;
use super::reset_states::ResetStates;
use crate::env::state::{EnvGame, EnvSettings, ResetState};
use crate::machine::{records, tia};
use crate::observe::plane::Reduction;
use crate::observe::{Blend, Cell};

/// Tables that all environments of a batch share.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub games: Vec<EnvGame>,
    pub reset_states: Vec<ResetState>,
    /// What an observation shows of each reset state, one plane each. Empty if observations are RAM.
    pub reset_planes: Vec<u8>,
    /// Per game: its frames may be short, so that every environment may need saved pictures at the same time.
    pub has_short_frames: Vec<bool>,
    pub reductions: Vec<Reduction>,
    pub roms: Vec<u8>,
    /// One record of the jump-table interpreter per ROM byte.
    pub records: Vec<u64>,
    /// The last two pictures of each game's boot, `boot_bytes` per game.
    pub boot_pictures: Vec<u8>,
    pub boot_bytes: usize,
    pub cells: Vec<Cell>,
    pub weights: Vec<f32>,
    pub blends: Vec<Blend>,
    pub bytes: Vec<u8>,
}

/// Records after the last ROM: the interpreter loads those of next instructions before it knows whether there are any.
const RECORDS_AHEAD: usize = 4;
/// Alignment of ROMs in bytes, for vector loads.
const ROM_BORDER: usize = 16;

impl Tables {
    pub(super) fn new(games: &[Game], settings: &Settings, rules: &[EnvSettings], actions: u32) -> Self {
        let height = games.iter().map(Game::height).max().unwrap_or(0);
        let mut tables = Self { boot_bytes: 2 * height * tia::WIDTH, ..Self::default() };
        for (game, rules) in games.iter().zip(rules) {
            let image = game.code.image();
            let found = ResetStates::new(game, rules);
            tables.has_short_frames.push(found.has_short_frames);
            tables.games.push(EnvGame {
                rom_at: tables.roms.len() as u32,
                reset_states_at: tables.reset_states.len() as u32,
                reset_state_frames: found.frames,
                actions,
                ..game.env_game
            });
            if rules.draws != 0 {
                tables.reset_planes.extend(found.planes(game));
            }
            tables.reset_states.extend(found.all);
            tables.roms.extend_from_slice(image);
            tables.roms.resize(tables.roms.len().next_multiple_of(ROM_BORDER), 0);
            let cart = &game.env_game.boot.machine.cart;
            tables.records.extend((0..image.len()).map(|at| records::record(image, at, cart)));
            tables.records.resize(tables.roms.len(), 0);
            let end = tables.boot_pictures.len() + tables.boot_bytes;
            tables.boot_pictures.extend(&game.boot_pictures);
            tables.boot_pictures.resize(end, 0);
            tables.reduce(game, settings);
        }
        tables.records.resize(tables.roms.len() + RECORDS_AHEAD, 0);
        tables
    }

    fn reduce(&mut self, game: &Game, settings: &Settings) {
        let screen = &game.screen;
        let mut reduction = screen.reducer().describe(&mut self.cells, &mut self.weights, &mut self.blends);
        reduction.channels = screen.tables().len().max(1) as u32;
        reduction.channels_last = u32::from(settings.channel_order == super::super::ChannelOrder::Last);
        reduction.table = self.bytes.len() as u32;
        for table in screen.tables() {
            self.bytes.extend_from_slice(table);
        }
        self.reductions.push(reduction);
    }
}
