//! The batch on CPU threads.

mod recorded;
mod send_receive;

use std::sync::{Arc, Mutex};

use super::affinity::Affinity;
use super::branch::{self, BranchOutputs, Branches};
use super::config::{self, BatchConfig};
use super::game::Game;
use super::outputs::{Job, Outputs, RAM_BYTES, Row, check_length};
use super::pool::{Pool, catch_panic, lock, thread_count};
use super::queue::{Outcome, Queue};
use super::slot::{Slot, Workspace};
use super::{Autoreset, HAS_ENDED, NOT_RESET, PlayerActions, Report, Settings, player_actions, states};
use crate::env::state::EnvSettings;
use crate::env::{self, Action};
use crate::games::table::GAMES;
use crate::sound::SAMPLES;
use crate::{CuleError, memory};

/// Current state of an environment's console, as far as a program can read it.
#[derive(Clone, Copy, Debug)]
pub struct ConsoleStatus {
    /// Lives left.
    pub lives: i32,
    /// The game has ended.
    pub game_over: bool,
    /// The console's own limit of frames was reached.
    pub truncated: bool,
    /// Frames since the ROM was loaded.
    pub frame_number: i32,
    /// Frames since the last reset.
    pub episode_frame_number: i32,
    /// The console's RAM.
    pub ram: [u8; RAM_BYTES],
}

/// What one environment is to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    /// A step, or the reset after the end of an episode with [`Autoreset::NextStep`].
    Step(PlayerActions),
    /// A reset, with a new seed if it is `Some`.
    Reset(Option<u64>),
    /// A step, and a reset with this seed after it; without a seed only if the episode has ended.
    StepAndReset(PlayerActions, Option<u64>),
    /// Only write the current observation and figures.
    Show,
}

/// State that all threads share.
pub(super) struct Shared {
    settings: Settings,
    /// The environments' settings, per game.
    rules: Vec<EnvSettings>,
    /// Frames of the longest step of a game.
    max_frames: usize,
    games: Vec<Game>,
    slots: Vec<Mutex<Slot>>,
    wants_ram: bool,
}

/// Environments on CPU threads.
pub struct CpuBatch {
    shared: Arc<Shared>,
    pool: Pool<Workspace>,
    /// Threads of [`CpuBatch::branch`], if `pool` has fewer than these.
    branch_pool: Option<Pool<Workspace>>,
    branch_threads: usize,
    affinity: Option<Affinity>,
    queue: Option<Queue>,
    batch_size: usize,
    /// A number for the cartridge of each environment if there are several cartridges; otherwise empty.
    mixed: Vec<usize>,
    /// Environments of the last received batch: the next `send` gives actions for these.
    ready_envs: Vec<usize>,
    /// Whether each environment has a task whose result has not been received.
    busy: Vec<bool>,
}

impl Shared {
    pub(super) fn workspace(&self) -> Workspace {
        Workspace::new(&self.settings.with_longest_steps(self.games.len()).of_envs(&self.games))
    }

    pub(super) fn envs(&self) -> usize {
        self.slots.len()
    }

    /// Allocates the buffers for the results of one environment.
    pub(super) fn outcome(&self) -> Result<Outcome, CuleError> {
        let obs = self.obs_bytes();
        let final_obs = if self.settings.autoreset == Autoreset::SameStep { obs } else { 0 };
        Outcome::new(obs, final_obs, if self.wants_ram { RAM_BYTES } else { 0 }, self.audio_bytes())
    }

    pub(super) fn obs_bytes(&self) -> usize {
        self.settings.stack * self.games[0].screen.size_bytes()
    }

    /// The environments' settings, one for each of the games.
    pub(super) fn rules(&self) -> &[EnvSettings] {
        &self.rules
    }

    /// Players of an environment, 1 or 2.
    pub(super) fn players(&self) -> u32 {
        self.settings.players
    }

    pub(super) fn games(&self) -> &[Game] {
        &self.games
    }

