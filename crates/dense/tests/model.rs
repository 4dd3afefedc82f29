//! Compares outputs with sums in double precision, and gradients with finite differences of these sums.

use dense::{DenseError, Gradient, Layer, Pass, Shape};

/// Pseudorandom numbers in -1..1.
struct Numbers(u64);

impl Numbers {
    fn take(&mut self, count: usize) -> Vec<f32> {
        let next = |_| {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 40) as f32 / (1u64 << 23) as f32) - 1.0
        };
        (0..count).map(next).collect()
    }
}

/// Sizes of a network, and its weights and biases, the heads' last.
struct Network {
    inputs: usize,
    hidden: Vec<usize>,
    heads: Vec<usize>,
    layers: Vec<(Vec<f32>, Vec<f32>)>,
}

impl Network {
    fn new(numbers: &mut Numbers, inputs: usize, hidden: &[usize], heads: &[usize]) -> Self {
        let mut made = Self { inputs, hidden: hidden.to_vec(), heads: heads.to_vec(), layers: Vec::new() };
        for (width, inputs) in made.shape().layers() {
            made.layers.push((numbers.take(width * inputs), numbers.take(width)));
        }
        made
    }

    fn shape(&self) -> Shape {
        Shape::new(self.inputs, self.hidden.clone(), self.heads.clone()).expect("sizes above 0")
    }

    fn layers(&self) -> Vec<Layer<'_>> {
        self.layers.iter().map(|(weight, bias)| Layer { weight, bias }).collect()
    }

    /// Outputs of the heads for one row.
    fn model(&self, x: &[f32]) -> Vec<Vec<f64>> {
        let linear = |(weight, bias): &(Vec<f32>, Vec<f32>), x: &[f64]| -> Vec<f64> {
            let rows = weight.chunks(x.len()).zip(bias);
            rows.map(|(w, b)| f64::from(*b) + w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum::<f64>())
                .collect()
        };
        let (hidden, heads) = self.layers.split_at(self.hidden.len());
        let mut x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        for layer in hidden {
            x = linear(layer, &x).into_iter().map(|value| value.max(0.0)).collect();
        }
        heads.iter().map(|head| linear(head, &x)).collect()
    }

    /// The sum over rows and heads of outputs times `of_outputs`.
    fn loss(&self, rows: usize, x: &[f32], of_outputs: &[Vec<f32>]) -> f64 {
        let mut sum = 0.0;
        for row in 0..rows {
            let outputs = self.model(&x[row * self.inputs..(row + 1) * self.inputs]);
            for (output, g) in outputs.iter().zip(of_outputs) {
                let g = &g[row * output.len()..(row + 1) * output.len()];
                sum += output.iter().zip(g).map(|(output, g)| output * f64::from(*g)).sum::<f64>();
            }
        }
        sum
    }
}

fn forward(pass: &mut Pass, network: &Network, rows: usize, x: &[f32]) -> Vec<Vec<f32>> {
    let mut outputs: Vec<_> = network.heads.iter().map(|width| vec![f32::NAN; rows * width]).collect();
    let mut borrowed: Vec<_> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    pass.forward(rows, x, &network.layers(), &mut borrowed).expect("arrays fit");
    outputs
}

/// Value of the gradients before the pass adds to them.
const BEFORE: f32 = 0.5;

fn backward(
    pass: &mut Pass,
    network: &Network,
    rows: usize,
    x: &[f32],
    of_outputs: &[Vec<f32>],
) -> Vec<(Vec<f32>, Vec<f32>)> {
    let mut found: Vec<_> =
        network.layers.iter().map(|(w, b)| (vec![BEFORE; w.len()], vec![BEFORE; b.len()])).collect();
    let mut gradients: Vec<_> = found.iter_mut().map(|(weight, bias)| Gradient { weight, bias }).collect();
    let of_outputs: Vec<_> = of_outputs.iter().map(Vec::as_slice).collect();
    pass.backward(rows, x, &network.layers(), &of_outputs, &mut gradients).expect("arrays fit");
    found.iter_mut().flat_map(|(weight, bias)| weight.iter_mut().chain(bias)).for_each(|g| *g -= BEFORE);
    found
}

