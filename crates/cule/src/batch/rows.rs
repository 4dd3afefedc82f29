//! Environments whose states belong to the caller: rows of bytes of one length, which a step reads and
//! writes. Host only.
//!
//! A row is a header, the fixed part of an environment, its generator of sticky actions if actions stick, and
//! its kept pictures, as runs. The stack of planes is not in the row: it is the observation before,
//! which the caller passes along. Results are those of [`super::CpuBatch`], since both call [`cpu::perform`].
//!
//! Unlike the rows of [`super::CpuBatch::save`], these have no checksum, which would take longer than reading
//! and writing them. All values that are used as indices are checked.

use bytemuck::{Pod, Zeroable};

use super::config::{self, BatchConfig};
use super::cpu::{self, Command};
use super::game::Game;
use super::outputs::{RAM_BYTES, Row, check_length, front};
use super::pictures::Pictures;
use super::pool::Pool;
use super::slot::{Slot, Workspace};
use super::{Autoreset, Report, Settings, player_actions};
use crate::CuleError;
use crate::env::Action;
use crate::env::state::{EnvSettings, Head, UNKNOWN_DRAWS};
use crate::random::Random;

/// Version of the layout of a row.
const VERSION: u32 = 2;
/// Maximum number of draws of the generator of idle frames, which a reset makes again: they take about half a
/// second. An environment makes a few in a reset.
const MOST_NOOP_DRAWS: u32 = 1 << 27;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Header {
    version: u32,
    /// Bytes of the kept pictures, as runs.
    code_bytes: u32,
    /// Rows of pixels in the kept pictures.
    picture_rows: u32,
    unused: u32,
}

/// States and observations before a step. Those that are `None` are read from the outputs, which are changed
/// in place.
#[derive(Clone, Copy)]
pub struct RowInputs<'a> {
    /// States, [`RowBatch::row_bytes`] per environment.
    pub rows: Option<&'a [u8]>,
    /// Observations, [`RowBatch::obs_bytes`] per environment.
    pub obs: Option<&'a [u8]>,
}

/// States and results after a step or reset, one row per environment. Every row is written.
pub struct RowOutputs<'a> {
    /// States.
    pub rows: &'a mut [u8],
    /// Observations.
    pub obs: &'a mut [u8],
    /// The last observation of each episode that ended in this step; zeros in other rows.
    pub final_obs: Option<&'a mut [u8]>,
    /// Console RAM, 128 bytes per environment.
    pub ram: Option<&'a mut [u8]>,
    /// Rewards, flags and figures.
    pub reports: &'a mut [Report],
}

/// Environments of one game, in any number, without states of their own.
pub struct RowBatch {
    settings: Settings,
    rules: EnvSettings,
    game: Game,
    /// Each thread has buffers and the environment that it runs.
    pool: Pool<(Workspace, Slot)>,
    /// Rows hold the generator of sticky actions.
    has_generator: bool,
    picture_bytes: usize,
}

/// Bytes of a state and of an observation.
#[derive(Clone, Copy)]
struct Sizes {
    row: usize,
    obs: usize,
}

impl RowInputs<'_> {
    fn check(&self, count: usize, sizes: Sizes) -> Result<(), CuleError> {
        for (what, bytes, size) in
            [("states before", self.rows, sizes.row), ("observations before", self.obs, sizes.obs)]
        {
            if let Some(bytes) = bytes {
                check_length(what, bytes.len(), count.saturating_mul(size))?;
            }
        }
        Ok(())
    }

    fn at(&self, index: usize, sizes: Sizes) -> Self {
        Self {
            rows: self.rows.map(|rows| &rows[index * sizes.row..][..sizes.row]),
            obs: self.obs.map(|obs| &obs[index * sizes.obs..][..sizes.obs]),
        }
    }
}

impl RowOutputs<'_> {
    fn check(&self, count: usize, sizes: Sizes) -> Result<(), CuleError> {
        check_length("states", self.rows.len(), count.saturating_mul(sizes.row))?;
        check_length("observations", self.obs.len(), count.saturating_mul(sizes.obs))?;
        if let Some(final_obs) = &self.final_obs {
            check_length("last observations", final_obs.len(), count.saturating_mul(sizes.obs))?;
        }
        if let Some(ram) = &self.ram {
            check_length("RAM", ram.len(), count.saturating_mul(RAM_BYTES))?;
        }
        if self.reports.len() != count {
            return Err(CuleError::Count { what: "reports", found: self.reports.len(), expected: count });
        }
        Ok(())
    }

    /// Splits off the rows of the next `count` environments.
    fn take(&mut self, count: usize, sizes: Sizes) -> Self {
        Self {
            rows: front(&mut self.rows, count * sizes.row),
            obs: front(&mut self.obs, count * sizes.obs),
            final_obs: self.final_obs.as_mut().map(|rest| front(rest, count * sizes.obs)),
            ram: self.ram.as_mut().map(|rest| front(rest, count * RAM_BYTES)),
            reports: front(&mut self.reports, count),
        }
    }
}