    /// Bytes of the sound of an environment, 0 without sound.
    fn audio_bytes(&self) -> usize {
        if self.settings.sound { self.max_frames * SAMPLES } else { 0 }
    }

    /// Runs a command in environment `id` and writes its rows of the results.
    ///
    /// # Errors
    /// [`CuleError::Environment`]; this environment must be reset afterwards.
    pub(super) fn execute(
        &self,
        work: &mut Workspace,
        id: usize,
        command: Command,
        row: Row<'_>,
    ) -> Result<Report, CuleError> {
        let mut report = Report::default();
        let result = catch_panic(|| {
            report = self.perform(work, id, command, row)?;
            Ok(())
        });
        match result {
            Ok(()) => Ok(report),
            Err(source) => {
                lock(&self.slots[id]).mark_failed();
                Err(CuleError::Environment { env: id, source: Box::new(source) })
            }
        }
    }

    fn perform(
        &self,
        work: &mut Workspace,
        id: usize,
        command: Command,
        row: Row<'_>,
    ) -> Result<Report, CuleError> {
        let mut slot = lock(&self.slots[id]);
        let (game, rules) = (&self.games[slot.game], &self.rules[slot.game]);
        perform(&mut slot, work, (game, &self.settings, rules), id, command, row)
    }
}

/// Runs a command in an environment with the number `id`, and writes its rows of the results.
///
/// # Errors
/// [`CuleError::ModeSelection`] if the game does not reach its mode.
pub(super) fn perform(
    slot: &mut Slot,
    work: &mut Workspace,
    (game, settings, rules): (&Game, &Settings, &EnvSettings),
    id: usize,
    command: Command,
    row: Row<'_>,
) -> Result<Report, CuleError> {
    let mut report;
    match command {
        Command::Step(_) if slot.has_ended() && settings.autoreset == Autoreset::NextStep => {
            slot.reset(work, game, rules, None)?;
            report = slot.figures(id);
        }
        Command::Step(actions) => {
            slot.step(work, game, rules, actions);
            report = slot.report(id, game, rules);
            if report.ended && settings.autoreset == Autoreset::SameStep {
                if let Some(final_obs) = row.final_obs {
                    slot.observe(rules, final_obs);
                }
                slot.reset(work, game, rules, None)?;
                let now = slot.figures(id);
                report.lives = now.lives;
                report.frame_number = now.frame_number;
                report.episode_frame_number = now.episode_frame_number;
            }
        }
        Command::Reset(seed) => {
            slot.reset(work, game, rules, seed)?;
            report = slot.figures(id);
        }
        Command::StepAndReset(actions, seed) => {
            slot.step(work, game, rules, actions);
            report = slot.report(id, game, rules);
            if let Some(final_obs) = row.final_obs {
                slot.observe(rules, final_obs);
            }
            if let Some(ram) = row.ram {
                ram.copy_from_slice(&slot.head.state.machine.riot.ram);
            }
            if seed.is_some() || slot.has_ended() {
                slot.reset(work, game, rules, seed)?;
            }
            slot.observe(rules, row.obs);
            return Ok(report);
        }
        Command::Show => report = slot.figures(id),
    }
    slot.observe(rules, row.obs);
    if let Some(ram) = row.ram {
        ram.copy_from_slice(&slot.head.state.machine.riot.ram);
    }
    if let (Some(audio), Some(sound)) = (row.audio, &slot.sound) {
        audio.copy_from_slice(sound.samples());
    }
    report.env_id = id as u32;
    Ok(report)
}

