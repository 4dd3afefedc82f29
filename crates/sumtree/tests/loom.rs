//! Every interleaving of two or three threads on small trees.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p sumtree --release --test loom`
#![cfg(loom)]
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)] // loom's cell hands out raw pointers, and reports a race on them.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use sumtree::{Draws, Rng, SumTree, SumTreeError};

fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

/// Four leaves under one sum.
fn four() -> Arc<SumTree> {
    Arc::new(SumTree::new(4, 4).unwrap())
}

/// Two threads exchange and add on one leaf and on its neighbor: at the end the sum is that of the leaves.
#[test]
fn adds_commute() {
    loom::model(|| {
        let tree = four();
        tree.set(0u32, 3).unwrap();
        let other = {
            let tree = tree.clone();
            thread::spawn(move || {
                tree.set(0u32, 10).unwrap();
                tree.set(1u32, 2).unwrap();
            })
        };
        tree.set(0u32, 7).unwrap();
        tree.set(1u32, 0).unwrap();
        other.join().unwrap();
        tree.verify().unwrap();
        assert!(matches!(tree.get(0u32).unwrap(), 7 | 10));
        assert_eq!(tree.total(), u64::from(tree.get(0u32).unwrap() + tree.get(1u32).unwrap()));
    });
}

/// As above with a level of u32 sums between leaves and top, three threads, one of them setting a run.
#[test]
fn adds_commute_on_three_levels() {
    model(3, || {
        let tree = Arc::new(SumTree::new(12, 4).unwrap());
        let threads: Vec<_> = (0..2u32)
            .map(|t| {
                let tree = tree.clone();
                thread::spawn(move || {
                    if t == 0 { tree.set(5u32, 9).unwrap() } else { tree.set_range(3, &[1, 2, 3]).unwrap() }
                })
            })
            .collect();
        tree.set(5u32, 4).unwrap();
        threads.into_iter().for_each(|t| t.join().unwrap());
        tree.verify().unwrap();
        let leaf = tree.get(5u32).unwrap();
        assert!(matches!(leaf, 9 | 3 | 4));
        assert_eq!(tree.total(), u64::from(1 + 2 + leaf));
    });
}

/// What a draw may return while leaf 0 goes from 5 to 0 and leaf 2 from 0 to 7; leaves 1 and 3 are never set.
fn check_draw(drawn: Result<u64, SumTreeError>, index: u64, weight: u32) {
    match drawn {
        Ok(_) => assert!(matches!((index, weight), (0, 5) | (2, 7)), "leaf {index} of weight {weight}"),
        // The total was read before leaf 2 got its weight, and the leaves after leaf 0 lost it.
        Err(SumTreeError::Empty) => {}
        Err(other) => panic!("{other}"),
    }
}

/// A sampler beside an updater draws only leaves that had their weight at some moment, and sees what was
/// written before leaf 2 was published if it draws it (otherwise loom reports a data race on the cell).
#[test]
fn a_draw_sees_what_was_published() {
    for seed in 0..3 {
        model(3, move || {
            let tree = four();
            tree.set(0u32, 5).unwrap();
            let row = Arc::new(UnsafeCell::new(0));
            let writer = {
                let (tree, row) = (tree.clone(), row.clone());
                thread::spawn(move || {
                    // SAFETY: no thread reads the row before leaf 2 has a weight.
                    row.with_mut(|p| unsafe { *p = 42 });
                    tree.set(2u32, 7).unwrap();
                    tree.set(0u32, 0).unwrap();
                })
            };
            let (mut index, mut weight) = ([9], [9]);
            let drawn = tree.sample(&mut Rng::new(seed), Draws::Independent, &mut index, &mut weight);
            check_draw(drawn.clone(), index[0], weight[0]);
            if drawn.is_ok() && index[0] == 2 {
                // SAFETY: the row is not written after leaf 2 is published.
                assert_eq!(row.with(|p| unsafe { *p }), 42);
            }
            writer.join().unwrap();
            tree.verify().unwrap();
        });
    }
}

/// A sampler beside two updaters, of which one clears leaf 0 and the other sets leaf 2.
#[test]
fn a_draw_beside_two_writers() {
    model(2, || {
        let tree = four();
        tree.set(0u32, 5).unwrap();
        let threads: Vec<_> = [(0u32, 0), (2u32, 7)]
            .into_iter()
            .map(|(i, w)| {
                let tree = tree.clone();
                thread::spawn(move || tree.set(i, w).unwrap())
            })
            .collect();
        let (mut index, mut weight) = ([9; 2], [9; 2]);
        let drawn = tree.sample(&mut Rng::new(1), Draws::Stratified, &mut index, &mut weight);
        check_draw(drawn.clone(), index[0], weight[0]);
        check_draw(drawn, index[1], weight[1]);
        threads.into_iter().for_each(|t| t.join().unwrap());
        tree.verify().unwrap();
        assert_eq!(tree.total(), 7);
    });
}

/// The exclusive writer with two threads: each update is stored when its call returns, and none is lost.
#[test]
fn exclusive_updates_are_stored_on_return() {
    model(3, || {
        let tree = Arc::new(SumTree::new(4, 4).unwrap().exclusive());
        let other = {
            let tree = tree.clone();
            thread::spawn(move || tree.set_many(&[0u32, 1], &[5, 6]).unwrap())
        };
        tree.set(3u32, 8).unwrap();
        assert_eq!(tree.get(3u32).unwrap(), 8);
        other.join().unwrap();
        tree.verify().unwrap();
        assert_eq!(tree.total(), 5 + 6 + 8);
    });
}

/// The replay depends on this order: one thread closes a row and then clears its weight; another stores a weight and
/// then checks whether the row is closed. Either the second thread sees it closed, or the zero was stored last.
#[test]
fn the_second_store_sees_what_came_before_the_first() {
    use sumtree::sync::{AtomicBool, Ordering::Relaxed};
    model(3, || {
        let tree = Arc::new(SumTree::new(4, 4).unwrap().exclusive());
        let closed = Arc::new(AtomicBool::new(false));
        let evictor = {
            let (tree, closed) = (tree.clone(), closed.clone());
            thread::spawn(move || {
                closed.store(true, Relaxed);
                tree.set(0u32, 0).unwrap();
            })
        };
        tree.set_many(&[0u32, 1], &[5, 6]).unwrap();
        let seen = closed.load(Relaxed);
        evictor.join().unwrap();
        assert!(seen || tree.get(0u32).unwrap() == 0, "a closed row keeps a weight");
        tree.verify().unwrap();
    });
}
