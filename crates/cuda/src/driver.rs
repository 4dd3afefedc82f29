//! The CUDA driver, loaded on first use: the few functions that are needed here.
//!
//! Source: the CUDA Driver API reference (names, arguments, error numbers).

#![allow(unsafe_code, reason = "functions of a library that is loaded at run time")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUdevice_attribute, CUfunction_attribute, CUresult};
use libloading::Library;

use crate::CudaError;

/// File names of the driver.
const NAMES: [&str; 2] = if cfg!(windows) { ["nvcuda.dll"; 2] } else { ["libcuda.so.1", "libcuda.so"] };
/// Attributes of a device.
const MAJOR: CUdevice_attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
const MINOR: CUdevice_attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
const MULTIPROCESSORS: CUdevice_attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
const SHARED_BYTES: CUdevice_attribute =
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR;
const THREADS: CUdevice_attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR;
/// Attribute of a function: bytes of its stack for each thread.
const STACK_BYTES: CUfunction_attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;

/// The driver's functions that are called here. cudarc looks a function up on its first call and panics if it is missing, so
/// all of them are looked up when the driver is loaded.
const FUNCTIONS: [&str; 25] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemsetD8Async",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamSynchronize",
    "cuCtxSynchronize",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncGetAttribute",
    "cuLaunchKernel",
    "cuGetErrorName",
];

/// The driver.
pub struct Driver {
    /// Keeps the library loaded: cudarc opens it by name and must get this one.
    _library: Library,
}

fn unavailable(reason: String) -> CudaError {
    CudaError::Unavailable { reason }
}

/// Returns the driver, which is loaded and initialized once per process.
///
/// # Errors
/// [`CudaError::Unavailable`]: the driver is missing or does not start.
pub fn driver() -> Result<&'static Driver, CudaError> {
    static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
    DRIVER.get_or_init(Driver::load).as_ref().map_err(|reason| unavailable(reason.clone()))
}

/// Properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Its name.
    pub name: String,
    /// Compute capability times ten: 90 for 9.0.
    pub architecture: u32,
    /// Number of multiprocessors.
    pub units: u32,
    /// Shared memory of a multiprocessor, in bytes.
    pub shared_bytes: u32,
    /// Threads that can be resident on a multiprocessor.
    pub threads: u32,
    /// Memory of the device, in bytes.
    pub total_bytes: usize,
}

impl Driver {
    fn load() -> Result<Self, String> {
        let mut reasons = vec![];
        for name in NAMES {
            // SAFETY: loading the driver runs its own initialization, as in every CUDA program.
            match unsafe { Library::new(name) } {
                Ok(library) => {
                    // cudarc tries more file names than these and panics if none exists.
                    // SAFETY: loads the same library once more.
                    let found = unsafe { sys::culib() };
                    for function in FUNCTIONS {
                        // SAFETY: only the address is read.
                        unsafe { found.get::<*const c_void>(function.as_bytes()) }.map_err(|error| {
                            format!("the CUDA driver ({name}) is too old: {}", super::message(&error))
                        })?;
                    }
                    let driver = Self { _library: library };
                    // SAFETY: no argument is a pointer.
                    let status = unsafe { sys::cuInit(0) };
                    if status != CUresult::CUDA_SUCCESS {
                        let error = driver.error_name(status);
                        return Err(format!("the CUDA driver ({name}) does not start: {error}"));
                    }
                    return Ok(driver);
                }
                Err(error) => reasons.push(super::message(&error)),
            }
        }
        Err(format!("no CUDA driver on this machine: {}", reasons.join("; ")))
    }

    fn error_name(&self, status: CUresult) -> String {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the driver writes the address of a static string, or leaves null.
        unsafe { sys::cuGetErrorName(status, &raw mut text) };
        if text.is_null() {
            return format!("error {}", status as u32);
        }
        // SAFETY: the string is zero-terminated and lives as long as the driver.
        let name = unsafe { CStr::from_ptr(text) };
        format!("{} ({})", name.to_string_lossy(), status as u32)
    }

    fn check(&self, what: &str, status: CUresult) -> Result<(), CudaError> {
        if status == CUresult::CUDA_SUCCESS {
            return Ok(());
        }
        Err(CudaError::Failed { reason: format!("{what} failed: {}", self.error_name(status)) })
    }