impl CpuBatch {
    /// Loads the games and makes the environments, which must be reset before the first step.
    ///
    /// # Errors
    /// A setting is out of its bounds, the games have observations of different sizes, a ROM does not belong
    /// to its game, or memory or threads are not available.
    pub fn new(config: &BatchConfig<'_>, settings: Settings) -> Result<Self, CuleError> {
        config::check(config, &settings)?;
        let games = config::load_games(config, &settings)?;
        let envs = config.assignment.len();
        let asynchronous = config.batch_size < envs;
        let rules = config::env_settings(&settings, &games);
        memory::check(config::needed_bytes(config, &settings, &games[0]))?;
        let mut slots = memory::reserved(envs)?;
        for (i, &game) in config.assignment.iter().enumerate() {
            slots.push(Mutex::new(Slot::new(
                game,
                &games[game],
                &rules[game],
                config::entropy_of(config, i),
            )?));
        }
        let max_frames = settings.with_longest_steps(games.len()).max_frames();
        let mixed = sorting_keys(&games, config.assignment);
        let wants_ram = config.wants_ram;
        let shared = Arc::new(Shared { slots, wants_ram, settings, rules, max_frames, games });
        let threads = if asynchronous { 1 } else { config.threads };
        let affinity = config.affinity.map(Affinity::new).transpose()?;
        let pool = Pool::new(threads, envs, affinity.as_ref(), || shared.workspace())?;
        let queue_threads = thread_count(config.threads, envs);
        let queue = asynchronous
            .then(|| Queue::new(&shared, queue_threads, affinity.as_ref(), config.ordered))
            .transpose()?;
        Ok(Self {
            shared,
            pool,
            branch_pool: None,
            branch_threads: thread_count(config.threads, usize::MAX),
            affinity,
            queue,
            batch_size: config.batch_size,
            mixed,
            ready_envs: vec![],
            busy: memory::filled(false, envs)?,
        })
    }

    /// Number of environments.
    pub fn num_envs(&self) -> usize {
        self.shared.slots.len()
    }

    /// Shape of one observation: `(stack, ...)`, or `(stack * 3, rows, columns)` for channels-first color.
    pub fn obs_shape(&self) -> Vec<usize> {
        config::obs_shape(&self.shared.games[0], &self.shared.settings)
    }

    /// Bytes of one observation.
    pub fn obs_bytes(&self) -> usize {
        self.shared.obs_bytes()
    }

    /// Bytes of the sound of an environment: those of the frames of its longest step. 0 without sound.
    pub fn audio_bytes(&self) -> usize {
        self.shared.audio_bytes()
    }

    /// Action codes of the action space, ascending; the same for all environments.
    pub fn actions(&self) -> Vec<u8> {
        config::action_codes(self.shared.games.iter().fold(0, |all, game| all | game.env_game.actions))
    }

    /// Number of threads that step environments.
    pub fn threads(&self) -> usize {
        self.queue.as_ref().map_or(self.pool.threads(), Queue::threads)
    }

