//! `parl._native.CudaAtariBatch`: Atari environments on a CUDA device. Calls take device addresses and a
//! stream; torch allocates and owns the memory.

use std::path::PathBuf;
use std::time::Instant;

use ::cuda::nvrtc::Nvrtc;
use cule::CuleError;
use cule::batch::BatchConfig;
use cule::batch::cuda::calibrate::{self, Effort};
use cule::batch::cuda::{Actions, Choice, Cuda, CudaBatch, SOURCES, Targets, saved_choices};
use numpy::{PyArray2, PyArray3, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;

use crate::arrays::bytes;
use crate::atari_config::Config;
use crate::errors::{cuda_error, cule_error};
use crate::locks::Owned;
use crate::vector::colored;

/// Environments on a device. Addresses are those of contiguous device memory with one row per environment, 0
/// for none: observations and final observations uint8, RAM uint8 (n, 128), numbers int32 (12, n), flags bool
/// (4, n).
#[pyclass(frozen, module = "parl._native")]
pub struct CudaAtariBatch {
    batch: Owned<Option<CudaBatch<Cuda>>>,
    #[pyo3(get)]
    num_envs: usize,
    /// Dimensions of one observation.
    #[pyo3(get)]
    obs_shape: Vec<usize>,
    /// Codes of the actions that can be chosen, ascending.
    #[pyo3(get)]
    actions: Vec<u8>,
    /// Bytes of device memory that it uses, without stacks.
    #[pyo3(get)]
    device_bytes: usize,
    /// Bytes of device memory for the stacks of kernels, which all batches on the device share.
    #[pyo3(get)]
    stack_bytes: usize,
    /// True if every kernel came from the kernel cache.
    #[pyo3(get)]
    from_cache: bool,
    /// True if all its games were calibrated before on this device.
    #[pyo3(get)]
    calibrated: bool,
    /// For continuous actions, the threshold above which a direction is pressed; else `None`.
    threshold: Option<f32>,
}

/// Addresses of obs, final_obs, ram, numbers and flags; bytes from one observation to the next, 0 if they are
/// adjacent; and whether the older planes of observations are already in place.
type Addresses = (u64, u64, u64, u64, u64, u64, bool);

impl CudaAtariBatch {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut CudaBatch<Cuda>) -> Result<T, CuleError> + Send,
    ) -> PyResult<T> {
        let result = py.detach(|| self.batch.lock()?.as_mut().map(work).transpose());
        match result.map_err(|error| cule_error(py, error))? {
            Some(result) => Ok(result),
            None => Err(PyValueError::new_err("the environments are closed")),
        }
    }

    fn check_envs(&self, envs: &[usize]) -> PyResult<()> {
        match envs.iter().find(|&&env| env >= self.num_envs) {
            None => Ok(()),
            Some(env) => {
                Err(PyIndexError::new_err(format!("environment {env} is outside 0 to {}", self.num_envs - 1)))
            }
        }
    }
}

#[pymethods]
impl CudaAtariBatch {
    #[new]
    #[allow(clippy::needless_pass_by_value, reason = "extracted from Python")]
    fn new(py: Python<'_>, config: Config, device: u32, nvrtc_folders: Vec<PathBuf>) -> PyResult<Self> {
        let settings = config.settings()?;
        config.check_assignment()?;
        let batch = py.detach(|| {
            // A missing device or compiler is an error before any ROM is loaded.
            let cuda = Cuda::new(device, &nvrtc_folders)?;
            let games = config.load()?;
            let batch_config = BatchConfig {
                games: &games,
                assignment: &config.assignment,
                threads: 1,
                affinity: None,
                batch_size: config.assignment.len(),
                ordered: true,
                wants_ram: false,
                entropy: config.entropy,
            };
            let mut batch = CudaBatch::new(cuda, &batch_config, settings)?;
            let kept: Vec<Option<Choice>> =
                batch.images().into_iter().map(|image| saved_choices::load(batch.device(), image)).collect();
            let chosen: Vec<Choice> = kept.iter().map(|choice| choice.unwrap_or_default()).collect();
            batch.choose(&chosen, 0)?;
            // Waits, because later calls use other streams.
            batch.check_faults(0)?;
            Ok((batch, kept.iter().all(Option::is_some)))
        });
        let (batch, calibrated) = batch.map_err(|error| cule_error(py, error))?;
        Ok(Self {
            num_envs: batch.num_envs(),
            obs_shape: batch.obs_shape(),
            actions: batch.actions(),
            device_bytes: batch.device_bytes(),
            stack_bytes: batch.stack_bytes(),
            from_cache: batch.device().from_cache,
            calibrated,
            threshold: config.continuous.then_some(config.continuous_action_threshold),
            batch: Owned::new(Some(batch)),
        })
    }

