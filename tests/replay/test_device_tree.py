"""The device's sum tree, its kernels compiled as host C++, gives the sums and samples of the CPU's tree."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from draws import chi_square_z  # noqa: E402
from host_replay import HostSumTree, library  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import parl  # noqa: E402
from parl.errors import InconsistentError, NotSampleableError  # noqa: E402
from parl.replay.cuda import generator, layout, structs, tree_modes  # noqa: E402


def pair(capacity: int, seed: int = 0) -> tuple[parl.SumTree, HostSumTree]:
    return parl.SumTree(capacity, fan_out=32, seed=seed), HostSumTree(capacity, seed=seed)


def test_structs_have_the_sizes_of_the_kernels():
    found = 0
    for name, struct in vars(structs).items():
        if isinstance(struct, type) and issubclass(struct, ctypes.Structure) and name not in PARTS:
            assert library().parl_size(name.encode()) == ctypes.sizeof(struct), name
            found += 1
    assert found == 16


def test_constants_equal_those_of_the_kernels():
    """Constants that Python and the kernels share are equal; the kernels have all members of each enum."""
    folder = Path(__file__).parents[2] / "crates" / "sumtree" / "kernels"
    texts = [re.sub(r"//.*", "", path.read_text()) for path in sorted(folder.glob("*.cu*"))]
    enums, numbers = {}, {}
    for text in texts:
        for name, body in re.findall(r"enum (\w+) : uint32_t \{(.*?)\}", text, re.S):
            enums[name] = {key: int(value) for key, value in re.findall(r"(\w+) = (\d+)", body)}
        for line in re.findall(r"constexpr uint\w+ (.*?);", text):
            numbers |= {key: int(value) for key, value in re.findall(r"(\w+) = (\d+)(?=$|,)", line)}
    numbers |= {"WORDS": enums["Word"]["WORDS"], "MAX_WEIGHT": 2**27 - 1}
    for kind in (structs.Word, structs.Mode, structs.Kind, structs.Strategy):
        ours = {member.name: int(member) for member in kind if member.name != "NONE"}
        assert ours.items() <= enums[kind.__name__].items()
    named = ("LEVELS_MAX", "OUTPUTS_MAX", "MAX_WEIGHT", "SIZES", "LANES", "WORDS")
    named += ("THREADS", "PIECES", "DRAWS_PER_BLOCK")
    for name in named:
        assert getattr(structs, name, getattr(layout, name, None)) == numbers[name], name


@pytest.mark.parametrize(
    ("capacity", "history", "slots", "chunk"),
    [
        (1, 0, 3, 1),
        (64, 3, 69, 1),
        (6_400, 7, 6_700, 100),
        (65_536, 0, 67_584, 1_024),
        (10**6, 0, 1_002_496, 1_024),
    ],
)
def test_rings_have_the_size_of_the_cpus_rings(capacity, history, slots, chunk):
    # A chunk is a 64th of the capacity, at most 1,024 rows; a ring has two chunks more than the rows need.
    assert layout.ring(capacity, history) == (slots, chunk)


PARTS = {"Reals", "Draws", "Output", "Source"}


@settings(max_examples=25)
@given(
    capacity=st.sampled_from([1, 5, 32, 33, 100, 1024, 1025, 33_000]),
    seed=st.integers(0, 2**64 - 1),
    backwards=st.booleans(),
    updates=st.lists(
        st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 50)), max_size=80), min_size=1, max_size=4
    ),
)
def test_sums_and_samples_equal_those_of_the_cpu(capacity, seed, backwards, updates):
    cpu, tree = pair(capacity, seed)
    tree._cuda.program.backwards = backwards
    for batch in updates:
        # With few leaves, many items name the same leaf: the last one counts.
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
    assert tree.rng_state == cpu.rng_state
    prefixes = np.linspace(0, cpu.total, 50, endpoint=False)
    np.testing.assert_array_equal(tree.find(prefixes).numpy(), cpu.find(prefixes))
    np.testing.assert_array_equal(
        tree.find(prefixes / 2, total=cpu.total / 2).numpy(), cpu.find(prefixes / 2, total=cpu.total / 2)
    )
    tree.check()


def test_large_batches_equal_those_of_the_cpu():
    cpu, tree = pair(5000, seed=9)
    priorities = np.random.default_rng(0).random(5000)
    for one in (cpu, tree):
        one.update(np.arange(5000), priorities)
    for mine, theirs in zip(tree.sample(9000), cpu.sample(9000), strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("mode", ["stratified", "independent", "systematic", "split"])
def test_random_numbers_that_would_bias_the_draw_are_rejected(mode, backwards):
    """At a total of 3 * 2^61 a quarter of the numbers is rejected, which shifts all later ones."""
    tree, node = HostSumTree(4096, seed=4), 3 * 2**54
    tree._cuda.program.backwards = backwards
    # Leaves cannot weigh that much. The sums are set directly, so the search ends at the last leaf of a node.
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


def numbers_of(state: int, count: int) -> list[int]:
    """The random numbers of the next call of a tree whose generator has this state."""
    seed = generator.first_number(state)
    return [generator.first_number((seed + i * 0x9E3779B97F4A7C15) % 2**64) for i in range(count)]


def test_bad_updates_are_skipped_and_reported_by_check():
    tree = HostSumTree(10)
    tree.update([0, 10, -1, 3], [1.0, 1.0, 1.0, 2.0])
    with pytest.raises(IndexError, match="2 indices or prefix sums were outside the tree"):
        tree.check()
    tree.update([1, 2, 4, 5], [-1.0, float("nan"), float("inf"), 3.0])
    with pytest.raises(ValueError, match="3 priorities were not finite numbers >= 0"):
        tree.check()
    tree.check()
    np.testing.assert_array_equal(tree[np.arange(10)].numpy(), [1, 0, 0, 2, 0, 3, 0, 0, 0, 0])
    assert tree.find([6.0, 5.5, -1.0]).tolist() == [-1, 5, -1]
    tree[3] = -1.0
    with pytest.raises(ValueError, match=r"1 priorities were .*; 2 indices or prefix sums were outside"):
        tree.check()
    tree.check()
    tree.verify()
    empty = HostSumTree(10)
    assert [tensor.tolist() for tensor in empty.sample(2)] == [[0, 0], [0.0, 0.0]]
    with pytest.raises(NotSampleableError, match="1 calls sampled from a tree in which every priority is 0"):
        empty.check()


def test_bad_arguments_raise_at_once():
    tree = HostSumTree(10)
    with pytest.raises(ValueError, match=r"priorities have shape \(2,\), expected \(3,\)"):
        tree.update([1, 2, 3], [1.0, 2.0])
    with pytest.raises(ValueError, match="mode is 'smallest', expected one of stratified"):
        tree.sample(3, mode="smallest")
    with pytest.raises(ValueError, match="11 distinct leaves were requested, the tree has 10"):
        tree.sample(11, mode="largest")
    with pytest.raises(ValueError, match=r"uniform is 0\.7 and newest 0\.7"):
        tree.sample_mixture(3, uniform=0.7, newest=0.7)
    with pytest.raises(ValueError, match=r"newest_count 0, expected leaves of 0 to 10"):
        tree.sample_mixture(3, newest=0.1)
    with pytest.raises(ValueError, match="16777217 draws, expected"):
        tree.sample(2**24 + 1)
    with pytest.raises(ValueError, match=r"rank is 3, expected 0 to 2"):
        tree.sample(3, mode="split", rank=3, learners=3)
    with pytest.raises(IndexError, match="leaf 10 is outside"):
        tree[10] = 1.0
    for capacity in (0, 2**31 + 1):
        with pytest.raises(ValueError, match=f"capacity is {capacity}, expected 1 to 2147483648"):
            HostSumTree(capacity)


def test_items_and_saturation():
    tree = HostSumTree(10)
    tree[3], tree[-1] = 1.5, 1e9
    tree[[4, 5]] = 2.0
    assert (tree[3], tree[9], tree[-1], len(tree)) == (1.5, tree.max_priority, tree.max_priority, 10)
    assert (tree.saturated, tree.positive) == (1, 4)
    del tree[3], tree[[4, 5]]
    assert (tree[3], tree[4], tree.positive, tree.restarts) == (0, 0, 1, 0)
    tree._memory.level(1)[0] += 1
    with pytest.raises(InconsistentError, match="node 0 of level 1 is"):
        tree.verify()


WEIGHTS = np.array([0, 3, 1, 0, 8, 2, 2, 0, 5, 9], float)


def weighted(priorities: np.ndarray = WEIGHTS) -> tuple[parl.SumTree, HostSumTree]:
    cpu, tree = pair(len(priorities), seed=6)
    for one in (cpu, tree):
        one.update(np.arange(len(priorities)), priorities)
    return cpu, tree


def test_random_words_equal_those_of_splitmix64():
    """The first numbers of SplitMix64 with seed 0, as its authors print them."""
    words = tree_modes.random_words(torch.tensor(0), 3, torch).numpy().view(np.uint64)
    assert [hex(word) for word in words.tolist()] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_mode_largest_equals_that_of_the_cpu():
    cpu, tree = weighted(np.random.default_rng(0).integers(0, 6, 500).astype(float))
    for count in (1, 30, 400):
        for mine, theirs in zip(
            tree.sample(count, mode="largest"), cpu.sample(count, mode="largest"), strict=True
        ):
            np.testing.assert_array_equal(mine.numpy(), theirs)


def test_uniform_and_distinct_samples_have_the_distributions_of_the_cpu():
    _, tree = weighted()
    alive, counts = (
        WEIGHTS > 0,
        {mode: np.zeros(10) for mode in ("uniform", "without_replacement", "eviction")},
    )
    for _ in range(600):
        for mode, found in counts.items():
            indices, priorities = tree.sample(1, mode=mode)
            found[indices] += 1
            np.testing.assert_array_equal(priorities.numpy(), WEIGHTS[indices])
    laws = {"uniform": alive / 7, "without_replacement": WEIGHTS / WEIGHTS.sum()}
    rarely = np.where(alive, 1 / np.maximum(WEIGHTS, 1), 0)
    laws["eviction"] = rarely / rarely.sum()
    for mode, law in laws.items():
        assert (counts[mode][~alive] == 0).all()
        assert chi_square_z(counts[mode][alive], 600 * law[alive]) < 5, mode
    for mode in ("without_replacement", "eviction"):
        assert sorted(tree.sample(7, mode=mode)[0].tolist()) == np.flatnonzero(alive).tolist()
        tree.check()
        # One more than the tree has.
        assert tree.sample(8, mode=mode)[1].tolist().count(0) == 1
        with pytest.raises(NotSampleableError):
            tree.check()


def test_mixtures_have_the_probabilities_of_the_cpu():
    cpu, tree = weighted()
    options = {"uniform": 0.3, "newest": 0.25, "newest_from": 8, "newest_count": 4}
    expected = dict(
        zip(*(column.tolist() for column in cpu.sample_mixture(2000, **options)[::2]), strict=True)
    )
    assert len(expected) == 7
    counts = np.zeros(10)
    for size in (1000, 801):
        indices, priorities, odds = tree.sample_mixture(size, **options)
        np.testing.assert_array_equal(priorities.numpy(), WEIGHTS[indices])
        np.testing.assert_allclose(odds.numpy(), [expected[i] for i in indices.tolist()], rtol=1e-12)
        counts += np.bincount(indices, minlength=10)
    alive = WEIGHTS > 0
    assert (counts[~alive] == 0).all()
    law = np.array([expected.get(i, 0) for i in range(10)])
    assert law.sum() == pytest.approx(1)
    assert chi_square_z(counts[alive], 1801 * law[alive]) < 5
    # With two shares of one half, a call that draws one leaf never draws it by priority.
    halves = {"uniform": 0.5, "newest": 0.5, "newest_from": 1, "newest_count": 1}
    single = np.concatenate([tree.sample_mixture(1, **halves)[0].numpy() for _ in range(600)])
    found = np.bincount(single, minlength=10)[alive]
    assert chi_square_z(found, 600 * np.array([8, 1, 1, 1, 1, 1, 1]) / 14) < 5
    # Without shares, one leaf per stratum is drawn by priority.
    indices = tree.sample_mixture(30)[0].numpy()
    assert (np.diff(indices) >= 0).all()
    np.testing.assert_allclose(np.bincount(indices, minlength=10), WEIGHTS, atol=1)
    tree.check()
    empty = HostSumTree(10)
    assert empty.sample_mixture(3, uniform=0.5)[1].tolist() == [0, 0, 0]
    with pytest.raises(NotSampleableError):
        empty.check()


def test_each_call_draws_new_random_numbers():
    _, tree = weighted(np.ones(1000))
    draws = [tuple(tree.sample(5, mode="uniform")[0].tolist()) for _ in range(20)]
    assert len(set(draws)) == 20
    state = tree.rng_state
    first = tree.sample_mixture(9, uniform=0.5)[0]
    tree.rng_state = state
    assert torch.equal(tree.sample_mixture(9, uniform=0.5)[0], first)
