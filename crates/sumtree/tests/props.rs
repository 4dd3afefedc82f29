//! Compares the tree with a plain vector of weights, for sizes that are not a power of the fan-out.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use sumtree::{Draws, FAN_OUTS, Rng, SumTree, SumTreeError, max_weight};

/// One call on the tree; indices and lengths are reduced to the capacity when it is applied.
#[derive(Debug, Clone)]
enum Call {
    Set(usize, u32),
    SetMany(Vec<(usize, u32)>),
    SetRange(usize, Vec<u32>),
    FillRange(usize, usize, u32),
}

fn weight() -> impl Strategy<Value = u32> {
    prop_oneof![3 => Just(0u32), 3 => 1u32..5, 3 => 1u32..=(1 << 26) - 1, 1 => Just(u32::MAX)]
}

fn call() -> impl Strategy<Value = Call> {
    let at = 0usize..1 << 20;
    prop_oneof![
        (at.clone(), weight()).prop_map(|(i, w)| Call::Set(i, w)),
        prop::collection::vec((at.clone(), weight()), 0..40).prop_map(Call::SetMany),
        (at.clone(), prop::collection::vec(weight(), 0..300)).prop_map(|(i, w)| Call::SetRange(i, w)),
        (at, 0usize..5000, weight()).prop_map(|(i, n, w)| Call::FillRange(i, n, w)),
    ]
}

fn apply(tree: &SumTree, model: &mut [u64], call: &Call) {
    let (n, max) = (model.len(), tree.max_weight());
    let cap = |w: u32| w.min(max);
    match call {
        Call::Set(i, w) => {
            tree.set(i % n, cap(*w)).unwrap();
            model[i % n] = u64::from(cap(*w));
        }
        Call::SetMany(pairs) => {
            // Few distinct indices, so that some repeat within the batch: the last one must win.
            let indices: Vec<u64> = pairs.iter().map(|(i, _)| (i % n.min(17)) as u64).collect();
            let weights: Vec<u32> = pairs.iter().map(|(_, w)| cap(*w)).collect();
            tree.set_many(&indices, &weights).unwrap();
            indices.iter().zip(&weights).for_each(|(i, w)| model[*i as usize] = u64::from(*w));
        }
        Call::SetRange(first, weights) => {
            let first = first % n;
            let weights: Vec<u32> = weights.iter().take(n - first).map(|w| cap(*w)).collect();
            tree.set_range(first, &weights).unwrap();
            weights.iter().enumerate().for_each(|(k, w)| model[first + k] = u64::from(*w));
        }
        Call::FillRange(first, count, w) => {
            let first = first % n;
            let count = (*count).min(n - first);
            tree.fill_range(first, count, cap(*w)).unwrap();
            model[first..first + count].fill(u64::from(cap(*w)));
        }
    }
}

/// The leaf that contains a prefix sum, by a linear search.
fn model_find(model: &[u64], mut prefix: u64) -> usize {
    for (i, w) in model.iter().enumerate() {
        if prefix < *w {
            return i;
        }
        prefix -= w;
    }
    panic!("prefix beyond the total");
}

