//! Runs writers and samplers at once for any number of operations, checks every draw, and verifies every node
//! at the end. `SUMTREE_PATH=scalar` (avx2, avx512) chooses the instruction set.
//!
//! `cargo run --release -p sumtree --example stress -- --operations 1e9 --threads 2`

mod harness;

use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "stress [--operations 1e8] [--threads 2] [--capacity 65536] [--fan-out 16] [--batch 256] [--exclusive 0] [--seed 1]";

fn plan(mut args: impl Iterator<Item = String>) -> Result<harness::Plan, String> {
    let mut plan = harness::Plan {
        capacity: 65_536,
        fan_out: 16,
        path: sumtree::Path::from_environment().map_err(|e| e.to_string())?,
        exclusive: false,
        threads: 2,
        operations: 100_000_000,
        batch: 256,
        seed: 1,
    };
    while let Some(name) = args.next() {
        let text = args.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
        let value: f64 = text.parse().map_err(|_| format!("{name}: {text:?} is not a number\n{USAGE}"))?;
        if !(0.0..=1e18).contains(&value) {
            return Err(format!("{name}: {text} is outside 0..=1e18"));
        }
        match name.as_str() {
            "--operations" => plan.operations = value as u64,
            "--threads" => plan.threads = (value as usize).clamp(2, 1024),
            "--capacity" => plan.capacity = value as u64,
            "--fan-out" => plan.fan_out = value as usize,
            "--batch" => plan.batch = (value as usize).max(1),
            "--exclusive" => plan.exclusive = value != 0.0,
            "--seed" => plan.seed = value as u64,
            _ => return Err(format!("unknown option {name}\n{USAGE}")),
        }
    }
    if plan.capacity < 128 * plan.threads as u64 {
        return Err(format!("--capacity {} is less than 128 leaves a thread", plan.capacity));
    }
    Ok(plan)
}

fn main() -> ExitCode {
    let plan = match plan(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    let start = Instant::now();
    match harness::run(&plan) {
        Ok(out) => {
            println!("{plan:?}");
            println!("{out:?}");
            println!(
                "zero-weight draws: {} of {} ({} of them with the leaf's phase unchanged), wrong weights: {}",
                out.zero_draws, out.draws, out.checked, out.wrong_weights
            );
            println!(
                "every node equals the sum of its children, the histogram matches the leaves; {:.1} s",
                start.elapsed().as_secs_f64()
            );
            if out.zero_draws == 0 && out.wrong_weights == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
