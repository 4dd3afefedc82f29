//! `cargo xtask kernels`: writes or checks the generated files of `crates/cule`.

use crate::{device, fast_cpu, interpreter, ptx};
use std::fs;
use std::path::{Path, PathBuf};

/// A generated file.
pub struct Generated {
    /// Path from the root of the workspace.
    pub path: PathBuf,
    /// Content.
    pub text: String,
}

/// Generates Rust files from tables. Some of these files are translated in turn, so they come first.
fn sources() -> Vec<Generated> {
    vec![
        Generated { path: "crates/cule/src/machine/cpu.rs".into(), text: interpreter::reference() },
        Generated { path: "crates/cule/src/machine/compact.rs".into(), text: interpreter::compact() },
        Generated { path: "crates/cule/src/machine/record_tables.rs".into(), text: ptx::tables() },
        Generated { path: "crates/cule/src/fast_cpu/handlers.rs".into(), text: fast_cpu::handlers_file() },
        Generated { path: "crates/cule/kernels/cpu_brx.cuh".into(), text: ptx::header() },
    ]
}

/// Translates the device subset, as it is in the working tree.
fn translations(root: &Path) -> Result<Vec<Generated>, String> {
    let source = root.join("crates/cule/src/lib.rs");
    let translation = device::translate(&source, root, "cule").map_err(|refusals| {
        let lines: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        format!("outside the device subset (crates/cule/kernels/README.md):\n{}", lines.join("\n"))
    })?;
    if !translation.absent.is_empty() {
        return Err(format!(
            "xtask/src/device/header.rs names functions that crates/cule does not have: {}",
            translation.absent.join(", ")
        ));
    }
    Ok(vec![
        Generated { path: "crates/cule/kernels/machine.cuh".into(), text: translation.header },
        Generated { path: "crates/cule/tests/layout.rs".into(), text: translation.layout_test },
    ])
}

/// Writes the generated files that differ from the checked-in ones. Returns one line per file.
///
/// # Errors
/// A message of one or more lines, if a source is outside the device subset or a file cannot be written.
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

/// Compares the checked-in files with the generated text.
///
/// # Errors
/// As [`write`], or if a file is missing or out of date; the message names the first line that differs.
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
                stale.push(format!("{name}:{line}: differs from the text generated from its sources"));
            }
            Ok(_) => {}
        }
    }
    if stale.is_empty() {
        return Ok(format!("{} generated files are up to date", outputs.len()));
    }
    Err(format!("{}\nrun `cargo xtask kernels` and commit what it writes", stale.join("\n")))
}
