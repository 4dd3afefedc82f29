//! `parl._native.AtariBatch`: many Atari environments at once, on CPU threads.
//!
//! Every call detaches from the interpreter before it takes the batch's lock, and never attaches while it
//! holds the lock.

use std::time::Duration;

use cule::batch::{BatchConfig, BranchOutputs, BranchReport, Branches, CpuBatch, Outputs, Report};
use cule::env::{Action, full_strength, rules};
use cule::observe::palette;
use cule::{CuleError, memory};
use numpy::{
    PyArray1, PyArray2, PyArray3, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::arrays::{bytes, bytes_mut, check_disjoint, typed_slice};
use crate::atari_config::Config;
use crate::errors::cule_error;
use crate::locks::Owned;

/// How long `recv` waits for results before it checks for signals.
const RECV_INTERVAL: Duration = Duration::from_millis(100);
/// Number of rows of integers that `step` returns, with one column per environment; `_native.pyi` names them.
pub(crate) const NUMBERS: usize = 12;
/// Number of further rows of integers in a batch for two players: reward, reward before clipping and return of
/// the second player.
const SECOND: usize = 3;
/// Number of rows of flags: terminated, truncated, ended, game over.
pub(crate) const FLAGS: usize = 4;
/// The integers of a report.
pub(crate) const NUMBER_COLUMNS: [fn(&Report) -> i32; NUMBERS] = [
    |r| r.reward,
    |r| r.raw_reward,
    |r| r.lives,
    |r| r.frame_number,
    |r| r.episode_frame_number,
    |r| r.env_id as i32,
    |r| r.final_lives,
    |r| r.final_frame_number,
    |r| r.final_episode_frame_number,
    |r| r.episode_return,
    |r| r.episode_length,
    |r| r.game_return,
];
/// The further ones of the second player.
const SECOND_COLUMNS: [fn(&Report) -> i32; SECOND] =
    [|r| r.second_reward, |r| r.second_raw_reward, |r| r.second_return];
/// The flags of a report.
pub(crate) const FLAG_COLUMNS: [fn(&Report) -> bool; FLAGS] =
    [|r| r.terminated, |r| r.truncated, |r| r.ended, |r| r.game_over];

/// The console and the rules of each row of environments' states, (n, size): equal for states that continue
/// alike under equal actions without sticky actions.
#[pyfunction]
pub fn console_bytes<'py>(
    py: Python<'py>,
    states: &Bound<'py, PyUntypedArray>,
) -> PyResult<Bound<'py, PyArray2<u8>>> {
    let rows = bytes(states, "states")?;
    let &[count, size] = states.shape() else {
        let message = format!("states have shape {:?}, expected [states, bytes]", states.shape());
        return Err(PyValueError::new_err(message));
    };
    let all = py.detach(|| {
        let mut all = vec![];
        for (row, bytes) in rows.chunks_exact(size.max(1)).enumerate() {
            let found = cule::batch::console_bytes(bytes)
                .map_err(|source| CuleError::StateRow { row, source: Box::new(source) })?;
            all.extend(found);
        }
        Ok(all)
    });
    let all = all.map_err(|error| cule_error(py, error))?;
    let each = all.len() / count.max(1);
    PyArray1::from_vec(py, all).reshape([count, each])
}

/// A native picture in color, (rows, columns, 3).
pub(crate) fn colored<'py>(
    py: Python<'py>,
    pixels: &[u8],
    rows: usize,
    pal: bool,
) -> PyResult<Bound<'py, PyArray3<u8>>> {
    let table = &palette::RGB[if pal { palette::PAL } else { palette::NTSC }];
    let colors: Vec<u8> = pixels
        .iter()
        .flat_map(|&index| {
            let [_, red, green, blue] = table[index as usize].to_be_bytes();
            [red, green, blue]
        })
        .collect();
    let columns = pixels.len() / rows;
    PyArray1::from_vec(py, colors).reshape([rows, columns, 3])
}

/// Numbers, flags, and whether an episode ended.
type Results<'py> = (Bound<'py, PyArray2<i32>>, Bound<'py, PyArray2<bool>>, bool);
/// Of branches: numbers, flags and states.
type BranchResults<'py> = (Bound<'py, PyArray2<i64>>, Bound<'py, PyArray2<bool>>, Bound<'py, PyArray2<u8>>);
/// Lives, game over, truncated, frame number, episode frame number, RAM.
type ConsoleStatus<'py> = (i32, bool, bool, i32, i32, Bound<'py, PyArray1<u8>>);

