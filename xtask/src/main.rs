//! Code generation and checks, run as `cargo xtask NAME`.

use std::process::ExitCode;

fn main() -> ExitCode {
    eprintln!("usage: cargo xtask NAME\n\nNo task is known under that name.");
    ExitCode::from(2)
}
