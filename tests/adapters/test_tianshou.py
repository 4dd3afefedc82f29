"""parl's buffers in Tianshou, compared with Tianshou's own."""

import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, CachedReplayBuffer, Collector, ReplayBuffer
from tianshou.data import PrioritizedReplayBuffer as TheirPrioritized
from tianshou.data import PrioritizedVectorReplayBuffer as TheirVector
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.torch_utils import policy_within_training_step

from parl.adapters.tianshou import PrioritizedReplayBuffer, PrioritizedVectorReplayBuffer

KINDS = [(TheirPrioritized, PrioritizedReplayBuffer), (TheirVector, PrioritizedVectorReplayBuffer)]


def make(cls, size=24, **settings):
    envs = {"buffer_num": 3} if "Vector" in cls.__name__ else {}
    return cls(size, **{"alpha": 0.7, "beta": 0.5, **envs, **settings})


def step(i, n, as_dict=False, shape=(3,)):
    obs = (
        np.full((n, *shape), i, np.float32)
        + np.arange(n, dtype=np.float32).reshape(n, *(1 for _ in shape)) / 8
    )
    done = np.array([(i + j) % 7 == 6 for j in range(n)])
    if as_dict:
        return {"a": obs, "b": {"c": obs[:, 0] * 2}}, done
    return obs, done


def fill(buffer, steps, as_dict=False, shape=(3,)):
    n = getattr(buffer, "buffer_num", 1)
    returned = []
    for i in range(steps):
        (obs, done), (obs_next, _) = (step(i + k, n, as_dict, shape) for k in (0, 1))
        batch = Batch(
            obs=obs,
            act=np.arange(n) + i,
            rew=np.full(n, i / 4),
            terminated=done,
            truncated=np.zeros(n, bool),
            obs_next=obs_next,
            info=Batch(step=np.full(n, i)),
        )
        returned.append(buffer.add(batch, buffer_ids=np.arange(n)))
    return returned


def assert_same(a, b):
    assert a.keys() == b.keys()
    for key in a:
        if isinstance(a[key], dict):
            assert_same(a[key], b[key])
        else:
            assert (a[key].dtype, a[key].shape) == (b[key].dtype, b[key].shape), key
            np.testing.assert_array_equal(a[key], b[key], err_msg=key)


@pytest.mark.parametrize("kinds", KINDS, ids=["single", "vector"])
@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({}, (3,)),
        ({"ignore_obs_next": True}, (3,)),
        ({"stack_num": 2}, (3,)),
        ({"ignore_obs_next": True, "stack_num": 4}, (3,)),
        ({"ignore_obs_next": True, "save_only_last_obs": True, "stack_num": 2}, (2, 3)),
        ({"weight_norm": False}, (3,)),
    ],
    ids=str,
)
@pytest.mark.parametrize("as_dict", [False, True])
def test_buffers_hold_and_return_the_same_rows(kinds, settings, shape, as_dict):
    if as_dict and settings.get("save_only_last_obs"):
        as_dict = False
    buffers = [make(cls, **settings) for cls in kinds]
    if kinds is KINDS[1]:
        assert buffers[1].unfinished_index().tolist() == []
    for steps in (5, 17, 4):
        returned = [fill(buffer, steps, as_dict, shape) for buffer in buffers]
        np.testing.assert_array_equal(*[np.concatenate(r, axis=None) for r in returned])
        assert len(buffers[0]) == len(buffers[1])
        for ask in (
            lambda b: b.unfinished_index(),
            lambda b: b.next(np.arange(len(b))),
            lambda b: b.last_index,
        ):
            np.testing.assert_array_equal(*[ask(buffer) for buffer in buffers])
        indices = np.random.default_rng(0).integers(0, len(buffers[0]), 40) if len(buffers[0]) == 24 else None
        for index in (indices, slice(None), slice(0, 3), np.array([1, 0]), 0):
            if index is not None:
                assert_same(*[buffer[index].to_dict() for buffer in buffers])
        all_rows = [buffer.sample(0) for buffer in buffers]
        assert_same(*[batch.to_dict() for batch, _ in all_rows])
        drawn = [buffer.sample(32) for buffer in buffers]
        assert drawn[0][0].get_keys() == drawn[1][0].get_keys()
        for buffer, (batch, index) in zip(buffers, drawn, strict=True):
            # Sampled rows equal rows read by index, in the first read and in later ones.
            for _ in range(2):
                assert_same(batch.to_dict(), buffer[index].to_dict())


@pytest.mark.parametrize("kind", range(2), ids=["single", "vector"])
def test_priorities_and_weights(kind):
    priorities = np.array([5.0, 0.1, 2.0, 3.0, 1.0, 0.5, 4.0, 0.01] * 3)
    shares = (priorities + np.finfo(np.float32).eps) ** 0.7
    np.random.seed(0)
    for cls in KINDS[kind]:
        buffer = make(cls)
        fill(buffer, 24)
        batch, _ = buffer.sample(16)
        assert batch.weight.tolist() == [1.0] * 16
        # Algorithms pass torch tensors.
        buffer.update_weight(np.arange(24), torch.from_numpy(-priorities))
        np.testing.assert_allclose(buffer.weight[np.arange(24)], shares)
        assert buffer.weight.reduce() == pytest.approx(shares.sum(), rel=1e-4)
        counts = np.zeros(24)
        for _ in range(200):
            batch, index = buffer.sample(64)
            np.add.at(counts, index, 1)
            want = shares[index] ** -0.5
            np.testing.assert_allclose(batch.weight, want / want.max())
        np.testing.assert_allclose(counts / counts.sum(), shares / shares.sum(), atol=0.015)