    /// Resets all environments, or those whose byte at `mask` is not 0; `seeds` are int64, negative for none.
    /// `targets` are the addresses of obs, final_obs, ram, numbers, flags. Does not wait for the device.
    fn reset(&self, py: Python<'_>, seeds: u64, mask: u64, targets: Addresses, stream: u64) -> PyResult<()> {
        let out = addresses(targets);
        self.with(py, |batch| batch.reset(seeds, mask, &out, stream))
    }

    /// Gives the environments other entries of `games` from their next reset on. Waits for the device.
    #[allow(clippy::needless_pass_by_value, reason = "extracted from Python")]
    fn assign(&self, py: Python<'_>, assignment: Vec<usize>, stream: u64) -> PyResult<()> {
        self.with(py, |batch| batch.assign(&assignment, stream))
    }

    /// Steps every environment. `actions` are int32 or, with `wide`, int64; for continuous environments
    /// float32 (n, 4): to the right, up, trigger, strength. Does not wait for the device.
    fn step(
        &self,
        py: Python<'_>,
        actions: u64,
        wide: bool,
        targets: Addresses,
        stream: u64,
    ) -> PyResult<()> {
        let out = addresses(targets);
        let actions = match self.threshold {
            Some(threshold) => Actions::Sticks(actions, threshold),
            None if wide => Actions::Wide(actions),
            None => Actions::Narrow(actions),
        };
        self.with(py, |batch| batch.step(actions, &out, stream))
    }

    /// Measures which form and window play its game fastest, uses these from now on, and stores them on the
    /// disk. This resets and steps the environments. Returns form, window and seconds per step of everything
    /// measured.
    fn calibrate(&self, py: Python<'_>, stream: u64) -> PyResult<Vec<(&'static str, u32, f64)>> {
        self.with(py, |batch| {
            let found = batch.measure(&Choice::all(), Effort::default(), stream)?;
            if let ([image], Some(best)) = (&batch.images()[..], calibrate::fastest(&found)) {
                saved_choices::store(batch.device(), batch.game(0), image, &found);
                batch.choose(&[best], stream)?;
            }
            Ok(found
                .into_iter()
                .map(|(choice, seconds)| (choice.form.name(), choice.window, seconds))
                .collect())
        })
    }

    /// Sets form and window of each game, in the order of the games; a single pair is for all games.
    #[allow(clippy::needless_pass_by_value, reason = "extracted from Python")]
    fn choose(&self, py: Python<'_>, choices: Vec<(String, u32)>, stream: u64) -> PyResult<()> {
        self.with(py, |batch| {
            let named = choices.iter().map(|(form, window)| Choice::named(form, *window));
            let mut chosen = named.collect::<Result<Vec<_>, _>>()?;
            if let [one] = chosen[..] {
                chosen = vec![one; batch.images().len()];
            }
            batch.choose(&chosen, stream)
        })
    }

    /// Returns name, form and window of each game, in order.
    fn choices(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, &'static str, u32)>> {
        self.with(py, |batch| {
            let all = batch.choices().into_iter();
            Ok(all.map(|(game, choice)| (game, choice.form.name(), choice.window)).collect())
        })
    }

    /// Waits for the stream, and raises an error that occurred on the device since the last check.
    fn check(&self, py: Python<'_>, stream: u64) -> PyResult<()> {
        self.with(py, |batch| batch.check_faults(stream))
    }

