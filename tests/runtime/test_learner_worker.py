"""A learner worker draws the next batch while gradients are averaged, and writes priorities later."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from parl.replay import PrioritizedReplay
from parl.runtime.gradient_allreduce import SingleLearner
from parl.runtime.off_policy.learner_worker import LearnerWorker


class LoggedAllReduce:
    """A fake all-reduce that logs when :meth:`average` starts and ends."""

    def __init__(self, log):
        self._log = log

    def average(self, gradients, present, meanwhile=None):
        self._log.append("sent")
        if meanwhile is not None:
            meanwhile()
        self._log.append("arrived")
        return present

    def close(self):
        pass


@pytest.mark.parametrize(("prefetch", "delay"), [(0, 0), (1, 0), (2, 3)])
def test_the_next_batch_is_drawn_while_gradients_are_averaged(prefetch, delay):
    fields = {"obs": ((1,), "float32"), "reward": ((), "float32"), "terminated": ((), "bool")}
    replay = PrioritizedReplay(64, fields, num_envs=1, alpha=1.0, seed=0)
    for i in range(60):
        replay.add(obs=[[i]], reward=[0.0], terminated=[False])
    log, set_at, computed = [], [], []
    sample, update = replay.sample, replay.update_priorities

    def drawn(*args, **kwargs):
        log.append("drawn")
        return sample(*args, **kwargs)

    class Watched:
        """The replay, with a log of draws and priorities."""

        settings = replay.settings

        def empty_batch(self, *args, **kwargs):
            made = replay.empty_batch(*args, **kwargs)
            return SimpleNamespace(inner=made, prepared=None)

        def sample(self, *args, out, **kwargs):
            drawn(*args, out=out.inner, **kwargs)
            out.tickets = np.array(out.inner.tickets)
            return out

        def update_priorities(self, tickets, priorities):
            set_at.append(len(computed))
            update(tickets, priorities)

    class Computes:
        gradients = torch.zeros(3)

        def compute(self, batch):
            log.append("computed")
            computed.append(np.array(batch.tickets))
            return np.full(8, 1.0, np.float32)

        def step(self):
            log.append("stepped")

    algorithm = SimpleNamespace(replay_beta=lambda _: 0.4)
    part = LearnerWorker(
        algorithm, Computes(), Watched(), LoggedAllReduce(log), 8, prefetch=prefetch, delay=delay
    )
    for _ in range(6):
        assert part.update(0)
    between = [
        log[i + 1 : j] for i, j in zip(_positions(log, "sent"), _positions(log, "arrived"), strict=True)
    ]
    # The first update fills the queue; each later one replaces the batch that was taken.
    assert between == [["drawn"] * prefetch] + [["drawn"] * min(prefetch, 1)] * 5
    assert log.count("drawn") == 6 + prefetch
    assert set_at == list(range(1 + delay, 7))
    part.flush()
    assert len(set_at) == 6


def _positions(log, word):
    return [place for place, found in enumerate(log) if found == word]


class KeepsWeights:
    """A learner that keeps the importance weights of its batches and does not change priorities."""

    may_record_graph = False

    def __init__(self, replay):
        self._replay, self.gradients, self.seen = replay, torch.zeros(1), []

    def compute(self, batch):
        self.seen.append((batch.obs[:, 0].numpy().copy(), batch.weights.numpy().copy()))
        return np.where(self.seen[-1][0] < 8, 1.0, 16.0).astype(np.float32)

    def step(self):
        pass


@pytest.mark.parametrize(
    ("prefetch", "peers"),
    [(0, SingleLearner()), (2, SingleLearner()), (0, LoggedAllReduce([])), (2, LoggedAllReduce([]))],
)
def test_importance_weights_follow_the_schedule_of_beta(prefetch, peers):
    """Beside rows of priority 1, rows of priority 16 have importance weight 16 ** -beta."""
    fields = {"obs": ((1,), "float32"), "reward": ((), "float32"), "terminated": ((), "bool")}
    replay = PrioritizedReplay(16, fields, num_envs=1, alpha=1.0, seed=0)
    for i in range(16):
        replay.add(obs=[[i]], reward=[0.0], terminated=[False])
    learner = KeepsWeights(replay)
    beta = {0: 0.4, 500: 0.7, 1_000: 1.0}
    algorithm = SimpleNamespace(replay_beta=beta.__getitem__)
    part = LearnerWorker(algorithm, learner, replay, peers, 64, prefetch=prefetch)
    try:
        for env_steps, exponent in beta.items():
            for _ in range(6):  # prefetched batches have the previous exponent
                part.update(env_steps)
            row, weights = learner.seen[-1]
            assert weights[row < 8] == pytest.approx(1.0) and (row < 8).any()
            assert weights[row >= 8] == pytest.approx(16.0**-exponent) and (row >= 8).any()
    finally:
        part.close()
        replay.close()
