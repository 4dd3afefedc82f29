//! Where kernels run: a [`Device`] allocates, copies and launches. [`Cuda`] is a CUDA device with the kernels
//! of a batch. Host only.

use std::ffi::c_void;
use std::path::PathBuf;

use ::cuda::{Memory, Program, Sources};

use super::layout::LANES;
use super::{Call, KERNELS, Plan, SHARED_BYTES};
use crate::CuleError;

/// A place where kernels run.
pub trait Device {
    /// Memory there, freed when dropped.
    type Memory;

    /// Number of warps that can run environments at the same time. Further warps run one after the other, so
    /// only this many need memory for pictures.
    fn resident_warps(&self) -> u32;

    /// Number of environments that a warp runs, 1 to 32, if the user has set it.
    fn lanes(&self) -> Option<u32>;

    /// Bytes that the device reserves for the stacks of the kernels' threads, in addition to what is allocated.
    fn stack_bytes(&self) -> usize;

    /// Allocates `bytes` bytes, filled with zeros.
    ///
    /// # Errors
    /// The device does not have enough free memory.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory, CuleError>;

    /// Device address of the first byte.
    fn address(&self, memory: &Self::Memory) -> u64;

    /// Copies to the device, after all earlier work of `stream`.
    ///
    /// # Errors
    /// An error of the driver.
    fn write(&self, memory: &mut Self::Memory, bytes: &[u8], stream: u64) -> Result<(), CuleError>;

    /// Copies from the device, after all earlier work of `stream`, and waits until it is done.
    ///
    /// # Errors
    /// An error of the driver, including those of earlier kernels.
    fn read(&self, memory: &Self::Memory, bytes: &mut [u8], stream: u64) -> Result<(), CuleError>;

    /// Launches a kernel of [`KERNELS`] on a stream.
    ///
    /// # Errors
    /// An error of the driver.
    fn launch(
        &self,
        kernel: &str,
        shape: Shape,
        plan: &Plan,
        call: &Call,
        stream: u64,
    ) -> Result<(), CuleError>;
}

/// Size of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of blocks.
    pub blocks: u32,
    /// Threads per block.
    pub threads: u32,
}

/// The kernels of a batch.
pub const SOURCES: Sources = Sources {
    files: &[
        ("step.cu", include_str!("../../../kernels/step.cu")),
        ("reset.cu", include_str!("../../../kernels/reset.cu")),
        ("states.cu", include_str!("../../../kernels/states.cu")),
    ],
    headers: &[
        ("prelude.cuh", include_str!("../../../kernels/prelude.cuh")),
        ("machine.cuh", include_str!("../../../kernels/machine.cuh")),
        ("runner.cuh", include_str!("../../../kernels/runner.cuh")),
        ("layout.cuh", include_str!("../../../kernels/layout.cuh")),
        ("cpu_brx.cuh", include_str!("../../../kernels/cpu_brx.cuh")),
        ("forms.cuh", include_str!("../../../kernels/forms.cuh")),
    ],
    kernels: &KERNELS,
};
/// Maximum number of warps per multiprocessor, unless `PARL_CUDA_WARPS` sets it; their registers fill it.
const WARPS_PER_UNIT: u32 = 8;
/// Number of warps of 128 registers whose registers fill a multiprocessor.
const MOST_WARPS_PER_UNIT: u32 = 16;
/// Shared memory of a block besides the machines and lines of its environments: display, game settings and what CUDA
/// reserves, in bytes.
const OTHER_SHARED_BYTES: u32 = 2048;

/// Environment variable with the number of environments of a warp, for measurements.
const LANES_VARIABLE: &str = "PARL_CUDA_LANES";
/// Environment variable with the maximum number of warps per multiprocessor, for measurements.
const WARPS_VARIABLE: &str = "PARL_CUDA_WARPS";

/// A device with the kernels of a batch loaded.
pub struct Cuda {
    pub(super) program: Program,
    /// Environments of a warp, if `PARL_CUDA_LANES` sets them.
    lanes: Option<u32>,
    /// Maximum number of warps per multiprocessor.
    warps: u32,
    /// Whether all kernels came from the cache.
    pub from_cache: bool,
}

