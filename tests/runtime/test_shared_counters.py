"""Weights and counters cross process borders whole."""

import multiprocessing

import numpy as np
import pytest
import torch

from parl.runtime import shared_counters as b
from parl.runtime.shared_counters import SharedCounters
from parl.runtime.weights import SharedWeights

FORK = multiprocessing.get_context("fork")


def _publish(snapshot, count):
    for version in range(1, count + 1):
        assert snapshot.publish(torch.full((snapshot.size,), float(version))) == version


def test_a_reader_never_sees_two_versions_mixed():
    snapshot = SharedWeights(FORK, 200_000)
    writer = FORK.Process(target=_publish, args=(snapshot, 400))
    weights, version, seen = torch.zeros(200_000), 0, 0
    writer.start()
    while version < 400:
        old, version = version, snapshot.read(weights, version)
        assert version >= old
        if version != old:
            seen += 1
            assert weights[0].item() == version
            assert bool((weights == weights[0]).all()), "two versions in one read"
        assert writer.is_alive() or snapshot.version == 400
    writer.join()
    assert writer.exitcode == 0
    assert seen > 1


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


def _actor(board, index):
    for number in range(5):
        board.actor[index, b.STEPS] += 10
        board.add_episodes(index, [(100.0 * index + number, number)])


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_counters_and_episodes_reach_the_driver(method):
    context = multiprocessing.get_context(method)
    board = SharedCounters(context, actors=2, learners=1)
    workers = [context.Process(target=_actor, args=(board, index)) for index in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert board.env_steps == 100
    assert sorted(board.take_episodes()) == [(100.0 * i + n, n) for i in range(2) for n in range(5)]
    assert board.take_episodes() == []


def test_episodes_that_nobody_read_are_overwritten():
    board = SharedCounters(FORK, actors=1, learners=1)
    board.add_episodes(0, [(float(n), n) for n in range(b.EPISODE_SLOTS + 3)])
    assert [length for _, length in board.take_episodes()] == list(range(3, b.EPISODE_SLOTS + 3))


def test_rows_do_not_share_cache_lines():
    board = SharedCounters(FORK, actors=2, learners=2)
    assert board.actor.strides[0] == 128
    assert not np.shares_memory(board.actor, board.learner)
