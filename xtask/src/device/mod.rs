//! Translates the device subset of Rust to one CUDA C++ header that also compiles as host C++.
//!
//! [`translate`] reads a crate from its root file. Files whose module docs have a line that starts with
//! [`source::MARKER`] are in the subset; everything in them is translated or refused, except items under
//! `#[cfg(test)]` and `#[cfg(not(device))]`. `crates/cule/kernels/README.md` defines the subset.
//!
//! [`items`] collects declarations and [`names`] resolves names. [`body`] with `expressions`, `calls`,
//! `statements` and `matching` translates functions. [`header`] writes the result in an order that C++ accepts.

mod body;
mod calls;
mod constants;
mod expressions;
mod header;
mod items;
mod layout;
mod matching;
mod names;
mod operators;
mod refusal;
pub mod source;
mod statements;
mod types;

pub use refusal::Refusal;

use items::Crate;
use std::path::Path;

/// The files generated from one crate.
pub struct Translation {
    /// The C++ header.
    pub header: String,
    /// A Rust test: size and offsets of every public struct equal those that the header asserts.
    pub layout_test: String,
    /// Functions that are treated specially by name (not inlined, or with a body of their own in C++), and
    /// that the crate does not have.
    pub absent: Vec<&'static str>,
}

/// Translates the crate whose root file is `root`. Its items are in the C++ namespace `name`. File names in
/// messages and comments are relative to `shown_from`.
///
/// # Errors
/// All constructs outside the subset that were found: all declarations first, then one per function.
pub fn translate(root: &Path, shown_from: &Path, name: &str) -> Result<Translation, Vec<Refusal>> {
    let modules = source::load(root, shown_from).map_err(|refusal| vec![refusal])?;
    if !modules.iter().any(|module| module.device) {
        let file: String = root.strip_prefix(shown_from).unwrap_or(root).display().to_string();
        let reason: String =
            format!("no module doc of the crate has a line beginning with `{}`", source::MARKER);
        return Err(vec![Refusal { file, line: 1, column: 1, reason }]);
    }
    let krate: Crate = Crate::new(name, modules)?;
    Ok(Translation {
        header: header::write(&krate)?,
        layout_test: layout::write_test(&krate),
        absent: header::absent_functions(&krate),
    })
}
