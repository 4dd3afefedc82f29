"""A learner worker draws batches ahead, while gradients are averaged, and writes priorities later."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from parl.errors import NonFiniteError
from parl.replay import PrioritizedReplay
from parl.runtime.gradient_allreduce import SingleLearner
from parl.runtime.off_policy.learner_worker import (
    BatchSampler,
    DelayedPriorities,
    LearnerWorker,
    PrefetchQueue,
    apply_step,
    compute_gradients,
)


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


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_the_first_batches_of_a_thread_have_the_exponent_of_the_schedule(beta):
    """0 once was taken for the replay's default of 0.4, and the first batches of a resumed run had it too."""
    fields = {"obs": ((1,), "float32"), "reward": ((), "float32"), "terminated": ((), "bool")}
    replay = PrioritizedReplay(16, fields, num_envs=1, alpha=1.0, seed=0)
    for i in range(16):
        replay.add(obs=[[i]], reward=[0.0], terminated=[False], priorities=[1.0 if i < 8 else 16.0])
    learner = KeepsWeights(replay)
    algorithm = SimpleNamespace(replay_beta=lambda _: beta)
    part = LearnerWorker(algorithm, learner, replay, SingleLearner(), 64, prefetch=2)
    try:
        for _ in range(4):
            part.update(0)
        for row, weights in learner.seen:
            assert weights[row >= 8] == pytest.approx(16.0**-beta) and (row >= 8).any()
    finally:
        part.close()
        replay.close()


class Replay:
    """A fake replay: all tickets of a batch are the number of the draw."""

    def __init__(self, alpha=0.6):
        self.settings = {"alpha": alpha}
        self.made, self.asked, self.priorities, self.streams = 0, [], [], []

    def empty_batch(self, size, as_torch):
        assert as_torch is True
        self.made += 1
        return SimpleNamespace(number=self.made, size=size, tickets=np.zeros(1))

    def sample(self, size, *, beta, as_torch, out, mode, rank, learners):
        assert as_torch is True and size == out.size
        self.asked.append((beta, mode, rank, learners))
        out.tickets[:] = len(self.asked)

    def update_priorities(self, tickets, priorities):
        self.priorities.append((tickets.tolist(), priorities))

    def prefetch(self, size, **options):
        self.streams.append(Stream(size, options))
        return self.streams[-1]


class Stream:
    def __init__(self, size, options):
        self.size, self.options, self.set_to, self.is_closed = size, options, [], False

    def set(self, beta):
        self.set_to.append(beta)

    def __next__(self):
        return SimpleNamespace(tickets=np.ones(1))

    def close(self):
        self.is_closed = True


@pytest.mark.parametrize(("learners", "mode"), [(1, "stratified"), (2, "split")])
def test_a_sampler_fills_its_batches_in_rotation(learners, mode):
    replay = Replay()
    draws = BatchSampler(replay, 8, 3, 1, learners)
    numbers = [draws.draw(0.5).number for _ in range(7)]
    assert numbers == [1, 2, 3, 1, 2, 3, 1] and replay.made == 3
    assert replay.asked == [(0.5, mode, 1, learners)] * 7


def test_the_batch_of_a_failed_draw_is_used_by_the_next():
    replay, fails = Replay(), [False, True, False, False]
    sample = replay.sample

    def sometimes(*args, **kwargs):
        if fails.pop(0):
            raise ValueError("empty")
        sample(*args, **kwargs)

    replay.sample = sometimes
    draws = BatchSampler(replay, 8, 2, 0, 1)
    first = draws.draw(0.5)
    with pytest.raises(ValueError, match="empty"):
        draws.draw(0.5)
    second = draws.draw(0.5)
    assert second is not first and draws.draw(0.5) is first


def test_a_prepared_batch_samples_itself():
    replay, sampled = Replay(), []
    replay.empty_batch = lambda *_, **__: SimpleNamespace(
        prepared=SimpleNamespace(sample=lambda *options: sampled.append(options))
    )
    BatchSampler(replay, 8, 2, 1, 2).draw(0.25)
    assert sampled == [(0.25, "split", 1, 2)] and not replay.asked


