//! CUDA devices: driver and compiler found at run time, kernels compiled once and kept on the disk.
//!
//! Host only. Nothing is linked: without a driver every call gives [`CuleError::CudaUnavailable`] with the reason, and
//! the process goes on.

#![allow(unsafe_code, reason = "the addresses of a launch's arguments")]

pub mod cache;
pub mod driver;
pub mod nvrtc;

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;

use crate::CuleError;
use crate::batch::gpu::{Call, Device, KERNELS, Plan, Shape};
use driver::Context;
use nvrtc::Nvrtc;

/// Source files that are compiled, and the headers they include.
const FILES: [(&str, &str); 3] = [
    ("step.cu", include_str!("../../kernels/step.cu")),
    ("reset.cu", include_str!("../../kernels/reset.cu")),
    ("observe.cu", include_str!("../../kernels/observe.cu")),
];
const HEADERS: [(&str, &str); 3] = [
    ("prelude.cuh", include_str!("../../kernels/prelude.cuh")),
    ("machine.cuh", include_str!("../../kernels/machine.cuh")),
    ("layout.cuh", include_str!("../../kernels/layout.cuh")),
];
/// The oldest driver that is looked at: CUDA 12.0.
const OLDEST_DRIVER: u32 = 12_000;
/// The oldest device: 7.5, Turing.
const OLDEST_DEVICE: u32 = 75;

/// One compiled file.
pub struct Image {
    /// The source's name.
    pub file: &'static str,
    /// Machine code or PTX.
    pub image: Vec<u8>,
    /// It was on the disk.
    pub from_cache: bool,
}

/// What the loader says of a library: the system's own words.
fn said(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// The kernels of some files, of all where none is named, for a target such as `sm_90` or `compute_120`: from the cache or
/// compiled now. `driver` is its version.
///
/// # Errors
/// [`CuleError::Cuda`] with the compiler's log.
pub fn compile(nvrtc: &Nvrtc, target: &str, driver: u32, files: &[String]) -> Result<Vec<Image>, CuleError> {
    let options = ["--std=c++17".to_string(), format!("--gpu-architecture={target}")];
    let folder = cache::folder();
    let chosen = FILES.iter().filter(|(file, _)| files.is_empty() || files.iter().any(|name| name == file));
    let make = |&(file, text): &(&'static str, &str)| {
        let mut parts: Vec<&[u8]> = vec![file.as_bytes(), text.as_bytes()];
        parts.extend(HEADERS.iter().map(|header| header.1.as_bytes()));
        parts.extend(options.iter().map(|option| option.as_bytes()));
        let versions = format!("{driver} {}.{}", nvrtc.version.0, nvrtc.version.1);
        parts.push(versions.as_bytes());
        let key = cache::key(&parts);
        if let Some(image) = folder.as_ref().and_then(|folder| cache::load(folder, &key)) {
            return Ok(Image { file, image, from_cache: true });
        }
        let compiled = nvrtc.compile((file, text), &HEADERS, &options, target.starts_with("sm_"))?;
        if let Some(folder) = &folder {
            // A cache that cannot be written to costs time, nothing else.
            let _ = cache::store(folder, &key, &compiled.image);
        }
        Ok(Image { file, image: compiled.image, from_cache: false })
    };
    // All at once: each takes its thread.
    std::thread::scope(|scope| {
        let threads: Vec<_> = chosen.map(|file| scope.spawn(|| make(file))).collect();
        let fell = || CuleError::Cuda { reason: "the compiler of kernels fell over".into() };
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(fell()))).collect()
    })
}

