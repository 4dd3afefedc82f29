//! CUDA devices, found at run time: driver, NVRTC, a cache of compiled kernels, memory and launches.
//!
//! Host code only. Nothing is linked: without a driver every call returns [`CudaError::Unavailable`] with the reason. The
//! kernels belong to the crates that use this one; [`Sources`] names them.

pub mod cache;
pub mod driver;
mod error;
pub mod nvrtc;
mod program;

use std::path::PathBuf;

pub use error::CudaError;
use nvrtc::Nvrtc;
pub use program::{Image, Memory, Program, Sources, prepare};

/// The oldest driver that is supported: CUDA 12.0.
const OLDEST_DRIVER: u32 = 12_000;
/// The oldest device that is supported: compute capability 7.5, Turing.
const OLDEST_DEVICE: u32 = 75;

/// The dynamic loader's message about a library.
fn message(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Lists driver, devices, NVRTC and the kernel cache as (name, value) pairs. `folders` are searched for NVRTC first.
pub fn report(folders: &[PathBuf]) -> Vec<(String, String)> {
    let mut lines = vec![];
    let mut line = |name: &str, value: String| lines.push((name.to_string(), value));
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
    fn the_report_gives_the_reason_without_a_driver() {
        let Err(error) = driver::driver() else {
            eprintln!("skipped: this machine has a CUDA driver");
            return;
        };
        assert!(error.to_string().starts_with("no CUDA driver on this machine: "), "{error}");
        let lines = report(&[]);
        assert_eq!(lines[0], ("CUDA driver".to_string(), error.to_string()));
    }

    #[test]
    fn candidates_for_the_compiler_end_with_the_systems_library() {
        let missing = PathBuf::from("/nowhere/lib");
        let all = nvrtc::candidates(&[missing]);
        if std::env::var_os(nvrtc::FILE_VARIABLE).is_none() {
            // A folder that does not exist adds no candidate.
            assert_eq!(
                all.last().unwrap(),
                &PathBuf::from(if cfg!(windows) { "nvrtc64_120_0.dll" } else { "libnvrtc.so" })
            );
        }
    }
}
