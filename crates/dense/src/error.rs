//! What can be wrong with a network or the arrays of a call.

/// See the variants.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DenseError {
    /// A number of inputs, outputs or layers is 0.
    #[error("a network without {0}")]
    Without(&'static str),
    /// An array is not as long as the shape of the network and the rows ask for.
    #[error("{what} {number} has {got} numbers, expected {expected}")]
    Length {
        /// Which kind of array.
        what: &'static str,
        /// Its number among those of its kind.
        number: usize,
        /// Its length.
        got: usize,
        /// The length that fits.
        expected: usize,
    },
    /// There are more or fewer arrays than layers or heads.
    #[error("{got} {what}, expected {expected}")]
    Count {
        /// Which kind of array.
        what: &'static str,
        /// How many there are.
        got: usize,
        /// How many fit.
        expected: usize,
    },
    /// The way back of a pass that was not made, or was made of another number of rows.
    #[error("the latest pass had {got} rows, its way back is asked for {expected}")]
    Rows {
        /// Of the latest pass; 0 before the first.
        got: usize,
        /// Of the call.
        expected: usize,
    },
    /// The gradients of no input are asked for.
    #[error("gradients of inputs from number {first} on of {inputs}")]
    First {
        /// The number given.
        first: usize,
        /// How many there are.
        inputs: usize,
    },
    /// The gradient holds NaN or infinity, or is too long for its length to be a number.
    #[error("the gradient has norm {norm}")]
    Gradient {
        /// Its Euclidean length.
        norm: f64,
    },
}

/// Whether array `number` of its kind is as long as it shall be.
pub fn length(what: &'static str, number: usize, got: usize, expected: usize) -> Result<(), DenseError> {
    if got == expected { Ok(()) } else { Err(DenseError::Length { what, number, got, expected }) }
}