    /// Name of the game of an environment.
    pub fn game(&self, env: usize) -> &'static str {
        GAMES[self.shared.games[lock(&self.shared.slots[env]).game].row].name
    }

    /// Gives environments other games of the batch, each its index, from their next reset on, which must be a
    /// reset of all environments that change. Generators go on; with another ROM the cartridge is loaded anew.
    /// Results that have not been received are discarded.
    ///
    /// # Errors
    /// `assignment` does not have one game per environment, or a game does not exist.
    pub fn assign(&mut self, assignment: &[usize]) -> Result<(), CuleError> {
        config::check_assignment(assignment, self.num_envs(), self.shared.games.len())?;
        self.discard_results()?;
        let games = &self.shared.games;
        for (slot, &game) in self.shared.slots.iter().zip(assignment) {
            let mut slot = lock(slot);
            if slot.game != game {
                let same_rom = games[slot.game].has_rom_of(&games[game]);
                slot.change_game(game, &games[game], same_rom);
            }
        }
        self.mixed = sorting_keys(games, assignment);
        Ok(())
    }

    /// Copies the states of the environments of `other`, which play the same games. Results of `other` that have
    /// not been received are discarded.
    ///
    /// # Errors
    /// The numbers of environments differ.
    pub fn adopt(&mut self, other: &mut Self) -> Result<(), CuleError> {
        let (found, expected) = (other.num_envs(), self.num_envs());
        if found != expected {
            return Err(CuleError::Count { what: "environments", found, expected });
        }
        other.discard_results()?;
        for (own, slot) in self.shared.slots.iter().zip(&other.shared.slots) {
            let mut own = lock(own);
            *own = Slot { game: own.game, ..lock(slot).clone() };
        }
        self.ready_envs.clone_from(&other.ready_envs);
        Ok(())
    }

    /// Resets the environments that `mask` selects, or all if it is `None`. `seeds` has one entry per
    /// environment. Every row of `out` is written.
    ///
    /// # Errors
    /// `seeds` or `mask` has another length than the batch, an environment outside of the mask has never been
    /// reset, or a game does not reach its mode.
    pub fn reset(
        &mut self,
        seeds: Option<&[Option<i64>]>,
        mask: Option<&[bool]>,
        out: Outputs<'_>,
    ) -> Result<(), CuleError> {
        let commands = self.resets(seeds, mask)?;
        let shown = commands.iter().enumerate().filter(|(_, command)| matches!(command, Command::Show));
        for (env, _) in shown {
            if lock(&self.shared.slots[env]).head.ready == 0 {
                return Err(CuleError::EnvState { env, reason: NOT_RESET });
            }
        }
        self.run(commands.len(), |env| (env, commands[env]), out)
    }

    /// Steps every environment once, with one action per player of each.
    ///
    /// # Errors
    /// `actions` has another length than all players of the batch, or an environment has not been reset.
    pub fn step(&mut self, actions: &[Action], out: Outputs<'_>) -> Result<(), CuleError> {
        let envs = self.num_envs();
        self.check_actions(actions, envs)?;
        self.check_ready(0..envs)?;
        self.run(envs, |env| (env, Command::Step(self.of_players(actions, env))), out)
    }

    /// Bytes of one row of [`CpuBatch::save`] for these environments: the size of the largest state.
    pub fn state_bytes(&self, envs: &[usize]) -> usize {
        envs.iter().map(|&env| states::row_bytes(&lock(&self.shared.slots[env]))).max().unwrap_or(0)
    }

    /// Writes the states of `envs` into `out`, one row each.
    ///
    /// # Errors
    /// `out` has the wrong size.
    pub fn save(&self, envs: &[usize], out: &mut [u8]) -> Result<(), CuleError> {
        let size = self.state_bytes(envs);
        check_length("states", out.len(), envs.len() * size)?;
        self.check_idle(envs)?;
        for (row, &env) in out.chunks_exact_mut(size.max(1)).zip(envs) {
            let slot = lock(&self.shared.slots[env]);
            states::save(&slot, &self.shared.games[slot.game], row);
        }
        Ok(())
    }

    /// Loads row i of `rows` into environment `envs[i]`. All rows are checked before the first one is loaded.
    ///
    /// # Errors
    /// A row is not a state of that environment: it has another game, other settings or another version, or
    /// is damaged.
    pub fn load(&mut self, envs: &[usize], rows: &[u8]) -> Result<(), CuleError> {
        if envs.is_empty() {
            return Ok(());
        }
        self.check_idle(envs)?;
        let size = rows.len() / envs.len();
        let mut loaded = memory::reserved(envs.len())?;
        for (i, &env) in envs.iter().enumerate() {
            let index = lock(&self.shared.slots[env]).game;
            let (game, row) = (&self.shared.games[index], &rows[i * size..(i + 1) * size]);
            loaded.push(states::load(row, index, game, &self.shared.rules[index])?);
        }
        for (mut slot, &env) in loaded.into_iter().zip(envs) {
            let mut current = lock(&self.shared.slots[env]);
            slot.sound = current.sound.take();
            *current = slot;
        }
        Ok(())
    }

    /// The native picture of an environment: palette indices, number of rows, and whether the television is
    /// PAL.
    ///
    /// # Errors
    /// The environment has not been reset.
    pub fn picture(&self, env: usize) -> Result<(Vec<u8>, usize, bool), CuleError> {
        let mut picture = None;
        self.pool.run(vec![std::iter::once(&mut picture)], |work, picture| {
            let slot = lock(&self.shared.slots[env]);
            if slot.head.ready == 0 {
                return Err(CuleError::EnvState { env, reason: NOT_RESET });
            }
            let game = &self.shared.games[slot.game];
            let (pixels, pal) = slot.picture(work, game, &self.shared.rules[slot.game]);
            *picture = Some((pixels, game.height(), pal));
            Ok(())
        })?;
        picture.ok_or(CuleError::EnvState { env, reason: NOT_RESET })
    }

    /// Lives, flags, frame numbers and RAM of an environment's console.
    ///
    /// # Errors
    /// The environment has not been reset, or its result has not been received.
    pub fn console_status(&self, env: usize) -> Result<ConsoleStatus, CuleError> {
        self.check_idle(&[env])?;
        let slot = lock(&self.shared.slots[env]);
        if slot.head.ready == 0 {
            return Err(CuleError::EnvState { env, reason: NOT_RESET });
        }
        let state = &slot.head.state;
        Ok(ConsoleStatus {
            lives: env::lives(state),
            game_over: state.rules.over != 0,
            truncated: env::truncated(state),
            frame_number: state.env.frame_number,
            episode_frame_number: state.env.episode_frame_number,
            ram: state.machine.riot.ram,
        })
    }

    /// Runs sequences of actions from saved states. The environments of the batch do not change. Returns the
    /// states after them, rows of equal length; none if they are not wanted.
    ///
    /// A branch ends with the first step that sets `terminated` or `truncated`; its further actions are not
    /// run. From a state whose episode has ended none is run.
    ///
    /// # Errors
    /// A number of items does not fit the number of branches, a row is not the state of an environment of
    /// this batch, or the environment of a row was not reset.
    pub fn branch(&mut self, request: &Branches<'_>, out: BranchOutputs<'_>) -> Result<Vec<u8>, CuleError> {
        if self.pool.threads() < self.branch_threads && self.branch_pool.is_none() {
            let work = || self.shared.workspace();
            self.branch_pool =
                Some(Pool::new(self.branch_threads, usize::MAX, self.affinity.as_ref(), work)?);
        }
        branch::run(&self.shared, self.branch_pool.as_ref().unwrap_or(&self.pool), request, out)
    }

    /// Runs the tasks of `envs` rows. `task` says for each row the number of its environment, which is that
    /// of no other row, and what this is to do.
    fn run(
        &self,
        envs: usize,
        task: impl Fn(usize) -> (usize, Command) + Copy + Send,
        mut out: Outputs<'_>,
    ) -> Result<(), CuleError> {
        let size = self.obs_bytes();
        check_length("observations", out.obs.len(), envs * size)?;
        if let Some(final_obs) = &out.final_obs {
            check_length("last observations", final_obs.len(), envs * size)?;
        }
        if let Some(ram) = &out.ram {
            check_length("RAM", ram.len(), envs * RAM_BYTES)?;
        }
        let audio_size = self.shared.audio_bytes();
        if let Some(audio) = &out.audio {
            check_length("sound", audio.len(), envs * audio_size)?;
        }
        let size = (size, audio_size);
        if out.reports.len() != envs {
            return Err(CuleError::Count { what: "reports", found: out.reports.len(), expected: envs });
        }
        let parts = self.pool.parts(envs);
        let bounds = |part: usize| envs * part / parts;
        let work = |work: &mut Workspace, job: Job<'_>| {
            *job.report = self.shared.execute(work, job.id, job.command, job.row)?;
            Ok(())
        };
        if self.mixed.is_empty() {
            let ranges = (0..parts).map(|part| {
                let first = bounds(part);
                out.take(bounds(part + 1) - first, size).jobs(first, size, task)
            });
            return self.pool.run(ranges.collect(), work);
        }
        // Jobs are sorted by game: each game has its own decoded cartridge, and two of them do not fit into
        // the first-level cache (8 games in a batch of 64 took 17 % less time).
        let mut jobs: Vec<Job<'_>> = memory::reserved(envs)?;
        jobs.extend(out.jobs(0, size, task));
        jobs.sort_by_key(|job| self.mixed[job.id]);
        let ranges: Vec<Vec<Job<'_>>> = (0..parts).rev().map(|part| jobs.split_off(bounds(part))).collect();
        self.pool.run(ranges.into_iter().rev().map(Vec::into_iter).collect(), work)
    }

    fn check_ready(&self, envs: impl Iterator<Item = usize>) -> Result<(), CuleError> {
        for env in envs {
            let slot = lock(&self.shared.slots[env]);
            if slot.head.ready == 0 {
                return Err(CuleError::EnvState { env, reason: NOT_RESET });
            }
            if slot.has_ended() && self.shared.settings.autoreset == Autoreset::Disabled {
                return Err(CuleError::EnvState { env, reason: HAS_ENDED });
            }
        }
        Ok(())
    }

    /// Checks the number of actions of `envs` environments.
    fn check_actions(&self, actions: &[Action], envs: usize) -> Result<(), CuleError> {
        let expected = envs * self.shared.players() as usize;
        if actions.len() == expected {
            return Ok(());
        }
        Err(CuleError::Count { what: "actions", found: actions.len(), expected })
    }

    fn of_players(&self, actions: &[Action], row: usize) -> PlayerActions {
        player_actions(actions, self.shared.players(), row)
    }

    fn check_idle(&self, envs: &[usize]) -> Result<(), CuleError> {
        match envs.iter().find(|&&env| self.busy[env]) {
            Some(&env) => Err(CuleError::EnvState { env, reason: "is still at work: call recv first" }),
            None => Ok(()),
        }
    }

    fn check_exists(&self, env: usize) -> Result<(), CuleError> {
        if env < self.busy.len() {
            return Ok(());
        }
        Err(CuleError::EnvState { env, reason: "does not exist" })
    }

    fn resets(
        &self,
        seeds: Option<&[Option<i64>]>,
        mask: Option<&[bool]>,
    ) -> Result<Vec<Command>, CuleError> {
        let envs = self.num_envs();
        if let Some(found) = seeds.map(<[_]>::len).filter(|&found| found != envs) {
            return Err(CuleError::Count { what: "seeds", found, expected: envs });
        }
        if let Some(found) = mask.map(<[_]>::len).filter(|&found| found != envs) {
            return Err(CuleError::Count { what: "mask entries", found, expected: envs });
        }
        let mut commands = memory::reserved(envs)?;
        commands.extend((0..envs).map(|env| {
            // A negative seed leaves the generators as they are.
            let seed = seeds.and_then(|seeds| seeds[env]).and_then(|seed| u64::try_from(seed).ok());
            if mask.is_none_or(|mask| mask[env]) { Command::Reset(seed) } else { Command::Show }
        }));
        Ok(commands)
    }
}

