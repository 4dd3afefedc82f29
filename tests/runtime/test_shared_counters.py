"""Weights and counters in shared memory reach other processes without mixed versions."""

import multiprocessing

import numpy as np
import pytest
import torch

from parl.runtime.shared_counters import EPISODE_SLOTS, STEPS, SharedCounters
from parl.runtime.weights import SharedWeights

FORK = multiprocessing.get_context("fork")


def _publish(snapshot, enough):
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork.
    version = 0
    while not enough.is_set():
        version += 1
        assert snapshot.publish(torch.full((snapshot.size,), float(version))) == version


def test_a_reader_never_sees_two_versions_mixed():
    snapshot, enough = SharedWeights(FORK, 200_000), FORK.Event()
    writer = FORK.Process(target=_publish, args=(snapshot, enough), daemon=True)
    weights, version, seen = torch.zeros(200_000), 0, 0
    writer.start()
    while seen < 200:
        old, version = version, snapshot.read(weights, version)
        assert version >= old
        if version != old:
            seen += 1
            assert weights[0].item() == version
            assert bool((weights == weights[0]).all()), "two versions in one read"
        assert writer.is_alive()
    enough.set()
    writer.join()
    assert writer.exitcode == 0


def test_an_unchanged_version_is_not_copied():
    snapshot = SharedWeights(FORK, 3)
    weights = torch.tensor([7.0, 7.0, 7.0])
    assert snapshot.version == 0
    snapshot.publish(torch.tensor([1.0, 2.0, 3.0]))
    assert snapshot.read(weights, 0) == 1
    assert weights.tolist() == [1.0, 2.0, 3.0]
    weights.zero_()
    assert snapshot.read(weights, 1) == 1
    assert not weights.any()


def _actor(counters, index):
    for number in range(5):
        counters.actor[index, STEPS] += 10
        counters.add_episodes(index, [(100.0 * index + number, number)])


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_counters_and_episodes_reach_the_driver(method):
    context = multiprocessing.get_context(method)
    counters = SharedCounters(context, actors=2, learners=1)
    workers = [context.Process(target=_actor, args=(counters, index)) for index in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert counters.env_steps == 100
    assert sorted(counters.take_episodes()) == [(100.0 * i + n, n) for i in range(2) for n in range(5)]
    assert counters.take_episodes() == []
    counters.add_episodes(0, [(2.0, 2)])
    assert counters.take_episodes() == [(2.0, 2)]


def test_unread_episodes_are_overwritten():
    counters = SharedCounters(FORK, actors=1, learners=1)
    counters.add_episodes(0, [(float(n), n) for n in range(EPISODE_SLOTS + 3)])
    assert [length for _, length in counters.take_episodes()] == list(range(3, EPISODE_SLOTS + 3))


def test_the_last_episodes_are_those_of_all_actors():
    """Metrics show the mean return of the last 100."""
    counters = SharedCounters(FORK, actors=3, learners=1)
    for actor, count in enumerate((200, 200, 100)):
        counters.add_episodes(actor, [(float(actor), n) for n in range(count)])
    found = counters.take_episodes()
    assert len(found) == 500
    last = [int(value) for value, _ in found[-100:]]
    assert [last.count(actor) for actor in range(3)] == [40, 40, 20]
    assert [length for value, length in found if value == 1.0] == list(range(200))


def test_rows_do_not_share_cache_lines():
    counters = SharedCounters(FORK, actors=2, learners=2)
    assert counters.actor.strides[0] == 128
    assert not np.shares_memory(counters.actor, counters.learner)
