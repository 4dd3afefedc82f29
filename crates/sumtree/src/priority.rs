//! Conversion of floating-point priorities to integer weights and back, by a fixed-point scale.

use crate::layout::{FAN_OUTS, max_weight};
use crate::{DEFAULT_FAN_OUT, SumTreeError};

/// The default number of weight units per unit of priority.
pub const DEFAULT_SCALE: f64 = 65_536.0;

/// Converts priorities to the weights of a tree and back: `weight = round(priority * units)`.
///
/// A positive priority becomes at least weight 1. A priority beyond the largest weight is saturated: it
/// becomes that weight and is counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    units: f64,
    max_weight: u32,
}

impl Default for Scale {
    fn default() -> Self {
        Self { units: DEFAULT_SCALE, max_weight: max_weight(DEFAULT_FAN_OUT) }
    }
}

impl Scale {
    /// Creates a scale of `units` weight units per unit of priority, for trees of this fan-out.
    ///
    /// # Errors
    /// [`SumTreeError::Scale`] unless `units` is finite and above zero; [`SumTreeError::FanOut`].
    pub fn new(units: f64, fan_out: usize) -> Result<Self, SumTreeError> {
        if !(units.is_finite() && units > 0.0) {
            return Err(SumTreeError::Scale { scale: units });
        }
        if !FAN_OUTS.contains(&fan_out) {
            return Err(SumTreeError::FanOut { fan_out });
        }
        Ok(Self { units, max_weight: max_weight(fan_out) })
    }

    /// Weight units per unit of priority.
    #[must_use]
    pub fn units(&self) -> f64 {
        self.units
    }

    /// The largest weight, also used for priorities beyond [`Scale::max_priority`].
    #[must_use]
    pub fn max_weight(&self) -> u32 {
        self.max_weight
    }

    /// The largest priority that is not saturated.
    #[must_use]
    pub fn max_priority(&self) -> f64 {
        self.priority(self.max_weight)
    }

    /// Converts a batch of priorities (f32 or f64) to weights. Returns how many were saturated.
    ///
    /// # Errors
    /// [`SumTreeError::Priority`] for the first NaN, infinite or negative priority; [`SumTreeError::Length`].
    /// The contents of `weights` are then unspecified.
    pub fn weights<P: Copy + Into<f64>>(
        &self,
        priorities: &[P],
        weights: &mut [u32],
    ) -> Result<u64, SumTreeError> {
        if priorities.len() != weights.len() {
            return Err(SumTreeError::Length {
                what: "weights",
                got: weights.len(),
                expected: priorities.len(),
            });
        }
        let (mut saturated, mut fine) = (0, true);
        for (weight, priority) in weights.iter_mut().zip(priorities) {
            let priority: f64 = (*priority).into();
            // One flag for the batch keeps the loop free of branches.
            fine &= is_valid(priority);
            let (value, beyond) = self.convert(priority);
            *weight = value;
            saturated += u64::from(beyond);
        }
        if fine { Ok(saturated) } else { Err(first_invalid(priorities)) }
    }

    /// Converts one priority. Returns its weight and whether it was saturated.
    ///
    /// # Errors
    /// [`SumTreeError::Priority`].
    pub fn weight(&self, priority: f64) -> Result<(u32, bool), SumTreeError> {
        if is_valid(priority) {
            Ok(self.convert(priority))
        } else {
            Err(SumTreeError::Priority { priority, position: 0 })
        }
    }

    /// Converts a weight to its priority.
    #[must_use]
    #[inline]
    pub fn priority(&self, weight: u32) -> f64 {
        f64::from(weight) / self.units
    }

    /// Converts a batch of weights to priorities.
    ///
    /// # Errors
    /// [`SumTreeError::Length`].
    pub fn priorities(&self, weights: &[u32], priorities: &mut [f64]) -> Result<(), SumTreeError> {
        if priorities.len() != weights.len() {
            let (got, expected) = (priorities.len(), weights.len());
            return Err(SumTreeError::Length { what: "priorities", got, expected });
        }
        priorities.iter_mut().zip(weights).for_each(|(p, w)| *p = self.priority(*w));
        Ok(())
    }