impl Cuda {
    /// Loads the kernels on device number `ordinal`. `folders` are searched for NVRTC first.
    ///
    /// # Errors
    /// As [`Program::new`], and [`CuleError::Setting`] if `PARL_CUDA_LANES` is not 1 to 32, or `PARL_CUDA_WARPS` not 1
    /// to 16.
    pub fn new(ordinal: u32, folders: &[PathBuf]) -> Result<Self, CuleError> {
        let lanes = number_of(LANES_VARIABLE, LANES, "1 to 32")?;
        let warps = number_of(WARPS_VARIABLE, MOST_WARPS_PER_UNIT, "1 to 16")?.unwrap_or(WARPS_PER_UNIT);
        let program = Program::new(ordinal, folders, &SOURCES)?;
        let from_cache = program.from_cache;
        Ok(Self { program, lanes, warps, from_cache })
    }
}

/// The value of an environment variable, 1 to `most`, if it is set.
fn number_of(name: &'static str, most: u32, bound: &'static str) -> Result<Option<u32>, CuleError> {
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let number =
        text.to_str().and_then(|text| text.parse().ok()).filter(|number| (1..=most).contains(number));
    let value = format!("{text:?}");
    number.map(Some).ok_or(CuleError::Setting { name, value, bound })
}

/// Number of warps, at most `most`, that run at the same time on a multiprocessor with `shared_bytes` of shared memory.
fn warps_per_unit(shared_bytes: u32, most: u32) -> u32 {
    (shared_bytes / (SHARED_BYTES + OTHER_SHARED_BYTES)).clamp(1, most)
}

impl Device for Cuda {
    type Memory = Memory;

    fn resident_warps(&self) -> u32 {
        self.program.facts.units * warps_per_unit(self.program.facts.shared_bytes, self.warps)
    }

    fn lanes(&self) -> Option<u32> {
        self.lanes
    }

    fn stack_bytes(&self) -> usize {
        self.program.stack_bytes()
    }

    fn allocate(&self, bytes: usize) -> Result<Memory, CuleError> {
        Ok(self.program.allocate(bytes)?)
    }

    fn address(&self, memory: &Memory) -> u64 {
        memory.address()
    }

    fn write(&self, memory: &mut Memory, bytes: &[u8], stream: u64) -> Result<(), CuleError> {
        Ok(Memory::write(memory, bytes, stream)?)
    }

    fn read(&self, memory: &Memory, bytes: &mut [u8], stream: u64) -> Result<(), CuleError> {
        Ok(Memory::read(memory, bytes, stream)?)
    }

    fn launch(
        &self,
        kernel: &str,
        shape: Shape,
        plan: &Plan,
        call: &Call,
        stream: u64,
    ) -> Result<(), CuleError> {
        let (mut plan, mut call) = (*plan, *call);
        let mut arguments = [(&raw mut plan).cast::<c_void>(), (&raw mut call).cast::<c_void>()];
        Ok(self.program.launch(kernel, (shape.blocks, shape.threads), &mut arguments, stream)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_driver_is_an_error_with_the_reason() {
        if ::cuda::driver::driver().is_ok() {
            eprintln!("skipped: this machine has a CUDA driver");
            return;
        }
        let error = Cuda::new(0, &[]).err().unwrap();
        assert!(matches!(error, CuleError::Cuda(::cuda::CudaError::Unavailable { .. })));
        assert!(error.to_string().starts_with("no CUDA driver on this machine: "), "{error}");
    }

    #[test]
    fn warps_fit_into_the_shared_memory_of_every_architecture() {
        // KiB of compute capability 7.5; 8.6, 8.9 and 12.0; 8.0; 9.0 and 10.0.
        assert_eq!([64, 100, 164, 228].map(|kib| warps_per_unit(kib << 10, WARPS_PER_UNIT)), [2, 4, 6, 8]);
        assert_eq!(warps_per_unit(0, WARPS_PER_UNIT), 1);
    }
}
