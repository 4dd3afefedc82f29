//! What stands between the values of a network and their gradients in Q-learning.

use crate::DenseError;
use crate::error::length;

/// Rewards and discounts of (B) transitions.
#[derive(Debug, Clone, Copy)]
pub struct Returns<'a> {
    /// Sums of rewards up to the next observation.
    pub rewards: &'a [f32],
    /// Of the value of the next observation; 0 where the episode terminated.
    pub discounts: &'a [f32],
    /// Rewards are multiplied by this.
    pub scale: f32,
}

impl Returns<'_> {
    /// Writes `y = scale * reward + discount * following[argmax chooser]`.
    ///
    /// `following` and `chooser` are values of the next observations, (B, actions); `y` is (B).
    ///
    /// # Errors
    /// [`DenseError::Length`] when an array does not fit, or there are no actions.
    pub fn targets(&self, following: &[f32], chooser: &[f32], y: &mut [f32]) -> Result<(), DenseError> {
        let rows = y.len();
        let actions = actions(following.len(), rows)?;
        for (what, got, expected) in [
            ("following", following.len(), rows * actions),
            ("chooser", chooser.len(), rows * actions),
            ("rewards", self.rewards.len(), rows),
            ("discounts", self.discounts.len(), rows),
        ] {
            length(what, 0, got, expected)?;
        }
        let values = following.chunks_exact(actions).zip(chooser.chunks_exact(actions));
        let given = self.rewards.iter().zip(self.discounts);
        for ((y, (following, chooser)), (reward, discount)) in y.iter_mut().zip(values).zip(given) {
            *y = self.scale * reward + discount * following[largest(chooser)];
        }
        Ok(())
    }
}

/// The first of the largest, or the first that is not a number.
fn largest(values: &[f32]) -> usize {
    let mut best = 0;
    for (at, value) in values.iter().enumerate() {
        if *value > values[best] || (value.is_nan() && !values[best].is_nan()) {
            best = at;
        }
    }
    best
}

fn actions(values: usize, rows: usize) -> Result<usize, DenseError> {
    match values.checked_div(rows) {
        Some(0) | None => Err(DenseError::Without("rows or actions")),
        Some(actions) => Ok(actions),
    }
}

/// Huber's loss of the error `y - Q(s, a)`, weighted: its mean, the errors (B) and the gradient of the values (B, actions).
///
/// Beyond `delta`, in units of the error, it is linear; infinite gives half the squared error.
///
/// Source: Huber (1964); weights: Schaul et al. (2016), section 3.4.
///
/// # Errors
/// [`DenseError::Length`] when an array does not fit, [`DenseError::Action`] for an action that there is not.
pub fn huber(
    values: &[f32],
    chosen: &[i64],
    y: &[f32],
    weights: &[f32],
    delta: f32,
    errors: &mut [f32],
    of_values: &mut [f32],
) -> Result<f64, DenseError> {
    let rows = chosen.len();
    let actions = actions(values.len(), rows)?;
    for (what, got, expected) in [
        ("values", values.len(), rows * actions),
        ("targets", y.len(), rows),
        ("importance weights", weights.len(), rows),
        ("errors", errors.len(), rows),
        ("gradients of values", of_values.len(), values.len()),
    ] {
        length(what, 0, got, expected)?;
    }
    let mut loss = 0.0;
    let share = 1.0 / rows as f32;
    let outputs = errors.iter_mut().zip(of_values.chunks_exact_mut(actions));
    let inputs = values.chunks_exact(actions).zip(chosen).zip(y.iter().zip(weights));
    for ((error, of_values), ((values, action), (y, weight))) in outputs.zip(inputs) {
        let at = usize::try_from(*action).ok().filter(|at| *at < actions);
        let at = at.ok_or(DenseError::Action { action: *action, actions })?;
        *error = y - values[at];
        // What is not a number stays so.
        let cut = if *error > delta {
            delta
        } else if *error < -delta {
            -delta
        } else {
            *error
        };
        loss += f64::from((*error - 0.5 * cut) * cut * weight);
        of_values.fill(0.0);
        of_values[at] = -cut * weight * share;
    }
    Ok(loss / rows as f64)
}
