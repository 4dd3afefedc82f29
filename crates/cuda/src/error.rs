//! Errors of CUDA calls.

/// See the variants.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// There is no usable driver, device or compiler.
    #[error("{reason}")]
    Unavailable {
        /// What is missing, and what to do.
        reason: String,
    },
    /// A call of the driver or of NVRTC failed.
    #[error("{reason}")]
    Failed {
        /// The call, and the error that it returned.
        reason: String,
    },
    /// A copy is longer than the memory on the device.
    #[error("{bytes} bytes do not fit into {capacity} bytes of device memory")]
    Length {
        /// Bytes to copy.
        bytes: usize,
        /// Bytes that were allocated.
        capacity: usize,
    },
}
