"""Sampling modes of the device replay, its kernels compiled as host C++: distributions equal the CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from device_cases import CASES, Rows, host, tensors  # noqa: E402
from draws import chi_square_z  # noqa: E402
from host_replay import HostReplay, in_memory  # noqa: E402

import parl  # noqa: E402
from parl.errors import NotSampleableError  # noqa: E402
from parl.replay.cuda import modes  # noqa: E402
from parl.replay.cuda.structs import Kind  # noqa: E402
from tickets import same_tickets  # noqa: E402

PRIORITIES = np.random.default_rng(7).exponential(size=60) + 0.05


def filled(priorities: np.ndarray, kind: Any = HostReplay, **options: Any) -> Any:
    device = {"device": "cuda"} if kind is HostReplay else {"fan_out": 32}
    replay = kind(len(priorities), {"x": ((), "int64")}, **device, **options)
    replay.add(x=np.arange(len(priorities)), priorities=priorities)
    return replay


def drawn(replay: Any, calls: int, size: int, **options: Any) -> np.ndarray:
    counts = np.zeros(replay.capacity)
    for _ in range(calls):
        counts += np.bincount(host(replay.sample(size, **options).x), minlength=replay.capacity)
    return counts


def test_uniform_draws_ignore_the_size_of_priorities():
    priorities = PRIORITIES.copy()
    priorities[::6] = 0
    replay = filled(priorities, epsilon=0.0)
    counts = drawn(replay, 20, 500, mode="uniform")
    alive = priorities > 0
    assert (counts[~alive] == 0).all()
    assert chi_square_z(counts[alive], np.full(alive.sum(), counts.sum() / alive.sum())) < 5
    assert (host(replay.sample(10, mode="uniform", beta=1.0).weights) == 1).all()
    assert replay.counters["sampled"] == 20 * 500 + 10
    replay.check()


@pytest.mark.parametrize("alive", [1, 3])
def test_uniform_draws_find_the_few_rows_with_a_weight(alive: int):
    """So few of 20,000 rows have a weight that 64 attempts usually fail and all rows are scanned."""
    replay = HostReplay(20_000, {"x": ((), "int64")}, device="cuda", epsilon=0.0)
    priorities = np.zeros(20_000)
    priorities[[17, 9_000, 19_999][:alive]] = 1
    replay.add(x=np.arange(20_000), priorities=priorities)
    counts = np.bincount(host(replay.sample(60, mode="uniform").x), minlength=20_000)
    assert (counts > 0).sum() == alive
    assert set(np.flatnonzero(counts)) <= {17, 9_000, 19_999}


def test_mode_largest_gives_the_rows_and_the_order_of_the_cpu():
    # Many priorities are equal: of those, the lower slot comes first.
    priorities = np.random.default_rng(1).integers(1, 9, 60).astype(np.float64)
    cpu, mine = filled(priorities, parl.PrioritizedReplay), filled(priorities)
    same_tickets(cpu, mine)
    for count in (1, 13, 60):
        expected, found = cpu.sample(count, mode="largest"), mine.sample(count, mode="largest")
        np.testing.assert_array_equal(host(found.x), expected.x)
        np.testing.assert_array_equal(host(found.tickets).view(np.uint64), expected.tickets)
        assert (host(found.weights) == 1).all()
    mine.check()


def test_draws_without_replacement_are_in_proportion_among_the_remaining_rows():
    weights = np.array([1.0, 2.0, 4.0, 9.0])
    first, second = np.zeros(4), np.zeros((4, 4))
    replay = filled(weights, alpha=1.0, epsilon=0.0)
    for _ in range(700):
        a, b = host(replay.sample(2, mode="without_replacement").x)
        first[a] += 1
        second[a, b] += 1
    assert chi_square_z(first, weights / 16 * 700) < 5
    left = weights[None] / (16 - weights[:, None]) * (1 - np.eye(4))
    expected = (weights / 16)[:, None] * left * 700
    assert chi_square_z(second[expected > 0], expected[expected > 0]) < 5
    assert (second.diagonal() == 0).all()
    batch = replay.sample(4, mode="without_replacement", beta=0.5)
    assert sorted(host(batch.x).tolist()) == [0, 1, 2, 3]
    np.testing.assert_allclose(host(batch.weights), (1 / weights[host(batch.x)]) ** 0.5, rtol=1e-4)


def test_requests_for_more_distinct_rows_than_exist_are_counted():
    replay = filled(PRIORITIES[:40], n_step=1)
    for mode in ("without_replacement", "largest"):
        batch = replay.sample(41, mode=mode)
        assert (host(batch.weights) > 0).sum() == 40
        assert (batch.tickets[-1], batch.weights[-1]) == (0, 0)
        with pytest.raises(NotSampleableError, match="1 calls requested more rows than could be sampled"):
            replay.check()
    with pytest.raises(ValueError, match="distinct rows were requested, the replay has 42"):
        replay.sample(43, mode="largest")


@pytest.mark.parametrize("norm", ["batch", "global"])
def test_mixtures_sample_with_the_probabilities_of_their_weights(norm: str):
    replay = filled(PRIORITIES, alpha=1.0, epsilon=0.0, seed=5, weight_norm=norm)
    options: dict[str, Any] = {"uniform": 0.3, "newest": 0.2, "newest_rows": 12}
    units = np.round(PRIORITIES * 65536)
    p = 0.5 * units / units.sum() + 0.3 / 60 + np.where(np.arange(60) >= 48, 0.2 / 12, 0.0)
    counts = drawn(replay, 20, 701, **options)
    assert chi_square_z(counts, p * counts.sum()) < 5
    batch = replay.sample(500, beta=0.7, **options)
    x = host(batch.x)
    least = p[x].min()
    if norm == "global":
        # A lower bound for all rows: the smallest weight, rounded down to a power of two, in the 0.5 share.
        bound = 2.0 ** np.floor(np.log2(units.min()))
        least = min(least, 0.5 * bound / units.sum() + 0.3 / 60)
    np.testing.assert_allclose(host(batch.weights), (p[x] / least) ** -0.7, rtol=1e-5)
    # The batch starts with the newest rows: 0.2 of 500 are 100.
    assert (x[:100] >= 48).all()
    replay.check()


def test_rows_are_correct_in_every_mode():
    """Compares windows and stacks with the CPU's rows, in a ring so small that frames are overwritten."""
    case = CASES[6]
    cpu, mine = case.pair(3, "cuda", in_memory)
    rows = Rows(case, 3)
    choices: list[dict[str, Any]] = [
        {"mode": "uniform"},
        {"mode": "without_replacement"},
        {"mode": "largest"},
        {"uniform": 0.5, "newest": 0.25},
    ]
    compared = 0
    for call in range(40):
        more = rows.take()
        cpu.add(**more)
        mine.add(**tensors(more))
        if call < 16:
            continue
        found = mine.sample(5, **choices[call % 4])
        there = host(found.weights) > 0
        # Samples of the CPU's replay give the expected contents of each row.
        known: dict[int, tuple[Any, ...]] = {}
        for _ in range(4):
            batch = cpu.sample(200, mode="independent")
            for i, ticket in enumerate(batch.tickets.tolist()):
                known[ticket] = (batch.obs[i], batch.next_obs[i], batch.reward[i], batch.discount[i])
        for i, ticket in enumerate(host(found.tickets).tolist()):
            if there[i] and ticket in known:
                compared += 1
                mine_row = (found.obs[i], found.next_obs[i], found.reward[i], found.discount[i])
                for a, b in zip(mine_row, known[ticket], strict=True):
                    np.testing.assert_array_equal(host(a), b)
    assert compared > 50


