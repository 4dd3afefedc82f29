//! `parl._native.Replay`: takes and returns bytes; `parl.replay` handles names, types and batches.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use numpy::{PyArray1, PyArrayDescr, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};
use sumtree::replay::{
    self, Autoreset, Batch, Compression, Conversion as Core, Field, Finals, Hindsight, Padding, ReplayError,
    Rows, Selection, Sequence, Settings, Strategy, WeightNorm,
};

use crate::arrays::{
    Reals, as_unsigned, bytes, bytes_mut, check_disjoint, indices, new_array, reals, tickets, typed_slice,
    typed_slice_mut,
};
use crate::errors::replay_error;
use crate::sumtree::{draws_from_mode, histogram_array};

/// Name, dtype, shape, bytes per row, frames of a stack.
type FieldSpec = (String, String, Vec<usize>, usize, usize);
/// Period, burn-in, eta.
type SequenceSpec = (usize, usize, f64);
/// Strategy, share of relabeled rows, field of the achieved goal.
type HindsightSpec = (String, f64, String);

/// Name, type and shape of a column that is accepted without conversion. Fields without a `dtype`, such as
/// structured ones, are never accepted so.
struct Plain {
    name: Py<PyString>,
    dtype: Option<Py<PyArrayDescr>>,
    shape: Vec<usize>,
}

#[pyclass(frozen, module = "parl._native")]
pub struct Replay {
    core: replay::Replay,
    plain: PyOnceLock<Vec<Plain>>,
}

impl Replay {
    fn from_core(core: replay::Replay) -> Self {
        Self { core, plain: PyOnceLock::new() }
    }

    fn plain(&self, py: Python<'_>) -> &[Plain] {
        let fields = &self.core.settings().fields;
        self.plain.get_or_init(py, || {
            let plain = fields.iter().map(|field| Plain {
                name: PyString::intern(py, &field.name).unbind(),
                dtype: PyArrayDescr::new(py, &field.dtype).ok().map(Bound::unbind),
                shape: field.shape.clone(),
            });
            plain.collect()
        })
    }

    fn add_rows<'py>(&self, py: Python<'py>, rows: &Rows<'_>) -> PyResult<Bound<'py, PyArray1<u64>>> {
        let (tickets, out) = new_array::<u64>(py, rows.count)?;
        py.detach(|| self.core.add(rows, out)).map_err(|error| replay_error(py, error))?;
        Ok(tickets)
    }
}

/// How `sample` chooses rows. Shares of uniform and newest rows are for stratified draws only.
fn selection(
    mode: &str,
    (rank, learners): (i64, i64),
    (uniform, newest, newest_rows): (f64, f64, usize),
) -> PyResult<Selection> {
    let mixed = uniform != 0.0 || newest != 0.0;
    match mode {
        "stratified" if mixed => Ok(Selection::Mixture { uniform, newest, newest_rows }),
        mode if mixed => {
            let text =
                format!("mode {mode:?} cannot be mixed with uniform or newest rows, only \"stratified\" can");
            Err(PyValueError::new_err(text))
        }
        "uniform" => Ok(Selection::Uniform),
        "largest" => Ok(Selection::Largest),
        mode => Ok(Selection::Weighted(draws_from_mode(mode, rank, learners)?)),
    }
}

/// A C-contiguous copy of `array`.
fn contiguous_copy<'py>(array: &Bound<'py, PyUntypedArray>) -> PyResult<Bound<'py, PyUntypedArray>> {
    Ok(array.call_method1(intern!(array.py(), "copy"), (intern!(array.py(), "C"),))?.cast_into()?)
}

fn wrap_result(py: Python<'_>, made: Result<replay::Replay, replay::ReplayError>) -> PyResult<Replay> {
    made.map(Replay::from_core).map_err(|error| replay_error(py, error))
}

/// Calls `open` while detached from the interpreter. It may wait while its argument returns true, until Ctrl-C.
fn interruptible(
    py: Python<'_>,
    open: impl FnOnce(&mut (dyn FnMut() -> bool + Send)) -> Result<replay::Replay, ReplayError> + Send,
) -> PyResult<Replay> {
    let mut signal = Ok(());
    let mut goes_on = || {
        signal = Python::attach(|py| py.check_signals());
        signal.is_ok()
    };
    let made = py.detach(|| open(&mut goes_on));
    signal?;
    wrap_result(py, made)
}

