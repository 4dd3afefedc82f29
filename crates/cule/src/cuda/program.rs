//! Kernels on a device, whatever they compute: compiled or taken from the disk, loaded, started by name.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;

use super::cache::Kind;
use super::driver::{self, Context, DeviceFacts, Driver};
use super::nvrtc::Nvrtc;
use super::{OLDEST_DEVICE, OLDEST_DRIVER, cache};
use crate::CuleError;

/// Sources of kernels: files that are compiled each by itself, the headers they include, and which kernel is where.
#[derive(Clone, Copy, Debug)]
pub struct Sources {
    /// Names and texts.
    pub files: &'static [(&'static str, &'static str)],
    /// Names and texts.
    pub headers: &'static [(&'static str, &'static str)],
    /// Names of kernels, with the file each is in.
    pub kernels: &'static [(&'static str, &'static str)],
}

/// One compiled file.
pub struct Image {
    /// The source's name.
    pub file: &'static str,
    /// Machine code or PTX.
    pub image: Vec<u8>,
    /// It was on the disk.
    pub from_cache: bool,
}

impl Sources {
    /// The kernels of some files, of all where none is named, for a target such as `sm_90` or `compute_120`: from the
    /// cache or compiled now. `driver` is its version.
    ///
    /// # Errors
    /// [`CuleError::Cuda`] with the compiler's log.
    pub fn compile(
        &self,
        nvrtc: &Nvrtc,
        target: &str,
        driver: u32,
        files: &[String],
    ) -> Result<Vec<Image>, CuleError> {
        let options = ["--std=c++17".to_string(), format!("--gpu-architecture={target}")];
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
            if let Some(image) = folder.as_ref().and_then(|folder| cache::load(folder, &key, Kind::Kernel)) {
                return Ok(Image { file, image, from_cache: true });
            }
            let compiled = nvrtc.compile((file, text), self.headers, &options, target.starts_with("sm_"))?;
            if let Some(folder) = &folder {
                // A cache that cannot be written to costs time, nothing else.
                let _ = cache::store(folder, &key, Kind::Kernel, &compiled.image);
            }
            Ok(Image { file, image: compiled.image, from_cache: false })
        };
        // All at once: each takes its thread.
        std::thread::scope(|scope| {
            let threads: Vec<_> = chosen.map(|file| scope.spawn(|| make(file))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(fell()))).collect()
        })
    }
}

/// A compiler's thread did not come back.
pub(super) fn fell() -> CuleError {
    CuleError::Cuda { reason: "the compiler of kernels fell over".into() }
}

/// The driver and device number `ordinal`, if both are new enough.
pub(super) fn device(ordinal: u32) -> Result<(&'static Driver, DeviceFacts), CuleError> {
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

/// Memory of a device, freed when dropped.
pub struct Memory {
    context: Arc<Context>,
    address: u64,
    bytes: usize,
}

impl Memory {
    /// Where it begins, as kernels see it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Copies to it, behind what was given to `stream` before.
    ///
    /// # Errors
    /// [`CuleError::BufferLength`]: it is too small; what the driver says.
    pub fn write(&self, bytes: &[u8], stream: u64) -> Result<(), CuleError> {
        self.holds(bytes.len())?;
        self.context.write(self.address, bytes, stream)
    }

    /// Copies from it, and waits.
    ///
    /// # Errors
    /// As [`Memory::write`]; and what kernels did wrong before.
    pub fn read(&self, bytes: &mut [u8], stream: u64) -> Result<(), CuleError> {
        self.holds(bytes.len())?;
        self.context.read(self.address, bytes, stream)
    }

    fn holds(&self, bytes: usize) -> Result<(), CuleError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        Err(CuleError::BufferLength { what: "memory on the device", expected: self.bytes, found: bytes })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.context.free(self.address);
    }
}

/// A device with kernels loaded.
pub struct Program {
    pub(super) context: Arc<Context>,
    modules: Vec<u64>,
    functions: Vec<(&'static str, u64)>,
    /// The device.
    pub facts: DeviceFacts,
    /// Version of the driver.
    pub driver: u32,
    /// Every kernel came from the disk.
    pub from_cache: bool,
}

impl Program {
    /// Kernels on device number `ordinal`. `folders` are looked through for NVRTC first.
    ///
    /// # Errors
    /// [`CuleError::CudaUnavailable`]: no driver, no such device, too old a driver or device, no NVRTC; or what the
    /// driver or the compiler says.
    pub fn new(ordinal: u32, folders: &[PathBuf], sources: &Sources) -> Result<Self, CuleError> {
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
                program.functions.push((kernel, module.function(kernel)?));
            }
            let module = module.keep();
            program.modules.push(module);
            program.from_cache &= image.from_cache;
        }
        Ok(program)
    }

    /// `bytes` bytes of zeros.
    ///
    /// # Errors
    /// As [`Context::allocate`].
    pub fn allocate(&self, bytes: usize) -> Result<Memory, CuleError> {
        Ok(Memory { context: self.context.clone(), address: self.context.allocate(bytes)?, bytes })
    }

    /// Starts a kernel on a stream; the arguments are copied.
    ///
    /// # Errors
    /// There is no kernel of this name; what the driver says.
    pub fn launch(
        &self,
        kernel: &str,
        (blocks, threads): (u32, u32),
        arguments: &mut [*mut c_void],
        stream: u64,
    ) -> Result<(), CuleError> {
        let Some(&(_, function)) = self.functions.iter().find(|(name, _)| *name == kernel) else {
            return Err(CuleError::Cuda { reason: format!("no kernel {kernel}") });
        };
        self.context.launch(function, blocks, threads, arguments, stream)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        for &module in &self.modules {
            self.context.unload(module);
        }
    }
}
