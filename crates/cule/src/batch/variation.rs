//! What one entry of the games of a batch changes in the settings: mode, difficulty, sticky actions, frame
//! skip, and bytes of RAM. Host only.

use super::{Settings, config};
use crate::CuleError;
use crate::env::FrameRunner;
use crate::games::table::GAMES;
use crate::machine::{Board, Machine};
use crate::rom::Rom;

/// Settings of a game in a batch in which they differ between environments.
#[derive(Clone, Debug, PartialEq)]
pub struct Variation {
    /// Game mode; `None` is the game's first mode.
    pub mode: Option<u32>,
    /// Difficulty switches; `None` keeps the game's default.
    pub difficulty: Option<u32>,
    /// Probability of a sticky action, per frame.
    pub repeat_probability: f64,
    /// Frames per step: fixed if both are equal, otherwise drawn from `first..second`.
    pub frame_skip: (u32, u32),
    /// Indices of console RAM and the values that they get when a boot has ended.
    pub ram: Vec<(u8, u8)>,
    /// As `ram`, and again before every frame and after every step.
    pub hold: Vec<(u8, u8)>,
}

impl Settings {
    /// The settings of entry `game` of the games: those of its variation, if there are variations.
    pub(super) fn of_game(&self, game: usize) -> Self {
        let mut settings = Self { variations: vec![], ..self.clone() };
        if let Some(variation) = self.variations.get(game) {
            settings.mode = variation.mode;
            settings.difficulty = variation.difficulty;
            settings.rules.repeat_probability = variation.repeat_probability;
            settings.frame_skip = variation.frame_skip;
            settings.variations = vec![variation.clone()];
        }
        settings
    }

    /// The settings with the longest steps of all variations, for the sizes of buffers.
    pub(super) fn with_longest_steps(&self, games: usize) -> Self {
        let each = (0..games.max(1)).map(|game| self.of_game(game));
        each.max_by_key(|settings| settings.frame_skip.1).unwrap_or_else(|| self.clone())
    }
}

/// Checks the variations: there is one per game, and each is within its bounds.
pub(super) fn check(settings: &Settings, games: usize) -> Result<(), CuleError> {
    let variations = &settings.variations;
    if !variations.is_empty() && variations.len() != games {
        let (found, expected) = (variations.len(), games);
        return Err(CuleError::BufferLength { what: "variations, one per game", expected, found });
    }
    for variation in variations {
        config::check_frame_skip(variation.frame_skip)?;
        if let Some(&(index, _)) = variation.ram.iter().chain(&variation.hold).find(|(index, _)| *index > 127)
        {
            return Err(CuleError::RamIndex { index: usize::from(index) });
        }
    }
    Ok(())
}

/// A number for the changes of a game: of its ROM and of its RAM. 0 for the unchanged game. States of
/// environments with other changes are not loaded.
pub(super) fn fingerprint(rom: &Rom, row: usize, variation: Option<&Variation>) -> u32 {
    let (ram, hold): (&[_], &[_]) = variation.map_or((&[], &[]), |one| (&one.ram, &one.hold));
    let changed = rom.md5 != GAMES[row].md5;
    if !changed && ram.is_empty() && hold.is_empty() {
        return 0;
    }
    let md5 = if changed { rom.md5.as_bytes() } else { &[] };
    let bytes =
        |pairs: &[(u8, u8)]| -> Vec<u8> { pairs.iter().flat_map(|&(at, value)| [at, value]).collect() };
    // Indices of RAM are below 128, so that 255 separates the lists.
    let all = [md5, &[255], &bytes(ram), &[255], &bytes(hold)].concat();
    // FNV-1a.
    let hash =
        all.iter().fold(0x811C_9DC5u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

/// Writes bytes of RAM.
pub(super) fn poke(ram: &mut [u8; 128], pairs: &[(u8, u8)]) {
    for &(index, value) in pairs {
        ram[usize::from(index & 0x7F)] = value;
    }
}

/// Runs the frames of an environment whose RAM is changed.
pub(super) struct VariedRunner<'a, R> {
    pub inner: R,
    /// The changes; `None` if there are none.
    pub changes: Option<&'a Variation>,
    /// A boot runs, during which RAM is not changed.
    boots: bool,
    /// The boots that follow the loading of a cartridge before its mode is set: their RAM is not changed.
    loading: bool,
}

impl<'a, R> VariedRunner<'a, R> {
    pub(super) fn new(inner: R, changes: Option<&'a Variation>) -> Self {
        Self { inner, changes, boots: false, loading: false }
    }
}

impl<R: FrameRunner> FrameRunner for VariedRunner<'_, R> {
    #[inline]
    fn run_frame(&mut self, m: &mut Machine, board: &mut Board) {
        if let Some(changes) = self.changes.filter(|_| !self.boots) {
            poke(&mut m.riot.ram, &changes.hold);
        }
        self.inner.run_frame(m, board);
    }

    fn begin_boot(&mut self, m: &mut Machine, board: &mut Board, timer_draw: u32, draws: bool) {
        self.boots = true;
        self.inner.begin_boot(m, board, timer_draw, draws);
    }

    fn end_boot(&mut self, m: &mut Machine, board: &mut Board, draws: bool) {
        self.inner.end_boot(m, board, draws);
        self.boots = false;
        if let Some(changes) = self.changes.filter(|_| !self.loading) {
            poke(&mut m.riot.ram, &changes.ram);
            poke(&mut m.riot.ram, &changes.hold);
        }
        self.loading = false;
    }

    fn begin_reset(&mut self, board: &mut Board, again: bool) {
        self.inner.begin_reset(board, again);
    }

    fn replace_sound(&mut self, board: &mut Board, booted: bool) {
        self.loading = !booted;
        self.inner.replace_sound(board, booted);
    }

    #[inline]
    fn end_act(&mut self, board: &mut Board) {
        self.inner.end_act(board);
    }
}
