//! What tests that run games do where there are no ROMs: say that they are left out, and fail under CI.

use std::io::Write as _;
use std::path::PathBuf;

/// True when `folders`, those of `rom::folders`, hold ROMs to run. Otherwise the name of the running test goes to
/// standard error, past the harness, which does not show the output of a passing test.
///
/// # Panics
/// There is no folder and the variable `CI` is set: a test that checks nothing must not pass there.
pub fn are_there(folders: &[PathBuf]) -> bool {
    if let Some(folder) = folders.first() {
        assert!(folder.is_dir(), "{} is named by the environment and is no folder", folder.display());
        return true;
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let reason = "there are no ROMs to run: set ALE_ROMS_DIR, as `make test-rust` does";
    let ci = std::env::var("CI").unwrap_or_default();
    assert!(ci.is_empty() || ci == "false", "{test} checks nothing, {reason}");
    // The macros would be captured.
    let _ = writeln!(std::io::stderr(), "left out: {test}: {reason}");
    false
}