/// Core of an environment and the words of its generator.
type Core<'py> = (Bound<'py, PyArray1<u8>>, Bound<'py, PyArray1<u8>>);

/// Environments that are stepped together. Output arrays are C-contiguous uint8 with one row per result.
#[pyclass(frozen, module = "parl._native")]
pub struct AtariBatch {
    batch: Owned<Option<CpuBatch>>,
    #[pyo3(get)]
    num_envs: usize,
    #[pyo3(get)]
    batch_size: usize,
    /// Dimensions of one observation.
    #[pyo3(get)]
    obs_shape: Vec<usize>,
    /// Codes of the actions that can be chosen, ascending.
    #[pyo3(get)]
    actions: Vec<u8>,
    #[pyo3(get)]
    num_threads: usize,
    /// Bytes of the sound of an environment, 0 without sound.
    #[pyo3(get)]
    audio_bytes: usize,
    threshold: Option<f32>,
    players: usize,
}

impl AtariBatch {
    /// Runs `work` on the batch, while detached from the interpreter.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut CpuBatch) -> Result<T, CuleError> + Send,
    ) -> PyResult<T> {
        let result = py.detach(|| self.batch.lock()?.as_mut().map(work).transpose());
        match result.map_err(|error| cule_error(py, error))? {
            Some(result) => Ok(result),
            None => Err(PyValueError::new_err("the environments are closed")),
        }
    }

    /// Checks and converts the actions of `count` environments, one per player of each.
    fn parse_actions(&self, actions: &Bound<'_, PyUntypedArray>, count: usize) -> PyResult<Vec<Action>> {
        let (all, stick) = ([count, self.players, 3], [count, 3]);
        let shape: &[usize] = match (self.players, self.threshold.is_some()) {
            (1, false) => &all[..1],
            (1, true) => &stick,
            (_, false) => &all[..2],
            (_, true) => &all,
        };
        if let Some(threshold) = self.threshold {
            let values = typed_slice::<f32>(actions).ok_or_else(|| {
                PyTypeError::new_err(format!("actions have dtype {}, expected float32", actions.dtype()))
            })?;
            if actions.shape() != shape {
                let message = format!("actions have shape {:?}, expected {shape:?}", actions.shape());
                return Err(PyValueError::new_err(message));
            }
            return values
                .chunks_exact(3)
                .enumerate()
                .map(|(at, action)| {
                    let [r, angle, fire] = [action[0], action[1], action[2]];
                    if !(r.is_finite() && angle.is_finite() && fire.is_finite()) {
                        let row = at / self.players;
                        return Err(PyValueError::new_err(format!(
                            "action {action:?} of row {row} is not finite"
                        )));
                    }
                    Ok(rules::continuous_action(r * angle.cos(), r * angle.sin(), fire, r, threshold))
                })
                .collect();
        }
        if actions.shape() != shape {
            let message = format!("actions have shape {:?}, expected {shape:?}", actions.shape());
            return Err(PyValueError::new_err(message));
        }
        // EnvPool and many action spaces use int32.
        if let Some(values) = typed_slice::<i64>(actions) {
            return self.actions_at(values.iter().copied());
        }
        let values = typed_slice::<i32>(actions).ok_or_else(|| {
            PyTypeError::new_err(format!("actions have dtype {}, expected int64 or int32", actions.dtype()))
        })?;
        self.actions_at(values.iter().copied().map(i64::from))
    }

    /// Converts indices of discrete actions.
    fn actions_at(&self, indices: impl Iterator<Item = i64>) -> PyResult<Vec<Action>> {
        indices
            .enumerate()
            .map(|(at, index)| {
                let code = usize::try_from(index).ok().and_then(|index| self.actions.get(index));
                code.map(|&code| full_strength(u32::from(code))).ok_or_else(|| {
                    let (row, count) = (at / self.players, self.actions.len());
                    PyValueError::new_err(format!(
                        "action {index} of row {row} is outside 0 to {}",
                        count - 1
                    ))
                })
            })
            .collect()
    }

    fn check_env(&self, env: usize) -> PyResult<()> {
        if env < self.num_envs {
            return Ok(());
        }
        Err(PyIndexError::new_err(format!("environment {env} is outside 0 to {}", self.num_envs - 1)))
    }
}

/// An empty vector with room for `count` elements, or a MemoryError.
fn reserved<T>(py: Python<'_>, count: usize) -> PyResult<Vec<T>> {
    memory::reserved(count).map_err(|error| cule_error(py, error))
}

