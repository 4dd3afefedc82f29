//! Benchmarks of the sum tree in one thread: ns per item of updates and draws, by capacity, fan-out and batch
//! size.
//!
//! Names are `operation/N=2^log2(capacity)/K=fan-out/B=batch`. Throughput is items per second; its inverse is
//! the time per item. Weights change at every update, since storing an unchanged weight is cheaper.
//! `SUMTREE_PATH=scalar` (avx2) chooses another instruction set. Other libraries are compared in Python.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sumtree::{Draws, Rng, SumTree};

/// (log2 of capacity, fan-out, batch).
const SHAPES: [(u32, usize, usize); 9] = [
    (16, 16, 256),
    (20, 4, 256),
    (20, 8, 256),
    (20, 16, 32),
    (20, 16, 256),
    (20, 16, 4096),
    (20, 32, 256),
    (20, 64, 256),
    (24, 16, 256),
];
/// Length of the pool of indices, so that a run does not use the same leaves again and again.
const POOL: usize = 1 << 18;

fn filled(log2: u32, fan_out: usize) -> SumTree {
    let tree = SumTree::new(1 << log2, fan_out).expect("a valid shape that fits memory");
    let mut rng = Rng::new(1);
    let weights: Vec<u32> = (0..1 << log2).map(|_| 1 + rng.below(1 << 17) as u32).collect();
    tree.set_range(0, &weights).expect("as many weights as leaves");
    tree
}

fn updates_and_draws(c: &mut Criterion) {
    for (log2, fan_out, batch) in SHAPES {
        let tree = filled(log2, fan_out);
        let mut rng = Rng::new(2);
        let pool: Vec<u64> = (0..POOL + batch).map(|_| rng.below(1 << log2)).collect();
        let mut weights: Vec<u32> = (0..batch).map(|_| rng.below(1 << 17) as u32).collect();
        let name = format!("N=2^{log2}/K={fan_out}/B={batch}");
        let mut group = c.benchmark_group("sumtree");
        group.throughput(Throughput::Elements(batch as u64));
        let mut at = 0;
        group.bench_function(format!("update/{name}"), |b| {
            b.iter(|| {
                at = (at + batch) % POOL;
                weights.iter_mut().for_each(|w| *w = (*w + 1) & 0x1_ffff);
                tree.set_many(&pool[at..at + batch], &weights).expect("indices and weights are in range");
            });
        });
        // The same updates with the exclusive writer.
        let exclusive = filled(log2, fan_out).exclusive();
        group.bench_function(format!("update-exclusive/{name}"), |b| {
            b.iter(|| {
                at = (at + batch) % POOL;
                weights.iter_mut().for_each(|w| *w = (*w + 1) & 0x1_ffff);
                exclusive
                    .set_many(&pool[at..at + batch], &weights)
                    .expect("indices and weights are in range");
            });
        });
        drop(exclusive);
        group.bench_function(format!("append/{name}"), |b| {
            b.iter(|| {
                at = (at + batch) % ((1 << log2) - batch);
                weights.iter_mut().for_each(|w| *w = (*w + 1) & 0x1_ffff);
                tree.set_range(at, &weights).expect("the range is in the tree");
            });
        });
        let (mut indices, mut drawn) = (vec![0u64; batch], vec![0u32; batch]);
        for (mode, text) in [(Draws::Independent, "independent"), (Draws::Stratified, "stratified")] {
            group.bench_function(format!("sample/{text}/{name}"), |b| {
                b.iter(|| {
                    black_box(tree.sample(&mut rng, mode, &mut indices, &mut drawn))
                        .expect("the tree has weight");
                });
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400));
    targets = updates_and_draws
}
criterion_main!(benches);
