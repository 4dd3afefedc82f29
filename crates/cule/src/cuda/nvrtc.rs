//! NVRTC, the compiler of kernels: found in torch's or pip's folders, or the toolkit's, by a search that says what it
//! tried.
//!
//! Source: the NVRTC reference (names, arguments).

#![allow(unsafe_code, reason = "functions of a library that is only there at run time")]

use std::ffi::{CString, OsString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::CuleError;

/// Names it an exact file.
pub const FILE_VARIABLE: &str = "PARL_NVRTC";
/// Name the toolkit's folder.
const TOOLKIT_VARIABLES: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];
const TOOLKIT: &str = "/usr/local/cuda";
/// Left to the system's own search.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

type Program = *mut c_void;

/// The compiler.
pub struct Nvrtc {
    /// Never unloaded: it may have threads and exit handlers of its own.
    library: ManuallyDrop<Library>,
    /// Where it was found.
    pub path: PathBuf,
    /// Its version, major and minor.
    pub version: (u32, u32),
}

/// Kernels as a device takes them.
pub struct Compiled {
    /// Machine code, or PTX for a device newer than the compiler.
    pub image: Vec<u8>,
    /// What the compiler said.
    pub log: String,
}

/// Files to try, in order: what `PARL_NVRTC` names and nothing else; or `folders`, the toolkit's, the system's.
pub fn candidates(folders: &[PathBuf]) -> Vec<PathBuf> {
    if let Some(file) = std::env::var_os(FILE_VARIABLE).filter(|file| !file.is_empty()) {
        return vec![file.into()];
    }
    let toolkits = TOOLKIT_VARIABLES.iter().filter_map(std::env::var_os).chain([OsString::from(TOOLKIT)]);
    let toolkits =
        toolkits.filter(|folder| !folder.is_empty()).map(|folder| Path::new(&folder).join("lib64"));
    let mut found: Vec<PathBuf> =
        folders.iter().cloned().chain(toolkits).flat_map(|f| libraries(&f)).collect();
    found.extend(NAMES.iter().map(PathBuf::from));
    found
}

/// The compilers in a folder, newest first; those with `alt` in their names are built differently.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libnvrtc")
                && !name.contains("builtins")
                && !name.contains("alt")
                && name.contains(".so")
        })
        .collect();
    files.sort();
    files.reverse();
    files
}

impl Nvrtc {
    /// The first that loads.
    ///
    /// # Errors
    /// [`CuleError::CudaUnavailable`] with everything that was tried.
    pub fn find(folders: &[PathBuf]) -> Result<Self, CuleError> {
        let mut tried = vec![];
        for path in candidates(folders) {
            match Self::open(&path) {
                Ok(found) => return Ok(found),
                Err(error) => tried.push(format!("{}: {}", path.display(), super::said(&error))),
            }
        }
        Err(CuleError::CudaUnavailable {
            reason: format!(
                "no NVRTC, the compiler of CUDA kernels: run `pip install nvidia-cuda-nvrtc` or set {FILE_VARIABLE} \
                 to its file; tried {}",
                tried.join("; ")
            ),
        })
    }

    fn open(path: &Path) -> Result<Self, libloading::Error> {
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

    fn call<T>(&self, name: &str) -> Result<libloading::Symbol<'_, T>, CuleError> {
        // SAFETY: each caller names the type that the reference gives.
        unsafe { self.library.get(name.as_bytes()) }.map_err(|error| CuleError::CudaUnavailable {
            reason: format!("{} is too old: {}", self.path.display(), super::said(&error)),
        })
    }

    /// Architectures that it makes code for: 75, 80, 90 and so on, ascending.
    ///
    /// # Errors
    /// [`CuleError::CudaUnavailable`]: it is older than CUDA 11.2.
    pub fn architectures(&self) -> Result<Vec<u32>, CuleError> {
        type Get = unsafe extern "C" fn(*mut c_int) -> c_int;
        let mut count = 0;
        let number = self.call::<Get>("nvrtcGetNumSupportedArchs")?;
        let all = self.call::<Get>("nvrtcGetSupportedArchs")?;
        // SAFETY: the first writes one number, the second as many as that one says.
        let mut values = unsafe {
            number(&raw mut count);
            let mut values = vec![0; count as usize];
            all(values.as_mut_ptr());
            values
        };
        values.sort_unstable();
        Ok(values.into_iter().map(|value| value as u32).collect())
    }

    /// What to compile for, of a device of this architecture: `sm_90`, or `compute_` of the newest one known.
    ///
    /// # Errors
    /// [`CuleError::CudaUnavailable`]: the device is older than everything this compiler knows.
    pub fn target(&self, architecture: u32) -> Result<String, CuleError> {
        let known = self.architectures()?;
        if known.contains(&architecture) {
            return Ok(format!("sm_{architecture}"));
        }
        match known.iter().rev().find(|&&other| other < architecture) {
            Some(older) => Ok(format!("compute_{older}")),
            None => Err(CuleError::CudaUnavailable {
                reason: format!(
                    "the device has compute capability {}.{}, and NVRTC {}.{} begins at {:?}: too old",
                    architecture / 10,
                    architecture % 10,
                    self.version.0,
                    self.version.1,
                    known.first()
                ),
            }),
        }
    }

    /// Compiles `source` with its headers, each with its name, for a target as [`Nvrtc::target`] gives it.
    ///
    /// # Errors
    /// [`CuleError::Cuda`] with the compiler's log.
    pub fn compile(
        &self,
        source: (&str, &str),
        headers: &[(&str, &str)],
        options: &[String],
        machine_code: bool,
    ) -> Result<Compiled, CuleError> {
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
            CString::new(text).map_err(|_| CuleError::Cuda { reason: "a kernel holds a zero byte".into() })
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
        // SAFETY: all texts end with zeros and live until the end of this function.
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
            return Err(CuleError::Cuda { reason: format!("NVRTC takes no program: error {status}") });
        }
        // SAFETY: the program was made above.
        let status = unsafe { compile(program, options.len() as c_int, pointers(&options).as_ptr()) };
        let log = self.output(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog");
        let image = if machine_code {
            self.output(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
        } else {
            self.output(program, "nvrtcGetPTXSize", "nvrtcGetPTX")
        };
        // SAFETY: as above; it is not used again.
        unsafe { destroy(&raw mut program) };
        let log = String::from_utf8_lossy(&log?).trim_end_matches(['\0', '\n']).to_string();
        if status != 0 {
            return Err(CuleError::Cuda { reason: format!("NVRTC refuses {}: {log}", source.0) });
        }
        Ok(Compiled { image: image?, log })
    }

    fn output(&self, program: Program, size_of: &str, get: &str) -> Result<Vec<u8>, CuleError> {
        type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
        type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
        let (size_of, get) = (self.call::<Size>(size_of)?, self.call::<Get>(get)?);
        let mut size = 0;
        // SAFETY: the first writes one number, the second as many bytes as that one says.
        unsafe {
            size_of(program, &raw mut size);
            let mut bytes = vec![0u8; size];
            get(program, bytes.as_mut_ptr().cast());
            Ok(bytes)
        }
    }
}
