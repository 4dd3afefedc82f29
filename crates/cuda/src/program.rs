//! A set of kernels on a device: compiled or loaded from the cache, and launched by name.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;

use super::driver::{self, Context, DeviceFacts, Driver, Function};
use super::nvrtc::Nvrtc;
use super::{OLDEST_DEVICE, OLDEST_DRIVER, cache};
use crate::CudaError;

/// Environment variable with additional options of the compiler, for measurements.
const OPTIONS_VARIABLE: &str = "PARL_NVRTC_OPTIONS";

/// Sources of kernels: files that are compiled separately, the headers they include, and the kernels of each file.
#[derive(Clone, Copy, Debug)]
pub struct Sources {
    /// Names and texts of the files.
    pub files: &'static [(&'static str, &'static str)],
    /// Names and texts of the headers.
    pub headers: &'static [(&'static str, &'static str)],
    /// Names of the kernels, with the file of each.
    pub kernels: &'static [(&'static str, &'static str)],
}

/// One compiled file.
pub struct Image {
    /// Name of the source.
    pub file: &'static str,
    /// Machine code or PTX.
    pub image: Vec<u8>,
    /// Whether it came from the cache.
    pub from_cache: bool,
}

impl Sources {
    /// Compiles `files`, or all files if the list is empty, for a target such as `sm_90` or `compute_120`, or loads them from
    /// the cache. `driver` is the version of the driver.
    ///
    /// # Errors
    /// [`CudaError::Failed`] with the compiler's log.
    pub fn compile(
        &self,
        nvrtc: &Nvrtc,
        target: &str,
        driver: u32,
        files: &[String],
    ) -> Result<Vec<Image>, CudaError> {
        let mut options = vec!["--std=c++17".to_string(), format!("--gpu-architecture={target}")];
        let more = std::env::var(OPTIONS_VARIABLE).unwrap_or_default();
        options.extend(more.split_whitespace().map(String::from));
        let folder = cache::folder();
        let chosen =
            self.files.iter().filter(|(file, _)| files.is_empty() || files.iter().any(|name| name == file));
        let make = |&(file, text): &(&'static str, &'static str)| {
            let mut parts: Vec<&[u8]> = vec![file.as_bytes(), text.as_bytes()];
            parts.extend(self.headers.iter().map(|header| header.1.as_bytes()));
            parts.extend(options.iter().map(|option| option.as_bytes()));
            let versions = format!("{driver} {}.{}", nvrtc.version.0, nvrtc.version.1);
            parts.push(versions.as_bytes());
            let key = cache::key(&parts);
            if let Some(image) = folder.as_ref().and_then(|folder| cache::load(folder, &key, cache::KERNEL)) {
                return Ok(Image { file, image, from_cache: true });
            }
            let compiled = nvrtc.compile((file, text), self.headers, &options, target.starts_with("sm_"))?;
            if let Some(folder) = &folder {
                // Without a writable cache the kernels are compiled again next time.
                let _ = cache::store(folder, &key, cache::KERNEL, &compiled.image);
            }
            Ok(Image { file, image: compiled.image, from_cache: false })
        };
        // One thread per file.
        std::thread::scope(|scope| {
            let threads: Vec<_> = chosen.map(|file| scope.spawn(|| make(file))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
        })
    }
}

/// The error of a compiler thread that panicked.
fn panicked() -> CudaError {
    CudaError::Failed { reason: "the thread that compiles kernels panicked".into() }
}

/// The driver and the properties of device number `ordinal`, if both are new enough.
fn device(ordinal: u32) -> Result<(&'static Driver, DeviceFacts), CudaError> {
    let unavailable = |reason: String| Err(CudaError::Unavailable { reason });
    let driver = driver::driver()?;
    let version = driver.version()?;
    let shown = |version: u32| format!("{}.{}", version / 1000, version % 1000 / 10);
    if version < OLDEST_DRIVER {
        let (found, oldest) = (shown(version), shown(OLDEST_DRIVER));
        return unavailable(format!(
            "the driver is too old: it supports CUDA {found}, expected {oldest} or newer"
        ));
    }
    let devices = driver.devices()?;
    let count = devices.len();
    let Some(facts) = devices.into_iter().nth(ordinal as usize) else {
        return unavailable(format!("there is no CUDA device {ordinal}: the driver shows {count}"));
    };
    if facts.architecture < OLDEST_DEVICE {
        let (major, minor) = (facts.architecture / 10, facts.architecture % 10);
        let name = &facts.name;
        return unavailable(format!(
            "{name} is too old: compute capability {major}.{minor}, expected 7.5 or newer"
        ));
    }
    Ok((driver, facts))
}

/// Compiles all files of `sources` for device number `ordinal` into the cache, without loading them. Returns the target and the
/// files in the order of their sources. `folders` are searched for NVRTC first.
///
/// # Errors
/// As [`Program::new`].
pub fn prepare(
    ordinal: u32,
    folders: &[PathBuf],
    sources: &[Sources],
) -> Result<(String, Vec<Image>), CudaError> {
    let (driver, facts) = device(ordinal)?;
    let nvrtc = Nvrtc::find(folders)?;
    let target = nvrtc.target(facts.architecture)?;
    let version = driver.version()?;
    let images = std::thread::scope(|scope| {
        let threads: Vec<_> =
            sources.iter().map(|one| scope.spawn(|| one.compile(&nvrtc, &target, version, &[]))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
            .collect::<Result<Vec<_>, _>>()
    })?;
    Ok((target, images.into_iter().flatten().collect()))
}

/// Memory of a device, freed when dropped.
pub struct Memory {
    context: Arc<Context>,
    address: u64,
    bytes: usize,
}

impl Memory {
    /// Address of the first byte, for kernels.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Copies `bytes` to the memory, in the order of `stream`.
    ///
    /// # Errors
    /// [`CudaError::Length`]: `bytes` is longer than the memory; or the driver's error.
    pub fn write(&self, bytes: &[u8], stream: u64) -> Result<(), CudaError> {
        self.check(bytes.len())?;
        self.context.write(self.address, bytes, stream)
    }

    /// Copies from the memory to `bytes` and waits for the copy.
    ///
    /// # Errors
    /// As [`Memory::write`], and errors of kernels that ran before.
    pub fn read(&self, bytes: &mut [u8], stream: u64) -> Result<(), CudaError> {
        self.check(bytes.len())?;
        self.context.read(self.address, bytes, stream)
    }

    fn check(&self, bytes: usize) -> Result<(), CudaError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        Err(CudaError::Length { bytes, capacity: self.bytes })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.context.free(self.address);
    }
}

/// A device with kernels loaded.
pub struct Program {
    context: Arc<Context>,
    modules: Vec<u64>,
    functions: Vec<Function>,
    /// Properties of the device.
    pub facts: DeviceFacts,
    /// Version of the driver.
    pub driver: u32,
    /// Whether all kernels came from the cache.
    pub from_cache: bool,
}

impl Program {
    /// Loads kernels on device number `ordinal`. `folders` are searched for NVRTC first.
    ///
    /// # Errors
    /// [`CudaError::Unavailable`]: no driver, no such device, a driver or device that is too old, no NVRTC; or the error of
    /// the driver or the compiler.
    pub fn new(ordinal: u32, folders: &[PathBuf], sources: &Sources) -> Result<Self, CudaError> {
        let (driver, facts) = device(ordinal)?;
        let nvrtc = Nvrtc::find(folders)?;
        let target = nvrtc.target(facts.architecture)?;
        let version = driver.version()?;
        let images = sources.compile(&nvrtc, &target, version, &[])?;
        let context = Arc::new(Context::new(driver, ordinal)?);
        let mut program =
            Self { context, modules: vec![], functions: vec![], facts, driver: version, from_cache: true };
        for image in images {
            let module = program.context.load(&image.image)?;
            for (kernel, _) in sources.kernels.iter().filter(|(_, file)| *file == image.file) {
                program.functions.push(module.function(kernel)?);
            }
            let module = module.keep();
            program.modules.push(module);
            program.from_cache &= image.from_cache;
        }
        Ok(program)
    }

