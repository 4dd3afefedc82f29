"""Averages of gradients: learners on parts of a batch give the weights of one on the whole batch."""

import multiprocessing
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from parl.algos.dqn import Config, DQNLearner
from parl.errors import WorkerError
from parl.runtime.gradient_allreduce import (
    _ARRIVED,
    _WORDS,
    SharedAllReduce,
    SharedGradients,
    SingleLearner,
)
from parl.types import EnvSpec

SPEC = EnvSpec((5,), "float32", (), "int64", 3, "next_step")


@pytest.fixture
def connect():
    """Returns a function that makes the all-reduce of a rank."""
    memory = {}

    def made(rank, learners, size):
        shared = memory.setdefault(learners, SharedGradients(multiprocessing, size, learners))
        return SharedAllReduce(shared, rank)

    return made


def run_learners(connect, learners, size, work):
    """Runs ``work(rank, peers)`` in one thread per learner of ``size`` gradients; returns the results."""
    results, errors = [None] * learners, []
    done = threading.Barrier(learners)

    def run(rank):
        peers = connect(rank, learners, size)
        try:
            results[rank] = work(rank, peers)
            done.wait(60.0)
        except Exception as error:
            errors.append(error)
        finally:
            peers.close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(learners)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    return results


def make_batch(seed, size=48):
    rng = np.random.default_rng(seed)
    columns = {
        "obs": rng.normal(size=(size, 5)),
        "next_obs": rng.normal(size=(size, 5)),
        "reward": rng.normal(size=size),
        "discount": rng.uniform(0, 1, size),
        "weights": rng.uniform(0.01, 1, size),
    }
    tensors = {name: torch.from_numpy(column.astype(np.float32)) for name, column in columns.items()}
    return tensors | {"action": torch.from_numpy(rng.integers(0, 3, size))}


@pytest.mark.parametrize("learners", [2, 3])
@pytest.mark.parametrize("dueling", [False, True])
def test_learners_on_parts_of_a_batch_equal_one_on_the_whole(connect, learners, dueling):
    config = Config(hidden=(16, 16), dueling=dueling, target_period=4, max_gradient_norm=0.5)
    whole = DQNLearner(config, SPEC, 0, "cpu")
    for seed in range(20):
        whole.compute(SimpleNamespace(**make_batch(seed), tickets=None))
        whole.step()

    # Learners are made before the threads start, since seeding is process-wide.
    members = [DQNLearner(config, SPEC, 0, "cpu") for _ in range(learners)]

    def work(rank, peers):
        learner = members[rank]
        for seed in range(20):
            part = {name: tensor.chunk(learners)[rank] for name, tensor in make_batch(seed).items()}
            learner.compute(SimpleNamespace(**part, tickets=None))
            assert peers.average(learner.gradients, True)
            learner.step()
        return learner.weights

    torch.set_num_threads(1)
    parts = run_learners(connect, learners, len(members[0].gradients), work)
    first = DQNLearner(config, SPEC, 0, "cpu").weights
    assert (whole.weights - first).abs().max() > 0.01
    for weights in parts:
        assert torch.equal(weights, parts[0]), "learners drifted apart"
        # Tolerances for float32 sums in another order, after 20 Adam steps of 2e-3.
        torch.testing.assert_close(weights, whole.weights, rtol=1e-3, atol=1e-4)


def test_one_absent_learner_makes_all_skip_the_update(connect):
    def work(rank, peers):
        gradients = torch.full((7,), float(rank + 1))
        answers = [peers.average(gradients, present) for present in (True, rank != 1, True)]
        return answers

    assert run_learners(connect, 3, 7, work) == [[True, False, True]] * 3


def test_average_is_the_mean(connect):
    def work(rank, peers):
        gradients = torch.arange(4.0) * (rank + 1)
        peers.average(gradients, True)
        return gradients

    for gradients in run_learners(connect, 2, 4, work):
        assert gradients.tolist() == [0.0, 1.5, 3.0, 4.5]


def test_a_single_learner_leaves_gradients_unchanged():
    gradients, log = torch.ones(3), []
    assert SingleLearner().average(gradients, True, lambda: log.append(1)) is True and log == [1]
    assert SingleLearner().average(gradients, False) is False
    assert gradients.tolist() == [1.0, 1.0, 1.0]
    SingleLearner().close()


def test_closing_one_learner_releases_those_that_wait():
    shared = SharedGradients(multiprocessing, 2, 2)
    waiting = threading.Thread(target=SharedAllReduce(shared, 1).close)
    waiting.start()
    with pytest.raises(RuntimeError, match="learner 1 has ended"):
        SharedAllReduce(shared, 0).average(torch.zeros(2), True)
    waiting.join()


def test_a_learner_that_ends_after_an_average_has_taken_part_in_it():
    shared = SharedGradients(multiprocessing, 1, 2)
    words = shared.words.tolist()
    peer, gradients = SharedAllReduce(shared, 1), torch.tensor([2.0])

    def fails(rank):
        """The peer arrives and ends while this learner looks after it."""
        shared.slots[1, 1] = 4.0
        shared.words[_WORDS + _ARRIVED] = 1
        peer.close()
        raise WorkerError(f"learner {rank} has ended")

    assert SharedAllReduce(shared, 0, fails).average(gradients, True)
    assert gradients.item() == 3.0 and words == [0] * 2 * _WORDS


def test_an_error_of_a_learner_ends_the_wait_for_it():
    def fails(rank):
        raise WorkerError(f"learner {rank} was killed")

    peers = SharedAllReduce(SharedGradients(multiprocessing, 1, 3), 0, fails)
    with pytest.raises(WorkerError, match="learner 1 was killed"):
        peers.average(torch.zeros(1), True)


def _average_in_process(shared, rank, rounds):
    random, peers = np.random.default_rng(rank), SharedAllReduce(shared, rank)
    for number in range(rounds):
        gradients = torch.full((1_000,), float(number + 10 * rank))
        absent = number % 7 == 3 and rank == 1
        if random.random() < 0.2:
            time.sleep(random.random() * 3e-3)
        present = peers.average(gradients, not absent)
        assert present == (number % 7 != 3)
        assert not present or (gradients == number + 5).all(), (number, gradients)
    peers.close()


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_processes_average_the_gradients_of_the_same_update(method):
    """Each learner writes into a slot again while others may still read."""
    context = multiprocessing.get_context(method)
    shared = SharedGradients(context, 1_000, 2)
    peer = context.Process(target=_average_in_process, args=(shared, 1, 300))
    peer.start()
    _average_in_process(shared, 0, 300)
    peer.join(60.0)
    assert peer.exitcode == 0