#[pymethods]
impl Replay {
    #[new]
    #[pyo3(signature = (
        capacity, fields, *, alpha, n_step, gamma, epsilon, fan_out, num_envs, autoreset, weight_norm, seed, shared,
        stack_padding, sequence, hindsight, compression, path
    ))]
    #[allow(clippy::too_many_arguments)] // The settings, by name.
    fn new(
        py: Python<'_>,
        capacity: usize,
        fields: Vec<FieldSpec>,
        alpha: f64,
        n_step: usize,
        gamma: f64,
        epsilon: f64,
        fan_out: usize,
        num_envs: usize,
        autoreset: &str,
        weight_norm: &str,
        seed: u64,
        shared: Option<&str>,
        stack_padding: &str,
        sequence: Option<SequenceSpec>,
        hindsight: Option<HindsightSpec>,
        compression: &str,
        path: Option<PathBuf>,
    ) -> PyResult<Self> {
        let named = |error: ReplayError| replay_error(py, error);
        let hindsight = match hindsight {
            None => None,
            Some((strategy, share, achieved)) => {
                Some(Hindsight { strategy: Strategy::from_name(&strategy).map_err(named)?, share, achieved })
            }
        };
        let fields = fields.into_iter().map(|(name, dtype, shape, row_bytes, stack)| Field {
            name,
            dtype,
            shape,
            row_bytes,
            stack,
        });
        let settings = Settings {
            capacity,
            fields: fields.collect(),
            alpha,
            n_step,
            gamma,
            epsilon,
            fan_out,
            num_envs,
            autoreset: Autoreset::from_name(autoreset).map_err(named)?,
            weight_norm: WeightNorm::from_name(weight_norm).map_err(named)?,
            stack_padding: Padding::from_name(stack_padding).map_err(named)?,
            sequence: sequence.map(|(period, burn_in, eta)| Sequence { period, burn_in, eta }),
            hindsight,
            compression: Compression::from_name(compression).map_err(named)?,
            extra_rows: 0,
            seed,
        };
        if shared.is_some() && path.is_some() {
            return Err(PyValueError::new_err("shared and path are both given, expected at most one"));
        }
        interruptible(py, |goes_on| match (shared, path) {
            (Some(name), _) => replay::Replay::open_shared_while(name, settings, goes_on),
            (None, Some(path)) => replay::Replay::create_or_open_file(&path, settings),
            (None, None) => replay::Replay::heap(settings),
        })
    }

    #[staticmethod]
    fn attach(py: Python<'_>, name: &str) -> PyResult<Self> {
        interruptible(py, |goes_on| replay::Replay::attach_shared_while(name, goes_on))
    }

    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let made = py.detach(|| replay::Replay::open_file(&path));
        wrap_result(py, made)
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.core.flush()).map_err(|error| replay_error(py, error))
    }

    #[getter]
    fn path(&self) -> Option<String> {
        self.core.path().map(|path| path.to_string_lossy().into_owned())
    }

    #[staticmethod]
    #[pyo3(signature = (path, shared, capacity))]
    fn load(py: Python<'_>, path: PathBuf, shared: Option<&str>, capacity: Option<usize>) -> PyResult<Self> {
        let made = py.detach(|| replay::Replay::load(&path, shared, capacity));
        wrap_result(py, made)
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.core.save(&path)).map_err(|error| replay_error(py, error))
    }

    /// Writes the file that `save` would write for a replay with these settings and this capacity, whose rows
    /// are stored elsewhere. `parts` iterates over arrays of its bytes, in the order of the file.
    fn save_parts(
        &self,
        py: Python<'_>,
        path: PathBuf,
        capacity: usize,
        used: usize,
        parts: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let named = |error: ReplayError| replay_error(py, error);
        let settings = Settings { capacity, ..self.core.settings().clone() };
        let mut file = replay::FileWriter::new(&path, &settings, used).map_err(named)?;
        for part in parts.try_iter()? {
            let part = part?.cast_into::<PyUntypedArray>()?;
            let part = bytes(&part, "a part")?;
            py.detach(|| file.part(part)).map_err(named)?;
        }
        py.detach(|| file.finish()).map_err(named)
    }

    #[pyo3(signature = (columns, rows, env_id, priorities, final_present, final_columns))]
    #[allow(clippy::too_many_arguments)] // Rows, by name.
    fn add<'py>(
        &self,
        py: Python<'py>,
        columns: Vec<Bound<'py, PyUntypedArray>>,
        rows: usize,
        env_id: Option<&Bound<'py, PyAny>>,
        priorities: Option<&Bound<'py, PyAny>>,
        final_present: Option<&Bound<'py, PyUntypedArray>>,
        final_columns: Vec<Bound<'py, PyUntypedArray>>,
    ) -> PyResult<Bound<'py, PyArray1<u64>>> {
        // These conversions may run code of the caller, during which no array may be borrowed.
        let env_id = env_id.map(|env_id| indices(env_id, "env_id")).transpose()?;
        let priorities = priorities.map(|p| reals(p, "priorities")).transpose()?;
        let names = &self.core.settings().fields;
        let name = |i: usize| names.get(i).map_or("a column", |field| field.name.as_str());
        let columns: Vec<_> =
            columns.iter().enumerate().map(|(i, column)| bytes(column, name(i))).collect::<PyResult<_>>()?;
        let finals: Vec<_> =
            final_columns.iter().map(|column| bytes(column, "final_obs")).collect::<PyResult<_>>()?;
        let has_final = final_present.map(|mask| bytes(mask, "final_obs mask")).transpose()?;
        let given = Rows {
            count: rows,
            columns: &columns,
            envs: env_id.as_ref().map(|env_id| typed_slice(env_id).unwrap_or_default()),
            priorities: priorities.as_ref().map(|p| Reals::of(p).slice),
            finals: has_final.map(|has_final| Finals { has_final, columns: &finals }),
        };
        self.add_rows(py, &given)
    }

    /// As `add`, if `columns` are exactly the fields, as arrays of their types and shapes. Else does nothing
    /// and returns None.
    #[pyo3(signature = (columns, env_id, priorities))]
    fn add_plain<'py>(
        &self,
        py: Python<'py>,
        columns: &Bound<'py, PyDict>,
        env_id: Option<&Bound<'py, PyAny>>,
        priorities: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyArray1<u64>>>> {
        let plain = self.plain(py);
        if columns.len() != plain.len() {
            return Ok(None);
        }
        let mut arrays = Vec::with_capacity(plain.len());
        for Plain { name, dtype, shape } in plain {
            // Not subclasses: masked arrays are refused.
            let Some(Ok(array)) = columns.get_item(name)?.map(Bound::cast_into_exact::<PyUntypedArray>)
            else {
                return Ok(None);
            };
            let fits = dtype.as_ref().is_some_and(|dtype| array.dtype().is(dtype))
                && array.shape().split_first().is_some_and(|(_, rest)| rest == shape.as_slice());
            if !fits {
                return Ok(None);
            }
            // Gymnasium's CartPole, for example, returns observations in Fortran order.
            arrays.push(if array.is_c_contiguous() { array } else { contiguous_copy(&array)? });
        }
        // As in `add`; and before the shapes of the arrays are read.
        let env_id = env_id.map(|env_id| indices(env_id, "env_id")).transpose()?;
        let priorities = priorities.map(|p| reals(p, "priorities")).transpose()?;
        let rows = |array: &Bound<'_, PyUntypedArray>| array.shape().first().copied().unwrap_or(0);
        let Some(count) = arrays.first().map(rows) else { return Ok(None) };
        if arrays.iter().any(|array| rows(array) != count) {
            return Ok(None);
        }
        let columns: Vec<_> = arrays.iter().map(|array| bytes(array, "a column")).collect::<PyResult<_>>()?;
        let given = Rows {
            count,
            columns: &columns,
            envs: env_id.as_ref().map(|env_id| typed_slice(env_id).unwrap_or_default()),
            priorities: priorities.as_ref().map(|p| Reals::of(p).slice),
            finals: None,
        };
        self.add_rows(py, &given).map(Some)
    }

    fn cut(&self, py: Python<'_>, env_id: &Bound<'_, PyAny>) -> PyResult<()> {
        let env_id = indices(env_id, "env_id")?;
        let envs = typed_slice(&env_id).unwrap_or_default();
        py.detach(|| self.core.cut(envs)).map_err(|error| replay_error(py, error))
    }

    /// Fills `fields` (one array per output), discounts, indices, weights and tickets.
    #[pyo3(signature = (
        fields, discounts, indices, weights, tickets, beta, mode, rank, learners, uniform, newest, newest_rows
    ))]
    #[allow(clippy::too_many_arguments)] // A batch, by name.
    fn sample(
        &self,
        py: Python<'_>,
        fields: Vec<Bound<'_, PyUntypedArray>>,
        discounts: &Bound<'_, PyUntypedArray>,
        indices: &Bound<'_, PyUntypedArray>,
        weights: &Bound<'_, PyUntypedArray>,
        tickets: &Bound<'_, PyUntypedArray>,
        beta: f64,
        mode: &str,
        rank: i64,
        learners: i64,
        uniform: f64,
        newest: f64,
        newest_rows: usize,
    ) -> PyResult<()> {
        let mode = selection(mode, (rank, learners), (uniform, newest, newest_rows))?;
        let mut all = fields.clone();
        all.extend([discounts, indices, weights, tickets].map(Bound::clone));
        check_disjoint(&all)?;
        let mut batch = Batch {
            fields: fields.iter().map(|array| bytes_mut(array, "a field")).collect::<PyResult<_>>()?,
            discounts: typed_slice_mut(discounts, "discount")?,
            indices: as_unsigned(typed_slice_mut(indices, "indices")?),
            weights: typed_slice_mut(weights, "weights")?,
            tickets: typed_slice_mut(tickets, "tickets")?,
        };
        py.detach(|| self.core.sample(mode, beta, &mut batch)).map_err(|error| replay_error(py, error))
    }

    fn update(
        &self,
        py: Python<'_>,
        tickets: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let (tickets, priorities) = (self::tickets(tickets, "tickets")?, reals(priorities, "priorities")?);
        let (tickets, priorities) = (typed_slice(&tickets).unwrap_or_default(), Reals::of(&priorities).slice);
        py.detach(|| self.core.update(tickets, priorities)).map_err(|error| replay_error(py, error))
    }

    fn evict(&self, py: Python<'_>, count: usize) -> PyResult<usize> {
        py.detach(|| self.core.evict(count)).map_err(|error| replay_error(py, error))
    }

    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.core.verify()).map_err(|error| replay_error(py, error))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.core.close());
    }

    fn unlink(&self, py: Python<'_>) {
        py.detach(|| self.core.unlink());
    }

    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let settings = self.core.settings();
        let dict = PyDict::new(py);
        let fields: Vec<FieldSpec> = settings
            .fields
            .iter()
            .map(|f| (f.name.clone(), f.dtype.clone(), f.shape.clone(), f.row_bytes, f.stack))
            .collect();
        dict.set_item("capacity", settings.capacity)?;
        dict.set_item("fields", fields)?;
        dict.set_item("alpha", settings.alpha)?;
        dict.set_item("n_step", settings.n_step)?;
        dict.set_item("gamma", settings.gamma)?;
        dict.set_item("epsilon", settings.epsilon)?;
        dict.set_item("fan_out", settings.fan_out)?;
        dict.set_item("num_envs", settings.num_envs)?;
        dict.set_item("autoreset", settings.autoreset.name())?;
        dict.set_item("weight_norm", settings.weight_norm.name())?;
        dict.set_item("stack_padding", settings.stack_padding.name())?;
        dict.set_item("sequence", settings.sequence.map(|s| (s.period, s.burn_in, s.eta)))?;
        let hindsight = settings.hindsight.as_ref();
        dict.set_item("hindsight", hindsight.map(|h| (h.strategy.name(), h.share, h.achieved.as_str())))?;
        dict.set_item("compression", settings.compression.name())?;
        dict.set_item("extra_rows", settings.extra_rows)?;
        dict.set_item("seed", settings.seed)?;
        Ok(dict)
    }

    /// Name, dtype, shape and steps of each array that `sample` fills.
    fn outputs(&self) -> Vec<(String, String, Vec<usize>, usize)> {
        let outputs = self.core.outputs().into_iter();
        outputs.map(|output| (output.name, output.dtype, output.shape, output.steps)).collect()
    }

    fn final_fields(&self) -> Vec<String> {
        self.core.final_fields().into_iter().map(str::to_owned).collect()
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.core.counters();
        let dict = PyDict::new(py);
        dict.set_item("added", counters.added)?;
        dict.set_item("sampled", counters.sampled)?;
        dict.set_item("redrawn", counters.redrawn)?;
        dict.set_item("updated", counters.updated)?;
        dict.set_item("stale", counters.stale)?;
        dict.set_item("saturated", counters.saturated)?;
        dict.set_item("restarts", counters.restarts)?;
        dict.set_item("recovered", counters.recovered)?;
        Ok(dict)
    }

    fn histogram<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u64>>> {
        histogram_array(py, self.core.tree())
    }

    #[getter]
    fn get_ticket_tag(&self) -> u64 {
        self.core.ticket_tag()
    }

    #[setter]
    fn set_ticket_tag(&self, tag: u64) {
        self.core.set_ticket_tag(tag);
    }

    #[getter]
    fn largest(&self) -> f64 {
        self.core.largest()
    }

    #[getter]
    fn has_discounts(&self) -> bool {
        self.core.has_discounts()
    }

    #[getter]
    fn sampleable(&self) -> u64 {
        self.core.sampleable()
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.core.size_bytes()
    }

    #[getter]
    fn total(&self) -> f64 {
        self.core.total()
    }

    #[getter]
    fn shared(&self) -> Option<&str> {
        self.core.shared_name()
    }

    #[getter]
    fn get_rng_state(&self) -> [u64; 2] {
        self.core.rng_state()
    }

    #[setter]
    fn set_rng_state(&self, state: [u64; 2]) {
        self.core.set_rng_state(state);
    }

    fn __len__(&self) -> usize {
        self.core.len() as usize
    }
}

