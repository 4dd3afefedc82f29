//! `parl._native.Dense` and `dense_*`: small networks and the step of Adam, on the memory of numpy arrays.

use std::sync::{Mutex, PoisonError};

use dense::{Adam, Buffers, DenseError, Gradient, Layer, Pass, Shape};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrays::{check_disjoint, typed_slice, typed_slice_mut};
use crate::errors::dense_error;

type Array<'py> = Bound<'py, PyUntypedArray>;
/// Weight, bias and, for a network that is trained, the arrays of their gradients.
type LayerArguments<'py> = (Array<'py>, Array<'py>, Option<Array<'py>>, Option<Array<'py>>);

/// The arrays of one layer.
struct LayerArrays {
    weight: Py<PyUntypedArray>,
    bias: Py<PyUntypedArray>,
    gradients: Option<[Py<PyUntypedArray>; 2]>,
}

#[pyclass(frozen, module = "parl._native")]
pub struct Dense {
    layers: Vec<LayerArrays>,
    inputs: usize,
    /// For forward passes that are not kept, and for kept ones, which a backward pass may follow.
    passes: [Mutex<Pass>; 2],
}

fn floats<'a>(array: &'a Array<'_>, name: &str) -> PyResult<&'a [f32]> {
    typed_slice(array).ok_or_else(|| {
        PyValueError::new_err(format!(
            "{name} is not a C-contiguous array of float32, but of {}",
            array.dtype()
        ))
    })
}

impl Dense {
    fn rows(&self, x: &Array<'_>) -> PyResult<usize> {
        match x.shape() {
            [rows, inputs] if *inputs == self.inputs => Ok(*rows),
            shape => {
                let message = format!("x has shape {shape:?}, expected (rows, {})", self.inputs);
                Err(PyValueError::new_err(message))
            }
        }
    }

    /// Weights and biases of the layers; `bound` comes from [`Dense::bind_layers`].
    fn layers<'a>(bound: &'a [[Array<'_>; 2]]) -> PyResult<Vec<Layer<'a>>> {
        let layer = |[weight, bias]: &'a [Array<'_>; 2]| {
            Ok(Layer { weight: floats(weight, "a weight")?, bias: floats(bias, "a bias")? })
        };
        bound.iter().map(layer).collect()
    }

    fn bind_layers<'py>(&self, py: Python<'py>) -> Vec<[Array<'py>; 2]> {
        self.layers.iter().map(|one| [&one.weight, &one.bias].map(|array| array.bind(py).clone())).collect()
    }
}

