//! `parl.SumTree`: the tree alone, with floating-point priorities.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use sumtree::memory::{self, vec_of_zeros, vec_with_capacity};
use sumtree::replay::Priorities;
use sumtree::{Draws, Mixture, Rng, Scale, SumTreeError};

use crate::arrays::{Reals, as_unsigned, indices, new_array, reals, typed_slice};
use crate::errors::sumtree_error;

/// Why a search failed.
enum FindError {
    Prefix(String),
    Tree(SumTreeError),
}

impl From<SumTreeError> for FindError {
    fn from(error: SumTreeError) -> Self {
        Self::Tree(error)
    }
}

type MixtureSample<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>);
type Sample<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f64>>);

/// The draws with this name; `rank` and `learners` are for "split".
pub fn draws_from_mode(mode: &str, rank: i64, learners: i64) -> PyResult<Draws> {
    let within = |name: &str, value: i64| {
        let text = || format!("{name} is {value}, expected 0 to {}", u32::MAX);
        u32::try_from(value).map_err(|_| PyValueError::new_err(text()))
    };
    let (rank, learners) = (within("rank", rank)?, within("learners", learners)?);
    match mode {
        "stratified" => Ok(Draws::Stratified),
        "independent" => Ok(Draws::Independent),
        "systematic" => Ok(Draws::Systematic),
        "without_replacement" => Ok(Draws::WithoutReplacement),
        "split" => Ok(Draws::Split { rank, learners }),
        _ => Err(PyValueError::new_err(format!(
            "mode is {mode:?}, expected stratified, independent, systematic, without_replacement, split, uniform or largest"
        ))),
    }
}

/// A copy of a caller's array, which other threads cannot change.
fn copied<T: Copy>(array: &[T]) -> Result<Vec<T>, SumTreeError> {
    let mut copy = vec_with_capacity(array.len())?;
    copy.extend_from_slice(array);
    Ok(copy)
}

/// Number of leaves by the number of significant bits of their weight.
pub fn histogram_array<'py>(py: Python<'py>, tree: &sumtree::SumTree) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let (array, out) = new_array::<u64>(py, sumtree::SIZES)?;
    out.copy_from_slice(&tree.histogram());
    Ok(array)
}

/// Converts a count given by Python, or returns a ValueError with the bounds.
pub fn check_count(name: &str, value: i64) -> PyResult<usize> {
    const MAX: i64 = 1 << 32;
    if (0..=MAX).contains(&value) {
        return Ok(value as usize);
    }
    Err(PyValueError::new_err(format!("{name} is {value}, expected 0 to {MAX}")))
}

#[pyclass(frozen, module = "parl")]
pub struct SumTree {
    tree: sumtree::SumTree,
    scale: Scale,
    saturated: AtomicU64,
    rng: Mutex<Rng>,
}

impl SumTree {
    /// A generator for one call, so that calls do not wait for each other.
    fn next_rng(&self) -> Rng {
        Rng::new(self.rng.lock().unwrap_or_else(PoisonError::into_inner).next_u64())
    }

    fn set(&self, indices: &[i64], priorities: &Reals<'_>) -> Result<(), SumTreeError> {
        // The tree checks all indices before it uses them, so no other thread may write to them in between.
        let indices = &copied(indices)?;
        let mut weights = vec_of_zeros(priorities.len())?;
        let saturated = match priorities.slice {
            Priorities::F32(p) => self.scale.weights(p, &mut weights)?,
            Priorities::F64(p) => self.scale.weights(p, &mut weights)?,
        };
        match weights.as_slice() {
            // One priority for all leaves.
            [weight] if priorities.is_scalar => {
                let weight = *weight;
                weights = vec_with_capacity(indices.len())?;
                weights.resize(indices.len(), weight);
                self.tree.set_many(indices, &weights)?;
            }
            weights => self.tree.set_many(indices, weights)?,
        }
        self.saturated.fetch_add(saturated, Ordering::Relaxed); // A counter: orders nothing.
        Ok(())
    }

    fn leaf(&self, index: i64) -> PyResult<i64> {
        let capacity = self.tree.capacity() as i64;
        if (-capacity..capacity).contains(&index) {
            return Ok(if index < 0 { index + capacity } else { index });
        }
        Err(PyIndexError::new_err(format!("leaf {index} is outside -{capacity} to {}", capacity - 1)))
    }
}

