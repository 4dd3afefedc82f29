"""parl.SumTree: array arguments and results, errors with value and bound, concurrent threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parl


@settings(max_examples=100)
@given(
    capacity=st.integers(1, 600),
    fan_out=st.sampled_from([4, 8, 16, 32, 64]),
    updates=st.lists(
        st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 50)), max_size=20), max_size=20
    ),
)
def test_updates_and_samples_equal_those_of_an_array(capacity, fan_out, updates):
    tree = parl.SumTree(capacity, fan_out=fan_out)
    naive = np.zeros(capacity)
    for batch in updates:
        indices = np.array([i % capacity for i, _ in batch], np.int64)
        priorities = np.array([p / 4 for _, p in batch])
        tree.update(indices, priorities)
        for i, p in zip(indices, priorities, strict=True):  # In order: of equal indices the last one counts.
            naive[i] = p
    np.testing.assert_array_equal(tree[np.arange(capacity)], naive)
    assert tree.total == naive.sum()
    tree.verify()
    if naive.any():
        prefix = np.linspace(0, naive.sum(), 50, endpoint=False)
        np.testing.assert_array_equal(
            tree.find(prefix), np.searchsorted(naive.cumsum(), prefix, side="right")
        )
        indices, priorities = tree.sample(64)
        np.testing.assert_array_equal(priorities, naive[indices])
        assert (priorities > 0).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "bool"])
@pytest.mark.parametrize("index_dtype", ["int64", "int32", "uint8", "uint64"])
def test_dtypes_and_layouts(dtype, index_dtype):
    tree = parl.SumTree(20)
    indices = np.arange(20, dtype=index_dtype)[::2]
    tree.update(indices, np.ones(20, dtype)[::2])
    assert tree.total == 10
    tree.update(list(range(10)), 2.0)
    assert tree.total == 10 * 2 + 5


def test_getting_and_setting_items():
    tree = parl.SumTree(10)
    tree[3] = 1.5
    tree[-1] = 2
    tree[[4, 5]] = [1.0, 2.0]
    tree[np.array([6, 7])] = 3.0
    assert (tree[3], tree[9], tree[-1], len(tree), tree.capacity) == (1.5, 2.0, 2.0, 10, 10)
    np.testing.assert_array_equal(tree[[4, 5, 6, 7]], [1, 2, 3, 3])
    np.testing.assert_array_equal(tree[[[4, 5], [6, 7]]], [[1, 2], [3, 3]])
    assert tree[np.zeros((0, 3), int)].shape == (0, 3)
    assert tree.total == 12.5
    assert "total=12.5" in repr(tree)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda t: t.update([0, 10], [1.0, 1.0]), IndexError, r"leaf 10 at position 1 is outside 0 to 9"),
        (lambda t: t.update([-1], [1.0]), IndexError, r"leaf -1 at position 0 is outside 0 to 9"),
        (lambda t: t.update(np.array([2**64 - 1], np.uint64), [1.0]), IndexError, "outside int64"),
        (
            lambda t: t.update([0], [-1.0]),
            ValueError,
            "priority -1 at position 0 is below 0",
        ),
        (lambda t: t.update([0], [np.nan]), ValueError, "priority NaN at position 0"),
        (lambda t: t.update([0], np.float32([np.inf])), ValueError, "priority inf at position 0"),
        (lambda t: t.update([0, 1, 2], [1.0, 2.0]), ValueError, "weights has 2 entries, expected 3"),
        (lambda t: t.update([0.5], [1.0]), TypeError, "indices has dtype float64, expected an integer type"),
        (lambda t: t.update([0], ["a"]), TypeError, "priorities has dtype <U1, expected a real type"),
        (lambda t: t[10], IndexError, r"leaf 10 is outside -10 to 9"),
        (lambda t: t[-11], IndexError, r"leaf -11 is outside -10 to 9"),
        (lambda t: t.sample(-1), ValueError, r"n is -1, expected 0 to"),
        (lambda t: t.sample(1), parl.errors.NotSampleableError, "every weight is zero"),
        (lambda t: t.find([0.0]), ValueError, r"prefix sum 0 at position 0 is outside 0 <= p < 0"),
        (lambda t: parl.SumTree(0), ValueError, r"capacity is 0, expected 1 to 4294967296"),
        (lambda t: parl.SumTree(-5), ValueError, "capacity is -5, expected"),
        (lambda t: parl.SumTree(10, fan_out=3), ValueError, "fan_out is 3, expected 4, 8"),
        (lambda t: parl.SumTree(10, scale=0), ValueError, "scale 0 is not a finite number > 0"),
    ],
)
def test_bad_arguments_raise_and_change_nothing(call, error, text):
    tree = parl.SumTree(10)
    with pytest.raises(error, match=text):
        call(tree)
    assert tree.total == 0


def test_a_tree_too_large_for_memory_raises():
    """A tree of more than 16 GiB is created, since untouched memory is free, or raises MemoryError."""
    try:
        tree = parl.SumTree(2**32)
    except MemoryError as error:
        assert "cannot allocate" in str(error)
    else:
        tree[2**32 - 1] = 2.0
        assert tree.sample(1)[0][0] == 2**32 - 1


def test_a_seed_and_a_restored_state_repeat_samples():
    tree = parl.SumTree(100, seed=3)
    tree.update(np.arange(100), np.arange(100.0))
    state = tree.rng_state
    first = tree.sample(20)[0]
    tree.rng_state = state
    np.testing.assert_array_equal(first, tree.sample(20)[0])
    tree.seed(3)
    np.testing.assert_array_equal(first, tree.sample(20)[0])
    with pytest.raises(OverflowError):
        tree.rng_state = -1


def test_saturated_priorities_are_counted():
    tree = parl.SumTree(4)
    tree.update([0, 1], [1e9, tree.max_priority])
    assert (tree.saturated, tree[0]) == (1, tree.max_priority)


def test_threads_update_and_sample_one_tree():
    tree = parl.SumTree(5000)
    tree.update(np.arange(5000), 1.0)
    errors = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(300):
                tree.update(rng.integers(0, 5000, 256), rng.random(256, np.float32))
                indices, priorities = tree.sample(256)
                assert (indices < 5000).all() and (priorities > 0).all()
                assert tree.total > 0 and 0 <= tree[7] <= 1
        except BaseException as error:  # reported below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    tree.verify()
    assert tree.total == pytest.approx(tree[np.arange(5000)].sum(), rel=1e-12)


def test_modes_that_do_not_sample_by_priority():
    tree = parl.SumTree(1000, seed=1)
    tree.update(np.arange(100, 110), np.arange(1.0, 11.0))
    at, priorities = tree.sample(3, mode="largest")
    assert at.tolist() == [109, 108, 107] and priorities.tolist() == [10, 9, 8]
    at, _ = tree.sample(500, mode="uniform")
    assert set(at.tolist()) == set(range(100, 110))
    at, _ = tree.sample(10, mode="eviction")
    assert sorted(at.tolist()) == list(range(100, 110))
    at, priorities, chances = tree.sample_mixture(
        400, uniform=0.25, newest=0.25, newest_from=105, newest_count=5
    )
    expected = 0.5 * priorities / 55 + 0.025 + np.where(at >= 105, 0.05, 0)
    np.testing.assert_allclose(chances, expected)
    assert (at[:100] >= 105).all()
    with pytest.raises(ValueError, match="shares uniform 2"):
        tree.sample_mixture(4, uniform=2)
    with pytest.raises(parl.errors.NotSampleableError):
        tree.sample(11, mode="eviction")


def test_histogram_and_counts():
    tree = parl.SumTree(50, scale=1)
    tree.update([1, 2, 3, 4], [1.0, 2.0, 3.0, 9.0])
    tree.update([4], [0.0])
    assert tree.histogram()[:5].tolist() == [47, 1, 2, 0, 0]
    assert (tree.largest, tree.positive, tree.restarts) == (9, 3, 0)


def test_find_works_while_the_total_changes():
    tree = parl.SumTree(1 << 12)
    tree.update(np.arange(1 << 12), 1.0)
    stop = threading.Event()

    def shrink_and_grow():
        leaves = np.arange(1 << 11, 1 << 12)
        while not stop.is_set():
            tree.update(leaves, 0.0)
            tree.update(leaves, 1.0)

    writer = threading.Thread(target=shrink_and_grow)
    writer.start()
    try:
        rng = np.random.default_rng(0)
        for _ in range(2000):
            total = tree.total
            found = tree.find(rng.random(64) * total, total=total)
            assert found.min() >= 0 and found.max() < 1 << 12
    finally:
        stop.set()
        writer.join()
    assert tree.find([2047.5], total=tree.total).tolist() == [2047]
    with pytest.raises(ValueError, match=r"prefix sum 4096 at position 1 is outside 0 <= p < 4096"):
        tree.find([1.0, 4096.0], total=4096.0)
    with pytest.raises(ValueError, match=r"prefix sum 4096 at position 0 is outside 0 <= p < 4096"):
        tree.find([4096.0])


@pytest.mark.slow
def test_all_of_2_to_the_28_leaves_can_be_set():
    """Sets every leaf (1.4 GB): the sums are exact, and samples come from the whole range."""
    leaves = 2**28
    tree = parl.SumTree(leaves, seed=3)
    part = np.arange(1 << 20)
    for start in range(0, leaves, 1 << 20):
        tree.update(part + start, 1.0 + (part & 3))
    assert tree.total == 2.5 * leaves
    tree.verify()
    at, priorities = tree.sample(1 << 16)
    np.testing.assert_array_equal(priorities, 1.0 + (at & 3))
    assert (np.diff(at) >= 0).all() and at[0] < leaves // 1000 and at[-1] > leaves - leaves // 1000
    np.testing.assert_array_equal(tree.find([0.0, tree.total - 1]), [0, leaves - 1])
