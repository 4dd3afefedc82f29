//! Forward and backward pass over a batch.

use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};

use crate::DenseError;
use crate::error::check_length;
use crate::product::{add_product, product};

/// Widths of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    inputs: usize,
    hidden: Vec<usize>,
    heads: Vec<usize>,
    is_transposed: bool,
}

impl Shape {
    /// The shape of a network with `inputs` inputs, hidden layers of the widths `hidden` and heads of the
    /// widths `heads`.
    ///
    /// # Errors
    /// [`DenseError::Without`] when there are no hidden layers or heads, or a width is 0.
    pub fn new(inputs: usize, hidden: Vec<usize>, heads: Vec<usize>) -> Result<Self, DenseError> {
        let missing = [
            (inputs == 0, "inputs"),
            (hidden.is_empty() || hidden.contains(&0), "hidden layers"),
            (heads.is_empty() || heads.contains(&0), "heads"),
        ];
        match missing.into_iter().find(|(is_missing, _)| *is_missing) {
            Some((_, what)) => Err(DenseError::Without(what)),
            None => Ok(Self { inputs, hidden, heads, is_transposed: false }),
        }
    }

    /// Returns the same shape with the given order of weights and their gradients: (inputs, width) if
    /// `is_transposed`, else (width, inputs).
    #[must_use]
    pub fn transposed(self, is_transposed: bool) -> Self {
        Self { is_transposed, ..self }
    }

    /// Width and inputs of each layer, the heads last.
    pub fn layers(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let seen = std::iter::once(&self.inputs).chain(&self.hidden);
        let features = self.hidden[self.hidden.len() - 1];
        self.hidden.iter().zip(seen).map(|(width, inputs)| (*width, *inputs)).chain(self.heads().map(
            move |width| (width, features), // each head reads the same features
        ))
    }

    /// Zeros for the outputs of the hidden layers, (rows, width) each.
    fn hidden_outputs(&self, rows: usize) -> Vec<Array2<f32>> {
        self.hidden.iter().map(|width| Array2::zeros((rows, *width))).collect()
    }

    /// Widths of the heads.
    pub fn heads(&self) -> impl Iterator<Item = usize> + '_ {
        self.heads.iter().copied()
    }
}

/// Weight, (width, inputs) or transposed, and bias, (width,), of a layer.
#[derive(Debug, Clone, Copy)]
pub struct Layer<'a> {
    /// In row-major order.
    pub weight: &'a [f32],
    /// One for each output.
    pub bias: &'a [f32],
}

/// Memory to which the gradients of a [`Layer`] are added.
#[derive(Debug)]
pub struct Gradient<'a> {
    /// Of the same shape as the layer's.
    pub weight: &'a mut [f32],
    /// Of the same shape as the layer's.
    pub bias: &'a mut [f32],
}

/// The intermediate results of a forward pass, for its backward pass. The memory is reused while the number
/// of rows stays the same.
#[derive(Debug)]
pub struct Pass {
    shape: Shape,
    rows: usize,
    /// Output of each hidden layer, (rows, width).
    activations: Vec<Array2<f32>>,
    /// Gradients of these outputs.
    gradients: Vec<Array2<f32>>,
}

