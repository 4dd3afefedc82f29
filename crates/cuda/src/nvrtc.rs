//! NVRTC, the runtime compiler of CUDA: searched for in the folders of torch and pip, then of the CUDA toolkit. The error
//! lists every file that was tried.
//!
//! Source: the NVRTC reference (names, arguments).

#![allow(unsafe_code, reason = "functions of a library that is loaded at run time")]

use std::ffi::{CString, OsString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::CudaError;

/// Environment variable with the path of the library.
pub const FILE_VARIABLE: &str = "PARL_NVRTC";
/// Environment variables with the folder of the CUDA toolkit.
const TOOLKIT_VARIABLES: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];
const TOOLKIT: &str = "/usr/local/cuda";
/// Folders of a toolkit with its libraries.
const FOLDERS: &[&str] = if cfg!(windows) { &["bin/x64", "bin"] } else { &["lib64"] };
/// File names that the dynamic loader searches for.
const NAMES: &[&str] = if cfg!(windows) {
    &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"]
} else {
    &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
};
/// What the names of the compiler's file, and of that with its built-in functions, begin with, and what all of them contain.
const COMPILER: &str = if cfg!(windows) { "nvrtc64" } else { "libnvrtc" };
const BUILTINS: &str = if cfg!(windows) { "nvrtc-builtins" } else { "libnvrtc-builtins" };
const EXTENSION: &str = if cfg!(windows) { ".dll" } else { ".so" };

type Program = *mut c_void;

/// The compiler.
pub struct Nvrtc {
    /// Never unloaded: the library may have threads and exit handlers.
    library: ManuallyDrop<Library>,
    /// Path of the library.
    pub path: PathBuf,
    /// Its version, major and minor.
    pub version: (u32, u32),
}

/// The result of a compilation.
pub struct Compiled {
    /// Machine code, or PTX for a device newer than the compiler.
    pub image: Vec<u8>,
    /// The compiler's log.
    pub log: String,
}

/// Files to try, in order: only that of `PARL_NVRTC` if it is set; else those in `folders`, of the toolkit, of the system.
pub fn candidates(folders: &[PathBuf]) -> Vec<PathBuf> {
    if let Some(file) = std::env::var_os(FILE_VARIABLE).filter(|file| !file.is_empty()) {
        return vec![file.into()];
    }
    let toolkits = TOOLKIT_VARIABLES.iter().filter_map(std::env::var_os).chain([OsString::from(TOOLKIT)]);
    let toolkits = toolkits
        .filter(|folder| !folder.is_empty())
        .flat_map(|toolkit| FOLDERS.iter().map(move |folder| Path::new(&toolkit).join(folder)));
    let mut found: Vec<PathBuf> =
        folders.iter().cloned().chain(toolkits).flat_map(|f| libraries(&f)).collect();
    found.extend(NAMES.iter().map(PathBuf::from));
    found
}

/// The compilers in a folder, newest first.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let mut files = files_of(folder, |name| name.starts_with(COMPILER) && !name.contains("builtins"));
    files.sort();
    files.reverse();
    files
}

/// The shared libraries in a folder whose names `wanted` accepts, without the alternative builds (`alt` in their names).
fn files_of(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            wanted(&name) && !name.contains("alt") && name.contains(EXTENSION)
        })
        .collect()
}

/// Loads the compiler's built-in functions from its folder, for the rest of the process.
///
/// NVRTC loads them by their name alone when it compiles; version 13.0 does not find them if it was opened by its path, and the
/// dynamic loader does not search that folder.
fn load_builtins(compiler: &Path) {
    let folder = compiler.parent().filter(|folder| !folder.as_os_str().is_empty());
    for path in folder.map_or(vec![], |folder| files_of(folder, |name| name.starts_with(BUILTINS))) {
        // SAFETY: loading the library runs its own initialization. If it fails, NVRTC says so when it compiles.
        if let Ok(builtins) = unsafe { Library::new(path) } {
            std::mem::forget(builtins);
        }
    }
}

impl Nvrtc {
    /// Loads the first candidate that can be loaded.
    ///
    /// # Errors
    /// [`CudaError::Unavailable`] with every file that was tried.
    pub fn find(folders: &[PathBuf]) -> Result<Self, CudaError> {
        let mut tried = vec![];
        for path in candidates(folders) {
            match Self::open(&path) {
                Ok(found) => return Ok(found),
                Err(error) => tried.push(format!("{}: {}", path.display(), super::message(&error))),
            }
        }
        Err(CudaError::Unavailable {
            reason: format!(
                "no NVRTC, the compiler of CUDA kernels: run `pip install nvidia-cuda-nvrtc` or set {FILE_VARIABLE} \
                 to its file; tried {}",
                tried.join("; ")
            ),
        })
    }

    fn open(path: &Path) -> Result<Self, libloading::Error> {
        load_builtins(path);
        // SAFETY: loading the compiler runs its own initialization.
        let library = unsafe { Library::new(path) }?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the function has this type and writes two numbers.
        unsafe {
            let version =
                library.get::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(b"nvrtcVersion")?;
            version(&raw mut major, &raw mut minor);
        }
        Ok(Self {
            library: ManuallyDrop::new(library),
            path: path.into(),
            version: (major as u32, minor as u32),
        })
    }

