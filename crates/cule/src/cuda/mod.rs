//! CUDA devices: driver and compiler found at run time, kernels compiled once and kept on the disk.
//!
//! Host only. Nothing is linked: without a driver every call gives [`CuleError::CudaUnavailable`] with the reason, and
//! the process goes on.

#![allow(unsafe_code, reason = "the addresses of a launch's arguments")]

pub mod cache;
pub mod choices;
pub mod console;
pub mod driver;
pub mod nvrtc;
mod program;

use std::ffi::c_void;
use std::path::PathBuf;

use crate::CuleError;
use crate::batch::cuda::{Call, Device, KERNELS, Plan, SHARED_BYTES, Shape};
use nvrtc::Nvrtc;
pub use program::{Image, Memory, Program, Sources};

/// The kernels of a batch.
pub const SOURCES: Sources = Sources {
    files: &[
        ("step.cu", include_str!("../../kernels/step.cu")),
        ("reset.cu", include_str!("../../kernels/reset.cu")),
        ("states.cu", include_str!("../../kernels/states.cu")),
    ],
    headers: &[
        ("prelude.cuh", include_str!("../../kernels/prelude.cuh")),
        ("machine.cuh", include_str!("../../kernels/machine.cuh")),
        ("runner.cuh", include_str!("../../kernels/runner.cuh")),
        ("layout.cuh", include_str!("../../kernels/layout.cuh")),
        ("cpu_brx.cuh", include_str!("../../kernels/cpu_brx.cuh")),
        ("forms.cuh", include_str!("../../kernels/forms.cuh")),
    ],
    kernels: &KERNELS,
};
/// The oldest driver that is looked at: CUDA 12.0.
const OLDEST_DRIVER: u32 = 12_000;
/// Warps that play on one multiprocessor, at most: their registers fill it.
const WARPS_PER_UNIT: u32 = 8;
/// Shared memory of a block beside the machines of its lanes: what they show, how they play, what the system keeps.
const OTHER_SHARED_BYTES: u32 = 2048;
/// The oldest device: 7.5, Turing.
const OLDEST_DEVICE: u32 = 75;

