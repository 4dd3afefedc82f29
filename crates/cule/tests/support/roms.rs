//! For tests that run games: without ROMs they print that they are left out, and fail under CI.

use std::io::Write as _;
use std::path::PathBuf;

/// Returns true if there is a folder with ROMs. `folders` is the result of `rom::folders`. Otherwise prints
/// the name of the running test to standard error, bypassing the harness, which hides the output of passing
/// tests.
///
/// # Panics
/// There is no folder and the variable `CI` is set, because a test that checks nothing must not pass there;
/// or the folder of the environment variable does not exist.
pub fn are_there(folders: &[PathBuf]) -> bool {
    if let Some(folder) = folders.first() {
        assert!(folder.is_dir(), "{} is set as the folder of ROMs but is not a folder", folder.display());
        return true;
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let reason = "there are no ROMs to run: set ALE_ROMS_DIR, as `make test-rust` does";
    let ci = std::env::var("CI").unwrap_or_default();
    assert!(ci.is_empty() || ci == "false", "{test} checks nothing, {reason}");
    // The harness captures the output of `eprintln!`, but not this.
    let _ = writeln!(std::io::stderr(), "left out: {test}: {reason}");
    false
}
