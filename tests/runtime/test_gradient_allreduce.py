"""L learners on parts of a batch equal one learner on the whole."""

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
)
from parl.types import EnvSpec

SPEC = EnvSpec((5,), "float32", (), "int64", 3, "next_step")


@pytest.fixture(params=["gloo", "threads"])
def connect(request):
    """Makes the peers of a rank."""
    meetings = {}
    rendezvous = Rendezvous()
    request.addfinalizer(rendezvous.close)

    def made(rank, learners):
        if request.param == "gloo":
            return GlooAllReduce(rendezvous.path, rank, learners, timeout_s=60.0)
        return ThreadAllReduce(meetings.setdefault(learners, ThreadGroup(learners, timeout_s=60.0)), rank)

    return made


def together(connect, learners, work):
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
def test_learners_on_parts_equal_one_on_the_whole(connect, learners, dueling):
    config = Config(hidden=(16, 16), dueling=dueling, target_period=4, max_gradient_norm=0.5)
    whole = DQNLearner(config, SPEC, 0, "cpu")
    for seed in range(20):
        whole.compute(SimpleNamespace(**make_batch(seed), tickets=None))
        whole.step()

    # Seeding is process-wide: made before the threads start.
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
    parts = together(connect, learners, work)
    first = DQNLearner(config, SPEC, 0, "cpu").weights
    assert (whole.weights - first).abs().max() > 0.01
    for weights in parts:
        assert torch.equal(weights, parts[0]), "learners drifted apart"
        # Float32 sums in another order, 20 Adam steps of 2e-3.
        torch.testing.assert_close(weights, whole.weights, rtol=1e-3, atol=1e-4)


def test_one_absent_learner_makes_all_leave_the_update_out(connect):
    def work(rank, peers):
        gradients = torch.full((7,), float(rank + 1))
        answers = [peers.average(gradients, present) for present in (True, rank != 1, True)]
        return answers

    assert together(connect, 3, work) == [[True, False, True]] * 3


def test_average_is_the_mean(connect):
    def work(rank, peers):
        gradients = torch.arange(4.0) * (rank + 1)
        peers.average(gradients, True)
        return gradients

    for gradients in together(connect, 2, work):
        assert gradients.tolist() == [0.0, 1.5, 3.0, 4.5]


def test_alone_leaves_gradients_as_they_are():
    gradients = torch.ones(3)
    assert SingleLearner().average(gradients, True)
    assert not SingleLearner().average(gradients, False)
    assert gradients.tolist() == [1.0, 1.0, 1.0]


def test_a_peer_that_ends_ends_the_waiting_of_the_others():
    meeting = ThreadGroup(2)
    waiting = threading.Thread(target=lambda: ThreadAllReduce(meeting, 1).close())
    waiting.start()
    with pytest.raises(threading.BrokenBarrierError):
        ThreadAllReduce(meeting, 0).average(torch.zeros(2), True)
    waiting.join()
