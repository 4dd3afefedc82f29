//! Handlers of XLA's FFI for `parl.jax`, and the environments that they step.
//!
//! A program that XLA has compiled names its environments by two strings, their settings and the MD5 of the
//! ROM, not by an address: it may be compiled in another process, or loaded from a cache on the disk.
#![allow(unsafe_code)] // Handlers are C functions; a capsule holds their addresses.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, PoisonError, RwLock};

use cule::CuleError;
use cule::batch::{BatchConfig, Report, RowBatch, RowInputs, RowOutputs};
use cule::env::{Action, full_strength};
use pyo3::ffi::PyCapsule_New;
use pyo3::prelude::*;
use xla_ffi::{Argument, Call, CallFrame, Contents, Error, Flag, Handler, Output};

use crate::atari_config::Config;
use crate::errors::cule_error;
use crate::vector::{FLAG_COLUMNS, FLAGS, NUMBER_COLUMNS, NUMBERS};

/// Settings and MD5 of the ROM.
type Key = (String, String);

/// Environments that calls can name. They are never removed, because a compiled program may live as long as
/// the process.
static ENVIRONMENTS: RwLock<BTreeMap<Key, Arc<RowBatch>>> = RwLock::new(BTreeMap::new());

/// Atari environments whose states the caller holds; `parl.jax` steps them in programs of XLA.
#[pyclass(frozen, module = "parl._native")]
pub struct AtariRows {
    /// Dimensions of one observation.
    #[pyo3(get)]
    obs_shape: Vec<usize>,
    /// Codes of the actions that can be chosen, ascending.
    #[pyo3(get)]
    actions: Vec<u8>,
    #[pyo3(get)]
    num_threads: usize,
    /// Bytes of sound: there is none.
    #[pyo3(get)]
    audio_bytes: usize,
    /// Bytes of a state, without its observation.
    #[pyo3(get)]
    row_bytes: usize,
    /// MD5 of the ROM, the second string that names the environments.
    #[pyo3(get)]
    rom_md5: String,
}

#[pymethods]
impl AtariRows {
    /// Makes the environments of `config`, of one game, unless this process has made them before with the
    /// same `settings`. `picture_bytes` is the number of bytes of a state for the pictures that it keeps.
    #[new]
    #[allow(clippy::needless_pass_by_value, reason = "extracted from Python")]
    fn new(py: Python<'_>, config: Config, settings: String, picture_bytes: usize) -> PyResult<Self> {
        let rules = config.settings()?;
        config.check_assignment()?;
        let made = py.detach(|| {
            let games = config.load()?;
            let rom_md5 = games.first().map(|(rom, _)| rom.md5.clone()).unwrap_or_default();
            let mut all = ENVIRONMENTS.write().unwrap_or_else(PoisonError::into_inner);
            let key = (settings, rom_md5.clone());
            if let Some(batch) = all.get(&key) {
                return Ok((batch.clone(), rom_md5));
            }
            let batch_config = BatchConfig {
                games: &games,
                assignment: &config.assignment,
                threads: config.num_threads,
                affinity: None,
                batch_size: config.assignment.len(),
                ordered: true,
                wants_ram: config.ram_info,
                entropy: 0,
            };
            let batch = Arc::new(RowBatch::new(&batch_config, rules, picture_bytes)?);
            all.insert(key, batch.clone());
            Ok((batch, rom_md5))
        });
        let (batch, rom_md5) = made.map_err(|error: CuleError| cule_error(py, error))?;
        Ok(Self {
            obs_shape: batch.obs_shape(),
            actions: batch.actions(),
            num_threads: batch.threads(),
            audio_bytes: 0,
            row_bytes: batch.row_bytes(),
            rom_md5,
        })
    }

    /// Does nothing: the environments have no states of their own.
    fn close(&self) {}
}

/// The handlers as capsules, with the names under which `jax.ffi.register_ffi_target` registers them.
#[pyfunction]
pub fn xla_targets(py: Python<'_>) -> PyResult<Vec<(&'static str, Py<PyAny>)>> {
    let handlers: [(&str, Handler); 2] = [("parl_atari_reset", reset), ("parl_atari_step", step)];
    let capsule = |handler: Handler| {
        // SAFETY: a function lives as long as the process, and the capsule has neither name nor destructor.
        unsafe {
            let capsule = PyCapsule_New(handler as *mut c_void, std::ptr::null(), None);
            Bound::from_owned_ptr_or_err(py, capsule).map(Bound::unbind)
        }
    };
    handlers.into_iter().map(|(name, handler)| Ok((name, capsule(handler)?))).collect()
}

unsafe extern "C" fn reset(frame: *mut CallFrame) -> *mut Error {
    // SAFETY: XLA calls this, and leaves the arrays of the call to its handler.
    unsafe { xla_ffi::handle(frame, run_reset) }
}

unsafe extern "C" fn step(frame: *mut CallFrame) -> *mut Error {
    // SAFETY: as in `reset`.
    unsafe { xla_ffi::handle(frame, run_step) }
}