impl RowBatch {
    /// Loads the game of `config`, which must be the only one, and starts the threads. `picture_bytes` is the
    /// number of bytes of a row for kept pictures; see [`RowBatch::step`]. Environments that show no pictures
    /// keep none.
    ///
    /// # Errors
    /// As [`super::CpuBatch::new`]; or there are several games, or sound.
    pub fn new(
        config: &BatchConfig<'_>,
        settings: Settings,
        picture_bytes: usize,
    ) -> Result<Self, CuleError> {
        config::check(config, &settings)?;
        let setting = |name, value: String, bound| Err(CuleError::Setting { name, value, bound });
        if config.games.len() > 1 {
            return setting("the number of games", config.games.len().to_string(), "1");
        }
        if settings.sound {
            return setting("sound", "true".into(), "false");
        }
        if settings.players != 1 {
            return setting("players", settings.players.to_string(), "1");
        }
        let game = config::load_games(config, &settings)?.remove(0);
        let settings = settings.of_game(0);
        let rules = settings.of_envs(std::slice::from_ref(&game));
        let slot = Slot::new(0, &game, &rules, 0)?;
        let pool = Pool::new(config.threads, usize::MAX, None, || (Workspace::new(&rules), slot.clone()))?;
        let has_generator =
            settings.rules.repeat_probability > 0.0 || game.env_game.boot_draws == UNKNOWN_DRAWS;
        let picture_bytes = if rules.draws == 0 { 0 } else { picture_bytes };
        Ok(Self { settings, rules, game, pool, has_generator, picture_bytes })
    }

    /// Bytes of a state.
    pub fn row_bytes(&self) -> usize {
        let generator = if self.has_generator { size_of::<Random>() } else { 0 };
        size_of::<Header>() + size_of::<Head>() + generator + self.picture_bytes
    }

    /// Bytes of an observation.
    pub fn obs_bytes(&self) -> usize {
        self.settings.stack * self.game.screen.size_bytes()
    }

    /// Shape of an observation, as [`super::CpuBatch::obs_shape`].
    pub fn obs_shape(&self) -> Vec<usize> {
        config::obs_shape(&self.game, &self.settings)
    }

    /// Action codes of the action space, ascending.
    pub fn actions(&self) -> Vec<u8> {
        config::action_codes(self.game.env_game.actions)
    }

    /// Number of threads that step environments, including the calling thread.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Begins the first episode of environments with these seeds.
    ///
    /// # Errors
    /// The number of rows is not that of the seeds, a game does not reach its mode, or the pictures that an
    /// environment keeps do not fit into its row.
    pub fn reset(&self, seeds: &[u32], out: RowOutputs<'_>) -> Result<(), CuleError> {
        let before = RowInputs { rows: None, obs: None };
        self.run(seeds.len(), before, out, |(work, slot), index, _, _, row| {
            slot.head = Zeroable::zeroed();
            slot.pictures = None;
            slot.planes.fill(0);
            let command = Command::Reset(Some(seeds[index].into()));
            cpu::perform(slot, work, (&self.game, &self.settings, &self.rules), index, command, row)
        })
    }

    /// Steps environments by one action each, from the states and observations of `before`.
    ///
    /// # Errors
    /// The numbers of rows differ; a row is not a state of these environments; an episode has ended and
    /// autoreset is disabled; or the pictures that an environment keeps do not fit into its row.
    pub fn step(
        &self,
        actions: &[Action],
        before: RowInputs<'_>,
        out: RowOutputs<'_>,
    ) -> Result<(), CuleError> {
        self.run(actions.len(), before, out, |(work, slot), index, state, obs, row| {
            let source = |reason| CuleError::State { reason };
            self.load(slot, state, obs.unwrap_or(&*row.obs))
                .map_err(|reason| CuleError::StateRow { row: index, source: Box::new(source(reason)) })?;
            if slot.has_ended() && self.settings.autoreset == Autoreset::Disabled {
                let reason = "has ended and autoreset is disabled: replace its state by one of a reset";
                return Err(CuleError::EnvState { env: index, reason });
            }
            let command = Command::Step(player_actions(actions, 1, index));
            cpu::perform(slot, work, (&self.game, &self.settings, &self.rules), index, command, row)
        })
    }

