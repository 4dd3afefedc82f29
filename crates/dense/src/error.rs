//! Errors of networks and of the arrays of a call.

/// Errors of this crate.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DenseError {
    /// A number of inputs, outputs or layers is 0.
    #[error("a network without {0}")]
    Without(&'static str),
    /// The length of an array does not match the shape of the network and the number of rows.
    #[error("{what} {number} has {got} numbers, expected {expected}")]
    Length {
        /// Which kind of array.
        what: &'static str,
        /// Its index among the arrays of its kind.
        number: usize,
        /// Its length.
        got: usize,
        /// The expected length.
        expected: usize,
    },
    /// The number of arrays does not match the number of layers or heads.
    #[error("{got} {what}, expected {expected}")]
    Count {
        /// Which kind of array.
        what: &'static str,
        /// Number of arrays given.
        got: usize,
        /// The expected number.
        expected: usize,
    },
    /// A backward pass without a forward pass, or with another number of rows.
    #[error("the latest forward pass had {got} rows, the backward pass has {expected}")]
    Rows {
        /// Rows of the latest forward pass; 0 before the first.
        got: usize,
        /// Rows of the backward pass.
        expected: usize,
    },
    /// There is no input to compute gradients for.
    #[error("first input {first} is outside 0 to {}", .inputs.saturating_sub(1))]
    First {
        /// Index of the first input, as given.
        first: usize,
        /// Number of inputs.
        inputs: usize,
    },
    /// The gradient contains NaN or infinity, or its norm is too large for a finite number.
    #[error("the gradient has norm {norm}")]
    Gradient {
        /// Its Euclidean norm.
        norm: f64,
    },
}

/// Checks the length of array `number` of its kind.
pub fn check_length(
    what: &'static str,
    number: usize,
    got: usize,
    expected: usize,
) -> Result<(), DenseError> {
    if got == expected { Ok(()) } else { Err(DenseError::Length { what, number, got, expected }) }
}