def test_beta_of_a_vector_buffer_takes_effect():
    buffer = make(PrioritizedVectorReplayBuffer, beta=0.0)
    fill(buffer, 24)
    buffer.update_weight(np.arange(24), np.linspace(0.1, 3, 24))
    assert set(buffer.sample(64)[0].weight) == {1.0}
    buffer.set_beta(1.0)
    assert len(set(buffer.sample(64)[0].weight)) > 1


def test_new_rows_late_priorities_and_reset():
    buffer = make(PrioritizedReplayBuffer, size=4, alpha=1.0)
    fill(buffer, 4)
    _, index = buffer.sample(16)
    buffer.update_weight(index, np.full(16, 3.0))
    _, index = buffer.sample(16)
    fill(buffer, 4)
    np.testing.assert_allclose(buffer.weight[np.arange(4)], 3.0)
    buffer.update_weight(index, np.full(16, 50.0))
    np.testing.assert_allclose(buffer.weight[np.arange(4)], 3.0)
    assert buffer.stale_updates == 16
    buffer.reset()
    fill(buffer, 2)
    assert set(buffer.sample(64)[1]) <= {0, 1}


def test_update_from_another_buffer_and_caches():
    buffer = make(PrioritizedReplayBuffer)
    other = ReplayBuffer(10)
    fill(other, 6)
    np.testing.assert_array_equal(buffer.update(other), np.arange(6))
    assert (buffer.weight[np.arange(6)] > 0).all()
    assert buffer.sample(8)[0].obs.shape == (8, 3)
    assert CachedReplayBuffer(ReplayBuffer(10), 2, 5).maxsize == 20


@pytest.mark.parametrize("cls", [PrioritizedReplayBuffer, PrioritizedVectorReplayBuffer])
def test_pickles_and_hdf5(cls, tmp_path):
    buffer = make(cls)
    fill(buffer, 20)
    buffer.update_weight(np.arange(10), np.linspace(0.1, 2, 10))
    copies = [pickle.loads(pickle.dumps(buffer))]
    if cls is PrioritizedReplayBuffer:
        buffer.save_hdf5(str(tmp_path / "buffer.hdf5"))
        copies.append(cls.load_hdf5(str(tmp_path / "buffer.hdf5")))
    want = buffer.sample(16)
    for copy in copies:
        got = copy.sample(16)
        np.testing.assert_array_equal(got[1], want[1])
        assert_same(got[0].to_dict(), want[0].to_dict())


@pytest.mark.parametrize("n_step", [1, 3])
def test_tianshous_dqn_learns_from_the_buffer(n_step):
    envs = DummyVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(3)])
    torch.manual_seed(0)
    np.random.seed(0)
    space = gym.make("CartPole-v1").action_space
    policy = DiscreteQLearningPolicy(
        model=Net(state_shape=4, action_shape=2, hidden_sizes=[16]), action_space=space, eps_training=0.5
    )
    algorithm = DQN(
        policy=policy,
        optim=AdamOptimizerFactory(lr=1e-3),
        n_step_return_horizon=n_step,
        target_update_freq=10,
    )
    buffer = PrioritizedVectorReplayBuffer(600, 3, alpha=0.6, beta=0.4)
    collector = Collector(algorithm, envs, buffer)
    collector.reset()
    collector.collect(n_step=300)
    before = buffer.weight.reduce()
    with policy_within_training_step(policy):
        losses = [algorithm.update(buffer=buffer, sample_size=32).loss for _ in range(20)]
    assert np.isfinite(losses).all()
    assert buffer.weight.reduce() != before
    assert buffer.stale_updates == 0
    collector.collect(n_step=60)
    assert len(buffer) == 360


def test_bad_input_raises():
    for cls in (PrioritizedReplayBuffer, PrioritizedVectorReplayBuffer):
        with pytest.raises(ValueError, match="alpha 0"):
            make(cls, alpha=0.0)
        for beta in (-1.0, float("nan"), float("inf")):
            with pytest.raises(ValueError, match=f"beta is {beta}, expected a finite number of at least 0"):
                make(cls, beta=beta)
    buffer = make(PrioritizedReplayBuffer)
    fill(buffer, 3)
    with pytest.raises(ValueError, match="not finite"):
        buffer.update_weight(np.array([0]), np.array([np.nan]))
    with pytest.raises(IndexError, match="24"):
        buffer.update_weight(np.array([24]), np.array([1.0]))
    for beta in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"beta is {beta}, expected a finite number of at least 0"):
            buffer.set_beta(beta)
    with pytest.raises(ValueError, match="buffer_num"):
        PrioritizedVectorReplayBuffer(10, 0, alpha=0.6, beta=0.4)


@pytest.mark.parametrize("kind", [kind for pair in KINDS for kind in pair])
def test_rows_read_after_a_batch_are_those_of_the_buffer(kind):
    """Tianshou's algorithms read the rows of a batch again, which callers may have changed in place."""
    buffer = make(kind)
    fill(buffer, 7)
    batch, indices = buffer.sample(8)
    expected = buffer.rew[indices], buffer.obs[indices]
    batch.rew -= 100.0
    batch.obs /= 255.0
    again = buffer[indices]
    np.testing.assert_array_equal(again.rew, expected[0])
    np.testing.assert_array_equal(again.obs, expected[1])
    _, indices = buffer.sample(8)
    buffer.update_weight(indices, np.arange(8) + 5.0)
    weight = buffer.get_weight(indices)
    np.testing.assert_allclose(buffer[indices].weight, weight / weight.max())
    _, indices = buffer.sample(8)
    buffer.rew[:] = 7.0
    np.testing.assert_array_equal(buffer[indices].rew, 7.0)
