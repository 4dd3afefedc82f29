"""Averages of gradients: learners on parts of a batch give the weights of one on the whole batch."""

import inspect
import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from parl.algos.dqn import Config, DQNLearner
from parl.runtime.gradient_allreduce import (
    GlooAllReduce,
    Rendezvous,
    SingleLearner,
    ThreadAllReduce,
    ThreadGroup,
    pack_flag,
)
from parl.types import EnvSpec

SPEC = EnvSpec((5,), "float32", (), "int64", 3, "next_step")


@pytest.fixture(params=["gloo", "threads"])
def connect(request):
    """Returns a function that makes the all-reduce of a rank."""
    groups = {}
    rendezvous = Rendezvous()
    request.addfinalizer(rendezvous.close)

    def made(rank, learners):
        if request.param == "gloo":
            return GlooAllReduce(rendezvous.path, rank, learners, timeout_s=60.0)
        return ThreadAllReduce(groups.setdefault(learners, ThreadGroup(learners, timeout_s=60.0)), rank)

    return made


@pytest.mark.parametrize("kind", [GlooAllReduce, ThreadGroup])
def test_learners_wait_for_the_first_one_while_it_evaluates(kind):
    """An evaluation of Atari games, or a callback, can take longer than ten minutes."""
    assert inspect.signature(kind).parameters["timeout_s"].default >= 24 * 3_600


def run_learners(connect, learners, work):
    """Runs ``work(rank, peers)`` in one thread per learner and returns the results."""
    results, errors = [None] * learners, []
    done = threading.Barrier(learners)

    def run(rank):
        peers = connect(rank, learners)
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
    parts = run_learners(connect, learners, work)
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

    assert run_learners(connect, 3, work) == [[True, False, True]] * 3


def test_average_is_the_mean(connect):
    def work(rank, peers):
        gradients = torch.arange(4.0) * (rank + 1)
        peers.average(gradients, True)
        return gradients

    for gradients in run_learners(connect, 2, work):
        assert gradients.tolist() == [0.0, 1.5, 3.0, 4.5]


def test_a_single_learner_leaves_gradients_unchanged():
    gradients, log = torch.ones(3), []
    assert SingleLearner().average(gradients, True, lambda: log.append(1)) is True and log == [1]
    assert SingleLearner().average(gradients, False) is False
    assert gradients.tolist() == [1.0, 1.0, 1.0]
    SingleLearner().close()


def test_closing_one_learner_releases_those_that_wait():
    group = ThreadGroup(2)
    waiting = threading.Thread(target=lambda: ThreadAllReduce(group, 1).close())
    waiting.start()
    with pytest.raises(threading.BrokenBarrierError):
        ThreadAllReduce(group, 0).average(torch.zeros(2), True)
    waiting.join()


def test_gradients_and_a_flag_share_one_buffer():
    gradients = torch.tensor([1.0, 2.0])
    first = pack_flag(torch.empty(0), gradients, 0.0)
    assert first.tolist() == [1.0, 2.0, 0.0]
    again = pack_flag(first, gradients + 1, 0.0)
    assert again is first and again.tolist() == [2.0, 3.0, 0.0]
    assert pack_flag(first, gradients, 2.0).tolist() == [0.0, 0.0, 2.0]
    assert pack_flag(first, torch.ones(3), 0.0).tolist() == [1.0, 1.0, 1.0, 0.0]


def test_a_thread_group_has_a_place_for_each_learner():
    group = ThreadGroup(3)
    assert group.barrier.parties == 3 and len(group.gradients) == len(group.present) == 3
    assert not any(group.present)
    peers = ThreadAllReduce(ThreadGroup(1), 0)
    gradients = torch.tensor([4.0])
    assert peers.average(gradients, True) and gradients.tolist() == [4.0]
    assert not peers.average(gradients, False)
    peers.close()
    assert peers._group.barrier.broken


def test_closing_a_rendezvous_removes_its_file():
    rendezvous = Rendezvous()
    assert os.path.getsize(rendezvous.path) == 0
    rendezvous.close()
    rendezvous.close()
    assert not os.path.exists(rendezvous.path)


def test_a_group_that_is_freed_late_writes_to_no_file(tmp_path):
    """A traceback may hold an all-reduce beyond the end of a run, and the all-reduce its group."""
    rendezvous = Rendezvous()
    held = []

    def started_one(rank, peers):
        assert rank > 0 or not os.path.exists(rendezvous.path)
        held.append(peers._group.allreduce([torch.ones(1)]))
        held[-1].wait()

    run_learners(lambda rank, learners: GlooAllReduce(rendezvous.path, rank, learners, 60.0), 2, started_one)
    rendezvous.close()
    with open(tmp_path / "other", "w+b") as other:  # gets the lowest free file descriptor
        held.clear()
        assert os.fstat(other.fileno()).st_size == 0
