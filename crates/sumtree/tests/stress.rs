//! A short run of the stress example for each fan-out and instruction path; `cargo run --example stress` runs
//! any number of operations.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

#[path = "../examples/stress/harness.rs"]
mod harness;

fn run(plan: &harness::Plan) {
    let out = harness::run(plan).unwrap();
    assert_eq!((out.zero_draws, out.wrong_weights), (0, 0), "{plan:?} {out:?}");
    assert!(out.checked > 0 && out.stores > 0, "nothing was checked: {plan:?} {out:?}");
}

#[test]
fn writers_beside_samplers() {
    for (k, fan_out) in sumtree::FAN_OUTS.into_iter().enumerate() {
        for path in sumtree::Path::ALL.into_iter().filter(|path| path.is_supported()) {
            for (threads, exclusive) in [(2, false), (4, false), (4, true)] {
                run(&harness::Plan {
                    capacity: [4999, 40_001][k % 2],
                    fan_out,
                    path,
                    exclusive,
                    threads,
                    operations: 300_000,
                    batch: 100,
                    seed: k as u64,
                });
            }
        }
    }
}
