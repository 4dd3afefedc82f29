//! One step of Adam on a flat buffer, after clipping the gradients by their norm. Reads memory twice: once
//! for the norm, once for the step.
#![allow(unsafe_code)] // Calls functions compiled for AVX2 after checking that the processor has it.

use crate::DenseError;
use crate::error::check_length;

/// Number of partial sums that are computed in parallel.
const LANES: usize = 16;

/// Gradients that are smaller count as zero: the squares of such numbers, times one minus the usual decay, are
/// too small for normal numbers of 32 bits.
const SMALLEST_GRADIENT: f32 = 1e-17;

/// Running means that are smaller become zero. Without gradients they would otherwise fall below the smallest
/// normal number and stay there, and arithmetic with such numbers is slow.
const SMALLEST_MEAN: f32 = 1e-37;

/// Settings of [`Adam::step`].
///
/// Source: Kingma and Ba (2015), algorithm 1; scaling: Pascanu, Mikolov and Bengio (2013), algorithm 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    /// Step size.
    pub learning_rate: f64,
    /// Offset of the denominator.
    pub epsilon: f64,
    /// Decay of the running means of gradients and of their squares.
    pub betas: (f64, f64),
    /// Largest norm of the gradients: longer ones are scaled down to it. Infinity disables the scaling.
    pub max_grad_norm: f64,
}

/// The buffers of [`Adam::step`], all of the same length.
#[derive(Debug)]
pub struct Buffers<'a> {
    /// Updated in place.
    pub weights: &'a mut [f32],
    /// Scaled down in place if their norm is above [`Adam::max_grad_norm`].
    pub gradients: &'a mut [f32],
    /// Running mean of the gradients; zeros before the first step.
    pub mean: &'a mut [f32],
    /// Running mean of their squares; zeros before the first step.
    pub square: &'a mut [f32],
}

/// Constants of one step, in the precision of the buffers.
#[derive(Clone, Copy)]
struct Factors {
    scale: f32,
    betas: (f32, f32),
    one_minus_betas: (f32, f32),
    root_correction: f32,
    epsilon: f32,
    step_size: f32,
}

impl Adam {
    /// Performs step number `step`, counted from 1: `weights -= learning_rate * mean_hat / (sqrt(square_hat)
    /// + epsilon)`. Gradients below 1e-17 count as zero, and running means below 1e-37 become zero.
    ///
    /// # Errors
    /// [`DenseError::Length`] if the buffers differ in length, [`DenseError::Gradient`] if `max_grad_norm` is
    /// finite and the norm of the gradients is not. The buffers are then unchanged.
    pub fn step(&self, buffers: &mut Buffers<'_>, step: u64) -> Result<(), DenseError> {
        let expected = buffers.weights.len();
        for (what, got) in [
            ("gradients", buffers.gradients.len()),
            ("mean", buffers.mean.len()),
            ("square", buffers.square.len()),
        ] {
            check_length(what, 0, got, expected)?;
        }
        let norm = if self.max_grad_norm < f64::INFINITY { norm(buffers.gradients) } else { 0.0 };
        if !norm.is_finite() {
            return Err(DenseError::Gradient { norm });
        }
        let scale = if norm <= self.max_grad_norm { 1.0 } else { self.max_grad_norm / (norm + 1e-6) };
        let count = i32::try_from(step).unwrap_or(i32::MAX);
        let rest = |beta: f64| 1.0 - beta.powi(count);
        let factors = Factors {
            scale: scale as f32,
            betas: (self.betas.0 as f32, self.betas.1 as f32),
            one_minus_betas: ((1.0 - self.betas.0) as f32, (1.0 - self.betas.1) as f32),
            root_correction: rest(self.betas.1).sqrt() as f32,
            epsilon: self.epsilon as f32,
            step_size: (self.learning_rate / rest(self.betas.0)) as f32,
        };
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            unsafe { update_avx2(buffers, factors) };
            return Ok(());
        }
        update(buffers, factors);
        Ok(())
    }
}

/// Euclidean norm.
fn norm(numbers: &[f32]) -> f64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { sum_of_squares_avx2(numbers) }.sqrt();
    }
    sum_of_squares(numbers).sqrt()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_of_squares_avx2(numbers: &[f32]) -> f64 {
    sum_of_squares(numbers)
}

/// Sum of squares: in single precision within parts of some hundred numbers, in double precision over the
/// parts.
#[inline(always)]
fn sum_of_squares(numbers: &[f32]) -> f64 {
    const PART: usize = 32 * LANES;
    let part = |numbers: &[f32]| {
        let mut sums = [0.0f32; LANES];
        let (whole, rest) = numbers.as_chunks::<LANES>();
        for lanes in whole {
            for (sum, number) in sums.iter_mut().zip(lanes) {
                *sum += number * number;
            }
        }
        f64::from(sums.iter().sum::<f32>())
            + f64::from(rest.iter().map(|number| number * number).sum::<f32>())
    };
    numbers.chunks(PART).map(part).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn update_avx2(buffers: &mut Buffers<'_>, factors: Factors) {
    update(buffers, factors);
}

/// `number`, or 0 if its size is below `smallest`; NaN stays NaN.
#[inline(always)]
fn zero_below(smallest: f32, number: f32) -> f32 {
    if number.abs() < smallest { 0.0 } else { number }
}

#[inline(always)]
fn update(buffers: &mut Buffers<'_>, f: Factors) {
    let Buffers { weights, gradients, mean, square } = buffers;
    let rows = weights.iter_mut().zip(gradients.iter_mut()).zip(mean.iter_mut()).zip(square.iter_mut());
    for (((weight, gradient), mean), square) in rows {
        let scaled = *gradient * f.scale;
        *gradient = scaled;
        let g = zero_below(SMALLEST_GRADIENT, scaled);
        *mean = zero_below(SMALLEST_MEAN, f.betas.0 * *mean + f.one_minus_betas.0 * g);
        *square = zero_below(SMALLEST_MEAN, f.betas.1 * *square + f.one_minus_betas.1 * g * g);
        *weight -= f.step_size * *mean / (square.sqrt() / f.root_correction + f.epsilon);
    }
}