/// A replay that is converted to one with another form of one field; see `sumtree::replay::Conversion`.
#[pyclass(frozen, module = "parl._native")]
pub struct Conversion {
    from: Py<Replay>,
    core: Mutex<Option<Core>>,
}

impl Conversion {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Option<Core>, &replay::Replay) -> Result<T, ReplayError> + Send,
    ) -> PyResult<T> {
        let from = &self.from.get().core;
        let done = py.detach(|| {
            let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut core, from)
        });
        done.map_err(|error| replay_error(py, error))
    }
}

#[pymethods]
impl Conversion {
    #[new]
    fn new(py: Python<'_>, replay: Py<Replay>, field: FieldSpec) -> PyResult<Self> {
        let (name, dtype, shape, row_bytes, stack) = field;
        let field = Field { name, dtype, shape, row_bytes, stack };
        let core = py.detach(|| Core::new(&replay.get().core, field));
        let core = Mutex::new(Some(core.map_err(|error| replay_error(py, error))?));
        Ok(Self { from: replay, core })
    }

    #[getter]
    fn left(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |core, from| core.as_ref().map(|core| core.left(from)).ok_or(ReplayError::Closed))
    }

    fn restart(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |core, _| core.as_mut().map(Core::restart).ok_or(ReplayError::Closed))
    }

    fn read(
        &self,
        py: Python<'_>,
        stacks: &Bound<'_, PyUntypedArray>,
        numbers: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<usize> {
        check_disjoint(&[stacks.clone(), numbers.clone()])?;
        let (stacks, numbers) = (bytes_mut(stacks, "stacks")?, typed_slice_mut(numbers, "numbers")?);
        self.with(py, |core, from| core.as_mut().ok_or(ReplayError::Closed)?.read(from, stacks, numbers))
    }

    fn write(
        &self,
        py: Python<'_>,
        numbers: &Bound<'_, PyUntypedArray>,
        rows: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<()> {
        let wrong = || PyValueError::new_err("numbers is not a C-contiguous array of uint64");
        let numbers = typed_slice::<u64>(numbers).ok_or_else(wrong)?;
        let rows = bytes(rows, "rows")?;
        self.with(py, |core, _| core.as_mut().ok_or(ReplayError::Closed)?.write(numbers, rows))
    }

    /// Ends the conversion, also after an error.
    fn finish(&self, py: Python<'_>) -> PyResult<Replay> {
        self.with(py, |core, from| core.take().ok_or(ReplayError::Closed)?.finish(from))
            .map(Replay::from_core)
    }
}
