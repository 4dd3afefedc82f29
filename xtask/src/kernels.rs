//! `cargo xtask kernels`: every generated file of `crates/cule`, written or compared.

use crate::{device, fast_cpu, interpreter, predicated, ptx};
use std::fs;
use std::path::{Path, PathBuf};

/// A file that is made from others.
pub struct Generated {
    /// Where it is checked in, from the root of the workspace.
    pub path: PathBuf,
    /// What stands in it.
    pub text: String,
}

/// Rust that is made from tables. Some of it is in turn translated, so it comes first.
fn sources() -> Vec<Generated> {
    vec![
        Generated { path: "crates/cule/src/machine/cpu.rs".into(), text: interpreter::reference() },
        Generated { path: "crates/cule/src/machine/compact.rs".into(), text: interpreter::compact() },
        Generated { path: "crates/cule/src/machine/records.rs".into(), text: ptx::records() },
        Generated { path: "crates/cule/src/machine/micro.rs".into(), text: predicated::table() },
        Generated { path: "crates/cule/src/fast_cpu/handlers.rs".into(), text: fast_cpu::handlers_file() },
        Generated { path: "crates/cule/kernels/cpu_brx.cuh".into(), text: ptx::header() },
    ]
}

/// What is made from the device subset as it lies on the disk.
fn translations(root: &Path) -> Result<Vec<Generated>, String> {
    let source = root.join("crates/cule/src/lib.rs");
    let translation = device::translate(&source, root, "cule").map_err(|refusals| {
        let lines: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        format!("outside the device subset (crates/cule/kernels/README.md):\n{}", lines.join("\n"))
    })?;
    Ok(vec![
        Generated { path: "crates/cule/kernels/machine.cuh".into(), text: translation.header },
        Generated { path: "crates/cule/tests/layout.rs".into(), text: translation.layout_test },
    ])
}

/// Writes what differs from the checked-in files.
///
/// # Errors
/// A message of one or more lines, when a source is outside its language or a file cannot be written.
pub fn write(root: &Path) -> Result<String, String> {
    let mut report: Vec<String> = Vec::new();
    write_all(root, sources(), &mut report)?;
    write_all(root, translations(root)?, &mut report)?;
    Ok(report.join("\n"))
}

fn write_all(root: &Path, outputs: Vec<Generated>, report: &mut Vec<String>) -> Result<(), String> {
    for output in outputs {
        let path = root.join(&output.path);
        if fs::read_to_string(&path).is_ok_and(|text| text == output.text) {
            report.push(format!("unchanged {}", output.path.display()));
            continue;
        }
        fs::write(&path, &output.text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        report.push(format!("written {}", output.path.display()));
    }
    Ok(())
}

/// Compares the checked-in files with what would be written.
///
/// # Errors
/// As [`write`], and when a file is missing or stale; the message names the first line that differs.
pub fn check(root: &Path) -> Result<String, String> {
    let mut stale: Vec<String> = Vec::new();
    let mut outputs: Vec<Generated> = sources();
    outputs.extend(translations(root)?);
    for output in &outputs {
        let name = output.path.display();
        match fs::read_to_string(root.join(&output.path)) {
            Err(e) => stale.push(format!("{name}: {e}")),
            Ok(text) if text != output.text => {
                let line = text.lines().zip(output.text.lines()).take_while(|(a, b)| a == b).count() + 1;
                stale.push(format!("{name}:{line}: differs from its sources"));
            }
            Ok(_) => {}
        }
    }
    if stale.is_empty() {
        return Ok(format!("{} generated files are up to date", outputs.len()));
    }
    Err(format!("{}\nrun `cargo xtask kernels` and commit what it writes", stale.join("\n")))
}
