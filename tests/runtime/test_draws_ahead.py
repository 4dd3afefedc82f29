"""Prefetched batches, delayed priorities, reused arrays, and averages of gradients."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from parl.errors import NonFiniteError
from parl.runtime.gradient_allreduce import Rendezvous, SingleLearner, ThreadAllReduce, ThreadGroup, pack_flag
from parl.runtime.off_policy.learner_worker import (
    BatchSampler,
    DelayedPriorities,
    LearnerWorker,
    PrefetchQueue,
    apply_step,
    compute_gradients,
)


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
    (stream,) = replay.streams
    assert stream.size == 8
    assert stream.options == {"depth": 3, "ordered": False, "reuse": True, "as_torch": True}
    for env_steps in (4, 5, 6, 11, 12, 3):
        assert part.update(env_steps)
    assert stream.set_to == [0.006, 0.012, 0.003] and learner.steps == 6
    part.close()
    assert stream.is_closed
    other = LearnerWorker(algorithm, learner, replay, SimpleNamespace(), 8, prefetch=3)
    assert learner.may_record_graph is False and len(replay.streams) == 1
    other.close()
    LearnerWorker(algorithm, learner, replay, SingleLearner(), 8)
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


def test_gradients_and_a_flag_share_one_buffer():
    gradients = torch.tensor([1.0, 2.0])
    first = pack_flag(torch.empty(0), gradients, 0.0)
    assert first.tolist() == [1.0, 2.0, 0.0]
    again = pack_flag(first, gradients + 1, 0.0)
    assert again is first and again.tolist() == [2.0, 3.0, 0.0]
    assert pack_flag(first, gradients, 2.0).tolist() == [0.0, 0.0, 2.0]
    assert pack_flag(first, torch.ones(3), 0.0).tolist() == [1.0, 1.0, 1.0, 0.0]


def test_the_average_of_a_single_learner_is_its_gradient():
    log = []
    assert SingleLearner().average(torch.zeros(1), True, lambda: log.append(1)) is True and log == [1]
    assert SingleLearner().average(torch.zeros(1), False) is False
    SingleLearner().close()


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
    import os

    rendezvous = Rendezvous()
    with open(rendezvous.path, "w") as file:
        file.write("found")
    with open(rendezvous.path) as file:
        assert file.read() == "found"
    rendezvous.close()
    rendezvous.close()
    assert not os.path.exists(rendezvous.path)
