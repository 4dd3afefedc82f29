"""Sampling modes that do not depend on priorities alone: uniform, largest, mixtures; eviction."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from draws import chi_square_z, filled

import parl


@pytest.fixture(params=["cpu", "host device"])
def make_replay(request):
    """Makes replays of the CPU or of a device, whose kernels then run on the host."""
    if request.param == "cpu":
        return parl.PrioritizedReplay
    pytest.importorskip("torch")
    from host_replay import HostReplay

    return functools.partial(HostReplay, device="cuda")


PRIORITIES = np.random.default_rng(7).exponential(size=60) + 0.05


def counted(buffer: parl.PrioritizedReplay, calls: int, size: int, **options) -> np.ndarray:
    counts = np.zeros(buffer.capacity)
    for _ in range(calls):
        counts += np.bincount(buffer.sample(size, **options).x, minlength=buffer.capacity)
    return counts


def test_uniform_draws_ignore_the_size_of_priorities():
    priorities = PRIORITIES.copy()
    priorities[::6] = 0
    buffer = filled(priorities, epsilon=0.0)
    counts = counted(buffer, 400, 100, mode="uniform")
    alive = priorities > 0
    assert (counts[~alive] == 0).all()
    expected = np.full(alive.sum(), counts.sum() / alive.sum())
    assert chi_square_z(counts[alive], expected) < 5
    batch = buffer.sample(10, mode="uniform", beta=1.0)
    assert (batch.weights == 1).all()


def test_mode_largest_equals_a_sort():
    buffer = filled(PRIORITIES)
    batch = buffer.sample(13, mode="largest")
    np.testing.assert_array_equal(batch.x, np.argsort(-PRIORITIES)[:13])
    assert (batch.weights == 1).all()
    assert buffer.update_priorities(batch.tickets[:3], [0.001] * 3) == 0
    np.testing.assert_array_equal(buffer.sample(10, mode="largest").x, batch.x[3:])
    with pytest.raises(parl.errors.NotSampleableError, match="61 distinct leaves"):
        buffer.sample(61, mode="largest")


def test_mixtures_sample_with_the_probabilities_of_their_weights():
    buffer = filled(PRIORITIES, alpha=1.0, epsilon=0.0, seed=5)
    options = {"uniform": 0.3, "newest": 0.2, "newest_rows": 12}
    share = np.round(PRIORITIES * 65536) / np.round(PRIORITIES * 65536).sum()
    p = 0.5 * share + 0.3 / 60 + np.where(np.arange(60) >= 48, 0.2 / 12, 0.0)
    counts = counted(buffer, 700, 101, **options)
    assert chi_square_z(counts, p * counts.sum()) < 5
    batch = buffer.sample(500, beta=0.7, **options)
    expected = (p[batch.x] / p[batch.x].min()) ** -0.7
    np.testing.assert_allclose(batch.weights, expected, rtol=1e-5)


def test_priorities_too_small_for_float32_are_not_zero(make_replay):
    replay = make_replay(3, {"x": ((), "int64")}, alpha=1.0, epsilon=0.0)
    replay.add(x=np.arange(3), priorities=np.array([1e-300, 0.0, 1.0]))
    assert sorted(replay.sample(2, mode="without_replacement").x.tolist()) == [0, 2]


def test_newest_rows_are_found_across_the_end_of_the_ring(make_replay):
    replay = make_replay(64, {"x": ((), "int64")}, alpha=1.0)
    for start in range(0, 400, 7):
        replay.add(x=np.arange(start, start + 7))
        batch = replay.sample(32, newest=1.0, newest_rows=5)
        assert set(batch.x.tolist()) <= set(range(start + 2, start + 7))
        assert (batch.weights == 1).all()
    # Rows with incomplete windows cannot be sampled: the newest complete rows are used instead.
    fields = {"obs": ((), "int64"), "reward": ((), "float32"), "terminated": ((), "bool")}
    waiting = make_replay(100, fields, n_step=3, num_envs=1)
    for n in range(10):
        waiting.add(obs=[n], reward=[0.0], terminated=[False])
    batch = waiting.sample(16, newest=1.0, newest_rows=2)
    assert set(batch.obs.tolist()) <= {4, 5, 6}


def test_shares_hold_in_batches_of_one_row(make_replay):
    replay = make_replay(50, {"x": ((), "int64")}, alpha=1.0, epsilon=0.0)
    replay.add(x=np.arange(50), priorities=np.where(np.arange(50) == 0, 1000.0, 0.1))
    options = {"uniform": 0.5, "newest": 0.5, "newest_rows": 5}
    x = np.array([int(replay.sample(1, **options).x[0]) for _ in range(600)])
    # No share is left for draws by priority, nearly all of which would be row 0.
    assert (x == 0).sum() < 30
    assert abs((x >= 45).mean() - 0.55) < 0.1


def test_global_weights_of_a_mixture_have_one_scale():
    buffer = filled(PRIORITIES, weight_norm="global", alpha=1.0)
    seen: dict[int, float] = {}
    for _ in range(20):
        batch = buffer.sample(32, beta=0.5, uniform=0.2)
        assert batch.weights.max() <= 1
        for x, weight in zip(batch.x.tolist(), batch.weights.tolist(), strict=True):
            assert seen.setdefault(x, weight) == pytest.approx(weight)


def test_shares_outside_0_to_1_raise():
    buffer = filled(PRIORITIES)
    for bad in (
        {"uniform": 1.5},
        {"uniform": 0.6, "newest": 0.6},
        {"newest": -0.1},
        {"uniform": float("nan")},
    ):
        with pytest.raises(ValueError, match="shares uniform"):
            buffer.sample(4, **bad)
    with pytest.raises(ValueError, match='mode "independent" cannot be mixed'):
        buffer.sample(4, mode="independent", uniform=0.1)


def test_eviction_prefers_small_priorities():
    weights = np.array([1.0, 2.0, 4.0, 32.0])
    expected = 1 / weights / (1 / weights).sum()
    counts = np.zeros(4)
    for seed in range(600):
        buffer = filled(weights, alpha=1.0, epsilon=0.0, seed=seed)
        assert buffer.evict(1) == 1
        assert buffer.sampleable == 3
        counts[(set(range(4)) - set(buffer.sample(3, mode="without_replacement").x)).pop()] += 1
    assert chi_square_z(counts, expected * 600) < 5


def test_evicted_rows_are_not_sampled_or_updated_again():
    buffer = filled(PRIORITIES)
    tickets = buffer.sample(60, mode="largest").tickets
    assert buffer.evict(40) == 40
    assert buffer.update_priorities(tickets, np.full(60, 9.0)) == 40
    assert len(set(buffer.sample(20, mode="without_replacement").x)) == 20
    with pytest.raises(parl.errors.NotSampleableError, match="21 distinct leaves asked for, but only 20"):
        buffer.evict(21)
    buffer.verify()
    buffer.add(x=np.arange(60))
    assert buffer.sampleable == 60
    buffer.verify()


def test_windows_include_evicted_rows(make_replay):
    fields = {"obs": ((), "int64"), "reward": ((), "float32"), "terminated": ((), "bool")}
    replay = make_replay(50, fields, n_step=3, gamma=1.0, num_envs=1, alpha=1.0)
    for n in range(40):
        replay.add(obs=[n], reward=[1.0], terminated=[False], priorities=[1000.0 if n % 4 == 0 else 0.01])
    assert replay.evict(20) == 20
    batch = replay.sample(30, mode="uniform")
    np.testing.assert_array_equal(batch.next_obs, batch.obs + 3)
    assert (batch.reward == 3).all()


def test_max_priority_and_histogram():
    buffer = filled(np.array([0.5, 1.0, 3.0, 3.5, 0.0]), alpha=1.0, epsilon=0.0)
    assert buffer.max_priority == 3.5
    sizes = buffer.histogram()
    # 0.5 is 2^15 units, 16 bits; 1 is 17 bits; 3 and 3.5 are 18 bits.
    assert [sizes[k] for k in (16, 17, 18)] == [1, 1, 2]
    assert sizes[1:].sum() == 4
    assert buffer.counters["restarts"] == 0


def test_private_and_shared_memory_give_equal_samples(name):
    batches = []
    for shared in (None, name):
        buffer = filled(PRIORITIES, seed=9, shared=shared)
        tickets = buffer.sample(20).tickets
        buffer.update_priorities(tickets, np.arange(20.0))
        batches.append(buffer.sample(50))
        buffer.verify()
    np.testing.assert_array_equal(batches[0].x, batches[1].x)
    np.testing.assert_array_equal(batches[0].weights, batches[1].weights)