def test_a_prefetch_queue_keeps_its_depth_and_returns_the_oldest():
    numbers = iter(range(10))
    one = lambda: next(numbers)  # noqa: E731
    ahead = PrefetchQueue(2)
    assert ahead.take(one) == 0
    ahead.fill(one)
    assert list(ahead.ready) == [1, 2]
    assert ahead.take(one) == 1
    ahead.fill(one)
    assert list(ahead.ready) == [2, 3]
    nothing = PrefetchQueue(0)
    nothing.fill(one)
    assert not nothing.ready


def test_priorities_are_written_after_the_delay():
    replay = Replay()
    late, tickets = DelayedPriorities(replay, 2), np.zeros(1)
    for number in range(4):
        tickets[:] = number
        late.add([(tickets, number), (tickets, -number)])
    assert replay.priorities == [([0.0], 0), ([0.0], 0), ([1.0], 1), ([1.0], -1)]
    late.flush()
    assert replay.priorities[4:] == [([2.0], 2), ([2.0], -2), ([3.0], 3), ([3.0], -3)]
    assert not late.waiting


def test_priorities_are_written_at_once_without_a_delay():
    replay = Replay()
    late = DelayedPriorities(replay, 0)
    late.add([(np.zeros(1), 1.0)])
    assert replay.priorities == [([0.0], 1.0)] and not late.waiting
    # A run that was saved with a delay still has priorities to write.
    late.waiting.append([(np.ones(1), 2.0)])
    late.add([(np.zeros(1), 3.0)])
    assert replay.priorities[1:] == [([1.0], 2.0), ([0.0], 3.0)]
    uniform = Replay(alpha=0.0)
    late = DelayedPriorities(uniform, 0)
    late.add([(np.zeros(1), 1.0)])
    late.flush()
    assert not uniform.priorities


class Learner:
    def __init__(self):
        self.gradients, self.steps = torch.zeros(2), 0

    def compute(self, batch):
        return batch.tickets

    def step(self):
        self.steps += 1

    def metrics(self):
        return {"loss": 2.0}


def test_a_thread_prefetches_for_a_single_learner_and_gets_larger_changes_of_beta():
    replay, learner = Replay(), Learner()
    algorithm = SimpleNamespace(replay_beta=lambda env_steps: env_steps / 1_000)
    part = LearnerWorker(algorithm, learner, replay, SingleLearner(), 8, prefetch=3)
    assert learner.may_record_graph is True
    for env_steps in (4, 5, 9, 10, 15, 16, 3):
        assert part.update(env_steps)
    (stream,) = replay.streams
    assert stream.size == 8
    assert stream.options == {"depth": 3, "ordered": False, "reuse": True, "as_torch": True, "beta": 0.004}
    assert stream.set_to == [0.01, 0.016, 0.003] and learner.steps == 7
    part.close()
    assert stream.is_closed
    other = LearnerWorker(algorithm, learner, replay, SimpleNamespace(), 8, prefetch=3)
    assert learner.may_record_graph is False and len(replay.streams) == 1
    other.close()
    LearnerWorker(algorithm, learner, replay, SingleLearner(), 8).update(0)
    assert len(replay.streams) == 1


def test_an_update_that_a_peer_skips_changes_nothing():
    replay, learner, present = Replay(), Learner(), []
    peers = SimpleNamespace(average=lambda gradients, is_present, *_: present.append(is_present))
    algorithm = SimpleNamespace(replay_beta=lambda env_steps: 0.5)
    part = LearnerWorker(algorithm, learner, replay, peers, 8, rank=1, learners=2, delay=1)
    part._delayed_priorities.add([(np.zeros(1), 1.0)])
    assert part.update(0) is False
    assert (
        learner.steps == 0 and replay.priorities == [([0.0], 1.0)] and replay.asked == [(0.5, "split", 1, 2)]
    )
    part._delayed_priorities.add([(np.ones(1), 2.0)])
    part.skip()
    assert present == [True, False] and replay.priorities[1:] == [([1.0], 2.0)]


@pytest.mark.parametrize("what", ["compute", "step"])
def test_a_non_finite_error_names_the_step(what):
    def fails(*_):
        raise NonFiniteError("the loss is nan")

    learner = Learner()
    setattr(learner, what, fails)
    with pytest.raises(NonFiniteError, match=r"(?s)(update at step 70.*the loss is nan|the loss is nan.*70)"):
        compute_gradients(learner, SimpleNamespace(tickets=0), 70)
        apply_step(learner, 70)