impl Pass {
    /// Creates an empty pass for a network of this shape.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        let (activations, gradients) = (shape.hidden_outputs(0), shape.hidden_outputs(0));
        Self { shape, rows: 0, activations, gradients }
    }

    /// Computes the outputs of the heads for `rows` rows of inputs `x`, and writes them to `outputs`.
    ///
    /// # Errors
    /// [`DenseError::Length`] and [`DenseError::Count`] for arrays that do not fit.
    pub fn forward(
        &mut self,
        rows: usize,
        x: &[f32],
        layers: &[Layer<'_>],
        outputs: &mut [&mut [f32]],
    ) -> Result<(), DenseError> {
        let layers = self.layers(layers)?;
        let x = self.inputs(rows, x)?;
        let mut outputs = self.outputs(rows, outputs.iter_mut().map(|one| &mut **one), |array, width| {
            ArrayViewMut2::from_shape((rows, width), array)
        })?;
        if self.rows != rows {
            let memory = || self.shape.hidden_outputs(rows);
            (self.rows, self.activations, self.gradients) = (rows, memory(), memory());
        }
        let (hidden, heads) = layers.split_at(self.activations.len());
        for (number, layer) in hidden.iter().enumerate() {
            let (before, now) = self.activations.split_at_mut(number);
            let below = before.last().map_or(x, |below| below.view());
            layer.forward(&below, &mut now[0].view_mut(), relu);
        }
        let features = self.activations[hidden.len() - 1].view();
        for (layer, out) in heads.iter().zip(&mut outputs) {
            layer.forward(&features, out, |value| value);
        }
        Ok(())
    }

    /// Adds the gradients of all weights and biases, given those of the outputs, after [`Pass::forward`] with
    /// the same `x`.
    ///
    /// # Errors
    /// [`DenseError::Rows`] if the forward pass had another number of rows; else as [`Pass::forward`].
    pub fn backward(
        &mut self,
        rows: usize,
        x: &[f32],
        layers: &[Layer<'_>],
        of_outputs: &[&[f32]],
        gradients: &mut [Gradient<'_>],
    ) -> Result<(), DenseError> {
        if self.rows != rows {
            return Err(DenseError::Rows { got: self.rows, expected: rows });
        }
        let layers = self.layers(layers)?;
        let x = self.inputs(rows, x)?;
        let of_outputs = self.outputs(rows, of_outputs.iter().copied(), |array, width| {
            ArrayView2::from_shape((rows, width), array)
        })?;
        self.check_gradients(gradients)?;
        let last = self.activations.len() - 1;
        let (hidden, heads) = layers.split_at(last + 1);
        let (of_hidden, of_heads) = gradients.split_at_mut(last + 1);
        for (number, ((layer, g), to)) in heads.iter().zip(&of_outputs).zip(of_heads).enumerate() {
            self.shape.add_weight_gradient(to, g, &self.activations[last].view());
            for row in g.rows() {
                to.bias.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            }
            let multiply = if number == 0 { product } else { add_product };
            multiply(g, &layer.weight, &mut self.gradients[last].view_mut());
        }
        for (number, to) in of_hidden.iter_mut().enumerate().rev() {
            let (before, now) = self.gradients.split_at_mut(number);
            let g = &mut now[0];
            for (g, seen) in rows_of(g).zip(rows_of(&mut self.activations[number])) {
                relu_backward(g, seen);
                to.bias.iter_mut().zip(g).for_each(|(sum, value)| *sum += *value);
            }
            match before.last_mut() {
                Some(below) => {
                    self.shape.add_weight_gradient(to, &g.view(), &self.activations[number - 1].view());
                    product(&g.view(), &hidden[number].weight, &mut below.view_mut());
                }
                None => self.shape.add_weight_gradient(to, &g.view(), &x),
            }
        }
        Ok(())
    }

    /// Writes the gradients of the inputs from index `first` on, (rows, inputs - first), given those of the
    /// outputs, after [`Pass::forward`]. Skips rows whose outputs all have gradient 0.
    ///
    /// # Errors
    /// As [`Pass::backward`], and [`DenseError::First`].
    pub fn backward_to_inputs(
        &mut self,
        rows: usize,
        first: usize,
        layers: &[Layer<'_>],
        of_outputs: &[&[f32]],
        of_inputs: &mut [f32],
    ) -> Result<(), DenseError> {
        if self.rows != rows {
            return Err(DenseError::Rows { got: self.rows, expected: rows });
        }
        let wanted = match self.shape.inputs.checked_sub(first) {
            None | Some(0) => return Err(DenseError::First { first, inputs: self.shape.inputs }),
            Some(wanted) => wanted,
        };
        check_length("gradient of inputs", 0, of_inputs.len(), rows * wanted)?;
        let layers = self.layers(layers)?;
        let of_outputs = self.outputs(rows, of_outputs.iter().copied(), |array, width| {
            ArrayView2::from_shape((rows, width), array)
        })?;
        of_inputs.fill(0.0);
        let has_gradient = |row: &usize| of_outputs.iter().any(|g| g.row(*row).iter().any(|g| *g != 0.0));
        let chosen: Vec<usize> = (0..rows).filter(has_gradient).collect();
        let part = s![..chosen.len(), ..];
        let last = self.activations.len() - 1;
        let (hidden, heads) = layers.split_at(last + 1);
        for (number, (layer, g)) in heads.iter().zip(&of_outputs).enumerate() {
            let multiply = if number == 0 { product } else { add_product };
            let g = g.select(Axis(0), &chosen);
            multiply(&g.view(), &layer.weight, &mut self.gradients[last].slice_mut(part));
        }
        for (number, layer) in hidden.iter().enumerate().rev() {
            let (before, now) = self.gradients.split_at_mut(number);
            for (g, row) in rows_of(&mut now[0]).zip(&chosen) {
                relu_backward(g, self.activations[number].row(*row).as_slice().unwrap_or_default());
            }
            let g = now[0].slice(part);
            match before.last_mut() {
                Some(below) => product(&g, &layer.weight, &mut below.slice_mut(part)),
                None => {
                    let mut found = Array2::zeros((chosen.len(), wanted));
                    product(&g, &layer.weight.slice(s![.., first..]), &mut found.view_mut());
                    for (row, found) in chosen.iter().zip(rows_of(&mut found)) {
                        of_inputs[row * wanted..][..wanted].copy_from_slice(found);
                    }
                }
            }
        }
        Ok(())
    }

    fn layers<'a>(&self, layers: &[Layer<'a>]) -> Result<Vec<Matrix<'a>>, DenseError> {
        check_count("layers", layers.len(), self.shape.layers().count())?;
        let fit = |(number, (layer, (width, inputs))): (usize, (&Layer<'a>, (usize, usize)))| {
            check_length("bias", number, layer.bias.len(), width)?;
            let expected = width * inputs;
            let got = layer.weight.len();
            let lying = if self.shape.is_transposed { (inputs, width) } else { (width, inputs) };
            let weight = ArrayView2::from_shape(lying, layer.weight)
                .ok()
                .filter(|_| got == expected)
                .ok_or(DenseError::Length { what: "weight", number, got, expected })?;
            let weight = if self.shape.is_transposed { weight.reversed_axes() } else { weight };
            Ok(Matrix { weight, bias: layer.bias })
        };
        layers.iter().zip(self.shape.layers()).enumerate().map(fit).collect()
    }

    fn inputs<'a>(&self, rows: usize, x: &'a [f32]) -> Result<ArrayView2<'a, f32>, DenseError> {
        let (got, expected) = (x.len(), rows * self.shape.inputs);
        check_length("inputs", 0, got, expected)?;
        ArrayView2::from_shape((rows, self.shape.inputs), x).map_err(|_| DenseError::Length {
            what: "inputs",
            number: 0,
            got,
            expected,
        })
    }

    /// Views the arrays of the heads as matrices.
    fn outputs<A: AsRef<[f32]>, M, E>(
        &self,
        rows: usize,
        arrays: impl ExactSizeIterator<Item = A>,
        view: impl Fn(A, usize) -> Result<M, E>,
    ) -> Result<Vec<M>, DenseError> {
        check_count("outputs", arrays.len(), self.shape.heads.len())?;
        let fit = |(number, (array, width)): (usize, (A, usize))| {
            let (got, expected) = (array.as_ref().len(), rows * width);
            check_length("output", number, got, expected)?;
            view(array, width).map_err(|_| DenseError::Length { what: "output", number, got, expected })
        };
        arrays.zip(self.shape.heads()).enumerate().map(fit).collect()
    }

    fn check_gradients(&self, gradients: &[Gradient<'_>]) -> Result<(), DenseError> {
        check_count("gradients", gradients.len(), self.shape.layers().count())?;
        for (number, (one, (width, inputs))) in gradients.iter().zip(self.shape.layers()).enumerate() {
            check_length("gradient of weight", number, one.weight.len(), width * inputs)?;
            check_length("gradient of bias", number, one.bias.len(), width)?;
        }
        Ok(())
    }
}

