//! Scalar, NEON, AVX2 and AVX-512 descents return the same leaves, weights and totals from the same seed, as a
//! search of the running sums does.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use sumtree::{Draws, FAN_OUTS, Path, Rng, SumTree};

/// Trees with the same weights, up to `most`, one for each path that this machine has. Small weights matter
/// too: a search may use other code if all sums of a node are small.
fn trees(capacity: u64, fan_out: usize, seed: u64, most: u64) -> Vec<SumTree> {
    let paths: Vec<Path> = Path::ALL.into_iter().filter(|path| path.is_supported()).collect();
    // With one path there is nothing to compare; x86-64 machines of the last ten years have two or three.
    if cfg!(target_arch = "x86_64") && std::env::var_os("SUMTREE_ONE_PATH").is_none() {
        assert!(paths.len() >= 2, "this machine has only {paths:?}");
    }
    paths
        .into_iter()
        .map(|path| {
            let tree = SumTree::new(capacity, fan_out).unwrap().with_path(path).unwrap();
            let max = u64::from(tree.max_weight()).min(most);
            let mut rng = Rng::new(seed);
            // Runs of zeros, of ones, of the largest weights, and mixtures, each some hundreds of leaves long.
            let weights: Vec<u32> = (0..capacity)
                .map(|i| match (i >> 7) % 5 {
                    0 => 0,
                    1 => 1,
                    2 => max as u32,
                    3 => (rng.below(max) >> rng.below(28)) as u32,
                    _ => u32::from(rng.below(9) == 0) * rng.below(max) as u32,
                })
                .collect();
            tree.set_range(0, &weights).unwrap();
            tree
        })
        .collect()
}

#[test]
fn all_paths_draw_the_same() {
    for fan_out in FAN_OUTS {
        let sizes = [200, 1000, 16_384, 70_001, 300_007, 1 << 20].map(|capacity| (capacity, u64::MAX));
        // With the last weights, some nodes have sums that are all below 2^28, and some do not.
        for (capacity, most) in sizes.into_iter().chain([(300_007, 1000), (300_007, 1 << 21)]) {
            let trees = trees(capacity, fan_out, capacity, most);
            let total = trees[0].total();
            for mode in [
                Draws::Independent,
                Draws::Stratified,
                Draws::Systematic,
                Draws::WithoutReplacement,
                Draws::Split { rank: 1, learners: 3 },
            ] {
                for n in [1, 31, 128, 129, 1000] {
                    let n = if mode == Draws::WithoutReplacement { n.min(40) } else { n };
                    let draw = |tree: &SumTree| {
                        let (mut indices, mut weights) = (vec![0; n], vec![0; n]);
                        let mut rng = Rng::new(n as u64);
                        let total = tree.sample(&mut rng, mode, &mut indices, &mut weights).unwrap();
                        (total, indices, weights, rng.state())
                    };
                    let first = draw(&trees[0]);
                    assert_eq!(first.0, total);
                    for tree in &trees[1..] {
                        assert_eq!(first, draw(tree), "{:?} {mode:?} N={capacity} K={fan_out}", tree.path());
                    }
                }
            }
            assert!(trees.iter().all(|tree| tree.restarts() == 0));
        }
    }
}

/// Every border between two leaves, in small trees with and without inner levels.
#[test]
fn all_paths_find_the_same_at_every_border() {
    for fan_out in FAN_OUTS {
        for (capacity, most) in
            [(97, u64::MAX), (5000, u64::MAX), (40_000, u64::MAX), (40_000, 1000), (300_000, 7)]
        {
            for tree in trees(capacity, fan_out, 1, most) {
                let mut leaves = vec![0; capacity as usize];
                tree.get_range(0, &mut leaves).unwrap();
                let (mut prefixes, mut expected, mut sum) = (Vec::new(), Vec::new(), 0);
                for (i, w) in leaves.iter().enumerate().filter(|(_, w)| **w > 0) {
                    prefixes.extend([sum, sum + u64::from(*w) - 1]);
                    expected.extend([(i as u64, *w); 2]);
                    sum += u64::from(*w);
                }
                let (mut indices, mut weights) = (vec![0; prefixes.len()], vec![0; prefixes.len()]);
                assert_eq!(tree.find(&prefixes, &mut indices, &mut weights), Ok(sum));
                let found: Vec<(u64, u32)> = indices.into_iter().zip(weights).collect();
                assert_eq!(found, expected, "{:?} N={capacity} K={fan_out}", tree.path());
            }
        }
    }
}
