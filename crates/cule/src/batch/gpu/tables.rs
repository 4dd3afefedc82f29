//! Settings, games and tables as the kernels take them. Host only.

use bytemuck::Zeroable;

use super::super::game::Game;
use super::super::{Boot, ObsType, Padding, Settings};
use super::starts::Starts;
use crate::lane::show::Reduction;
use crate::lane::{self, LaneGame, LaneRules, Start};
use crate::machine::{records, tia};
use crate::observe::{Blend, Cell, palette};

/// What is the same for all environments, and per game.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub games: Vec<LaneGame>,
    pub starts: Vec<Start>,
    /// Per game: its frames may be short, so that environments may have to keep pictures all the time.
    pub needy: Vec<bool>,
    pub reductions: Vec<Reduction>,
    pub roms: Vec<u8>,
    /// Per byte of the ROMs, what the jump table knows of it.
    pub records: Vec<u64>,
    /// Two pictures of each game, `boot_bytes` together.
    pub boot_pictures: Vec<u8>,
    pub boot_bytes: usize,
    pub cells: Vec<Cell>,
    pub weights: Vec<f32>,
    pub blends: Vec<Blend>,
    pub bytes: Vec<u8>,
}

/// Where ROMs begin: on borders that a vector load can use.
const ROM_BORDER: usize = 16;

impl Tables {
    pub(super) fn new(games: &[Game], settings: &Settings, actions: u32) -> Self {
        let height = games.iter().map(|game| game.height).max().unwrap_or(0);
        let mut tables = Self { boot_bytes: 2 * height * tia::WIDTH, ..Self::default() };
        for game in games {
            let image = game.code.image();
            let starts = Starts::new(game, settings);
            tables.needy.push(starts.has_short_frames);
            tables.games.push(LaneGame {
                boot: game.boot,
                loaded: game.loaded,
                keep: f64::from(game.keep()),
                boot_draws: game.boot_draws.unwrap_or(lane::UNKNOWN_DRAWS),
                system_seed: game.system_seed(),
                mode: game.boot.rules.mode,
                difficulty: game.boot.env.difficulty,
                fires: u32::from(game.fires),
                height: game.height as u32,
                actions,
                television: if game.boot.machine.tia.layout.pal != 0 { palette::PAL } else { palette::NTSC }
                    as u32,
                rom_at: tables.roms.len() as u32,
                rom_bytes: image.len() as u32,
                start_at: tables.starts.len() as u32,
                start_frames: starts.frames,
            });
            tables.starts.extend(starts.all);
            tables.roms.extend_from_slice(image);
            tables.roms.resize(tables.roms.len().next_multiple_of(ROM_BORDER), 0);
            let plain_high = u32::from(game.boot.machine.cart.plain_high);
            tables.records.extend((0..image.len()).map(|at| records::record(image, at, plain_high)));
            tables.records.resize(tables.roms.len(), 0);
            let end = tables.boot_pictures.len() + tables.boot_bytes;
            tables.boot_pictures.extend(game.boot_pictures.bytes());
            tables.boot_pictures.resize(end, 0);
            tables.reduce(game, settings);
        }
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

pub(super) fn rules(settings: &Settings, games: &[Game]) -> LaneRules {
    let height = games.iter().map(|game| game.height).max().unwrap_or(0);
    LaneRules {
        rules: settings.rules,
        none: Zeroable::zeroed(),
        skip: settings.frame_skip.into(),
        stack: settings.stack as u32,
        noops: settings.noops as u32,
        noop_max: settings.noop_max,
        picture_bytes: (height * tia::WIDTH) as u32,
        draws: u8::from(settings.obs_type != ObsType::Ram),
        indices: u8::from(settings.obs_type == ObsType::Index),
        maxpool: u8::from(settings.maxpool),
        show_last_frame: u8::from(settings.show_last_frame),
        both_ends: u8::from(settings.both_ends),
        life_continues: u8::from(settings.life_continues),
        pads_first: u8::from(settings.padding == Padding::First),
        snapshot: u8::from(settings.boot == Boot::Snapshot),
    }
}