#[pymethods]
impl Dense {
    #[new]
    #[pyo3(signature = (hidden, heads, transposed = false))]
    fn new(
        py: Python<'_>,
        hidden: Vec<LayerArguments<'_>>,
        heads: Vec<LayerArguments<'_>>,
        transposed: bool,
    ) -> PyResult<Self> {
        let width = |one: &LayerArguments<'_>| one.1.len();
        let inputs = hidden.first().map_or(0, |(weight, bias, ..)| weight.len() / bias.len().max(1));
        let (widths, outputs) = (hidden.iter().map(width).collect(), heads.iter().map(width).collect());
        let shape =
            Shape::new(inputs, widths, outputs).map_err(|error| dense_error(&error))?.transposed(transposed);
        let mut written = Vec::new();
        let mut layers = Vec::new();
        for (number, (one, (width, inputs))) in
            hidden.into_iter().chain(heads).zip(shape.layers()).enumerate()
        {
            let (weight, bias, of_weight, of_bias) = one;
            let check = |array: &Array<'_>, what, expected| {
                let got = floats(array, what)?.len();
                let error = DenseError::Length { what, number, got, expected };
                if got == expected { Ok(()) } else { Err(dense_error(&error)) }
            };
            check(&weight, "weight", width * inputs)?;
            check(&bias, "bias", width)?;
            let gradients = match (of_weight, of_bias) {
                (Some(of_weight), Some(of_bias)) => {
                    typed_slice_mut::<f32>(&of_weight, "gradient of weight")?;
                    typed_slice_mut::<f32>(&of_bias, "gradient of bias")?;
                    check(&of_weight, "gradient of weight", width * inputs)?;
                    check(&of_bias, "gradient of bias", width)?;
                    written.extend([of_weight.clone(), of_bias.clone()]);
                    Some([of_weight.unbind(), of_bias.unbind()])
                }
                _ => None,
            };
            layers.push(LayerArrays { weight: weight.unbind(), bias: bias.unbind(), gradients });
        }
        let made = Self { layers, inputs, passes: [(); 2].map(|()| Mutex::new(Pass::new(shape.clone()))) };
        written.extend(made.bind_layers(py).into_iter().flatten());
        check_disjoint(&written)?;
        Ok(made)
    }

    /// Computes the outputs of the heads for `x`. `keep_for_backward`: a backward pass may follow.
    fn forward(
        &self,
        py: Python<'_>,
        x: &Array<'_>,
        outputs: Vec<Array<'_>>,
        keep_for_backward: bool,
    ) -> PyResult<()> {
        let rows = self.rows(x)?;
        let bound = self.bind_layers(py);
        check_disjoint(&[outputs.as_slice(), bound.as_flattened(), std::slice::from_ref(x)].concat())?;
        let (layers, x) = (Self::layers(&bound)?, floats(x, "x")?);
        let mut outputs = outputs
            .iter()
            .map(|one| typed_slice_mut(one, "an output"))
            .collect::<PyResult<Vec<&mut [f32]>>>()?;
        let pass = &self.passes[usize::from(keep_for_backward)];
        py.detach(|| {
            pass.lock().unwrap_or_else(PoisonError::into_inner).forward(rows, x, &layers, &mut outputs)
        })
        .map_err(|error| dense_error(&error))
    }

    /// Adds the gradients of all weights and biases, given those of the outputs of the latest kept `forward`.
    fn backward(&self, py: Python<'_>, x: &Array<'_>, of_outputs: Vec<Array<'_>>) -> PyResult<()> {
        let rows = self.rows(x)?;
        let bound = self.bind_layers(py);
        let written =
            self.layers.iter().map(|one| one.gradients.as_ref().map(|g| g.each_ref().map(|g| g.bind(py))));
        let written: Vec<_> = written
            .collect::<Option<_>>()
            .ok_or_else(|| PyValueError::new_err("this network has no memory for gradients"))?;
        let all = written.iter().flatten().map(|array| (*array).clone());
        check_disjoint(&all.chain(of_outputs.iter().cloned()).chain([x.clone()]).collect::<Vec<_>>())?;
        let (layers, x) = (Self::layers(&bound)?, floats(x, "x")?);
        let of_outputs = of_outputs
            .iter()
            .map(|one| floats(one, "a gradient of outputs"))
            .collect::<PyResult<Vec<_>>>()?;
        let mut gradients = written
            .iter()
            .map(|[weight, bias]| {
                Ok(Gradient {
                    weight: typed_slice_mut(weight, "gradient of weight")?,
                    bias: typed_slice_mut(bias, "gradient of bias")?,
                })
            })
            .collect::<PyResult<Vec<_>>>()?;
        py.detach(|| {
            let mut pass = self.passes[1].lock().unwrap_or_else(PoisonError::into_inner);
            pass.backward(rows, x, &layers, &of_outputs, &mut gradients)
        })
        .map_err(|error| dense_error(&error))
    }

    /// Writes the gradients of the inputs from index `first` on, given those of the outputs of the latest
    /// kept `forward`.
    fn backward_to_inputs(
        &self,
        py: Python<'_>,
        first: usize,
        of_outputs: Vec<Array<'_>>,
        of_inputs: &Array<'_>,
    ) -> PyResult<()> {
        let rows = match of_inputs.shape() {
            [rows, _] => *rows,
            shape => {
                let message = format!("gradients of inputs have shape {shape:?}, expected two dimensions");
                return Err(PyValueError::new_err(message));
            }
        };
        let bound = self.bind_layers(py);
        check_disjoint(
            &[std::slice::from_ref(of_inputs), bound.as_flattened(), of_outputs.as_slice()].concat(),
        )?;
        let layers = Self::layers(&bound)?;
        let of_outputs = of_outputs
            .iter()
            .map(|one| floats(one, "a gradient of outputs"))
            .collect::<PyResult<Vec<_>>>()?;
        let of_inputs = typed_slice_mut(of_inputs, "gradient of inputs")?;
        py.detach(|| {
            let mut pass = self.passes[1].lock().unwrap_or_else(PoisonError::into_inner);
            pass.backward_to_inputs(rows, first, &layers, &of_outputs, of_inputs)
        })
        .map_err(|error| dense_error(&error))
    }
}

/// Performs one step of Adam, after clipping the gradients by their norm.
#[pyfunction]
#[pyo3(signature = (weights, gradients, mean, square, step, learning_rate, epsilon, betas, max_grad_norm))]
#[allow(clippy::too_many_arguments)] // Buffers and settings.
pub fn dense_adam(
    py: Python<'_>,
    weights: &Array<'_>,
    gradients: &Array<'_>,
    mean: &Array<'_>,
    square: &Array<'_>,
    step: u64,
    learning_rate: f64,
    epsilon: f64,
    betas: (f64, f64),
    max_grad_norm: f64,
) -> PyResult<()> {
    check_disjoint(&[weights, gradients, mean, square].map(Bound::clone))?;
    let mut buffers = Buffers {
        weights: typed_slice_mut(weights, "weights")?,
        gradients: typed_slice_mut(gradients, "gradients")?,
        mean: typed_slice_mut(mean, "mean")?,
        square: typed_slice_mut(square, "square")?,
    };
    let adam = Adam { learning_rate, epsilon, betas, max_grad_norm };
    py.detach(|| adam.step(&mut buffers, step)).map_err(|error| dense_error(&error))
}