/// Seeds uint32 (...) -> results.
fn run_reset(call: &mut Call<'_>) -> Result<(), String> {
    let batch = environments(call)?;
    let extras = call.text("extras")?.to_owned();
    let [seeds] = &call.arguments[..] else {
        return Err(format!("{} arguments, expected seeds", call.arguments.len()));
    };
    let seeds: &[u32] = seeds.elements()?;
    Results::of(&extras, &mut call.results)?.fill(seeds.len(), |out| batch.reset(seeds, out))
}

/// States uint8 (..., S), actions int32 (...), observations before uint8 (..., shape) -> results.
fn run_step(call: &mut Call<'_>) -> Result<(), String> {
    let batch = environments(call)?;
    let extras = call.text("extras")?.to_owned();
    let [states, actions, obs] = &call.arguments[..] else {
        return Err(format!("{} arguments, expected states, actions and observations", call.arguments.len()));
    };
    let known = batch.actions();
    let action = |(row, &index): (usize, &i32)| {
        let code = usize::try_from(index).ok().and_then(|index| known.get(index));
        code.map(|&code| full_strength(code.into()))
            .ok_or_else(|| format!("action {index} of row {row} is outside 0 to {}", known.len() - 1))
    };
    let actions = actions.elements()?.iter().enumerate().map(action).collect::<Result<Vec<Action>, _>>()?;
    let before = RowInputs { rows: before(states, 0)?, obs: before(obs, 1)? };
    Results::of(&extras, &mut call.results)?.fill(actions.len(), |out| batch.step(&actions, before, out))
}

/// The contents of an argument, or `None` if they lie in the result `result`, which is then changed in place.
fn before<'a>(argument: &Argument<'a>, result: usize) -> Result<Option<&'a [u8]>, String> {
    match argument.contents {
        Contents::InResult(found) if found == result => Ok(None),
        _ => argument.elements().map(Some),
    }
}

/// The environments that a call names.
fn environments(call: &Call<'_>) -> Result<Arc<RowBatch>, String> {
    let key = (call.text("settings")?.to_owned(), call.text("rom_md5")?.to_owned());
    let all = ENVIRONMENTS.read().unwrap_or_else(PoisonError::into_inner);
    all.get(&key).cloned().ok_or_else(|| {
        let (settings, md5) = key;
        format!(
            "this process has not made the environments of the program; call parl.jax.make before, with the ROM \
             of md5 {md5} and {settings}"
        )
    })
}

/// The results of a call: states, observations, numbers int32 (..., `NUMBERS`), flags bool (..., `FLAGS`),
/// and those that the attribute `extras` names, which is "", "final_obs", "ram" or "final_obs ram".
struct Results<'a> {
    rows: &'a mut [u8],
    obs: &'a mut [u8],
    numbers: &'a mut [i32],
    flags: &'a mut [Flag],
    final_obs: Option<&'a mut [u8]>,
    ram: Option<&'a mut [u8]>,
}

impl<'a> Results<'a> {
    fn of(extras: &str, results: &'a mut [Output<'_>]) -> Result<Self, String> {
        let found = results.len();
        let mut results = results.iter_mut();
        let mut next = || results.next().ok_or_else(|| format!("{found} results, expected more"));
        let (rows, obs) = (next()?.elements()?, next()?.elements()?);
        let (numbers, flags) = (next()?.elements()?, next()?.elements()?);
        let mut extra = |name: &str| {
            let wanted = extras.split(' ').any(|word| word == name);
            if wanted { next()?.elements().map(Some) } else { Ok(None) }
        };
        let (final_obs, ram) = (extra("final_obs")?, extra("ram")?);
        Ok(Self { rows, obs, numbers, flags, final_obs, ram })
    }

    /// Runs `work`, which fills the arrays and one report per environment, and writes the reports.
    fn fill(
        self,
        count: usize,
        work: impl FnOnce(RowOutputs<'_>) -> Result<(), CuleError>,
    ) -> Result<(), String> {
        let Self { rows, obs, numbers, flags, final_obs, ram } = self;
        if numbers.len() != count * NUMBERS || flags.len() != count * FLAGS {
            let (numbers, flags) = (numbers.len(), flags.len());
            return Err(format!("{numbers} numbers and {flags} flags for {count} environments"));
        }
        let mut reports = vec![Report::default(); count];
        work(RowOutputs { rows, obs, final_obs, ram, reports: &mut reports })
            .map_err(|error| error.to_string())?;
        for (report, numbers) in reports.iter().zip(numbers.chunks_exact_mut(NUMBERS)) {
            numbers.copy_from_slice(&NUMBER_COLUMNS.map(|column| column(report)));
        }
        for (report, flags) in reports.iter().zip(flags.chunks_exact_mut(FLAGS)) {
            flags.copy_from_slice(&FLAG_COLUMNS.map(|column| column(report).into()));
        }
        Ok(())
    }
}