def test_eviction_prefers_small_priorities():
    weights = np.array([1.0, 2.0, 4.0, 32.0])
    expected = 1 / weights / (1 / weights).sum()
    counts = np.zeros(4)
    replay = filled(weights, alpha=1.0, epsilon=0.0)
    for seed in range(300):
        replay.rng_state = (seed, 0)
        counts[int(modes.top_rows(replay, Kind.EVICTION, 1)[0])] += 1
    assert chi_square_z(counts, expected * 300) < 5
    # `evict` removes that row.
    assert int(replay.evict(1)) == 1
    assert replay.sampleable == 3
    gone = set(range(4)) - set(host(replay.sample(3, mode="largest").x).tolist())
    assert gone == {int(modes.top_rows(filled(weights, alpha=1.0, seed=299), Kind.EVICTION, 1)[0])}


def test_evicted_rows_are_not_sampled_or_updated_again():
    replay = filled(PRIORITIES)
    tickets = replay.sample(60, mode="largest").tickets
    assert int(replay.evict(40)) == 40
    assert int(replay.update_priorities(tickets, np.full(60, 9.0))) == 40
    assert len(set(host(replay.sample(20, mode="without_replacement").x))) == 20
    replay.check()
    assert int(replay.evict(21)) == 20
    with pytest.raises(NotSampleableError):
        replay.check()
    replay.verify()
    replay.add(x=np.arange(60))
    assert replay.sampleable == 60
    replay.verify()


