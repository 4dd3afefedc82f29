"""The sum tree of a device, its kernels as host C++, beside the CPU's: the same sums, the same draws."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from emulated import HostSumTree, library  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import parl  # noqa: E402
from parl.errors import InconsistentError, NotSampleableError  # noqa: E402
from parl.replay.device import jump, structs  # noqa: E402


def pair(capacity: int, seed: int = 0) -> tuple[parl.SumTree, HostSumTree]:
    return parl.SumTree(capacity, fan_out=32, seed=seed), HostSumTree(capacity, seed=seed)


def test_structs_are_as_large_as_the_kernels_have_them():
    found = 0
    for name, struct in vars(structs).items():
        if isinstance(struct, type) and issubclass(struct, ctypes.Structure) and name not in PARTS:
            assert library().parl_size(name.encode()) == ctypes.sizeof(struct), name
            found += 1
    assert found == 16


PARTS = {"Reals", "Draws", "Output", "Source"}


@settings(max_examples=25, deadline=None)
@given(
    capacity=st.sampled_from([1, 5, 32, 33, 100, 1024, 1025, 33_000]),
    seed=st.integers(0, 2**64 - 1),
    backwards=st.booleans(),
    updates=st.lists(
        st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 50)), max_size=80), min_size=1, max_size=4
    ),
)
def test_sums_and_draws_are_those_of_the_cpu(capacity, seed, backwards, updates):
    cpu, tree = pair(capacity, seed)
    tree._place.program.backwards = backwards
    for batch in updates:
        # Few leaves, so that many items have one in common: the last one wins.
        indices = np.array([i % capacity for i, _ in batch], np.int64)
        priorities = np.array([p / 4 for _, p in batch])
        cpu.update(indices, priorities)
        tree.update(indices, priorities)
    everything = np.arange(capacity)
    np.testing.assert_array_equal(tree[everything].numpy(), cpu[everything])
    assert (tree.total, tree.largest, tree.positive) == (cpu.total, cpu.largest, cpu.positive)
    np.testing.assert_array_equal(tree.histogram(), cpu.histogram())
    tree.verify()
    if cpu.total == 0:
        return
    for count in (1, 33, 70):
        for mode in ("stratified", "independent", "systematic", "split"):
            options = {"rank": 1, "learners": 3} if mode == "split" else {}
            for mine, theirs in zip(
                tree.sample(count, mode=mode, **options),
                cpu.sample(count, mode=mode, **options),
                strict=True,
            ):
                np.testing.assert_array_equal(mine.numpy(), theirs)
    assert tree.rng_state == list(cpu.rng_state)
    prefixes = np.linspace(0, cpu.total, 50, endpoint=False)
    np.testing.assert_array_equal(tree.find(prefixes).numpy(), cpu.find(prefixes))
    np.testing.assert_array_equal(
        tree.find(prefixes / 2, total=cpu.total / 2).numpy(), cpu.find(prefixes / 2, total=cpu.total / 2)
    )
    tree.check()


def test_large_batches_jump_over_three_digits():
    """9,000 draws are 282 blocks: 10, 1 and 1 in base 16."""
    cpu, tree = pair(5000, seed=9)
    priorities = np.random.default_rng(0).random(5000)
    for one in (cpu, tree):
        one.update(np.arange(5000), priorities)
    for mine, theirs in zip(tree.sample(9000), cpu.sample(9000), strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("mode", ["stratified", "independent", "systematic", "split"])
def test_numbers_with_a_preimage_too_many(mode, backwards):
    """At a total of 3 * 2^61 a quarter of the numbers is drawn again, which moves all later ones on."""
    tree, node = HostSumTree(4096, seed=4), 3 * 2**54
    tree._place.program.backwards = backwards
    # No leaves weigh so much: sums that claim it lead to the last leaf of a node.
    tree._memory.level(1)[:] = node
    tree._memory.level(2)[:4] = 32 * node
    total, count = 128 * node, 80
    numbers = iter(numbers_of(tree.rng_state, 1000))
    surplus = (2**64 - total) % total
    fine = (number * total >> 64 for number in numbers if number * total % 2**64 >= surplus)
    shared = next(fine) if mode == "systematic" else None
    options = {"rank": 1, "learners": 3} if mode == "split" else {}
    expected = []
    for i in range(count):
        offset = next(fine) if shared is None else shared
        stratum, strata = (1 + 3 * i, 3 * count) if mode == "split" else (i, count)
        target = offset if mode == "independent" else (stratum * total + offset) // strata
        expected.append(target // node * 32 + 31)
    indices, _ = tree.sample(count, mode=mode, **options)
    assert indices.tolist() == expected


def numbers_of(master: list[int], count: int) -> list[int]:
    """Numbers of the generator of the next call of a tree, one after the other."""
    mask = 2**64 - 1

    def rotate(word, by):
        return (word << by | word >> (64 - by)) & mask

    def step(s):
        out = (rotate((s[0] + s[3]) & mask, 23) + s[0]) & mask
        t = s[1] << 17 & mask
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotate(s[3], 45)
        return out

    state = jump.seeded(step(list(master)))
    return [step(state) for _ in range(count)]


def test_what_is_wrong_is_left_out_and_raised_by_check():
    tree = HostSumTree(10)
    tree.update([0, 10, -1, 3], [1.0, 1.0, 1.0, 2.0])
    with pytest.raises(IndexError, match="2 leaves or prefix sums were outside the tree"):
        tree.check()
    tree.update([1, 2, 4, 5], [-1.0, float("nan"), float("inf"), 3.0])
    with pytest.raises(ValueError, match="3 priorities were not finite numbers >= 0"):
        tree.check()
    tree.check()
    np.testing.assert_array_equal(tree[np.arange(10)].numpy(), [1, 0, 0, 2, 0, 3, 0, 0, 0, 0])
    assert tree.find([6.0, 5.5, -1.0]).tolist() == [-1, 5, -1]
    with pytest.raises(IndexError):
        tree.check()
    tree.verify()
    empty = HostSumTree(10)
    assert [tensor.tolist() for tensor in empty.sample(2)] == [[0, 0], [0.0, 0.0]]
    with pytest.raises(NotSampleableError, match="1 calls drew from a tree in which every priority was 0"):
        empty.check()


def test_bad_calls_are_errors_at_once():
    tree = HostSumTree(10)
    with pytest.raises(ValueError, match=r"priorities have shape \(2,\), expected \(3,\)"):
        tree.update([1, 2, 3], [1.0, 2.0])
    with pytest.raises(ValueError, match="mode 'largest' is none of stratified"):
        tree.sample(3, mode="largest")
    with pytest.raises(ValueError, match="131041 draws are outside"):
        tree.sample(131_041)
    with pytest.raises(ValueError, match=r"rank 3 is outside 0\.\.3"):
        tree.sample(3, mode="split", rank=3, learners=3)
    with pytest.raises(IndexError, match="leaf 10 is outside"):
        tree[10] = 1.0
    for capacity in (0, 2**31 + 1):
        with pytest.raises(ValueError, match=f"capacity {capacity} is outside 1..=2147483648"):
            HostSumTree(capacity)


def test_items_and_saturation():
    tree = HostSumTree(10)
    tree[3], tree[-1] = 1.5, 1e9
    tree[[4, 5]] = 2.0
    assert (tree[3], tree[9], tree[-1], len(tree)) == (1.5, tree.max_priority, tree.max_priority, 10)
    assert (tree.saturated, tree.positive) == (1, 4)
    tree._memory.level(1)[0] += 1
    with pytest.raises(InconsistentError, match="node 0 of level 1 is"):
        tree.verify()