    fn call<T>(&self, name: &str) -> Result<libloading::Symbol<'_, T>, CudaError> {
        // SAFETY: each caller names the type in the NVRTC reference.
        unsafe { self.library.get(name.as_bytes()) }.map_err(|error| CudaError::Unavailable {
            reason: format!("{} is too old: {}", self.path.display(), super::message(&error)),
        })
    }

    /// Architectures that the compiler supports: 75, 80, 90 and so on, ascending.
    ///
    /// # Errors
    /// [`CudaError::Unavailable`]: the library is older than CUDA 11.2.
    pub fn architectures(&self) -> Result<Vec<u32>, CudaError> {
        type Get = unsafe extern "C" fn(*mut c_int) -> c_int;
        let mut count = 0;
        let number = self.call::<Get>("nvrtcGetNumSupportedArchs")?;
        let all = self.call::<Get>("nvrtcGetSupportedArchs")?;
        // SAFETY: the first writes the count, the second that many numbers.
        let mut values = unsafe {
            number(&raw mut count);
            let mut values = vec![0; count as usize];
            all(values.as_mut_ptr());
            values
        };
        values.sort_unstable();
        Ok(values.into_iter().map(|value| value as u32).collect())
    }

    /// The target for a device of this architecture: `sm_90`, or `compute_` of the newest architecture known.
    ///
    /// # Errors
    /// [`CudaError::Unavailable`]: the device is older than all supported architectures.
    pub fn target(&self, architecture: u32) -> Result<String, CudaError> {
        let known = self.architectures()?;
        if known.contains(&architecture) {
            return Ok(format!("sm_{architecture}"));
        }
        match known.iter().rev().find(|&&other| other < architecture) {
            Some(older) => Ok(format!("compute_{older}")),
            None => Err(CudaError::Unavailable {
                reason: format!(
                    "the device has compute capability {}.{}, which is too old for NVRTC {}.{}: it begins at {:?}",
                    architecture / 10,
                    architecture % 10,
                    self.version.0,
                    self.version.1,
                    known.first()
                ),
            }),
        }
    }

    /// Compiles `source` with its headers, each a (name, text) pair. `machine_code`: returns a cubin, else PTX.
    ///
    /// # Errors
    /// [`CudaError::Failed`] with the compiler's log.
    pub fn compile(
        &self,
        source: (&str, &str),
        headers: &[(&str, &str)],
        options: &[String],
        machine_code: bool,
    ) -> Result<Compiled, CudaError> {
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
        type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;
        let text = |text: &str| {
            CString::new(text).map_err(|_| CudaError::Failed { reason: "a kernel holds a zero byte".into() })
        };
        let all = |texts: Vec<&str>| texts.into_iter().map(text).collect::<Result<Vec<CString>, _>>();
        let (name, main) = (text(source.0)?, text(source.1)?);
        let names = all(headers.iter().map(|header| header.0).collect())?;
        let texts = all(headers.iter().map(|header| header.1).collect())?;
        let options = all(options.iter().map(String::as_str).collect())?;
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let (create, compile) =
            (self.call::<Create>("nvrtcCreateProgram")?, self.call::<Compile>("nvrtcCompileProgram")?);
        let destroy = self.call::<Destroy>("nvrtcDestroyProgram")?;
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: all strings are zero-terminated and live until the end of this function.
        let status = unsafe {
            create(
                &raw mut program,
                main.as_ptr(),
                name.as_ptr(),
                headers.len() as c_int,
                pointers(&texts).as_ptr(),
                pointers(&names).as_ptr(),
            )
        };
        if status != 0 {
            return Err(CudaError::Failed {
                reason: format!("NVRTC cannot create a program: error {status}"),
            });
        }
        // SAFETY: the program was created above.
        let status = unsafe { compile(program, options.len() as c_int, pointers(&options).as_ptr()) };
        let log = self.output(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog");
        let image = if machine_code {
            self.output(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
        } else {
            self.output(program, "nvrtcGetPTXSize", "nvrtcGetPTX")
        };
        // SAFETY: as above; the program is not used again.
        unsafe { destroy(&raw mut program) };
        let log = String::from_utf8_lossy(&log?).trim_end_matches(['\0', '\n']).to_string();
        if status != 0 {
            return Err(CudaError::Failed { reason: format!("NVRTC cannot compile {}: {log}", source.0) });
        }
        Ok(Compiled { image: image?, log })
    }

    fn output(&self, program: Program, size_of: &str, get: &str) -> Result<Vec<u8>, CudaError> {
        type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
        type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
        let (size_of, get) = (self.call::<Size>(size_of)?, self.call::<Get>(get)?);
        let mut size = 0;
        // SAFETY: the first writes the size, the second that many bytes.
        unsafe {
            size_of(program, &raw mut size);
            let mut bytes = vec![0u8; size];
            get(program, bytes.as_mut_ptr().cast());
            Ok(bytes)
        }
    }
}
