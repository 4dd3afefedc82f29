//! What the benchmarks share: seeded inputs.