    /// Returns the states of `envs`, one row of bytes each, as `AtariBatch.get_state` does.
    fn get_state<'py>(
        &self,
        py: Python<'py>,
        envs: Vec<usize>,
        stream: u64,
    ) -> PyResult<Bound<'py, PyArray2<u8>>> {
        self.check_envs(&envs)?;
        let count = envs.len();
        let (rows, size) = self.with(py, move |batch| batch.save(&envs, stream))?;
        numpy::PyArray1::from_vec(py, rows).reshape([count, size])
    }

    /// Loads row i of `states` into environment `envs[i]`, or a single row into all of `envs`.
    fn set_state(
        &self,
        py: Python<'_>,
        states: &Bound<'_, PyUntypedArray>,
        envs: Vec<usize>,
        stream: u64,
    ) -> PyResult<()> {
        self.check_envs(&envs)?;
        let rows = bytes(states, "states")?;
        let count = states.shape().first().copied().unwrap_or(0);
        let fits = count == envs.len() || count == 1;
        if states.dtype().itemsize() != 1 || !fits || states.ndim() != 2 {
            let (dtype, shape, count) = (states.dtype(), states.shape(), envs.len());
            let message =
                format!("states are {dtype} of shape {shape:?}, expected uint8 of shape [{count}, bytes]");
            return Err(PyValueError::new_err(message));
        }
        self.with(py, |batch| {
            if count == 1 { batch.load_same(&envs, rows, stream) } else { batch.load(&envs, rows, stream) }
        })
    }

    /// Returns the native pictures of `envs` in color, (rows, columns, 3) each. Waits for the stream.
    fn pictures<'py>(
        &self,
        py: Python<'py>,
        envs: Vec<usize>,
        stream: u64,
    ) -> PyResult<Vec<Bound<'py, PyArray3<u8>>>> {
        self.check_envs(&envs)?;
        let pictures = self.with(py, move |batch| batch.pictures(&envs, stream))?;
        pictures.iter().map(|(pixels, rows, pal)| colored(py, pixels, *rows, *pal)).collect()
    }

    /// Name of the game of an environment.
    fn game(&self, py: Python<'_>, env: usize) -> PyResult<&'static str> {
        self.check_envs(&[env])?;
        self.with(py, |batch| Ok(batch.game(env)))
    }

    /// Frees the environments. Later calls raise ValueError. Does nothing in a forked process.
    fn close(&self, py: Python<'_>) {
        let batch = py.detach(|| self.batch.lock().map(|mut batch| batch.take()));
        py.detach(|| drop(batch));
    }
}

fn addresses((obs, final_obs, ram, numbers, flags, obs_stride, slides): Addresses) -> Targets {
    Targets { obs, final_obs, ram, numbers, flags, obs_stride, slides }
}

/// Lists the CUDA driver, devices, NVRTC and kernel cache, as (name, value) pairs.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "extracted from Python")]
pub fn cuda_report(py: Python<'_>, nvrtc_folders: Vec<PathBuf>) -> Vec<(String, String)> {
    py.detach(|| {
        let mut lines = ::cuda::report(&nvrtc_folders);
        for (device, choices) in
            ::cuda::cache::folder().map(|folder| saved_choices::report(&folder)).unwrap_or_default()
        {
            lines.push((format!("fastest on {device}"), choices));
        }
        lines
    })
}

/// Compiles the kernels of environments for a device and stores them in the kernel cache, without loading
/// them.
///
/// Returns the target architecture, the seconds taken, and for each file its name, size in bytes and whether
/// it came from the kernel cache.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, clippy::type_complexity, reason = "a plain tuple for Python")]
pub fn cuda_prepare(
    py: Python<'_>,
    device: u32,
    nvrtc_folders: Vec<PathBuf>,
) -> PyResult<(String, f64, Vec<(&'static str, usize, bool)>)> {
    py.detach(|| {
        let start = Instant::now();
        let (target, images) = ::cuda::prepare(device, &nvrtc_folders, &[SOURCES])?;
        let files = images.into_iter().map(|image| (image.file, image.image.len(), image.from_cache));
        Ok((target, start.elapsed().as_secs_f64(), files.collect()))
    })
    .map_err(|error| cuda_error(py, &error))
}

/// Compiles kernels for an architecture such as 90: those of `files`, or, if that is empty, all of
/// environments. Needs no device.
///
/// Returns the target architecture, the seconds taken, and for each file its name, size in bytes and whether
/// it came from the kernel cache.
#[pyfunction]
#[pyo3(signature = (architecture, nvrtc_folders, ptx, files=vec![]))]
#[allow(clippy::needless_pass_by_value, clippy::type_complexity, reason = "a plain tuple for Python")]
pub fn cuda_compile(
    py: Python<'_>,
    architecture: u32,
    nvrtc_folders: Vec<PathBuf>,
    ptx: bool,
    files: Vec<String>,
) -> PyResult<(String, f64, Vec<(&'static str, usize, bool)>)> {
    py.detach(|| {
        let nvrtc = Nvrtc::find(&nvrtc_folders)?;
        let target = if ptx { format!("compute_{architecture}") } else { nvrtc.target(architecture)? };
        let start = Instant::now();
        let of_replays = !files.is_empty() && files.iter().all(|file| crate::program::is_source_file(file));
        let sources = if of_replays { &crate::program::SOURCES } else { &SOURCES };
        let images = sources.compile(&nvrtc, &target, 0, &files)?;
        let files = images.into_iter().map(|image| (image.file, image.image.len(), image.from_cache));
        Ok((target, start.elapsed().as_secs_f64(), files.collect()))
    })
    .map_err(|error| cuda_error(py, &error))
}