fn capacity() -> impl Strategy<Value = u64> {
    prop_oneof![1u64..70, 1000u64..1100, 4090u64..4200, 20_000u64..70_001]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_vector(
        n in capacity(),
        k in prop::sample::select(FAN_OUTS.to_vec()),
        calls in prop::collection::vec(call(), 1..12),
        seed: u64,
    ) {
        let tree = SumTree::new(n, k).unwrap();
        let mut model = vec![0u64; n as usize];
        for call in &calls {
            apply(&tree, &mut model, call);
        }
        tree.verify().unwrap();
        tree.verify_histogram().unwrap();
        let total: u64 = model.iter().sum();
        prop_assert_eq!(tree.total(), total);
        let mut leaves = vec![0; n as usize];
        tree.get_range(0, &mut leaves).unwrap();
        prop_assert!(leaves.iter().zip(&model).all(|(a, b)| u64::from(*a) == *b));

        let mut rng = Rng::new(seed);
        let (mut indices, mut weights) = ([0u64; 50], [0u32; 50]);
        if total == 0 {
            let drawn = tree.sample(&mut rng, Draws::Stratified, &mut indices, &mut weights);
            prop_assert_eq!(drawn, Err(SumTreeError::Empty));
            return Ok(());
        }
        // Borders of leaves and random prefix sums.
        let first = model.iter().position(|w| *w > 0).unwrap();
        let mut prefixes: Vec<u64> = (0..47).map(|_| rng.below(total)).collect();
        prefixes.extend([0, total - 1, (model[first]).min(total - 1)]);
        prop_assert_eq!(tree.find(&prefixes, &mut indices, &mut weights), Ok(total));
        for ((p, i), w) in prefixes.iter().zip(indices).zip(weights) {
            prop_assert_eq!(i as usize, model_find(&model, *p));
            prop_assert_eq!(u64::from(w), model[i as usize]);
        }
        for mode in [Draws::Independent, Draws::Stratified, Draws::Systematic,
            Draws::Split { rank: 1, learners: 3 }] {
            prop_assert_eq!(tree.sample(&mut rng, mode, &mut indices, &mut weights), Ok(total));
            for (i, w) in indices.iter().zip(weights) {
                prop_assert!(w > 0 && u64::from(w) == model[*i as usize]);
            }
        }
        prop_assert_eq!(tree.restarts(), 0, "nothing restarts at rest");
    }

    #[test]
    fn distinct_draws_are_distinct_and_complete(
        n in 1u64..300,
        k in prop::sample::select(FAN_OUTS.to_vec()),
        positive in prop::collection::vec((0usize..300, prop_oneof![Just(1u32), Just((1 << 26) - 1)]), 0..60),
        asked in 1usize..60,
        seed: u64,
    ) {
        let tree = SumTree::new(n, k).unwrap();
        let mut model = std::collections::BTreeMap::new();
        for (i, w) in positive {
            tree.set(i % n as usize, w).unwrap();
            model.insert((i % n as usize) as u64, w);
        }
        let (mut indices, mut weights) = (vec![0; asked], vec![0; asked]);
        let drawn = tree.sample(&mut Rng::new(seed), Draws::WithoutReplacement, &mut indices, &mut weights);
        if model.is_empty() {
            prop_assert_eq!(drawn, Err(SumTreeError::Empty));
        } else if model.len() < asked {
            prop_assert_eq!(drawn, Err(SumTreeError::TooFewLeaves { asked, positive: model.len() }));
        } else {
            prop_assert!(drawn.is_ok());
            let distinct: std::collections::BTreeSet<u64> = indices.iter().copied().collect();
            prop_assert_eq!(distinct.len(), asked);
            prop_assert!(indices.iter().zip(&weights).all(|(i, w)| model.get(i) == Some(w)));
        }
    }
}

#[test]
fn bad_input_is_an_error_that_names_it_and_changes_nothing() {
    let tree = SumTree::new(10, 16).unwrap();
    tree.set(3usize, 5).unwrap();
    let text = |e: Result<(), SumTreeError>| e.unwrap_err().to_string();
    assert_eq!(text(tree.set(10usize, 1)), "leaf 10 at position 0 is outside 0 to 9");
    assert_eq!(text(tree.set_many(&[1i64, -1], &[1, 1])), "leaf -1 at position 1 is outside 0 to 9");
    assert_eq!(
        text(tree.set_many(&[1u64, u64::MAX], &[1, 1])),
        format!("leaf {} at position 1 is outside 0 to 9", u64::MAX)
    );
    let max = max_weight(16);
    assert_eq!(
        text(tree.set_many(&[1, 2], &[1, max + 1])),
        format!("weight {} at position 1 is larger than {max}", max + 1)
    );
    assert_eq!(text(tree.set_many(&[1, 2], &[1])), "weights has 1 entries, expected 2");
    assert_eq!(text(tree.set_range(8, &[1, 1, 1])), "leaf 10 at position 2 is outside 0 to 9");
    assert_eq!(
        text(tree.fill_range(usize::MAX, 2, 1)),
        format!("leaf {} at position 0 is outside 0 to 9", usize::MAX)
    );
    assert!(tree.get(-7i32).is_err());
    let found = tree.find(&[4, 5], &mut [0; 2], &mut [0; 2]);
    assert_eq!(found.unwrap_err().to_string(), "prefix sum 5 at position 1 is outside 0 <= p < 5");
    let split = Draws::Split { rank: 2, learners: 2 };
    assert!(tree.sample(&mut Rng::new(0), split, &mut [0], &mut [0]).is_err());
    assert_eq!(tree.total(), 5);
    tree.verify().unwrap();
}

