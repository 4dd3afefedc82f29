"""Layout of shared memory: arrays do not overlap, and another process reads what was written."""

import multiprocessing
import pickle

import numpy as np
import pytest
import torch

from parl.envs import EnvMaker, spec_of
from parl.runtime.on_policy import hogwild
from parl.runtime.on_policy.hogwild_parameters import HogwildParameters
from parl.runtime.on_policy.rollout import RolloutBuffer, _size
from parl.runtime.shared_counters import (
    ACTOR_UPDATES,
    ACTOR_WAIT_NS,
    EPISODE_SLOTS,
    EPISODES,
    FAILURES,
    IN_FLIGHT,
    LAG_BUCKETS,
    LAG_MAX,
    LAG_SUM,
    LEARNER_WAIT_NS,
    PARK,
    RUN,
    STEPS,
    STOP,
    UPDATES,
    VECTOR_STEPS,
    SharedCounters,
)
from parl.runtime.weights import SharedWeights

CONTEXT = multiprocessing.get_context()


def with_second(maker):
    """Makes an object and a second one from its pickled state, which uses the same shared memory."""
    made = maker()
    other = type(made).__new__(type(made))
    other.__setstate__(made.__getstate__())
    return made, other


def test_counters_do_not_overlap():
    counters, other = with_second(lambda: SharedCounters(CONTEXT, 3, 2))
    counters.command = STOP
    assert counters.running_actors == (3, 0) and [counters.may_run(i) for i in range(3)] == [True] * 3
    counters.running_actors = 2, 2
    counters.actor[:] = np.arange(100, 148).reshape(3, 16)
    counters.learner[:] = np.arange(200, 232).reshape(2, 16)
    counters.lags[:] = np.arange(300, 300 + 3 * LAG_BUCKETS).reshape(3, LAG_BUCKETS)
    counters.rewards[:] = (0.5, 1.5, 2.5)
    counters.actor[:, EPISODES] = 0
    for actor in range(3):
        counters.add_episodes(actor, [(1_000.0 * actor + n, n) for n in range(EPISODE_SLOTS)])
    assert other.command == STOP and other.running_actors == (2, 2)
    assert [other.may_run(i) for i in range(3)] == [True, False, True]
    expected = np.arange(100, 148).reshape(3, 16)
    expected[:, EPISODES] = EPISODE_SLOTS
    np.testing.assert_array_equal(other.actor, expected)
    np.testing.assert_array_equal(other.learner, np.arange(200, 232).reshape(2, 16))
    np.testing.assert_array_equal(other.lags.ravel(), np.arange(300, 300 + 3 * LAG_BUCKETS))
    assert other.rewards.tolist() == [0.5, 1.5, 2.5]
    expected = [(1_000.0 * actor + n, n) for n in range(EPISODE_SLOTS) for actor in range(3)]
    assert other.take_episodes() == expected
    assert other.env_steps == 100 + 116 + 132 and other.episodes == 3 * EPISODE_SLOTS
    words = len(counters._memory)
    assert words == (1 + 3 + 2 + 3) * 16 + 3 * (16 + 2 * 512), "no memory is unused"


