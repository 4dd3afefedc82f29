//! Code generation and checks, run as `cargo xtask NAME`.

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask NAME

    kernels            write the files that are generated from crates/cule/src
    kernels --check    fail if a checked-in file differs from the generated text";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some(root) = Path::new(env!("CARGO_MANIFEST_DIR")).parent() else {
        eprintln!("the package xtask is not in a workspace");
        return ExitCode::from(2);
    };
    let result = match words.as_slice() {
        ["kernels"] => xtask::kernels::write(root),
        ["kernels", "--check"] => xtask::kernels::check(root),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