/// A device with the kernels loaded.
pub struct Cuda {
    context: Arc<Context>,
    modules: Vec<u64>,
    functions: Vec<(&'static str, u64)>,
    /// Every kernel came from the disk.
    pub from_cache: bool,
}

/// Memory of a device, freed when dropped.
pub struct Buffer {
    context: Arc<Context>,
    address: u64,
}

impl Cuda {
    /// Device number `ordinal`. `folders` are looked through for NVRTC first.
    ///
    /// # Errors
    /// [`CuleError::CudaUnavailable`]: no driver, no such device, too old a driver or device, no NVRTC; or what the
    /// driver or the compiler says.
    pub fn new(ordinal: u32, folders: &[PathBuf]) -> Result<Self, CuleError> {
        let unavailable = |reason: String| Err(CuleError::CudaUnavailable { reason });
        let driver = driver::driver()?;
        let version = driver.version()?;
        let shown = |version: u32| format!("{}.{}", version / 1000, version % 1000 / 10);
        if version < OLDEST_DRIVER {
            let (found, oldest) = (shown(version), shown(OLDEST_DRIVER));
            return unavailable(format!(
                "the driver is too old: it is of CUDA {found}, expected {oldest} or newer"
            ));
        }
        let devices = driver.devices()?;
        let Some(facts) = devices.get(ordinal as usize) else {
            return unavailable(format!(
                "there is no CUDA device {ordinal}: the driver shows {}",
                devices.len()
            ));
        };
        if facts.architecture < OLDEST_DEVICE {
            let (major, minor) = (facts.architecture / 10, facts.architecture % 10);
            let name = &facts.name;
            return unavailable(format!(
                "{name} is too old: compute capability {major}.{minor}, expected 7.5 or newer"
            ));
        }
        let nvrtc = Nvrtc::find(folders)?;
        let target = nvrtc.target(facts.architecture)?;
        let images = compile(&nvrtc, &target, version, &[])?;
        let context = Arc::new(Context::new(driver, ordinal)?);
        let mut cuda = Self { context, modules: vec![], functions: vec![], from_cache: true };
        for image in images {
            let module = cuda.context.load(&image.image)?;
            for (kernel, _) in KERNELS.iter().filter(|(_, file)| *file == image.file) {
                cuda.functions.push((kernel, module.function(kernel)?));
            }
            let module = module.keep();
            cuda.modules.push(module);
            cuda.from_cache &= image.from_cache;
        }
        Ok(cuda)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        for &module in &self.modules {
            self.context.unload(module);
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.context.free(self.address);
    }
}

impl Device for Cuda {
    type Memory = Buffer;

    fn allocate(&self, bytes: usize) -> Result<Buffer, CuleError> {
        Ok(Buffer { context: self.context.clone(), address: self.context.allocate(bytes)? })
    }

    fn address(&self, memory: &Buffer) -> u64 {
        memory.address
    }

    fn write(&self, memory: &mut Buffer, bytes: &[u8], stream: u64) -> Result<(), CuleError> {
        self.context.write(memory.address, bytes, stream)
    }

    fn read(&self, memory: &Buffer, bytes: &mut [u8], stream: u64) -> Result<(), CuleError> {
        self.context.read(memory.address, bytes, stream)
    }

    fn launch(
        &self,
        kernel: &str,
        shape: Shape,
        plan: &Plan,
        call: &Call,
        stream: u64,
    ) -> Result<(), CuleError> {
        let Some(&(_, function)) = self.functions.iter().find(|(name, _)| *name == kernel) else {
            return Err(CuleError::Cuda { reason: format!("no kernel {kernel}") });
        };
        let (mut plan, mut call) = (*plan, *call);
        let mut arguments = [(&raw mut plan).cast::<c_void>(), (&raw mut call).cast::<c_void>()];
        self.context.launch(function, shape.blocks, shape.threads, &mut arguments, stream)
    }
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
    fn the_search_for_the_compiler_says_what_it_tried() {
        let missing = PathBuf::from("/nowhere/lib");
        let all = nvrtc::candidates(&[missing]);
        if std::env::var_os(nvrtc::FILE_VARIABLE).is_none() {
            // Nothing in a folder that is not there; what the system finds comes last.
            assert_eq!(all.last().unwrap(), &PathBuf::from("libnvrtc.so"));
        }
    }
}
