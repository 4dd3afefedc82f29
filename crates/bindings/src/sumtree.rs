//! `parl.SumTree`: the tree alone, with floating-point priorities.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use numpy::PyArray1;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use sumtree::replay::Priorities;
use sumtree::{Draws, Rng, Scale, SumTreeError};

use crate::arrays::{Reals, as_unsigned, exactly, fresh, indices, reals};
use crate::errors::sumtree_error;

type Draw<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f64>>);

/// The draws of a name; `rank` and `learners` belong to "split".
pub fn draws(mode: &str, rank: u32, learners: u32) -> PyResult<Draws> {
    match mode {
        "stratified" => Ok(Draws::Stratified),
        "independent" => Ok(Draws::Independent),
        "systematic" => Ok(Draws::Systematic),
        "without_replacement" => Ok(Draws::WithoutReplacement),
        "split" => Ok(Draws::Split { rank, learners }),
        _ => Err(PyValueError::new_err(format!(
            "mode {mode:?} is none of stratified, independent, systematic, without_replacement, split"
        ))),
    }
}

/// A count that Python gave, or ValueError with the bound.
pub fn count(name: &str, value: i64) -> PyResult<usize> {
    const MAX: i64 = 1 << 32;
    if (0..=MAX).contains(&value) {
        return Ok(value as usize);
    }
    Err(PyValueError::new_err(format!("{name} {value} is outside 0..={MAX}")))
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
        let mut weights = vec![0; priorities.len()];
        let saturated = match priorities.slice {
            Priorities::F32(p) => self.scale.weights(p, &mut weights)?,
            Priorities::F64(p) => self.scale.weights(p, &mut weights)?,
        };
        match weights.as_slice() {
            // One priority for all of them.
            [weight] if priorities.is_scalar => {
                weights = vec![*weight; indices.len()];
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
        Err(PyIndexError::new_err(format!("leaf {index} is outside -{capacity}..{capacity}")))
    }
}

#[pymethods]
impl SumTree {
    #[new]
    #[pyo3(signature = (capacity, fan_out=16, scale=65536.0, seed=0))]
    fn new(py: Python<'_>, capacity: i64, fan_out: usize, scale: f64, seed: u64) -> PyResult<Self> {
        let leaves = u64::try_from(capacity).map_err(|_| {
            PyValueError::new_err(format!("capacity {capacity} is outside 1..={}", sumtree::MAX_CAPACITY))
        })?;
        let make = || Ok((sumtree::SumTree::new(leaves, fan_out)?, Scale::new(scale, fan_out)?));
        let (tree, scale) = make().map_err(|error| sumtree_error(py, error))?;
        Ok(Self { tree, scale, saturated: AtomicU64::new(0), rng: Mutex::new(Rng::new(seed)) })
    }

    fn update(
        &self,
        py: Python<'_>,
        indices: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (at, priorities) = (self::indices(indices, "indices")?, reals(priorities, "priorities")?);
        let (at, priorities) = (exactly::<i64>(&at).unwrap_or_default(), Reals::of(&priorities));
        py.detach(|| self.set(at, &priorities)).map_err(|error| sumtree_error(py, error))
    }

    #[pyo3(signature = (n, *, mode="stratified", rank=0, learners=1))]
    fn sample<'py>(
        &self,
        py: Python<'py>,
        n: i64,
        mode: &str,
        rank: u32,
        learners: u32,
    ) -> PyResult<Draw<'py>> {
        let mode = draws(mode, rank, learners)?;
        let n = count("n", n)?;
        let (indices, at) = fresh::<i64>(py, n)?;
        let (priorities, out) = fresh::<f64>(py, n)?;
        py.detach(|| {
            let mut weights = vec![0; n];
            self.tree.sample(&mut self.next_rng(), mode, as_unsigned(at), &mut weights)?;
            self.scale.priorities(&weights, out)
        })
        .map_err(|error| sumtree_error(py, error))?;
        Ok((indices, priorities))
    }

    fn find<'py>(
        &self,
        py: Python<'py>,
        prefix_sums: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let prefix_sums = reals(prefix_sums, "prefix_sums")?;
        let prefix_sums = Reals::of(&prefix_sums);
        let (indices, at) = fresh::<i64>(py, prefix_sums.len())?;
        py.detach(|| {
            let units = self.scale.units();
            let total = self.tree.total();
            let mut targets = Vec::with_capacity(prefix_sums.len());
            for (position, prefix) in prefix_sums.iter().enumerate() {
                let target = (prefix * units).floor();
                if !(0.0..total as f64).contains(&target) {
                    return Err(PyValueError::new_err(format!(
                        "prefix sum {prefix} at position {position} is outside 0..{}",
                        total as f64 / units
                    )));
                }
                targets.push(target as u64);
            }
            let mut weights = vec![0; targets.len()];
            let found = self.tree.find(&targets, as_unsigned(at), &mut weights);
            found.map_err(|error| Python::attach(|py| sumtree_error(py, error)))
        })?;
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

    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.tree.verify()).map_err(|error| sumtree_error(py, error))
    }

    fn seed(&self, seed: u64) {
        *self.rng.lock().unwrap_or_else(PoisonError::into_inner) = Rng::new(seed);
    }

    #[getter]
    fn get_rng_state(&self) -> [u64; 4] {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).state()
    }

    #[setter]
    fn set_rng_state(&self, py: Python<'_>, state: [u64; 4]) -> PyResult<()> {
        let rng = Rng::from_state(state).map_err(|error| sumtree_error(py, error))?;
        *self.rng.lock().unwrap_or_else(PoisonError::into_inner) = rng;
        Ok(())
    }

    fn __len__(&self) -> usize {
        self.tree.capacity()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(index) = index.extract::<i64>() {
            let weight = self.tree.get(self.leaf(index)?).map_err(|error| sumtree_error(py, error))?;
            return Ok(self.scale.priority(weight).into_pyobject(py)?.into_any());
        }
        let at = indices(index, "index")?;
        let at = exactly::<i64>(&at).unwrap_or_default();
        let (priorities, out) = fresh::<f64>(py, at.len())?;
        py.detach(|| {
            let mut weights = vec![0; at.len()];
            self.tree.get_many(at, &mut weights)?;
            self.scale.priorities(&weights, out)
        })
        .map_err(|error| sumtree_error(py, error))?;
        Ok(priorities.into_any())
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        index: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let priorities = reals(value, "priority")?;
        let priorities = Reals::of(&priorities);
        if let Ok(index) = index.extract::<i64>() {
            let at = [self.leaf(index)?];
            return self.set(&at, &priorities).map_err(|error| sumtree_error(py, error));
        }
        let at = indices(index, "index")?;
        let at = exactly::<i64>(&at).unwrap_or_default();
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