def test_commands_and_columns_differ():
    assert len({RUN, PARK, STOP}) == 3
    columns = {STEPS, EPISODES, LAG_SUM, VECTOR_STEPS, ACTOR_WAIT_NS, ACTOR_UPDATES, LAG_MAX}
    assert len(columns | {IN_FLIGHT, FAILURES}) == 9 and UPDATES != LEARNER_WAIT_NS
    assert SharedCounters(CONTEXT, 1, 1).command == RUN


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_shared_weights_do_not_overlap(size):
    common, other = with_second(lambda: HogwildParameters(CONTEXT, size))
    common.count += 5
    common.weights[:], common.mean[:], common.square[:] = 1.0, 2.0, 3.0
    assert other.count.tolist() == [5]
    assert other.weights.tolist() == [1.0] * size
    assert other.mean.tolist() == [2.0] * size
    assert other.square.tolist() == [3.0] * size
    # At most one word of padding.
    assert len(common._memory) == 1 + -(-3 * size // 2)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_published_weights_alternate_between_two_buffers(size):
    snapshot, other = with_second(lambda: SharedWeights(CONTEXT, size))
    seen = torch.zeros(size)
    for version in range(1, 6):
        assert snapshot.publish(torch.full((size,), float(version))) == version
        assert other.version == version
        assert other.read(seen, version - 1) == version and seen.tolist() == [float(version)] * size
    assert [part.tolist() for part in snapshot._buffers] == [[4.0] * size, [5.0] * size]
    assert other.read(seen, -1) == 5


def test_a_read_is_repeated_if_the_writer_changed_its_buffer():
    snapshot = SharedWeights(CONTEXT, 1)
    snapshot.publish(torch.tensor([1.0]))
    seen, copies = torch.zeros(1), []

    class Watched(list):
        """While the buffer of version 1 is read, the writer begins version 3 in it."""

        def __getitem__(self, place):
            copies.append(place)
            if len(copies) == 1:
                header[1] = 3
                header[0] = 2
            return list.__getitem__(self, place)

    header = snapshot._header
    snapshot._buffers = Watched([torch.tensor([2.0]), torch.tensor([-1.0])])
    assert snapshot.read(seen, 0) == 2 and seen.tolist() == [2.0] and copies == [1, 0]
    # A writer that is one version ahead does not change the buffer.
    copies.clear()
    header[0], header[1] = 2, 3
    copies.append(None)
    assert snapshot.read(seen, 0) == 2 and copies == [None, 0]


def test_the_lag_of_a_step_on_shared_weights():
    common, counters = HogwildParameters(CONTEXT, 1), SharedCounters(CONTEXT, 1, 1)
    row = counters.actor[0]
    common.count += 10
    for since, total, largest in ((7, 3, 3), (9, 4, 3), (6, 8, 4)):
        hogwild._lag_counter(common, row, since)(torch.zeros(1))
        assert (row[LAG_SUM], row[LAG_MAX]) == (total, largest)


def test_arrays_begin_at_whole_cache_lines():
    assert [_size(shape, kind) for shape, kind in [((1,), "bool"), ((64,), "bool"), ((65,), "bool")]] == [
        64,
        64,
        128,
    ]
    assert _size((3, 16), "float32") == 192 and _size((), "float32") == 64 and _size((0, 4), "bool") == 0


@pytest.mark.parametrize("shared", [False, True])
def test_columns_of_a_rollout_do_not_overlap(shared):
    spec = spec_of(EnvMaker("CartPole-v1")(1))
    buffer = RolloutBuffer(spec, 3, 2, CONTEXT if shared else None, memory=5)
    shapes = {name: getattr(buffer, name).shape for name in buffer.names()}
    assert shapes == {
        "obs": (4, 2, 4),
        "action": (3, 2),
        "log_prob": (3, 2),
        "reward": (3, 2),
        "terminated": (3, 2),
        "ended": (3, 2),
        "valid": (3, 2),
        "starts": (4, 2),
        "memory": (2, 2, 5),
    }
    for number, name in enumerate(buffer.names()):
        getattr(buffer, name)[:] = number % 2 if getattr(buffer, name).dtype == bool else number
    other = pickle.loads(pickle.dumps(buffer)) if not shared else buffer
    for number, name in enumerate(other.names()):
        column = getattr(other, name)
        assert (column == (number % 2 if column.dtype == bool else number)).all()
        assert column.ctypes.data % 64 == other.obs.ctypes.data % 64
    total = sum(_size(*array) for array in buffer._arrays.values())
    assert len(buffer._memory) == total
    plain = RolloutBuffer(spec, 3, 2)
    assert plain.memory.shape == (2, 2, 0)
    assert "memory" not in plain.names() and plain.tensors().memory is None
    assert plain.tensors().final_obs.shape == (0, 4) and plain.tensors().final_at.shape == (0, 2)