/// A number for the cartridge of each environment, equal for equal cartridges; empty if there is only one.
fn sorting_keys(games: &[Game], assignment: &[usize]) -> Vec<usize> {
    let key = |game: &Game| games.iter().position(|other| other.has_rom_of(game)).unwrap_or(0);
    let keys: Vec<usize> = games.iter().map(key).collect();
    if keys.iter().all(|&key| key == 0) {
        vec![]
    } else {
        assignment.iter().map(|&game| keys[game]).collect()
    }
}

const SYNCHRONOUS: CuleError =
    CuleError::EnvState { env: 0, reason: "is in a synchronous batch: send needs batch_size < num_envs" };

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::batch::{Boot, ObsType};
    use crate::console::game_row;
    use crate::env::full_strength;
    use crate::env::rules::StepRules;
    use crate::rom;

    /// A batch whose cartridge is an endless loop: one jump to itself.
    fn idle(envs: usize, threads: usize, batch_size: usize) -> CpuBatch {
        let mut bytes = vec![0xEA; 4096];
        bytes[..3].copy_from_slice(&[0x4C, 0x00, 0xF0]);
        bytes[0xFFC..].copy_from_slice(&[0x00, 0xF0, 0x00, 0xF0]);
        let games = [(rom::from_bytes(bytes).unwrap(), game_row("seaquest").unwrap())];
        let config = BatchConfig {
            games: &games,
            assignment: &vec![0; envs],
            threads,
            affinity: None,
            batch_size,
            ordered: true,
            wants_ram: false,
            entropy: 1,
        };
        let settings = Settings {
            rules: StepRules { repeat_probability: 0.0, frame_limit: i32::MAX, ..Settings::default().rules },
            frame_skip: (1, 1),
            maxpool: false,
            stack: 2,
            noop_max: 0,
            fire_reset: false,
            boot: Boot::Exact,
            obs_type: ObsType::Ram,
            size: None,
            full_actions: true,
            ..Settings::default()
        };
        CpuBatch::new(&config, settings).unwrap()
    }

    fn break_env(batch: &CpuBatch, env: usize) {
        lock(&batch.shared.slots[env]).head.state.env.game = u32::MAX;
    }

    #[test]
    fn one_environment_that_falls_over_takes_no_other_with_it() {
        for threads in [1, 2] {
            let mut batch = idle(4, threads, 4);
            let (mut obs, mut reports) = (vec![0; 4 * batch.obs_bytes()], [Report::default(); 4]);
            let mut step = |batch: &mut CpuBatch, reset: Option<&[bool]>| {
                let out =
                    Outputs { obs: &mut obs, final_obs: None, ram: None, audio: None, reports: &mut reports };
                match reset {
                    Some(mask) => batch.reset(None, Some(mask), out),
                    None => batch.step(&[full_strength(0); 4], out),
                }?;
                Ok::<_, CuleError>(reports.map(|report| report.env_id))
            };
            assert_eq!(step(&mut batch, Some(&[true; 4])).unwrap(), [0, 1, 2, 3]);
            break_env(&batch, 2);
            let message = step(&mut batch, None).unwrap_err().to_string();
            assert!(message.starts_with("environment 2: it panicked"), "{message}");
            let message = step(&mut batch, None).unwrap_err().to_string();
            assert!(message.contains("environment 2 has not been reset"), "{message}");
            assert_eq!(step(&mut batch, Some(&[false, false, true, false])).unwrap(), [0, 1, 2, 3]);
            assert_eq!(step(&mut batch, None).unwrap(), [0, 1, 2, 3]);
        }
    }

    #[test]
    fn halves_go_on_without_an_environment_that_fell_over() {
        let mut batch = idle(4, 2, 2);
        let (mut obs, mut reports) = (vec![0; 2 * batch.obs_bytes()], [Report::default(); 2]);
        let mut receive = |batch: &mut CpuBatch| {
            let mut out =
                Outputs { obs: &mut obs, final_obs: None, ram: None, audio: None, reports: &mut reports };
            batch.receive(Duration::from_secs(20), &mut out)
        };
        batch.send_reset(None).unwrap();
        assert!(receive(&mut batch).unwrap() && receive(&mut batch).unwrap());
        break_env(&batch, 1);
        batch.send(&[0, 1, 2, 3], &[full_strength(0); 4]).unwrap();
        let message = receive(&mut batch).unwrap_err().to_string();
        assert!(message.starts_with("environment 1: it panicked"), "{message}");
        assert!(receive(&mut batch).unwrap());
        assert_eq!(batch.ready_envs(), [0, 2, 3]);
        let message = batch.send(&[0, 1], &[full_strength(0); 2]).unwrap_err().to_string();
        assert!(message.contains("environment 1 has not been reset"), "{message}");
        batch.send(&[0, 3], &[full_strength(0); 2]).unwrap();
        assert!(receive(&mut batch).unwrap());
        batch.send_reset(None).unwrap();
        assert!(receive(&mut batch).unwrap() && receive(&mut batch).unwrap());
        assert_eq!(batch.ready_envs(), [0, 1, 2, 3]);
    }
}
