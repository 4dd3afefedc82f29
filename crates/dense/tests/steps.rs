//! Compares Adam with its equations in double precision.

use dense::{Adam, Buffers, DenseError};

/// Performs a step on weights, gradients and the running means of the gradients and of their squares.
fn make_step(adam: &Adam, buffers: [&mut [f32]; 4], step: u64) {
    let [weights, gradients, mean, square] = buffers;
    adam.step(&mut Buffers { weights, gradients, mean, square }, step).expect("as long as each other");
}

#[test]
fn steps_are_those_of_the_equations() {
    for (max_grad_norm, count) in [(f64::INFINITY, 5usize), (1.0, 37), (1e3, 1_000)] {
        let adam = Adam { learning_rate: 0.01, epsilon: 1e-8, betas: (0.9, 0.999), max_grad_norm };
        let start = |i: usize| ((i * 7919) % 101) as f32 / 50.0 - 1.0;
        let mut weights: Vec<f32> = (0..count).map(start).collect();
        let (mut mean, mut square) = (vec![0.0; count], vec![0.0; count]);
        let mut model: Vec<[f64; 3]> = weights.iter().map(|w| [f64::from(*w), 0.0, 0.0]).collect();
        for step in 1..=3u64 {
            let mut gradients: Vec<f32> = (0..count).map(|i| start(i + step as usize)).collect();
            let norm = gradients.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
            let scale = (max_grad_norm / (norm + 1e-6)).min(1.0);
            for (row, g) in model.iter_mut().zip(&gradients) {
                let g = f64::from(*g) * scale;
                row[1] = 0.9 * row[1] + 0.1 * g;
                row[2] = 0.999 * row[2] + 0.001 * g * g;
                let (mean, square) =
                    (row[1] / (1.0 - 0.9f64.powi(step as i32)), row[2] / (1.0 - 0.999f64.powi(step as i32)));
                row[0] -= 0.01 * mean / (square.sqrt() + 1e-8);
            }
            make_step(&adam, [&mut weights, &mut gradients, &mut mean, &mut square], step);
            let length = gradients.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
            assert!((length - norm.min(max_grad_norm)).abs() < 1e-4 * norm);
            for (got, row) in weights.iter().zip(&model) {
                assert!((f64::from(*got) - row[0]).abs() < 1e-5, "{got} is not {}", row[0]);
            }
        }
    }
}

#[test]
fn gradients_that_are_not_finite_change_nothing_and_lengths_are_checked() {
    let adam = Adam { learning_rate: 0.01, epsilon: 1e-8, betas: (0.9, 0.999), max_grad_norm: 1.0 };
    let (mut weights, mut gradients, mut mean, mut square) = ([0.5; 2], [0.0; 2], [0.0; 2], [0.0; 2]);
    // The last one is finite, its square is not.
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30] {
        gradients[1] = bad;
        let mut buffers = Buffers {
            weights: &mut weights,
            gradients: &mut gradients,
            mean: &mut mean,
            square: &mut square,
        };
        let error = adam.step(&mut buffers, 1).expect_err("the norm is not finite");
        assert!(matches!(error, DenseError::Gradient { norm } if !norm.is_finite()), "{error}");
        assert_eq!((weights, mean, square), ([0.5; 2], [0.0; 2], [0.0; 2]));
    }
    let mut buffers = Buffers {
        weights: &mut weights,
        gradients: &mut gradients,
        mean: &mut mean,
        square: &mut square[..1],
    };
    let error = adam.step(&mut buffers, 1).expect_err("square is shorter");
    assert_eq!(error, DenseError::Length { what: "square", number: 0, got: 1, expected: 2 });
}

#[test]
fn means_that_fall_below_normal_numbers_become_zero() {
    let adam = Adam { learning_rate: 0.01, epsilon: 1e-8, betas: (0.9, 0.999), max_grad_norm: f64::INFINITY };
    let (mut weights, mut mean, mut square) = ([0.5; 3], [0.0; 3], [0.0; 3]);
    let mut step_with = |mut gradients: [f32; 3], step: u64| {
        make_step(&adam, [&mut weights, &mut gradients, &mut mean, &mut square], step);
        (mean, square)
    };
    let (mean, square) = step_with([1e-12, 1e-20, 1e-16], 1);
    assert!(mean[0] > 9e-14 && square[0] > 9e-28 && mean[2] > 9e-18 && square[2] > 9e-36);
    assert_eq!((mean[1], square[1]), (0.0, 0.0), "too small a gradient");
    for step in 2..2_000 {
        let (mean, square) = step_with([0.0; 3], step);
        for number in mean.into_iter().chain(square) {
            assert!(number == 0.0 || number.is_normal(), "{number} in step {step}");
        }
    }
    let (mean, square) = step_with([0.0; 3], 2_000);
    assert_eq!(mean, [0.0; 3]);
    assert!(square[0] > 1e-28, "decays more slowly");
}