/// What the loader says of a library: the system's own words.
fn said(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// A device with the kernels of a batch.
pub struct Cuda {
    program: Program,
    /// Every kernel came from the disk.
    pub from_cache: bool,
}

impl Cuda {
    /// Device number `ordinal`. `folders` are looked through for NVRTC first.
    ///
    /// # Errors
    /// As [`Program::new`].
    pub fn new(ordinal: u32, folders: &[PathBuf]) -> Result<Self, CuleError> {
        let program = Program::new(ordinal, folders, &SOURCES)?;
        let from_cache = program.from_cache;
        Ok(Self { program, from_cache })
    }
}

/// Warps that play at a time where a multiprocessor has so much shared memory.
fn warps_per_unit(shared_bytes: u32) -> u32 {
    (shared_bytes / (SHARED_BYTES + OTHER_SHARED_BYTES)).clamp(1, WARPS_PER_UNIT)
}

impl Device for Cuda {
    type Memory = Memory;

    fn resident_warps(&self) -> u32 {
        self.program.facts.units * warps_per_unit(self.program.facts.shared_bytes)
    }

    fn allocate(&self, bytes: usize) -> Result<Memory, CuleError> {
        self.program.allocate(bytes)
    }

    fn address(&self, memory: &Memory) -> u64 {
        memory.address()
    }

    fn write(&self, memory: &mut Memory, bytes: &[u8], stream: u64) -> Result<(), CuleError> {
        Memory::write(memory, bytes, stream)
    }

    fn read(&self, memory: &Memory, bytes: &mut [u8], stream: u64) -> Result<(), CuleError> {
        Memory::read(memory, bytes, stream)
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
        self.program.launch(kernel, (shape.blocks, shape.threads), &mut arguments, stream)
    }
}

/// Compiles the kernels of a batch and of a console for device number `ordinal` and keeps them; nothing is loaded. The
/// target, and the files in the order of their sources.
///
/// # Errors
/// As [`Program::new`].
pub fn prepare(ordinal: u32, folders: &[PathBuf]) -> Result<(String, Vec<Image>), CuleError> {
    let (driver, facts) = program::device(ordinal)?;
    let nvrtc = Nvrtc::find(folders)?;
    let target = nvrtc.target(facts.architecture)?;
    let version = driver.version()?;
    let compile = |sources: &Sources| sources.compile(&nvrtc, &target, version, &[]);
    let (batch, console) = std::thread::scope(|scope| {
        let console = scope.spawn(|| compile(&console::SOURCES));
        (compile(&SOURCES), console.join())
    });
    let mut images = batch?;
    images.extend(console.unwrap_or_else(|_| Err(program::fell()))?);
    Ok((target, images))
}

/// What there is for CUDA, as lines of a name and a finding.
pub fn report(folders: &[PathBuf]) -> Vec<(String, String)> {
    let mut lines = vec![];
    let mut line = |name: &str, finding: String| lines.push((name.to_string(), finding));
    match driver::driver() {
        Err(error) => line("CUDA driver", error.to_string()),
        Ok(driver) => {
            let version = driver.version().map_or_else(
                |error| error.to_string(),
                |version| format!("for CUDA {}.{}", version / 1000, version % 1000 / 10),
            );
            line("CUDA driver", version);
            match driver.devices() {
                Err(error) => line("CUDA devices", error.to_string()),
                Ok(devices) if devices.is_empty() => line("CUDA devices", "none".into()),
                Ok(devices) => {
                    for (ordinal, facts) in devices.iter().enumerate() {
                        let (name, architecture) = (&facts.name, facts.architecture);
                        let (major, minor, gib) =
                            (architecture / 10, architecture % 10, facts.total_bytes >> 30);
                        line(
                            &format!("CUDA device {ordinal}"),
                            format!("{name}, compute capability {major}.{minor}, {gib} GiB"),
                        );
                    }
                }
            }
        }
    }
    match Nvrtc::find(folders) {
        Err(error) => line("NVRTC", error.to_string()),
        Ok(nvrtc) => {
            let known = nvrtc.architectures().unwrap_or_default();
            let (major, minor) = nvrtc.version;
            line("NVRTC", format!("{major}.{minor} in {}, for sm_{known:?}", nvrtc.path.display()));
        }
    }
    match cache::folder() {
        None => line("kernel cache", format!("none: set {}", cache::FOLDER_VARIABLE)),
        Some(folder) => {
            let (count, bytes) = cache::contents(&folder);
            line("kernel cache", format!("{count} kernels, {} KiB in {}", bytes >> 10, folder.display()));
            for (device, games) in choices::report(&folder) {
                line(&format!("fastest on {device}"), games);
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_the_reason_is_given() {
        if driver::driver().is_ok() {
            eprintln!("skipped: this machine has a CUDA driver");
            return;
        }
        let error = Cuda::new(0, &[]).err().unwrap();
        assert!(matches!(error, CuleError::CudaUnavailable { .. }));
        assert!(error.to_string().starts_with("no CUDA driver on this machine: "), "{error}");
        let lines = report(&[]);
        assert_eq!(lines[0].0, "CUDA driver");
        assert_eq!(lines[0].1, error.to_string());
    }

    #[test]
    fn warps_fit_into_the_shared_memory_of_every_family() {
        // KiB of 7.5, of 8.6, 8.9 and 12.0, of 8.0, and of 9.0 and 10.0.
        assert_eq!([64, 100, 164, 228].map(|kib| warps_per_unit(kib << 10)), [3, 5, 8, 8]);
        assert_eq!(warps_per_unit(0), 1);
    }

    #[test]
    fn the_search_for_the_compiler_says_what_it_tried() {
        let missing = PathBuf::from("/nowhere/lib");
        let all = nvrtc::candidates(&[missing]);
        if std::env::var_os(nvrtc::FILE_VARIABLE).is_none() {
            // Nothing in a folder that is not there; what the system finds comes last.
            assert_eq!(all.last().unwrap(), &PathBuf::from("libnvrtc.so"));
        }
    }
}
