//! Compiles C++ for tests. Results are kept until a source, an option or the compiler changes.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kernels as a library of the host (`kernels/host.cpp`), with bounds checked, or for long runs
/// (`PARL_GPU_STEPS`) to be fast.
#[allow(dead_code, reason = "one of the tests that include this file has another program")]
pub fn kernels() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/host.cpp");
    if std::env::var_os("PARL_GPU_STEPS").is_some() {
        compiled("libfastkernels", &source, &["-fPIC", "-shared", "-O2", "-fno-strict-aliasing"])
    } else {
        compiled("libkernels", &source, &["-fPIC", "-shared", "-O1", "-DPARL_CHECKED"])
    }
}

/// Compiles `source`, which may include only files of `kernels/`, and returns the path of the program, or of
/// the library if `-shared` is among the `options`. Safe with several processes: each compiles to its own
/// file and renames it.
pub fn compiled(name: &str, source: &Path, options: &[&str]) -> PathBuf {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let version =
        Command::new(&compiler).arg("--version").output().expect("a C++ compiler: c++, or what CXX names");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&kernels).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    (&compiler, version.stdout, source, std::fs::read(source).unwrap(), options).hash(&mut hasher);
    for file in files {
        (std::fs::read(&file).unwrap(), file).hash(&mut hasher);
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = folder.join(format!("{name}-{:016x}", hasher.finish()));
    if place.exists() {
        return place;
    }
    let own = folder.join(format!("{name}.{}", std::process::id()));
    let output = Command::new(&compiler)
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"])
        .args(options)
        .arg("-I")
        .arg(&kernels)
        .arg(source)
        .arg("-o")
        .arg(&own)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for entry in std::fs::read_dir(folder).unwrap() {
        let old = entry.unwrap().path();
        let is_older = old.file_name().unwrap().to_string_lossy().starts_with(&format!("{name}-"));
        if is_older && old != place {
            // Another process may have removed it already.
            let _ = std::fs::remove_file(old);
        }
    }
    std::fs::rename(&own, &place).unwrap();
    place
}