    /// Version of the driver's API: 13020 for 13.2.
    ///
    /// # Errors
    /// The driver's error.
    pub fn version(&self) -> Result<u32, CudaError> {
        let mut version = 0;
        // SAFETY: the driver writes one number.
        self.check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut version) })?;
        Ok(version as u32)
    }

    /// The devices that this process may use.
    ///
    /// # Errors
    /// The driver's error.
    pub fn devices(&self) -> Result<Vec<DeviceFacts>, CudaError> {
        let mut count = 0;
        // SAFETY: the driver writes one number.
        self.check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
        (0..count).map(|ordinal| self.facts(ordinal)).collect()
    }

    fn handle(&self, ordinal: c_int) -> Result<c_int, CudaError> {
        let mut device = 0;
        // SAFETY: the driver writes one number.
        self.check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, ordinal) })?;
        Ok(device)
    }

    fn facts(&self, ordinal: c_int) -> Result<DeviceFacts, CudaError> {
        const NAME_BYTES: usize = 256;
        let device = self.handle(ordinal)?;
        let mut name = [0u8; NAME_BYTES];
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: the driver writes one number.
            let status = unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, device) };
            self.check("cuDeviceGetAttribute", status).map(|()| value as u32)
        };
        let mut total = 0;
        // SAFETY: the driver writes at most `NAME_BYTES` bytes, with the final zero, and one number.
        unsafe {
            self.check(
                "cuDeviceGetName",
                sys::cuDeviceGetName(name.as_mut_ptr().cast(), NAME_BYTES as c_int, device),
            )?;
            self.check("cuDeviceTotalMem", sys::cuDeviceTotalMem_v2(&raw mut total, device))?;
        }
        let text = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(DeviceFacts {
            name: text.to_string_lossy().into_owned(),
            architecture: 10 * attribute(MAJOR)? + attribute(MINOR)?,
            units: attribute(MULTIPROCESSORS)?,
            shared_bytes: attribute(SHARED_BYTES)?,
            threads: attribute(THREADS)?,
            total_bytes: total,
        })
    }
}

/// The primary context of a device, which torch also uses.
pub struct Context {
    driver: &'static Driver,
    /// Number of the device.
    pub ordinal: u32,
    device: c_int,
    context: sys::CUcontext,
}

// SAFETY: a context may be used from every thread; each call makes it current on its own thread first.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Makes the context current on this thread until it is dropped.
struct Current<'a>(PhantomData<&'a Context>);

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut old = std::ptr::null_mut();
        // SAFETY: the driver writes one address.
        unsafe { sys::cuCtxPopCurrent_v2(&raw mut old) };
    }
}