def test_rows_without_a_priority_get_the_largest_of_the_whole_call():
    """A call with more than half the capacity is split; rows without a priority get the largest of all."""
    replays = [parl.PrioritizedReplay(40, FIELDS, num_envs=1, n_step=1, fan_out=32)]
    replays.append(HostReplay(40, FIELDS, num_envs=1, n_step=1, device="cuda"))
    for replay in replays:
        replay.add(**steps(1))
        # The row added before has no priority; its window is complete with the first of these rows.
        replay.add(**steps(30), env_id=np.zeros(30, np.int64), priorities=np.linspace(1, 9, 30))
        replay.verify()
    assert replays[1].total_priority == replays[0].total_priority
    np.testing.assert_array_equal(replays[1].histogram(), replays[0].histogram())


FIELDS: dict[str, Any] = {"obs": ((), "int64"), "reward": ((), "float32"), "terminated": ((), "bool")}


def steps(count: int) -> dict[str, Any]:
    return {
        "obs": np.arange(count),
        "reward": np.zeros(count, np.float32),
        "terminated": np.zeros(count, bool),
    }


@pytest.mark.parametrize("reuse", [False, True])
def test_prefetched_batches_equal_those_of_the_cpu(reuse: bool):
    cpu, mine = filled(PRIORITIES, parl.PrioritizedReplay, seed=4), filled(PRIORITIES, seed=4)
    kept: list[int] = []
    with cpu.prefetch(16, depth=3) as ours, mine.prefetch(16, depth=3, reuse=reuse) as theirs:
        for call in range(12):
            expected, found = next(ours), next(theirs)
            np.testing.assert_array_equal(host(found.x), expected.x)
            np.testing.assert_allclose(host(found.weights), expected.weights, rtol=2e-7)
            kept.append(found.x.data_ptr())
            errors = np.random.default_rng(call).exponential(size=16)
            cpu.update_priorities(expected.tickets, errors)
            mine.update_priorities(found.tickets, errors)
            cpu.add(x=np.array([call]))
            mine.add(x=np.array([call]))
            if call == 6:
                ours.set(beta=1.0)
                theirs.set(beta=1.0)
        theirs.close()
        assert len(list(theirs)) == 3
    assert not reuse or len(set(kept)) == 4
    with pytest.raises(ValueError, match="depth is 0, expected 1 to 1024"):
        mine.prefetch(4, depth=0)
    with pytest.raises(ValueError, match="use reuse=True"):
        mine.prefetch(4, out={})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"uniform": 1.5}, "uniform is 1.5 and newest 0"),
        ({"uniform": 0.6, "newest": 0.6}, "uniform is 0.6 and newest 0.6"),
        ({"newest": float("nan")}, "uniform is 0.0 and newest nan"),
        ({"mode": "independent", "uniform": 0.1}, "mode is 'independent', expected"),
    ],
)
def test_shares_outside_0_to_1_raise(options: dict[str, Any], text: str):
    with pytest.raises(ValueError, match=text):
        filled(PRIORITIES).sample(4, **options)