#[test]
fn outputs_are_those_of_the_sums() {
    let numbers = &mut Numbers(1);
    for (inputs, hidden, heads) in
        [(4, vec![16, 8], vec![2]), (1, vec![3], vec![1, 5]), (7, vec![33, 9, 17], vec![3, 1])]
    {
        let network = Network::new(numbers, inputs, &hidden, &heads);
        let mut pass = Pass::new(network.shape());
        // The same pass again, with another number of rows in between.
        for rows in [5, 64, 5] {
            let x = numbers.take(rows * inputs);
            let outputs = forward(&mut pass, &network, rows, &x);
            for row in 0..rows {
                let expected = network.model(&x[row * inputs..(row + 1) * inputs]);
                for (output, expected) in outputs.iter().zip(&expected) {
                    for (got, expected) in output[row * expected.len()..].iter().zip(expected) {
                        assert!((f64::from(*got) - expected).abs() < 1e-4, "{got} is not {expected}");
                    }
                }
            }
        }
    }
}

#[test]
fn gradients_are_differences_of_the_sums() {
    let numbers = &mut Numbers(2);
    let rows = 6;
    let mut network = Network::new(numbers, 3, &[8, 5], &[2, 1]);
    let x = numbers.take(rows * 3);
    let of_outputs = vec![numbers.take(rows * 2), numbers.take(rows)];
    let mut pass = Pass::new(network.shape());
    for _ in 0..2 {
        // The second time in memory that is reused.
        forward(&mut pass, &network, rows, &x);
        let found = backward(&mut pass, &network, rows, &x, &of_outputs);
        for (number, (of_weight, of_bias)) in found.iter().enumerate() {
            for (at, got) in of_weight.iter().chain(of_bias).enumerate() {
                let mut at_change = |change: f32| {
                    let (weight, bias) = &mut network.layers[number];
                    let length = weight.len();
                    let place = if at < length { &mut weight[at] } else { &mut bias[at - length] };
                    let before = *place;
                    *place += change;
                    let step = f64::from(*place) - f64::from(before);
                    let loss = network.loss(rows, &x, &of_outputs);
                    let (weight, bias) = &mut network.layers[number];
                    *(if at < length { &mut weight[at] } else { &mut bias[at - length] }) = before;
                    (loss, step)
                };
                let ((up, above), (down, below)) = (at_change(1e-4), at_change(-1e-4));
                let expected = (up - down) / (above - below);
                assert!(
                    (f64::from(*got) - expected).abs() < 2e-3 * (1.0 + expected.abs()),
                    "layer {number}, {at}: {got} is not {expected}"
                );
            }
        }
    }
}

/// Transposes `x` from (width, inputs) to (inputs, width).
fn transposed(x: &[f32], width: usize) -> Vec<f32> {
    let inputs = x.len() / width;
    (0..x.len()).map(|at| x[at % width * inputs + at / width]).collect()
}

#[test]
fn transposed_weights_give_the_same() {
    let numbers = &mut Numbers(5);
    let rows = 9;
    let network = Network::new(numbers, 3, &[8, 5], &[2, 1]);
    let (x, of_outputs) = (numbers.take(rows * 3), vec![numbers.take(rows * 2), numbers.take(rows)]);
    let mut pass = Pass::new(network.shape());
    let expected = forward(&mut pass, &network, rows, &x);
    let gradients = backward(&mut pass, &network, rows, &x, &of_outputs);

    let layers = network.layers.iter().map(|(weight, bias)| (transposed(weight, bias.len()), bias.clone()));
    let other = Network { layers: layers.collect(), hidden: vec![8, 5], heads: vec![2, 1], inputs: 3 };
    let mut pass = Pass::new(network.shape().transposed(true));
    let near = |got: &[f32], expected: &[f32]| {
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-5, "{got} is not {expected}");
        }
    };
    for (got, expected) in forward(&mut pass, &other, rows, &x).iter().zip(&expected) {
        near(got, expected);
    }
    for (got, expected) in backward(&mut pass, &other, rows, &x, &of_outputs).iter().zip(&gradients) {
        near(&got.0, &transposed(&expected.0, expected.1.len()));
        near(&got.1, &expected.1);
    }
}

