//! Distributions of draws: chi-square over cells, exact binomials for tiny weights, the variance of strata.
//! Seeds are fixed, so a failure is a change of the code.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{assert_binomial, assert_distribution};
use std::collections::HashMap;
use sumtree::{Draws, FAN_OUTS, Mixture, Rng, SumTree, SumTreeError, max_weight};

/// Weights of very unequal sizes, one in four zero.
fn uneven_tree(n: usize, fan_out: usize, seed: u64) -> (SumTree, Vec<u32>) {
    let tree = SumTree::new(n as u64, fan_out).unwrap();
    let mut rng = Rng::new(seed);
    let weights: Vec<u32> = (0..n)
        .map(|i| if i % 4 == 3 { 0 } else { 1 + (rng.below(1 << 20) >> rng.below(20)) as u32 })
        .collect();
    tree.set_range(0, &weights).unwrap();
    (tree, weights)
}

/// Cell of a leaf: hashed, so that a cell has leaves from all over the tree.
fn cell(leaf: u64, cells: usize) -> usize {
    (leaf.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % cells
}

fn cell_probabilities(weights: &[u32], cells: usize) -> Vec<f64> {
    let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
    let mut p = vec![0.0; cells];
    weights.iter().enumerate().for_each(|(i, w)| p[cell(i as u64, cells)] += f64::from(*w) / total as f64);
    p
}

#[test]
fn every_mode_draws_by_weight() {
    const CELLS: usize = 128;
    for (k, fan_out) in FAN_OUTS.into_iter().enumerate() {
        let (tree, model) = uneven_tree(50_021, fan_out, 11);
        let p = cell_probabilities(&model, CELLS);
        for mode in [Draws::Independent, Draws::Stratified, Draws::Split { rank: 2, learners: 5 }] {
            let mut rng = Rng::new(100 + k as u64);
            let mut counts = vec![0u64; CELLS];
            let (mut indices, mut weights) = (vec![0; 257], vec![0; 257]);
            for _ in 0..1500 {
                // One rank draws from a fifth of the strata only: choose a random rank for each batch.
                let mode = match mode {
                    Draws::Split { learners, .. } => {
                        Draws::Split { rank: rng.below(u64::from(learners)) as u32, learners }
                    }
                    other => other,
                };
                tree.sample(&mut rng, mode, &mut indices, &mut weights).unwrap();
                for (i, w) in indices.iter().zip(&weights) {
                    assert!(*w > 0 && model[*i as usize] == *w);
                    counts[cell(*i, CELLS)] += 1;
                }
            }
            assert_distribution(&counts, &p, &format!("{mode:?}, fan-out {fan_out}"));
        }
    }
}

/// 65,536 leaves of weight 1 beside one of 2^28 - 1: the light ones together have 2^-12 of the mass.
#[test]
fn tiny_beside_huge() {
    let n = 65_537;
    for (fan_out, seed) in [(4, 1), (16, 2)] {
        let tree = SumTree::new(n, fan_out).unwrap();
        tree.fill_range(0, n as usize, 1).unwrap();
        let huge = max_weight(fan_out);
        assert_eq!(huge, (1 << 28) - 1);
        tree.set(40_000usize, huge).unwrap();
        let total = 65_536 + u64::from(huge);
        let draws = 1u64 << 21;
        let (mut indices, mut weights) = (vec![0; 4096], vec![0; 4096]);
        let mut rng = Rng::new(seed);
        let (mut light, mut low_half) = (0, 0);
        for _ in 0..draws / 4096 {
            let seen = tree.sample(&mut rng, Draws::Independent, &mut indices, &mut weights).unwrap();
            assert_eq!(seen, total);
            light += indices.iter().filter(|i| **i != 40_000).count() as u64;
            low_half += indices.iter().filter(|i| **i < 32_768).count() as u64;
        }
        assert_binomial(light, draws, 65_536.0 / total as f64, "light leaves");
        assert_binomial(low_half, draws, 32_768.0 / total as f64, "lower half of the light leaves");
    }
}

/// One leaf of weight 1 beside one of 2^28 - 1: the boundary between them is exact.
#[test]
fn one_against_two_to_the_28th() {
    let tree = SumTree::new(1000, 16).unwrap();
    tree.set(20usize, (1 << 28) - 1).unwrap();
    tree.set(30usize, 1).unwrap();
    let (mut indices, mut weights) = ([0; 3], [0; 3]);
    assert_eq!(tree.find(&[0, (1 << 28) - 2, (1 << 28) - 1], &mut indices, &mut weights), Ok(1 << 28));
    assert_eq!((indices, weights), ([20, 20, 30], [(1 << 28) - 1, (1 << 28) - 1, 1]));
    // 2^20 draws hit the light one Binomial(2^20, 2^-28) times: the chance of even one is 0.4 %, of three 1e-8.
    let (mut indices, mut weights) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    tree.sample(&mut Rng::new(9), Draws::Independent, &mut indices, &mut weights).unwrap();
    let light = indices.iter().filter(|i| **i == 30).count() as u64;
    assert_binomial(light, 1 << 20, 2f64.powi(-28), "weight 1 of 2^28");
}

/// Leaves that were never set, or set back to 0, are never drawn, not even at the boundaries of nodes.
#[test]
fn zero_weights_are_never_drawn() {
    for fan_out in FAN_OUTS {
        let tree = SumTree::new(10_000, fan_out).unwrap();
        tree.fill_range(0, 10_000, 1).unwrap();
        tree.fill_range(0, 10_000, 0).unwrap();
        assert_eq!(tree.total(), 0);
        let alive: Vec<usize> = (0..10_000).filter(|i| i % 97 == 5 || i % fan_out == fan_out - 1).collect();
        alive.iter().for_each(|i| tree.set(*i, 1).unwrap());
        let mut prefixes: Vec<u64> = (0..alive.len() as u64).collect();
        prefixes.push(0);
        let (mut indices, mut weights) = (vec![0; prefixes.len()], vec![0; prefixes.len()]);
        tree.find(&prefixes, &mut indices, &mut weights).unwrap();
        assert!(indices.iter().zip(&alive).all(|(found, i)| *found == *i as u64));
        assert!(weights.iter().all(|w| *w == 1));
    }
}

/// After many updates the sums are still exact, and setting all leaves back to 0 gives a total of exactly 0.
#[test]
fn sums_do_not_drift() {
    for fan_out in FAN_OUTS {
        let tree = SumTree::new(3001, fan_out).unwrap();
        let mut rng = Rng::new(4);
        let max = u64::from(tree.max_weight());
        for _ in 0..400 {
            let indices: Vec<u64> = (0..500).map(|_| rng.below(3001)).collect();
            let weights: Vec<u32> = (0..500).map(|_| rng.below(max + 1) as u32).collect();
            tree.set_many(&indices, &weights).unwrap();
        }
        tree.verify().unwrap();
        let zeros: Vec<u64> = (0..3001).collect();
        tree.set_many(&zeros, &vec![0; 3001]).unwrap();
        assert_eq!(tree.total(), 0);
        tree.verify().unwrap();
    }
}

/// The mean leaf number of a batch of B estimates the weighted mean. Independent draws have variance R^2 / 12 / B for
/// leaf numbers spread over a range R; strata of nearly equal width R / B have 1 / B^2 of that, 1/4096, and with one
/// offset for all of them 1 / B, 1/64.
#[test]
fn strata_cut_the_variance() {
    let tree = SumTree::new(5003, 16).unwrap();
    let model: Vec<u32> = (0..5003).map(|i| 1000 + i * 7919 % 1000).collect();
    tree.set_range(0, &model).unwrap();
    let total: f64 = model.iter().map(|w| f64::from(*w)).sum();
    let mean = model.iter().enumerate().map(|(i, w)| i as f64 * f64::from(*w)).sum::<f64>() / total;
    let variance = |mode, seed| {
        let mut rng = Rng::new(seed);
        let (mut indices, mut weights) = ([0; 64], [0; 64]);
        let (mut sum, mut squares) = (0.0, 0.0);
        let repeats = 2000;
        for _ in 0..repeats {
            tree.sample(&mut rng, mode, &mut indices, &mut weights).unwrap();
            let error = indices.iter().map(|i| *i as f64).sum::<f64>() / 64.0 - mean;
            sum += error;
            squares += error * error;
        }
        let (bias, variance) = (sum / repeats as f64, squares / repeats as f64);
        // The mean of the errors is normal with this deviation: unbiased within 5 of them (p = 6e-7).
        assert!(bias.abs() < 5.0 * (variance / repeats as f64).sqrt(), "{mode:?}: bias {bias}");
        variance
    };
    let independent = variance(Draws::Independent, 31);
    let stratified = variance(Draws::Stratified, 32);
    let systematic = variance(Draws::Systematic, 33);
    assert!(stratified < independent / 2000.0, "{stratified} against {independent}");
    assert!(systematic < independent / 40.0, "{systematic} against {independent}");
}

/// Systematic draws hit each leaf the floor or the ceiling of B * w / total times.
#[test]
fn systematic_counts_are_floor_or_ceiling() {
    let (tree, model) = uneven_tree(301, 8, 5);
    let total: u64 = model.iter().map(|w| u64::from(*w)).sum();
    let mut rng = Rng::new(6);
    let (mut indices, mut weights) = (vec![0; 700], vec![0; 700]);
    let mut hits = vec![0u64; 301];
    for _ in 0..2000 {
        tree.sample(&mut rng, Draws::Systematic, &mut indices, &mut weights).unwrap();
        let mut counts = vec![0u64; 301];
        indices.iter().for_each(|i| counts[*i as usize] += 1);
        for (i, (count, w)) in counts.iter().zip(&model).enumerate() {
            let product = 700 * u64::from(*w);
            assert!((product / total..=product.div_ceil(total)).contains(count), "leaf {i}");
            hits[i] += count;
        }
    }
    // Extra hits of one leaf are independent between batches.
    let i = (0..301)
        .max_by_key(|i| (700 * u64::from(model[*i]) % total).min(total - 700 * u64::from(model[*i]) % total))
        .unwrap();
    let product = 700 * u64::from(model[i]);
    assert_binomial(
        hits[i] - 2000 * (product / total),
        2000,
        (product % total) as f64 / total as f64,
        "systematic",
    );
}

/// Without replacement an ordered pair (i, j) has probability w_i / T * w_j / (T - w_i).
#[test]
fn distinct_draws_follow_what_is_left() {
    let sets: [[u32; 4]; 3] = [[1, 2, 3, 4], [1, 1, (1 << 26) - 1, 2], [5, (1 << 26) - 1, (1 << 26) - 2, 5]];
    for (set, weights_of) in sets.iter().enumerate() {
        let tree = SumTree::new(4000, 64).unwrap();
        let places = [3usize, 64, 65, 3999];
        places.iter().zip(weights_of).for_each(|(i, w)| tree.set(*i, *w).unwrap());
        let total: f64 = weights_of.iter().map(|w| f64::from(*w)).sum();
        // Ordered triples; the fourth is what remains.
        let mut cells = HashMap::new();
        let mut p = Vec::new();
        for (i, j, l) in
            (0..64).map(|c| (c / 16, c / 4 % 4, c % 4)).filter(|(i, j, l)| i != j && j != l && i != l)
        {
            let w = |x: usize| f64::from(weights_of[x]);
            cells.insert([places[i], places[j], places[l]].map(|x| x as u64), p.len());
            p.push(w(i) / total * w(j) / (total - w(i)) * w(l) / (total - w(i) - w(j)));
        }
        let mut counts = vec![0u64; p.len()];
        let mut rng = Rng::new(70 + set as u64);
        for _ in 0..100_000 {
            let (mut indices, mut weights) = ([0; 3], [0; 3]);
            tree.sample(&mut rng, Draws::WithoutReplacement, &mut indices, &mut weights).unwrap();
            counts[cells[&indices]] += 1;
        }
        // Cells that are too rare for chi-square are gathered into one.
        let rare = |p: f64| p * 100_000.0 <= 8.0;
        let (mut big_p, mut big_n) = (vec![0.0], vec![0]);
        for (p, n) in p.iter().zip(&counts) {
            if rare(*p) {
                big_p[0] += p;
                big_n[0] += n;
            } else {
                big_p.push(*p);
                big_n.push(*n);
            }
        }
        if rare(big_p[0]) {
            assert!(big_n[0] <= 30, "rare triples drawn {} times", big_n[0]);
            let (p0, n0) = (big_p.remove(0), big_n.remove(0));
            big_p[0] += p0;
            big_n[0] += n0;
        }
        assert_distribution(&big_n, &big_p, &format!("distinct, set {set}"));
    }
}

/// Draws that are so many, or weights so uneven, that the rest of a batch is drawn in one pass over the leaves: the sixth
/// and the last of 32 draws have the weights that draws one after the other have.
#[test]
fn many_distinct_draws_follow_what_is_left() {
    let weights_of: Vec<u32> =
        (0..64).map(|i| [1, 2, 6, (1 << 26) - 1][if i == 9 { 3 } else { i % 3 }]).collect();
    let tree = SumTree::new(64, 16).unwrap();
    tree.set_range(0, &weights_of).unwrap();
    let cell = |a: u32, b: u32| {
        [1, 2, 6]
            .map(|w| (w == a, w == b))
            .iter()
            .enumerate()
            .fold(0, |sum, (i, same)| sum + 3 * i * usize::from(same.0) + i * usize::from(same.1))
    };
    let mut rng = Rng::new(80);
    let mut p = [0.0; 9];
    for _ in 0..200_000 {
        let mut left = weights_of.clone();
        let mut drawn = [0; 32];
        for weight in &mut drawn {
            let mut target = rng.below(left.iter().map(|w| u64::from(*w)).sum());
            let at = left
                .iter()
                .position(|w| {
                    target < u64::from(*w) || {
                        target -= u64::from(*w);
                        false
                    }
                })
                .unwrap();
            *weight = std::mem::take(&mut left[at]);
        }
        p[cell(drawn[5], drawn[31])] += 1.0 / 200_000.0;
    }
    let mut counts = [0; 9];
    for _ in 0..20_000 {
        let (mut indices, mut weights) = ([0; 32], [0; 32]);
        tree.sample(&mut rng, Draws::WithoutReplacement, &mut indices, &mut weights).unwrap();
        counts[cell(weights[5], weights[31])] += 1;
    }
    assert_distribution(&counts, &p, "many distinct draws");
}

/// Of eight times as many leaves all are drawn in some ten times the time, not in 64 times.
#[test]
fn all_of_many_leaves_are_drawn_in_one_pass() {
    let fastest_of_three = |leaves: usize| {
        let tree = SumTree::new(leaves as u64, 16).unwrap();
        tree.fill_range(0, leaves, 3).unwrap();
        let (mut indices, mut weights) = (vec![0; leaves], vec![0; leaves]);
        let times = (0..3).map(|seed| {
            let start = std::time::Instant::now();
            tree.sample(&mut Rng::new(seed), Draws::WithoutReplacement, &mut indices, &mut weights).unwrap();
            let time = start.elapsed().as_secs_f64();
            indices.sort_unstable();
            assert!(indices.iter().copied().eq(0..leaves as u64));
            time
        });
        times.fold(f64::INFINITY, f64::min)
    };
    let (few, many) = (fastest_of_three(40_000), fastest_of_three(320_000));
    assert!(many < 30.0 * few, "{few} s, {many} s");
}

/// The same seed gives the same draws, in whatever order the weights were set; another seed gives other
/// draws.
#[test]
fn draws_depend_on_seed_and_weights_alone() {
    let (a, model) = uneven_tree(2000, 16, 3);
    let b = SumTree::new(2000, 16).unwrap();
    b.fill_range(0, 2000, 77).unwrap();
    (0..2000usize).rev().for_each(|i| b.set(i, model[i]).unwrap());
    let draw = |tree: &SumTree, seed| {
        let (mut indices, mut weights) = (vec![0; 300], vec![0; 300]);
        tree.sample(&mut Rng::new(seed), Draws::Stratified, &mut indices, &mut weights).unwrap();
        indices
    };
    assert_eq!(draw(&a, 1), draw(&b, 1));
    assert_ne!(draw(&a, 1), draw(&a, 2));
}

/// Uniform draws return each leaf with a weight above zero equally often, whatever the weight, and no other
/// leaf; also in a range where such leaves are so rare that random attempts fail.
#[test]
fn uniform_draws_ignore_the_size_of_weights() {
    let tree = SumTree::new(30_000, 16).unwrap();
    let mut live: Vec<u64> = Vec::new();
    for i in (100..9000u64).filter(|i| i % 3 == 0).chain([20_000, 20_007, 29_999]) {
        tree.set(i, if i % 2 == 0 { 1 } else { (1 << 28) - 1 }).unwrap();
        live.push(i);
    }
    for (range, seed) in [(0..9000usize, 1), (15_000..30_000, 2)] {
        let among: Vec<u64> = live.iter().copied().filter(|i| range.contains(&(*i as usize))).collect();
        let cells = among.len().min(64);
        let mut counts = vec![0; cells];
        let mut p = vec![0.0; cells];
        (0..among.len()).for_each(|nth| p[nth % cells] += 1.0 / among.len() as f64);
        let (mut indices, mut weights) = (vec![0; 100], vec![0; 100]);
        let mut rng = Rng::new(seed);
        for _ in 0..400 {
            tree.sample_uniform(&mut rng, range.clone(), &mut indices, &mut weights).unwrap();
            for (i, w) in indices.iter().zip(&weights) {
                assert_eq!(tree.get(*i).unwrap(), *w);
                counts[among.binary_search(i).unwrap() % cells] += 1;
            }
        }
        assert_distribution(&counts, &p, &format!("uniform in {range:?}"));
    }
    let empty = tree.sample_uniform(&mut Rng::new(0), 10_000..15_000, &mut [0], &mut [0]);
    assert_eq!(empty, Err(SumTreeError::Empty));
    assert!(tree.sample_uniform(&mut Rng::new(0), 5..30_001, &mut [0], &mut [0]).is_err());
    #[allow(clippy::reversed_empty_ranges)] // What is tested.
    let backwards = tree.sample_uniform(&mut Rng::new(0), 5..4, &mut [0], &mut [0]);
    assert!(backwards.is_err());
}

/// A mixture draws each leaf with the probability that it returns: by weight, uniformly, and from the newest
/// leaves, which here continue at the start of the live range.
#[test]
fn mixtures_draw_with_the_probability_they_say() {
    let (tree, model) = uneven_tree(400, 16, 8);
    let live = 40..360usize;
    (0..400).filter(|i| !live.contains(i)).for_each(|i| tree.set(i, 0).unwrap());
    let mixture = Mixture {
        uniform: 0.25,
        newest: 0.15,
        live: live.clone(),
        newest_from: 350,
        newest_count: 30,
        live_is_all: false,
    };
    let newest = |i: usize| (350..360).contains(&i) || (40..60).contains(&i);
    let alive: Vec<usize> = live.filter(|i| model[*i] > 0).collect();
    let total: f64 = alive.iter().map(|i| f64::from(model[*i])).sum();
    let young = alive.iter().filter(|i| newest(**i)).count() as f64;
    let p: Vec<f64> = alive
        .iter()
        .map(|i| {
            0.6 * f64::from(model[*i]) / total
                + 0.25 / alive.len() as f64
                + if newest(*i) { 0.15 / young } else { 0.0 }
        })
        .collect();
    let mut counts = vec![0; alive.len()];
    let (mut indices, mut weights) = (vec![0; 101], vec![0; 101]);
    let mut rng = Rng::new(12);
    for _ in 0..2000 {
        let odds = tree.sample_mixture(&mut rng, &mixture, &mut indices, &mut weights).unwrap();
        assert_eq!(odds.total() as f64, total);
        for (i, weight) in indices.iter().zip(&weights) {
            let at = alive.binary_search(&(*i as usize)).unwrap();
            let said = odds.probability(*i as usize, *weight);
            assert!((p[at] - said).abs() < 1e-12);
            counts[at] += 1;
        }
    }
    assert_distribution(&counts, &p, "mixture");
    let bad = |change: fn(&mut Mixture)| {
        let mut mixture = mixture.clone();
        change(&mut mixture);
        tree.sample_mixture(&mut Rng::new(0), &mixture, &mut [0], &mut [0]).unwrap_err()
    };
    assert!(matches!(bad(|m| m.uniform = 0.9), SumTreeError::Shares { .. }));
    assert!(matches!(bad(|m| m.newest = f64::NAN), SumTreeError::Shares { .. }));
    assert!(matches!(bad(|m| m.live = 0..401), SumTreeError::Index { .. }));
    assert!(matches!(bad(|m| m.newest_from = 360), SumTreeError::Index { .. }));
    assert!(matches!(bad(|m| m.newest_count = 321), SumTreeError::Length { .. }));
}

/// In a batch of any size each part has its share of the draws on average, the draws by weight too.
#[test]
fn shares_of_a_mixture_are_exact_on_average_in_small_batches() {
    // Leaf 0 is heavy, leaf 9 is the newest one, and the other leaves are drawn uniformly.
    let tree = SumTree::new(10, 16).unwrap();
    tree.set_range(0, &[1 << 27, 1, 1, 1, 1, 1, 1, 1, 1, 1]).unwrap();
    for (size, uniform, newest) in [(1, 0.5, 0.5), (1, 0.4, 0.4), (2, 0.3, 0.6), (3, 0.0, 1.0)] {
        let mixture =
            Mixture { uniform, newest, live: 0..10, newest_from: 9, newest_count: 1, live_is_all: true };
        let (mut counts, mut indices, mut weights) = (vec![0; 10], vec![0; size], vec![0; size]);
        let mut rng = Rng::new(3);
        let mut p = vec![0.0; 10];
        for _ in 0..4000 {
            let odds = tree.sample_mixture(&mut rng, &mixture, &mut indices, &mut weights).unwrap();
            indices.iter().for_each(|i| counts[*i as usize] += 1);
            p = (0..10).map(|i| odds.probability(i, if i == 0 { 1 << 27 } else { 1 })).collect();
        }
        let drawn: Vec<usize> = (0..10).filter(|i| p[*i] > 1e-6).collect();
        let (counts, p): (Vec<_>, Vec<_>) = drawn.iter().map(|i| (counts[*i], p[*i])).unzip();
        assert_distribution(&counts, &p, "shares");
    }
}

/// Leaves to evict are drawn by 1 / weight, without replacement: an ordered pair (i, j) has probability v_i /
/// V * v_j / (V - v_i) with v = 1 / w.
#[test]
fn eviction_prefers_small_weights() {
    let weights_of: [u32; 4] = [1, 2, 5, 40];
    let places = [3usize, 64, 65, 399];
    let tree = SumTree::new(400, 16).unwrap();
    places.iter().zip(weights_of).for_each(|(i, w)| tree.set(*i, w).unwrap());
    let v = weights_of.map(|w| 1.0 / f64::from(w));
    let total: f64 = v.iter().sum();
    let mut cells = HashMap::new();
    let mut p = Vec::new();
    for (i, j) in (0..16).map(|c| (c / 4, c % 4)).filter(|(i, j)| i != j) {
        cells.insert([places[i] as u64, places[j] as u64], p.len());
        p.push(v[i] / total * v[j] / (total - v[i]));
    }
    let mut counts = vec![0u64; p.len()];
    let mut rng = Rng::new(5);
    for _ in 0..200_000 {
        let (mut indices, mut weights) = ([0; 2], [0; 2]);
        tree.sample_eviction(&mut rng, 0..400, &mut indices, &mut weights).unwrap();
        assert!(indices.iter().zip(&weights).all(|(i, w)| tree.get(*i).unwrap() == *w));
        counts[cells[&indices]] += 1;
    }
    assert_distribution(&counts, &p, "eviction");
    let mut evict = |range, n| tree.sample_eviction(&mut rng, range, &mut vec![0; n], &mut vec![0; n]);
    assert_eq!(evict(0..400, 5), Err(SumTreeError::TooFewLeaves { asked: 5, positive: 4 }));
    assert_eq!(evict(0..65, 2), Ok(()));
    assert!(matches!(evict(0..401, 1), Err(SumTreeError::Index { .. })));
}

/// The largest weights in order, equal ones by leaf, as in a sorted list.
#[test]
fn the_largest_are_those_of_a_sort() {
    for seed in 0..6 {
        let (tree, model) = uneven_tree(20_000, 16, seed);
        let mut order: Vec<usize> = (0..model.len()).collect();
        order.sort_by_key(|i| (std::cmp::Reverse(model[*i]), *i));
        for n in [1usize, 7, 500, 15_000] {
            let (mut indices, mut weights) = (vec![0; n], vec![0; n]);
            tree.largest(&mut indices, &mut weights).unwrap();
            let found: Vec<usize> = indices.iter().map(|i| *i as usize).collect();
            assert_eq!(found, order[..n]);
            assert!(weights.iter().zip(&found).all(|(w, i)| *w == model[*i]));
        }
        let none = tree.largest(&mut vec![0; 15_001], &mut vec![0; 15_001]);
        assert_eq!(none, Err(SumTreeError::TooFewLeaves { asked: 15_001, positive: 15_000 }));
    }
}

/// Learners that split the strata draw from disjoint strata: in a tree of equal weights, no leaf is drawn
/// twice.
#[test]
fn split_draws_are_disjoint() {
    let tree = SumTree::new(6000, 16).unwrap();
    tree.fill_range(0, 6000, 1).unwrap();
    let mut seen = vec![0; 6000];
    for rank in 0..6 {
        let (mut indices, mut weights) = (vec![0; 1000], vec![0; 1000]);
        let mode = Draws::Split { rank, learners: 6 };
        tree.sample(&mut Rng::new(u64::from(rank)), mode, &mut indices, &mut weights).unwrap();
        indices.iter().for_each(|i| seen[*i as usize] += 1);
    }
    assert!(seen.iter().all(|hits| *hits == 1));
}

/// G4: draws that overlap updates of total absolute change D are off by at most about levels * D / total in
/// total variation, measured against the weights before as well as after. The updates happen between the
/// reading of the top and the descent, where they have the largest effect.
#[test]
fn overlapping_updates_move_draws_by_no_more_than_their_size() {
    const LEAVES: usize = 20_000;
    const CELLS: usize = 50;
    const DRAWS: usize = 400_000;
    const LEVELS: f64 = 4.0;
    // Empirical shares of 50 cells by 400,000 draws are off by sqrt(50 / (2 pi 400,000)) = 0.0045 on average.
    const NOISE: f64 = 0.0065;
    let mut rng = Rng::new(21);
    let base: Vec<u32> = (0..LEAVES).map(|_| 500 + rng.below(1000) as u32).collect();
    // Cells are ranges of leaves, so that weight that moves from one end to the other is detected.
    let shares = |weights: &[u32]| {
        let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
        let mut p = [0.0; CELLS];
        weights.iter().enumerate().for_each(|(i, w)| p[i * CELLS / LEAVES] += f64::from(*w) / total);
        p
    };
    let apart =
        |a: &[f64; CELLS], b: &[f64; CELLS]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>() / 2.0;
    for (what, change) in [("nothing", 0), ("growth", 1), ("loss", 2), ("a move", 3), ("scattered", 4)] {
        let tree = SumTree::new(LEAVES as u64, 16).unwrap();
        let after: Vec<u32> = base
            .iter()
            .enumerate()
            .map(|(i, w)| match change {
                1 if i < 500 => w + 1000,
                2 if i < 500 => 0,
                3 if i < 250 => 0,
                3 if i >= LEAVES - 250 => w + 1000,
                4 if i % 40 == 0 => w * 2,
                _ => *w,
            })
            .collect();
        let moved: Vec<usize> = (0..LEAVES).filter(|i| base[*i] != after[*i]).collect();
        let set = |to: &[u32]| moved.iter().for_each(|i| tree.set(*i, to[*i]).unwrap());
        let difference: f64 = moved.iter().map(|i| f64::from(base[*i].abs_diff(after[*i]))).sum();
        tree.set_range(0, &base).unwrap();
        let total = tree.total();
        let mut counts = [0.0; CELLS];
        let (mut indices, mut weights) = (vec![0; 4000], vec![0; 4000]);
        for _ in 0..DRAWS / 4000 {
            tree.find_with::<SumTreeError>(&mut indices, &mut weights, |position, total| {
                if position == 0 {
                    set(&after);
                }
                Ok(rng.below(total))
            })
            .unwrap();
            indices.iter().for_each(|i| counts[*i as usize * CELLS / LEAVES] += 1.0 / DRAWS as f64);
            assert!(indices.iter().zip(&weights).all(|(i, w)| *w > 0 && *w == after[*i as usize]));
            set(&base);
        }
        let bound = LEVELS * difference / total as f64 + NOISE;
        for (when, weights) in [("before", &base), ("after", &after)] {
            let off = apart(&counts, &shares(weights));
            assert!(off <= bound, "{what}, {when}: {off} of at most {bound}");
        }
        tree.verify().unwrap();
    }
}