    #[inline(always)]
    fn convert(&self, priority: f64) -> (u32, bool) {
        let scaled = priority * self.units;
        let max = f64::from(self.max_weight);
        // Rounds half up; `as` saturates, and converts NaN to 0.
        let rounded = (scaled.min(max) + 0.5) as u32;
        (rounded.max(u32::from(priority > 0.0)), scaled > max)
    }
}

/// Returns true if the priority is finite and not negative. False for NaN, which no range contains.
#[inline(always)]
fn is_valid(priority: f64) -> bool {
    (0.0..f64::INFINITY).contains(&priority)
}

#[cold]
fn first_invalid<P: Copy + Into<f64>>(priorities: &[P]) -> SumTreeError {
    let position = priorities.iter().position(|p| !is_valid((*p).into())).unwrap_or(0);
    SumTreeError::Priority { priority: priorities[position].into(), position }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_within_half_a_unit() {
        let scale = Scale::default();
        for p in [0.0, 1.0 / 65_536.0, 0.5, 1.0, 3.25, 4095.0] {
            let (w, saturated) = scale.weight(p).unwrap();
            assert!(!saturated && (scale.priority(w) - p).abs() <= 0.5 / DEFAULT_SCALE, "{p}");
        }
        assert_eq!(scale.weight(1.0).unwrap(), (65_536, false));
        // 2.5 units round half up.
        assert_eq!(scale.weight(2.5 / 65_536.0).unwrap(), (3, false));
    }

    #[test]
    fn positive_never_becomes_zero_and_zero_stays() {
        let scale = Scale::default();
        assert_eq!(scale.weight(f64::MIN_POSITIVE).unwrap(), (1, false));
        assert_eq!(scale.weight(f64::from_bits(1)).unwrap(), (1, false));
        assert_eq!(scale.weight(0.0).unwrap(), (0, false));
        assert_eq!(scale.weight(-0.0).unwrap(), (0, false));
    }

    #[test]
    fn saturation_is_counted() {
        let scale = Scale::new(65_536.0, 64).unwrap();
        let mut weights = [0; 4];
        assert_eq!(scale.weights(&[1.0f32, 1024.0, 1e30, 0.0], &mut weights), Ok(2));
        assert_eq!(weights, [65_536, (1 << 26) - 1, (1 << 26) - 1, 0]);
        assert_eq!(scale.weight(f64::MAX).unwrap(), ((1 << 26) - 1, true));
        assert_eq!(scale.weight(scale.max_priority()).unwrap(), ((1 << 26) - 1, false));
    }

    /// The error names the value and its position.
    #[test]
    fn nan_infinite_and_negative_are_errors() {
        let scale = Scale::default();
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-300] {
            let mut weights = [0; 3];
            let error = scale.weights(&[1.0, 2.0, bad], &mut weights).unwrap_err();
            let why = if bad.is_finite() { "below 0" } else { "not finite" };
            let text = format!("priority {bad} at position 2 is {why}");
            assert_eq!(error.to_string(), text);
            assert!(scale.weight(bad).is_err());
        }
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(Scale::new(bad, 16), Err(SumTreeError::Scale { .. })));
        }
        assert!(matches!(Scale::new(1.0, 7), Err(SumTreeError::FanOut { fan_out: 7 })));
    }

    #[test]
    fn lengths_must_agree() {
        let scale = Scale::default();
        let error = scale.weights(&[1.0, 2.0], &mut [0; 3]).unwrap_err();
        assert_eq!(error, SumTreeError::Length { what: "weights", got: 3, expected: 2 });
        assert!(scale.priorities(&[1, 2], &mut [0.0; 1]).is_err());
    }
}