#[test]
fn gradients_of_inputs_are_differences_of_the_sums() {
    let numbers = &mut Numbers(6);
    let (rows, inputs) = (7, 4);
    for is_transposed in [false, true] {
        let mut network = Network::new(numbers, inputs, &[8, 5], &[2, 1]);
        let mut x = numbers.take(rows * inputs);
        let mut of_outputs = vec![numbers.take(rows * 2), numbers.take(rows)];
        // Rows without a gradient in one output, or in all.
        of_outputs[0][..6].fill(0.0);
        of_outputs[1][1..4].fill(0.0);
        let steps: Vec<f64> = (0..x.len())
            .map(|at| {
                let before = x[at];
                let mut at_change = |change: f32| {
                    x[at] = before + change;
                    (network.loss(rows, &x, &of_outputs), f64::from(x[at]))
                };
                let ((up, above), (down, below)) = (at_change(1e-4), at_change(-1e-4));
                x[at] = before;
                (up - down) / (above - below)
            })
            .collect();
        if is_transposed {
            for (weight, bias) in &mut network.layers {
                *weight = transposed(weight, bias.len());
            }
        }
        let mut pass = Pass::new(network.shape().transposed(is_transposed));
        forward(&mut pass, &network, rows, &x);
        let of_outputs: Vec<_> = of_outputs.iter().map(Vec::as_slice).collect();
        for first in [0, 1, 3] {
            let mut found = vec![f32::NAN; rows * (inputs - first)];
            pass.backward_to_inputs(rows, first, &network.layers(), &of_outputs, &mut found)
                .expect("arrays fit");
            let expected = steps.chunks(inputs).flat_map(|row| &row[first..]);
            for (got, expected) in found.iter().zip(expected) {
                assert!(
                    (f64::from(*got) - expected).abs() < 2e-3 * (1.0 + expected.abs()),
                    "{got}, {expected}"
                );
            }
        }
        let error =
            pass.backward_to_inputs(rows, 4, &network.layers(), &of_outputs, &mut []).expect_err("none");
        assert_eq!(error.to_string(), "first input 4 is outside 0 to 3");
    }
}

#[test]
fn nan_inputs_give_nan_outputs() {
    let network = Network::new(&mut Numbers(3), 2, &[4], &[1]);
    let mut pass = Pass::new(network.shape());
    let outputs = forward(&mut pass, &network, 2, &[f32::NAN, 0.0, 0.5, 0.5]);
    assert!(outputs[0][0].is_nan() && outputs[0][1].is_finite());
}

#[test]
fn arrays_that_do_not_fit_are_named() {
    let network = Network::new(&mut Numbers(4), 2, &[4], &[1]);
    let mut pass = Pass::new(network.shape());
    let layers = network.layers();
    let mut output = [0.0; 3];
    let error = pass.forward(3, &[0.0; 5], &layers, &mut [&mut output]).expect_err("5 inputs for 3 rows");
    assert_eq!(error.to_string(), "inputs 0 has 5 numbers, expected 6");
    let error = pass.forward(4, &[0.0; 8], &layers, &mut [&mut output]).expect_err("3 outputs for 4 rows");
    assert_eq!(error.to_string(), "output 0 has 3 numbers, expected 4");
    let error = pass.forward(3, &[0.0; 6], &layers[1..], &mut [&mut output]).expect_err("a layer is missing");
    assert_eq!(error, DenseError::Count { what: "layers", got: 1, expected: 2 });
    pass.forward(3, &[0.0; 6], &layers, &mut [&mut output]).expect("arrays fit");
    let error = pass.backward(2, &[0.0; 4], &layers, &[&[0.0; 2]], &mut []).expect_err("other rows");
    assert_eq!(error, DenseError::Rows { got: 3, expected: 2 });
    let error = pass.backward(3, &[0.0; 6], &layers, &[&[0.0; 3]], &mut []).expect_err("no gradients");
    assert_eq!(error, DenseError::Count { what: "gradients", got: 0, expected: 2 });
    for (inputs, hidden, heads, what) in [
        (0, vec![1], vec![1], "inputs"),
        (1, vec![], vec![1], "hidden layers"),
        (1, vec![1], vec![2, 0], "heads"),
    ] {
        assert_eq!(Shape::new(inputs, hidden, heads), Err(DenseError::Without(what)));
    }
}