    /// Calls `work` for each environment with the thread's buffers, its number, its state and observation
    /// before, and its row of the results; then writes its state.
    fn run(
        &self,
        count: usize,
        before: RowInputs<'_>,
        mut out: RowOutputs<'_>,
        work: impl Fn(&mut (Workspace, Slot), usize, &[u8], Option<&[u8]>, Row<'_>) -> Result<Report, CuleError>
        + Sync,
    ) -> Result<(), CuleError> {
        let sizes = Sizes { row: self.row_bytes(), obs: self.obs_bytes() };
        before.check(count, sizes)?;
        out.check(count, sizes)?;
        let parts = self.pool.parts(count);
        let ranges = (0..parts).map(|part| {
            let (first, end) = (count * part / parts, count * (part + 1) / parts);
            let mut rows = out.take(end - first, sizes);
            (first..end).map(move |index| (index, rows.take(1, sizes)))
        });
        self.pool.run(ranges.collect(), |buffers, (index, out)| {
            let RowOutputs { rows, obs, mut final_obs, ram, reports } = out;
            let before = before.at(index, sizes);
            let row = Row { obs, final_obs: final_obs.as_deref_mut(), ram, audio: None };
            let report = work(buffers, index, before.rows.unwrap_or(rows), before.obs, row)?;
            if let Some(final_obs) = final_obs
                && !report.ended
            {
                final_obs.fill(0);
            }
            reports[0] = report;
            self.save(&buffers.1, rows)
        })
    }

    /// Reads a state and the observation that belongs to it.
    fn load(&self, slot: &mut Slot, row: &[u8], obs: &[u8]) -> Result<(), String> {
        let (header, rest) = row.split_at(size_of::<Header>());
        let (head, rest) = rest.split_at(size_of::<Head>());
        let header: Header = bytemuck::pod_read_unaligned(header);
        if header.version != VERSION {
            return Err(format!("version {}, expected {VERSION}", header.version));
        }
        slot.head = bytemuck::pod_read_unaligned(head);
        slot.head.newest = self.rules.stack - 1;
        let generator = if self.has_generator { size_of::<Random>() } else { 0 };
        let (generator, encoded) = rest.split_at(generator);
        if self.has_generator {
            bytemuck::bytes_of_mut(&mut *slot.random).copy_from_slice(generator);
        }
        if slot.head.ready == 0 {
            return Err("its environment has not been reset".into());
        }
        slot.check(&self.game, &self.rules)?;
        let draws = slot.head.noop_draws;
        if draws > MOST_NOOP_DRAWS {
            return Err(format!("{draws} draws of idle frames, expected at most {MOST_NOOP_DRAWS}"));
        }
        slot.pictures = self.load_pictures(header, encoded)?;
        slot.planes.copy_from_slice(obs);
        Ok(())
    }

    fn load_pictures(&self, header: Header, encoded: &[u8]) -> Result<Option<Box<Pictures>>, String> {
        let (length, rows) = (header.code_bytes as usize, header.picture_rows as usize);
        if (length, rows) == (0, 0) {
            return Ok(None);
        }
        let height = self.game.height();
        let code = encoded.get(..length).filter(|_| rows == 2 * height || rows == 3 * height);
        let pictures = code.and_then(|code| Pictures::from_code(code, rows));
        let pictures =
            pictures.ok_or_else(|| format!("{length} bytes are not {rows} rows of its pictures"))?;
        Ok(Some(Box::new(pictures)))
    }

    /// Writes a state.
    fn save(&self, slot: &Slot, row: &mut [u8]) -> Result<(), CuleError> {
        let (code, picture_rows) = match &slot.pictures {
            Some(pictures) => (pictures.code(), pictures.rows()),
            None => (&[][..], 0),
        };
        if code.len() > self.picture_bytes {
            let reason = format!(
                "a state keeps {} bytes of pictures, its row has room for {}: make the environments with a larger picture_bytes",
                code.len(),
                self.picture_bytes
            );
            return Err(CuleError::State { reason });
        }
        let header = Header {
            version: VERSION,
            code_bytes: code.len() as u32,
            picture_rows: picture_rows as u32,
            unused: 0,
        };
        let (first, rest) = row.split_at_mut(size_of::<Header>());
        first.copy_from_slice(bytemuck::bytes_of(&header));
        let (head, mut rest) = rest.split_at_mut(size_of::<Head>());
        head.copy_from_slice(bytemuck::bytes_of(&slot.head));
        if self.has_generator {
            front(&mut rest, size_of::<Random>()).copy_from_slice(bytemuck::bytes_of(&*slot.random));
        }
        let (pictures, padding) = rest.split_at_mut(code.len());
        pictures.copy_from_slice(code);
        padding.fill(0);
        Ok(())
    }
}