    /// Allocates `bytes` bytes of zeros.
    ///
    /// # Errors
    /// As [`Context::allocate`].
    pub fn allocate(&self, bytes: usize) -> Result<Memory, CudaError> {
        Ok(Memory { context: self.context.clone(), address: self.context.allocate(bytes)?, bytes })
    }

    /// Bytes that the driver reserves for stacks at the first launches: the largest stack of a kernel, for every thread that can
    /// be resident on the device. Other programs of the device share it.
    pub fn stack_bytes(&self) -> usize {
        let largest = self.functions.iter().map(|function| function.stack_bytes).max().unwrap_or(0);
        (self.facts.units * self.facts.threads) as usize * largest
    }

    /// Launches a kernel on a stream; the arguments are copied.
    ///
    /// # Errors
    /// There is no kernel of this name; or as [`Context::launch`].
    pub fn launch(
        &self,
        kernel: &str,
        (blocks, threads): (u32, u32),
        arguments: &mut [*mut c_void],
        stream: u64,
    ) -> Result<(), CudaError> {
        let Some(function) = self.functions.iter().find(|function| function.name == kernel) else {
            return Err(CudaError::Failed { reason: format!("no kernel {kernel}") });
        };
        self.context.launch(function, blocks, threads, arguments, stream)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.context.unload(&self.modules);
    }
}