#[pymethods]
impl SumTree {
    /// Returns an instance of this class for the CPU, and of the Python class `CudaSumTree` for a CUDA
    /// device.
    #[new]
    #[allow(clippy::new_ret_no_self, reason = "trees on a device are of another class")]
    #[pyo3(signature = (capacity, fan_out=16, scale=65536.0, seed=0, *, device="cpu"))]
    fn new<'py>(
        py: Python<'py>,
        capacity: i64,
        fan_out: usize,
        scale: f64,
        seed: u64,
        device: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        if device != "cpu" {
            let class = py.import("parl.replay.cuda.tree")?.getattr("CudaSumTree")?;
            let options = [("device", device)].into_py_dict(py)?;
            return class.call((capacity, scale, seed), Some(&options));
        }
        let leaves = u64::try_from(capacity).map_err(|_| {
            PyValueError::new_err(format!("capacity is {capacity}, expected 1 to {}", sumtree::MAX_CAPACITY))
        })?;
        let make = || Ok((sumtree::SumTree::new(leaves, fan_out)?.exclusive(), Scale::new(scale, fan_out)?));
        let (tree, scale) = make().map_err(|error| sumtree_error(py, error))?;
        let tree = Self { tree, scale, saturated: AtomicU64::new(0), rng: Mutex::new(Rng::new(seed)) };
        Ok(Bound::new(py, tree)?.into_any())
    }

    fn update(
        &self,
        py: Python<'_>,
        indices: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (at, priorities) = (self::indices(indices, "indices")?, reals(priorities, "priorities")?);
        let (at, priorities) = (typed_slice::<i64>(&at).unwrap_or_default(), Reals::of(&priorities));
        py.detach(|| self.set(at, &priorities)).map_err(|error| sumtree_error(py, error))
    }

    #[pyo3(signature = (n, *, mode="stratified", rank=0, learners=1))]
    fn sample<'py>(
        &self,
        py: Python<'py>,
        n: i64,
        mode: &str,
        rank: i64,
        learners: i64,
    ) -> PyResult<Sample<'py>> {
        let n = check_count("n", n)?;
        let by_weight = match mode {
            "uniform" | "largest" | "eviction" => None,
            mode => Some(draws_from_mode(mode, rank, learners)?),
        };
        // Indices, priorities and weights.
        memory::check(n.saturating_mul(8 + 8 + 4)).map_err(|error| sumtree_error(py, error))?;
        let (indices, at) = new_array::<i64>(py, n)?;
        let (priorities, out) = new_array::<f64>(py, n)?;
        py.detach(|| {
            let (mut weights, at) = (vec_of_zeros(n)?, as_unsigned(at));
            let (rng, all) = (&mut self.next_rng(), 0..self.tree.capacity());
            match (by_weight, mode) {
                (Some(draws), _) => self.tree.sample(rng, draws, at, &mut weights).map(|_| ())?,
                (None, "uniform") => self.tree.sample_uniform(rng, all, at, &mut weights)?,
                (None, "largest") => self.tree.largest(at, &mut weights)?,
                (None, _) => self.tree.sample_eviction(rng, all, at, &mut weights)?,
            }
            self.scale.priorities(&weights, out)
        })
        .map_err(|error| sumtree_error(py, error))?;
        Ok((indices, priorities))
    }

    /// Draws a batch with shares of uniform draws and of the newest leaves. Returns indices, priorities,
    /// probabilities.
    #[pyo3(signature = (n, *, uniform=0.0, newest=0.0, newest_from=0, newest_count=0))]
    fn sample_mixture<'py>(
        &self,
        py: Python<'py>,
        n: i64,
        uniform: f64,
        newest: f64,
        newest_from: i64,
        newest_count: i64,
    ) -> PyResult<MixtureSample<'py>> {
        let n = check_count("n", n)?;
        let mixture = Mixture {
            uniform,
            newest,
            live: 0..self.tree.capacity(),
            newest_from: check_count("newest_from", newest_from)?,
            newest_count: check_count("newest_count", newest_count)?,
            live_is_all: true,
        };
        // Indices, priorities, probabilities and weights.
        memory::check(n.saturating_mul(8 + 8 + 8 + 4)).map_err(|error| sumtree_error(py, error))?;
        let (indices, at) = new_array::<i64>(py, n)?;
        let (priorities, out) = new_array::<f64>(py, n)?;
        let (probabilities, chances) = new_array::<f64>(py, n)?;
        py.detach(|| {
            let (mut weights, at) = (vec_of_zeros(n)?, as_unsigned(at));
            let odds = self.tree.sample_mixture(&mut self.next_rng(), &mixture, at, &mut weights)?;
            for ((chance, index), weight) in chances.iter_mut().zip(at.iter()).zip(&weights) {
                *chance = odds.probability(*index as usize, *weight);
            }
            self.scale.priorities(&weights, out)
        })
        .map_err(|error| sumtree_error(py, error))?;
        Ok((indices, priorities, probabilities))
    }

    #[pyo3(signature = (prefix_sums, *, total=None))]
    fn find<'py>(
        &self,
        py: Python<'py>,
        prefix_sums: &Bound<'py, PyAny>,
        total: Option<f64>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        if let Some(total) = total.filter(|total| !(total.is_finite() && *total >= 0.0)) {
            let text = format!("total {total} is not a finite number >= 0");
            return Err(PyValueError::new_err(text));
        }
        let prefix_sums = reals(prefix_sums, "prefix_sums")?;
        let prefix_sums = Reals::of(&prefix_sums);
        let (indices, at) = new_array::<i64>(py, prefix_sums.len())?;
        let units = self.scale.units();
        let refused = |error| sumtree_error(py, error);
        let mut prefixes = vec_with_capacity(prefix_sums.len()).map_err(refused)?;
        prefixes.extend(prefix_sums.iter());
        // Compared with the total as read by this call, or with the one that the caller computed the prefix
        // sums from.
        let target = |position: usize, seen: u64| {
            let prefix = prefixes[position];
            let scaled = match total {
                None => (prefix * units).floor(),
                Some(total) if (0.0..total).contains(&prefix) => prefix / total * seen as f64,
                Some(_) => -1.0,
            };
            if (0.0..seen as f64).contains(&scaled) || (total.is_some() && scaled >= 0.0) {
                return Ok(scaled as u64);
            }
            let bound = total.unwrap_or(seen as f64 / units);
            Err(FindError::Prefix(format!(
                "prefix sum {prefix} at position {position} is outside 0 <= p < {bound}"
            )))
        };
        let mut weights = vec_of_zeros(prefixes.len()).map_err(refused)?;
        py.detach(|| self.tree.find_with(as_unsigned(at), &mut weights, target)).map_err(
            |error| match error {
                FindError::Prefix(text) => PyValueError::new_err(text),
                FindError::Tree(SumTreeError::Empty) => PyValueError::new_err(format!(
                    "prefix sum {} at position 0 is outside 0 <= p < 0",
                    prefixes[0]
                )),
                FindError::Tree(error) => sumtree_error(py, error),
            },
        )?;
        Ok(indices)
    }

    #[getter]
    fn total(&self) -> f64 {
        self.tree.total() as f64 / self.scale.units()
    }

    #[getter]
    fn capacity(&self) -> usize {
        self.tree.capacity()
    }

    #[getter]
    fn fan_out(&self) -> usize {
        self.tree.fan_out()
    }

    #[getter]
    fn scale(&self) -> f64 {
        self.scale.units()
    }

    #[getter]
    fn max_priority(&self) -> f64 {
        self.scale.max_priority()
    }

    #[getter]
    fn saturated(&self) -> u64 {
        self.saturated.load(Ordering::Relaxed)
    }

    #[getter]
    fn restarts(&self) -> u64 {
        self.tree.restarts()
    }

    #[getter]
    fn largest(&self) -> f64 {
        self.scale.priority(self.tree.largest_ever())
    }

    #[getter]
    fn positive(&self) -> u64 {
        self.tree.positive()
    }

    fn histogram<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u64>>> {
        histogram_array(py, &self.tree)
    }

    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.tree.verify()).map_err(|error| sumtree_error(py, error))
    }

    fn seed(&self, seed: u64) {
        *self.rng.lock().unwrap_or_else(PoisonError::into_inner) = Rng::new(seed);
    }

    #[getter]
    fn get_rng_state(&self) -> u64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).state()
    }

    #[setter]
    fn set_rng_state(&self, state: u64) {
        *self.rng.lock().unwrap_or_else(PoisonError::into_inner) = Rng::new(state);
    }

    fn __len__(&self) -> usize {
        self.tree.capacity()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(index) = index.extract::<i64>() {
            let weight = self.tree.get(self.leaf(index)?).map_err(|error| sumtree_error(py, error))?;
            return Ok(self.scale.priority(weight).into_pyobject(py)?.into_any());
        }
        let index = indices(index, "index")?;
        let at = typed_slice::<i64>(&index).unwrap_or_default();
        let (priorities, out) = new_array::<f64>(py, at.len())?;
        py.detach(|| {
            let mut weights = vec_of_zeros(at.len())?;
            self.tree.get_many(at, &mut weights)?;
            self.scale.priorities(&weights, out)
        })
        .map_err(|error| sumtree_error(py, error))?;
        Ok(priorities.reshape(index.shape())?.into_any())
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        index: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let priorities = reals(value, "priority")?;
        // Both may run code of the caller, so nothing is borrowed before.
        if let Ok(index) = index.extract::<i64>() {
            let at = [self.leaf(index)?];
            return self.set(&at, &Reals::of(&priorities)).map_err(|error| sumtree_error(py, error));
        }
        let at = indices(index, "index")?;
        let (at, priorities) = (typed_slice::<i64>(&at).unwrap_or_default(), Reals::of(&priorities));
        py.detach(|| self.set(at, &priorities)).map_err(|error| sumtree_error(py, error))
    }

    fn __repr__(&self) -> String {
        format!(
            "SumTree(capacity={}, fan_out={}, total={})",
            self.tree.capacity(),
            self.tree.fan_out(),
            self.total()
        )
    }
}