/// `count` copies of `value`, or a MemoryError.
fn filled<T: Clone>(py: Python<'_>, value: T, count: usize) -> PyResult<Vec<T>> {
    memory::filled(value, count).map_err(|error| cule_error(py, error))
}

/// The arrays that results are written to.
struct Targets<'a> {
    obs: &'a mut [u8],
    final_obs: Option<&'a mut [u8]>,
    ram: Option<&'a mut [u8]>,
    audio: Option<&'a mut [u8]>,
    reports: Vec<Report>,
    players: usize,
}

impl<'a> Targets<'a> {
    fn new(
        batch: &AtariBatch,
        rows: usize,
        obs: &'a Bound<'_, PyUntypedArray>,
        final_obs: Option<&'a Bound<'_, PyUntypedArray>>,
        ram: Option<&'a Bound<'_, PyUntypedArray>>,
        audio: Option<&'a Bound<'_, PyUntypedArray>>,
    ) -> PyResult<Self> {
        let all: Vec<_> = [Some(obs), final_obs, ram, audio].into_iter().flatten().cloned().collect();
        check_disjoint(&all)?;
        Ok(Self {
            obs: bytes_mut(obs, "out")?,
            final_obs: final_obs.map(|array| bytes_mut(array, "final_obs")).transpose()?,
            ram: ram.map(|array| bytes_mut(array, "ram")).transpose()?,
            audio: audio.map(|array| bytes_mut(array, "audio")).transpose()?,
            reports: filled(obs.py(), Report::default(), rows)?,
            players: batch.players,
        })
    }

    fn outputs(&mut self) -> Outputs<'_> {
        Outputs {
            obs: self.obs,
            final_obs: self.final_obs.as_deref_mut(),
            ram: self.ram.as_deref_mut(),
            audio: self.audio.as_deref_mut(),
            reports: &mut self.reports,
        }
    }

    fn results<'py>(&self, py: Python<'py>) -> PyResult<Results<'py>> {
        let reports = &self.reports;
        let second = if self.players == 2 { &SECOND_COLUMNS[..] } else { &[] };
        let rows = NUMBERS + second.len();
        let mut all_numbers = reserved(py, rows * reports.len())?;
        all_numbers.extend(NUMBER_COLUMNS.iter().chain(second).flat_map(|column| reports.iter().map(column)));
        let ended = reports.iter().any(|report| report.ended);
        let mut all_flags = reserved(py, FLAGS * reports.len())?;
        all_flags.extend(FLAG_COLUMNS.iter().flat_map(|column| reports.iter().map(column)));
        let numbers = PyArray1::from_vec(py, all_numbers).reshape([rows, reports.len()])?;
        let flags = PyArray1::from_vec(py, all_flags).reshape([FLAGS, reports.len()])?;
        Ok((numbers, flags, ended))
    }
}

#[pymethods]
impl AtariBatch {
    #[new]
    #[allow(clippy::needless_pass_by_value, reason = "extracted from Python")]
    fn new(py: Python<'_>, config: Config) -> PyResult<Self> {
        let settings = config.settings()?;
        config.check_assignment()?;
        let batch = py.detach(|| {
            let games = config.load()?;
            let batch_config = BatchConfig {
                games: &games,
                assignment: &config.assignment,
                threads: config.num_threads,
                affinity: config.thread_affinity_offset,
                batch_size: config.batch_size,
                ordered: config.ordered,
                wants_ram: config.ram_info,
                entropy: config.entropy,
            };
            CpuBatch::new(&batch_config, settings)
        });
        let batch = batch.map_err(|error| cule_error(py, error))?;
        Ok(Self {
            num_envs: batch.num_envs(),
            batch_size: config.batch_size,
            obs_shape: batch.obs_shape(),
            actions: batch.actions(),
            num_threads: batch.threads(),
            audio_bytes: batch.audio_bytes(),
            threshold: config.continuous.then_some(config.continuous_action_threshold),
            players: config.players as usize,
            batch: Owned::new(Some(batch)),
        })
    }