impl Context {
    /// Retains the primary context of device number `ordinal`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn new(driver: &'static Driver, ordinal: u32) -> Result<Self, CudaError> {
        let device = driver.handle(ordinal as c_int)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the driver writes one address.
        let status = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) };
        driver.check("cuDevicePrimaryCtxRetain", status)?;
        Ok(Self { driver, ordinal, device, context })
    }

    fn enter(&self) -> Result<Current<'_>, CudaError> {
        // SAFETY: the context is retained while `self` lives.
        self.driver.check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(self.context) })?;
        Ok(Current(PhantomData))
    }

    /// Allocates `bytes` bytes of zeros; returns their address.
    ///
    /// # Errors
    /// [`CudaError::Unavailable`] with the requested and the free bytes; or the driver's error.
    pub fn allocate(&self, bytes: usize) -> Result<u64, CudaError> {
        let _current = self.enter()?;
        let mut address = 0;
        // SAFETY: the driver writes one address.
        let status = unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) };
        if status == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(self.out_of_memory(&format!("{bytes} bytes were asked for")));
        }
        self.driver.check("cuMemAlloc", status)?;
        // SAFETY: the memory was allocated above.
        let status = unsafe { sys::cuMemsetD8Async(address, 0, bytes, std::ptr::null_mut()) };
        self.driver.check("cuMemsetD8Async", status)?;
        // torch's streams do not wait for the default stream: the zeros must be written before the caller writes.
        // SAFETY: the default stream of the current context.
        let status = unsafe { sys::cuStreamSynchronize(std::ptr::null_mut()) };
        self.driver.check("cuStreamSynchronize", status)?;
        Ok(address)
    }

    /// The error of a call that needs more memory than is free. The context is current.
    fn out_of_memory(&self, needed: &str) -> CudaError {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the driver writes two numbers.
        unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        let ordinal = self.ordinal;
        unavailable(format!("out of memory on CUDA device {ordinal}: {needed}, {free} of {total} are free"))
    }

    /// Frees memory after all work on it.
    pub fn free(&self, address: u64) {
        if let Ok(_current) = self.enter() {
            // SAFETY: the owner of the memory drops it; the driver waits for what still uses it.
            unsafe { sys::cuMemFree_v2(address) };
        }
    }

    /// Copies to the device, in stream order.
    ///
    /// # Errors
    /// The driver's error.
    pub fn write(&self, address: u64, bytes: &[u8], stream: u64) -> Result<(), CudaError> {
        let _current = self.enter()?;
        // SAFETY: the caller owns that many bytes at `address`; pageable memory is read before the call returns.
        let status = unsafe {
            sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), stream as sys::CUstream)
        };
        self.driver.check("cuMemcpyHtoDAsync", status)
    }

    /// Copies from the device and waits for the copy.
    ///
    /// # Errors
    /// The driver's error.
    pub fn read(&self, address: u64, bytes: &mut [u8], stream: u64) -> Result<(), CudaError> {
        let _current = self.enter()?;
        // SAFETY: the caller owns that many bytes at `address`; `bytes` is valid until the stream is synchronized.
        unsafe {
            let status = sys::cuMemcpyDtoHAsync_v2(
                bytes.as_mut_ptr().cast(),
                address,
                bytes.len(),
                stream as sys::CUstream,
            );
            self.driver.check("cuMemcpyDtoHAsync", status)?;
            self.driver.check("cuStreamSynchronize", sys::cuStreamSynchronize(stream as sys::CUstream))
        }
    }

    /// Loads machine code or PTX.
    ///
    /// # Errors
    /// The driver's error: the code is for another device, or the PTX is newer than the driver.
    pub fn load(&self, image: &[u8]) -> Result<Module<'_>, CudaError> {
        let _current = self.enter()?;
        let mut text = image.to_vec();
        text.push(0);
        let mut module = std::ptr::null_mut();
        // SAFETY: the image ends with a zero, which PTX needs and machine code allows; the driver copies it.
        let status = unsafe { sys::cuModuleLoadData(&raw mut module, text.as_ptr().cast()) };
        self.driver.check("cuModuleLoadData", status)?;
        Ok(Module { context: self, module })
    }

    /// Unloads modules that [`Module::keep`] returned, after all work of the device.
    pub fn unload(&self, modules: &[u64]) {
        let Ok(_current) = self.enter() else { return };
        // Work that waits on a stream may need the code. An error is that of an earlier launch, which has been reported or has
        // no caller left.
        // SAFETY: no arguments.
        unsafe { sys::cuCtxSynchronize() };
        for &module in modules {
            // SAFETY: the owner drops it and launches nothing from it afterwards.
            unsafe { sys::cuModuleUnload(module as sys::CUmodule) };
        }
    }

    /// Launches a function of a module; `arguments` are the addresses of its arguments.
    ///
    /// # Errors
    /// [`CudaError::Unavailable`]: the device has no memory for the stacks; or the driver's error.
    pub fn launch(
        &self,
        function: &Function,
        blocks: u32,
        threads: u32,
        arguments: &mut [*mut c_void],
        stream: u64,
    ) -> Result<(), CudaError> {
        let _current = self.enter()?;
        // SAFETY: the arguments have the types of the kernel's parameters (the caller's duty), and the driver copies them.
        let status = unsafe {
            sys::cuLaunchKernel(
                function.address as sys::CUfunction,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream as sys::CUstream,
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        if status == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let Function { name, stack_bytes, .. } = function;
            return Err(self.out_of_memory(&format!(
                "the first launch of {name} reserves a stack of {stack_bytes} bytes for every thread that the device can run"
            )));
        }
        self.driver.check("cuLaunchKernel", status)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained in `new`.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// A kernel of a loaded module.
pub struct Function {
    /// Its name.
    pub name: &'static str,
    address: u64,
    /// Bytes of its stack (local memory) for each thread.
    pub stack_bytes: usize,
}

/// A loaded module.
pub struct Module<'a> {
    context: &'a Context,
    module: sys::CUmodule,
}

impl Module<'_> {
    /// The function named `name`.
    ///
    /// # Errors
    /// The module has no such function.
    pub fn function(&self, name: &'static str) -> Result<Function, CudaError> {
        let _current = self.context.enter()?;
        let text = std::ffi::CString::new(name).map_err(|_| CudaError::Failed {
            reason: format!("{name:?} is not a kernel name: it holds a zero byte"),
        })?;
        let mut function = std::ptr::null_mut();
        let driver = self.context.driver;
        // SAFETY: the module is loaded; the driver writes one address.
        let status = unsafe { sys::cuModuleGetFunction(&raw mut function, self.module, text.as_ptr()) };
        driver.check(&format!("cuModuleGetFunction({name})"), status)?;
        let mut stack_bytes = 0;
        // SAFETY: the driver writes one number.
        let status = unsafe { sys::cuFuncGetAttribute(&raw mut stack_bytes, STACK_BYTES, function) };
        driver.check(&format!("cuFuncGetAttribute({name})"), status)?;
        Ok(Function { name, address: function as u64, stack_bytes: stack_bytes as usize })
    }

    /// Keeps the module loaded until [`Context::unload`].
    pub fn keep(self) -> u64 {
        self.module as u64
    }
}
