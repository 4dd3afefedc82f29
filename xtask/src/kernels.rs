//! `cargo xtask kernels`: every generated file of `crates/cule`, written or compared.

use crate::{device, interpreter, threaded};
use std::fs;
use std::path::{Path, PathBuf};

/// A file that is made from others.
pub struct Generated {
    /// Where it is checked in, from the root of the workspace.
    pub path: PathBuf,
    /// What stands in it.
    pub text: String,
}

/// All generated files as they should be.
///
/// # Errors
/// A message of one or more lines, when a source is outside its language.
pub fn outputs(root: &Path) -> Result<Vec<Generated>, String> {
    let source = root.join("crates/cule/src/lib.rs");
    // The interpreter is itself a source of the translation.
    let cpu = Generated { path: "crates/cule/src/machine/cpu.rs".into(), text: interpreter::reference() };
    let handlers =
        Generated { path: "crates/cule/src/threaded/handlers.rs".into(), text: threaded::handlers_file() };
    let translation = device::translate(&source, root, "cule").map_err(|refusals| {
        let lines: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        format!("outside the device subset (crates/cule/kernels/README.md):\n{}", lines.join("\n"))
    })?;
    Ok(vec![
        cpu,
        handlers,
        Generated { path: "crates/cule/kernels/machine.cuh".into(), text: translation.header },
        Generated { path: "crates/cule/tests/layout.rs".into(), text: translation.layout_test },
    ])
}

/// Writes what differs from the checked-in files.
///
/// # Errors
/// As [`outputs`], and when a file cannot be written.
pub fn write(root: &Path) -> Result<String, String> {
    let mut report: Vec<String> = Vec::new();
    for output in outputs(root)? {
        let path = root.join(&output.path);
        if fs::read_to_string(&path).is_ok_and(|text| text == output.text) {
            report.push(format!("unchanged {}", output.path.display()));
            continue;
        }
        fs::write(&path, &output.text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        report.push(format!("written {}", output.path.display()));
    }
    Ok(report.join("\n"))
}

/// Compares the checked-in files with what would be written.
///
/// # Errors
/// As [`outputs`], and when a file is missing or stale; the message names the first line that differs.
pub fn check(root: &Path) -> Result<String, String> {
    let mut stale: Vec<String> = Vec::new();
    let outputs: Vec<Generated> = outputs(root)?;
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