    /// Resets all environments, or those of `mask`; `seeds` has one entry per environment, negative for none.
    #[pyo3(signature = (seeds, mask, obs, ram=None, audio=None))]
    fn reset<'py>(
        &self,
        py: Python<'py>,
        seeds: Option<Vec<i64>>,
        mask: Option<Vec<bool>>,
        obs: &Bound<'py, PyUntypedArray>,
        ram: Option<&Bound<'py, PyUntypedArray>>,
        audio: Option<&Bound<'py, PyUntypedArray>>,
    ) -> PyResult<Results<'py>> {
        let seeds: Option<Vec<Option<i64>>> = seeds.map(|seeds| seeds.into_iter().map(Some).collect());
        let mut targets = Targets::new(self, self.num_envs, obs, None, ram, audio)?;
        self.with(py, |batch| batch.reset(seeds.as_deref(), mask.as_deref(), targets.outputs()))?;
        targets.results(py)
    }

    /// Gives the environments other entries of `games` from their next reset on.
    #[allow(clippy::needless_pass_by_value, reason = "extracted from Python")]
    fn assign(&self, py: Python<'_>, assignment: Vec<usize>) -> PyResult<()> {
        self.with(py, |batch| batch.assign(&assignment))
    }

    /// Takes over the states of the environments of `other`, which play the same games, and closes it.
    fn adopt(&self, py: Python<'_>, other: &Self) -> PyResult<()> {
        let taken = py.detach(|| other.batch.lock().map(|mut batch| batch.take()));
        let Some(mut taken) = taken.map_err(|error| cule_error(py, error))? else {
            return Err(PyValueError::new_err("the environments are closed"));
        };
        self.with(py, |batch| batch.adopt(&mut taken))
    }

    /// Steps every environment.
    #[pyo3(signature = (actions, obs, final_obs=None, ram=None, audio=None))]
    fn step<'py>(
        &self,
        py: Python<'py>,
        actions: &Bound<'py, PyUntypedArray>,
        obs: &Bound<'py, PyUntypedArray>,
        final_obs: Option<&Bound<'py, PyUntypedArray>>,
        ram: Option<&Bound<'py, PyUntypedArray>>,
        audio: Option<&Bound<'py, PyUntypedArray>>,
    ) -> PyResult<Results<'py>> {
        let actions = self.parse_actions(actions, self.num_envs)?;
        let mut targets = Targets::new(self, self.num_envs, obs, final_obs, ram, audio)?;
        self.with(py, |batch| batch.step(&actions, targets.outputs()))?;
        targets.results(py)
    }

    /// Steps the environments `envs`, which ascend, one row of the results each. Those with a seed that is
    /// not negative are reset with it after the step; those whose episode has ended are reset. `final_obs`
    /// gets the observations before the resets.
    #[pyo3(signature = (envs, actions, seeds, obs, final_obs=None, ram=None))]
    #[allow(clippy::too_many_arguments, reason = "the signature of Python")]
    fn step_and_reset<'py>(
        &self,
        py: Python<'py>,
        envs: Vec<usize>,
        actions: &Bound<'py, PyUntypedArray>,
        seeds: Option<Vec<i64>>,
        obs: &Bound<'py, PyUntypedArray>,
        final_obs: Option<&Bound<'py, PyUntypedArray>>,
        ram: Option<&Bound<'py, PyUntypedArray>>,
    ) -> PyResult<Results<'py>> {
        let actions = self.parse_actions(actions, envs.len())?;
        let seeds: Option<Vec<_>> =
            seeds.map(|seeds| seeds.into_iter().map(|seed| u64::try_from(seed).ok()).collect());
        let mut targets = Targets::new(self, envs.len(), obs, final_obs, ram, None)?;
        self.with(py, |batch| batch.step_and_reset(&envs, &actions, seeds.as_deref(), targets.outputs()))?;
        targets.results(py)
    }

    /// Steps one environment with one action after the other until its episode ends; returns the number of
    /// steps, and whether it has ended.
    fn play(
        &self,
        py: Python<'_>,
        env: usize,
        actions: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<(usize, bool)> {
        let count = actions.shape().first().copied().unwrap_or(0);
        let actions = self.parse_actions(actions, count)?;
        self.with(py, |batch| batch.play(env, &actions))
    }

    /// Raises the error that `step` would raise for these actions.
    fn check_actions(&self, actions: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
        self.parse_actions(actions, self.num_envs).map(|_| ())
    }

    /// Sets the environments that the next `send` is for. None of them may be running a step.
    fn set_ready_envs(&self, py: Python<'_>, envs: Vec<usize>) -> PyResult<()> {
        self.with(py, |batch| batch.set_ready_envs(&envs))
    }

    /// Environments that the next `send` is for if it names none.
    fn ready_envs(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        self.with(py, |batch| Ok(batch.ready_envs().to_vec()))
    }

    /// Queues one step for each of `envs`.
    fn send(&self, py: Python<'_>, actions: &Bound<'_, PyUntypedArray>, envs: Vec<usize>) -> PyResult<()> {
        let actions = self.parse_actions(actions, envs.len())?;
        self.with(py, |batch| batch.send(&envs, &actions))
    }

    /// Queues a reset of every environment.
    fn send_reset(&self, py: Python<'_>, seeds: Option<Vec<i64>>) -> PyResult<()> {
        let seeds: Option<Vec<Option<i64>>> = seeds.map(|seeds| seeds.into_iter().map(Some).collect());
        self.with(py, |batch| batch.send_reset(seeds.as_deref()))
    }

    /// Waits for the next results. Ctrl-C interrupts it.
    #[pyo3(signature = (obs, final_obs=None, ram=None, audio=None))]
    fn recv<'py>(
        &self,
        py: Python<'py>,
        obs: &Bound<'py, PyUntypedArray>,
        final_obs: Option<&Bound<'py, PyUntypedArray>>,
        ram: Option<&Bound<'py, PyUntypedArray>>,
        audio: Option<&Bound<'py, PyUntypedArray>>,
    ) -> PyResult<Results<'py>> {
        let mut targets = Targets::new(self, self.batch_size, obs, final_obs, ram, audio)?;
        while !self.with(py, |batch| batch.receive(RECV_INTERVAL, &mut targets.outputs()))? {
            py.check_signals()?;
        }
        targets.results(py)
    }

    /// Returns the complete states of `envs`, one row of bytes each.
    fn get_state<'py>(&self, py: Python<'py>, envs: Vec<usize>) -> PyResult<Bound<'py, PyArray2<u8>>> {
        envs.iter().try_for_each(|&env| self.check_env(env))?;
        let count = envs.len();
        let rows = self.with(py, move |batch| {
            let mut rows = memory::filled(0, batch.state_bytes(&envs).saturating_mul(envs.len()))?;
            batch.save(&envs, &mut rows)?;
            Ok(rows)
        })?;
        let size = rows.len() / count.max(1);
        PyArray1::from_vec(py, rows).reshape([count, size])
    }

    /// Loads row i of `states` into environment `envs[i]`.
    fn set_state(
        &self,
        py: Python<'_>,
        states: &Bound<'_, PyUntypedArray>,
        envs: Vec<usize>,
    ) -> PyResult<()> {
        envs.iter().try_for_each(|&env| self.check_env(env))?;
        let rows = bytes(states, "states")?;
        if states.dtype().itemsize() != 1 || states.shape().first() != Some(&envs.len()) || states.ndim() != 2
        {
            let message = format!(
                "states are {} of shape {:?}, expected uint8 of shape [{}, bytes]",
                states.dtype(),
                states.shape(),
                envs.len()
            );
            return Err(PyValueError::new_err(message));
        }
        self.with(py, |batch| batch.load(&envs, rows))
    }

    /// Seeds the generators of environment `envs[i]` with `seeds[i]`, as a seeded reset does, without a reset.
    #[allow(clippy::needless_pass_by_value, reason = "extracted from Python")]
    fn reseed(&self, py: Python<'_>, envs: Vec<usize>, seeds: Vec<u64>) -> PyResult<()> {
        self.with(py, |batch| batch.reseed(&envs, &seeds))
    }

    /// Runs `branches` sequences of `steps` actions from each row of `states`; `actions` has those of a branch
    /// one after the other. Without `obs` no frame is drawn.
    #[pyo3(signature = (states, actions, branches, steps, obs, ram, seeds, saves))]
    #[allow(clippy::too_many_arguments, reason = "arguments of Python")]
    fn branch<'py>(
        &self,
        py: Python<'py>,
        states: &Bound<'py, PyUntypedArray>,
        actions: &Bound<'py, PyUntypedArray>,
        branches: usize,
        steps: usize,
        obs: Option<&Bound<'py, PyUntypedArray>>,
        ram: Option<&Bound<'py, PyUntypedArray>>,
        seeds: Option<Vec<i64>>,
        saves: bool,
    ) -> PyResult<BranchResults<'py>> {
        let rows = bytes(states, "states")?;
        let &[count, _] = states.shape() else {
            let message = format!("states have shape {:?}, expected [states, bytes]", states.shape());
            return Err(PyValueError::new_err(message));
        };
        let total = count.saturating_mul(branches);
        let actions = self.parse_actions(actions, total.saturating_mul(steps))?;
        let all: Vec<_> = [Some(states), obs, ram].into_iter().flatten().cloned().collect();
        check_disjoint(&all)?;
        let obs = obs.map(|array| bytes_mut(array, "obs")).transpose()?;
        let ram = ram.map(|array| bytes_mut(array, "ram")).transpose()?;
        let mut reports = filled(py, BranchReport::default(), total)?;
        let request =
            Branches { states: rows, count, branches, steps, actions: &actions, seeds: seeds.as_deref() };
        let out = BranchOutputs { obs, ram, reports: &mut reports, saves };
        let rows = self.with(py, |batch| batch.branch(&request, out))?;
        let columns: [fn(&BranchReport) -> i64; 6] = [
            |r| r.reward,
            |r| r.raw_reward,
            |r| i64::from(r.length),
            |r| i64::from(r.lives),
            |r| r.second_reward,
            |r| r.second_raw_reward,
        ];
        let columns = &columns[..if self.players == 2 { 6 } else { 4 }];
        let mut numbers = reserved(py, columns.len() * total)?;
        numbers.extend(columns.iter().flat_map(|column| reports.iter().map(column)));
        let mut flags = reserved(py, 2 * total)?;
        flags.extend(reports.iter().map(|r| r.terminated).chain(reports.iter().map(|r| r.truncated)));
        let size = rows.len() / total.max(1);
        Ok((
            PyArray1::from_vec(py, numbers).reshape([columns.len(), total])?,
            PyArray1::from_vec(py, flags).reshape([2, total])?,
            PyArray1::from_vec(py, rows).reshape([total, size])?,
        ))
    }

    /// Version of states and cores, which another version does not load.
    #[classattr]
    const STATE_VERSION: u32 = cule::batch::STATE_VERSION;

    /// Core of an environment and the words of its generator of sticky actions, as bytes.
    fn get_core<'py>(&self, py: Python<'py>, env: usize) -> PyResult<Core<'py>> {
        let (core, words) = self.with(py, |batch| batch.save_core(env))?;
        let words = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok((PyArray1::from_vec(py, core), PyArray1::from_vec(py, words)))
    }

    /// Loads what `get_core` returned.
    fn set_core(
        &self,
        py: Python<'_>,
        env: usize,
        core: &Bound<'_, PyUntypedArray>,
        words: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<()> {
        let (core, words) = (bytes(core, "core")?, bytes(words, "words")?);
        self.with(py, |batch| batch.load_core(env, core, words))
    }

    /// The native picture of an environment, (rows, 160, 3).
    fn picture<'py>(&self, py: Python<'py>, env: usize) -> PyResult<Bound<'py, PyArray3<u8>>> {
        self.check_env(env)?;
        let (pixels, rows, pal) = self.with(py, |batch| batch.picture(env))?;
        colored(py, &pixels, rows, pal)
    }

    /// The native picture of an environment, (rows, 160), as palette indices or, with `gray`, as brightness.
    fn screen<'py>(&self, py: Python<'py>, env: usize, gray: bool) -> PyResult<Bound<'py, PyArray2<u8>>> {
        self.check_env(env)?;
        let (mut pixels, rows, pal) = self.with(py, |batch| batch.picture(env))?;
        if gray {
            let table = &palette::GRAY[if pal { palette::PAL } else { palette::NTSC }];
            pixels.iter_mut().for_each(|pixel| *pixel = table[*pixel as usize]);
        }
        let columns = pixels.len() / rows;
        PyArray1::from_vec(py, pixels).reshape([rows, columns])
    }

    /// Lives, game over, truncated, frame number, episode frame number and RAM of an environment's console.
    fn console_status<'py>(&self, py: Python<'py>, env: usize) -> PyResult<ConsoleStatus<'py>> {
        self.check_env(env)?;
        let f = self.with(py, |batch| batch.console_status(env))?;
        let ram = PyArray1::from_slice(py, &f.ram);
        Ok((f.lives, f.game_over, f.truncated, f.frame_number, f.episode_frame_number, ram))
    }

    /// Name of the game of an environment.
    fn game(&self, py: Python<'_>, env: usize) -> PyResult<&'static str> {
        self.check_env(env)?;
        self.with(py, |batch| Ok(batch.game(env)))
    }

    /// Ends the threads and frees the environments. Later calls raise ValueError. Does nothing in a forked process.
    fn close(&self, py: Python<'_>) {
        let batch = py.detach(|| self.batch.lock().map(|mut batch| batch.take()));
        py.detach(|| drop(batch));
    }
}