#[test]
fn empty_batches_are_fine() {
    let tree = SumTree::new(10, 4).unwrap();
    tree.set_many::<u64>(&[], &[]).unwrap();
    tree.set_range(10, &[]).unwrap();
    assert_eq!(tree.sample(&mut Rng::new(0), Draws::Stratified, &mut [], &mut []), Ok(0));
    assert_eq!(tree.find(&[], &mut [], &mut []), Ok(0));
}

#[test]
fn two_views_of_one_region_are_one_tree() {
    use std::sync::Arc;
    let bytes = SumTree::bytes_needed(1000, 16).unwrap();
    let region = Arc::new(sumtree::Region::heap(bytes + 128).unwrap());
    let a = SumTree::in_region(&region, 128, 1000, 16).unwrap();
    let b = SumTree::in_region(&region, 128, 1000, 16).unwrap();
    a.set(999usize, 7).unwrap();
    assert_eq!((b.get(999usize).unwrap(), b.total()), (7, 7));
    let other = SumTree::in_region(&region, 128, 900, 16);
    assert!(matches!(other, Err(SumTreeError::OtherLayout { offset: 128, capacity: 900, .. })));
    let beyond = SumTree::in_region(&region, 192, 1000, 16);
    assert!(matches!(beyond, Err(SumTreeError::OutsideRegion { .. })));
}

/// A tree with one leaf more than a power of the fan-out takes hardly more memory.
#[test]
fn memory_follows_capacity() {
    for k in FAN_OUTS {
        let at = |n| SumTree::bytes_needed(n, k).unwrap();
        assert!(at((1 << 24) + 1) < at(1 << 24) + 4096, "fan-out {k}");
        let per_leaf = at(3_000_001) as f64 / 3_000_001.0;
        assert!(per_leaf < 4.0 * (1.0 + 2.0 / (k as f64 - 1.0)) + 0.1, "fan-out {k}: {per_leaf}");
    }
    assert!(matches!(SumTree::new(1 << 32, 4), Ok(_) | Err(SumTreeError::OutOfMemory { .. })));
}

/// The arithmetic is correct at the end of a tree of 2^28 leaves, of which a few have weight. (Untouched
/// pages of the mapping take no memory.)
#[test]
fn two_to_the_28th_leaves() {
    for fan_out in [4, 16, 64] {
        let n = 1u64 << 28;
        let tree = SumTree::new(n, fan_out).unwrap();
        let places = [0, 12_345_678, (1 << 27) + 5, n - 2, n - 1];
        let max = tree.max_weight();
        tree.set_many(&places, &[max; 5]).unwrap();
        let each = u64::from(max);
        assert_eq!(tree.total(), 5 * each);
        let prefixes: Vec<u64> = (0..5).flat_map(|k| [k * each, (k + 1) * each - 1]).collect();
        let (mut indices, mut weights) = (vec![0; 10], vec![0; 10]);
        tree.find(&prefixes, &mut indices, &mut weights).unwrap();
        assert!(indices.iter().enumerate().all(|(j, i)| *i == places[j / 2]));
        assert!(weights.iter().all(|w| *w == max));
        let (mut indices, mut weights) = ([0; 5], [0; 5]);
        tree.sample(&mut Rng::new(0), Draws::Stratified, &mut indices, &mut weights).unwrap();
        assert_eq!(indices, places);
    }
}