fn check_count(what: &'static str, got: usize, expected: usize) -> Result<(), DenseError> {
    if got == expected { Ok(()) } else { Err(DenseError::Count { what, got, expected }) }
}

/// A layer with its weight as a (width, inputs) matrix.
struct Matrix<'a> {
    weight: ArrayView2<'a, f32>,
    bias: &'a [f32],
}

impl Matrix<'_> {
    /// Writes `f(x W^T + b)`.
    fn forward(&self, x: &ArrayView2<'_, f32>, out: &mut ArrayViewMut2<'_, f32>, f: impl Fn(f32) -> f32) {
        product(x, &self.weight.t(), out);
        for row in out.as_slice_mut().unwrap_or_default().chunks_exact_mut(self.bias.len()) {
            row.iter_mut().zip(self.bias).for_each(|(value, bias)| *value = f(*value + *bias));
        }
    }
}

impl Shape {
    /// Adds the gradient `g^T x` of a weight, whose length was checked.
    fn add_weight_gradient(&self, to: &mut Gradient<'_>, g: &ArrayView2<'_, f32>, x: &ArrayView2<'_, f32>) {
        let (left, right) = if self.is_transposed { (x, g) } else { (g, x) };
        if let Ok(mut weight) = ArrayViewMut2::from_shape((left.ncols(), right.ncols()), &mut *to.weight) {
            add_product(&left.t(), right, &mut weight);
        }
    }
}

/// The rows of a row-major matrix.
fn rows_of(matrix: &mut Array2<f32>) -> std::slice::ChunksExactMut<'_, f32> {
    let width = matrix.ncols().max(1);
    matrix.as_slice_mut().unwrap_or_default().chunks_exact_mut(width)
}

/// ReLU; NaN stays NaN.
fn relu(value: f32) -> f32 {
    if value < 0.0 { 0.0 } else { value }
}

/// Backward pass of a ReLU with output `seen`.
fn relu_backward(g: &mut [f32], seen: &[f32]) {
    for (g, seen) in g.iter_mut().zip(seen) {
        *g = if *seen <= 0.0 { 0.0 } else { *g };
    }
}
