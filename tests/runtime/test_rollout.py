"""Random starts, after which episodes of equal length do not end together; scaled rewards; joint rollouts."""

import numpy as np
import pytest
import torch
from counting_env import CountingEnv
from gymnasium.vector import SyncVectorEnv

from parl.algos.a2c import Config
from parl.algos.impala import Config as ImpalaConfig
from parl.envs import EnvMaker, spec_of
from parl.errors import ConfigError
from parl.nets.normalizer import RewardScaler
from parl.runtime.on_policy.rollout import RolloutActor, RolloutBuffer, concatenate
from parl.train.config import SyncRunConfig
from parl.train.registry import make_algorithm
from parl.train.topologies import TOPOLOGIES


def collected(random_steps, seed=0, envs=40):
    env = SyncVectorEnv([lambda: CountingEnv(20, truncates=True, reward=1.0)] * envs)
    spec = spec_of(env)
    policy = make_algorithm("a2c", Config(hidden=(4,)), spec).make_policy(0, 1, envs, seed)
    actor = RolloutActor(env, spec, policy, seed, random_steps)
    buffer = RolloutBuffer(spec, 42, envs)
    transitions, finished, _ = actor.collect(buffer, 0)
    actor.close()
    return buffer, transitions, finished


def test_random_starts_scatter_episodes_and_keep_them_whole():
    together, transitions, _ = collected(0)
    assert np.unique(together.obs[0]).tolist() == [0.0] and transitions == 40 * 40
    apart, transitions, finished = collected(30)
    assert {length for _, length in finished} == {20}
    assert len(np.unique(apart.obs[0])) > 10
    assert 67 * 40 < transitions < 72 * 40  # the random steps are counted, resets are not
    for n in range(40):
        t = int(np.nonzero(apart.ended[:, n])[0][0])
        assert apart.obs[t + 1, n, 0] == 20.0  # the end is at the twentieth step
        ended_before = int(apart.obs[0, n, 0] == 20.0)  # ended in the last random step: row 0 only resets
        assert not apart.valid[t + 1, n] and apart.valid[ended_before : t + 1, n].all()
        assert apart.valid[0, n] != ended_before
    again, *_ = collected(30)
    np.testing.assert_array_equal(apart.obs, again.obs)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_returns_do_not_depend_on_the_length_of_rollouts(steps):
    env = SyncVectorEnv([lambda length=length: CountingEnv(length, reward=1.0) for length in (3, 4)])
    spec = spec_of(env)
    policy = make_algorithm("a2c", Config(hidden=(4,)), spec).make_policy(0, 1, 2, 0)
    actor, buffer = RolloutActor(env, spec, policy, 0), RolloutBuffer(spec, steps, 2)
    finished = [game for _ in range(20 // steps) for game in actor.collect(buffer, 0).finished]
    actor.close()
    assert sorted(finished) == [(3.0, 3)] * 5 + [(4.0, 4)] * 4


@pytest.mark.parametrize(("num_envs", "given", "expected"), [(64, "auto", 0), (65, "auto", 500), (8, 7, 7)])
def test_more_than_64_environments_have_random_starts(num_envs, given, expected):
    maker = EnvMaker("CartPole-v1")
    spec = spec_of(maker(1))
    config = SyncRunConfig(num_envs=num_envs, random_starts=given)
    setup = TOPOLOGIES["rollout"].setup(make_algorithm("a2c", Config(), spec), config, maker, spec)
    assert setup.random_steps == expected
    with pytest.raises(ConfigError, match="random_starts = -1 is outside"):
        SyncRunConfig(random_starts=-1)


def test_rewards_are_scaled_like_the_reference():
    rng = np.random.default_rng(0)
    scaler, returns, seen = RewardScaler(0.9), np.zeros(3), []
    for _ in range(4):
        reward = rng.normal(5, 30, (6, 3)).astype(np.float32)
        ended, valid = rng.random((6, 3)) < 0.2, rng.random((6, 3)) < 0.9
        for t in range(6):
            returns = 0.9 * returns + reward[t]
            seen += returns[valid[t]].tolist()
            returns = np.where(ended[t], 0.0, returns)
        scaled = torch.from_numpy(reward.copy())
        scaler.scale(scaled, torch.from_numpy(ended), torch.from_numpy(valid))
        expected = np.clip(reward / np.std(seen), -10, 10)
        np.testing.assert_allclose(scaled.numpy(), expected, rtol=1e-4)
    other = RewardScaler(0.9)
    other.load_state_dict(scaler.state_dict())
    one, two = torch.ones(2, 3), torch.ones(2, 3)
    never = torch.zeros(2, 3, dtype=torch.bool)
    scaler.scale(one, never, ~never)
    other.scale(two, never, ~never)
    assert torch.equal(one, two)


def test_scaling_of_rewards_needs_one_actor():
    with pytest.raises(ConfigError, match="normalize_rewards = True needs consecutive rollouts of one actor"):
        ImpalaConfig(normalize_rewards=True)


def test_three_rollouts_are_concatenated():
    spec = spec_of(EnvMaker("CartPole-v1")(1))
    parts = []
    for number, width in enumerate((1, 2, 3)):
        buffer = RolloutBuffer(spec, 2, width)
        buffer.obs[:], buffer.action[:], buffer.reward[:] = number + 0.5, number % 2, number
        buffer.final_obs.append(np.full(4, number, np.float32))
        buffer.final_at.append((1, 0))
        parts.append(buffer.tensors())
    both = concatenate(parts)
    assert both.reward[0].tolist() == [0, 1, 1, 2, 2, 2] and both.action[1].tolist() == [0, 1, 1, 0, 0, 0]
    assert both.obs.shape == (3, 6, 4) and both.obs[2, :, 3].tolist() == [0.5, 1.5, 1.5, 2.5, 2.5, 2.5]
    assert both.final_at.tolist() == [[1, 0], [1, 1], [1, 3]]
    assert both.final_obs[:, 0].tolist() == [0, 1, 2] and both.memory is None
    assert concatenate(parts[:1]) is parts[0]
