"""Runs the environment checkers of Gymnasium and Stable-Baselines3 on parl's environments.

Our own tests, since the source distribution of Gymnasium contains only tests of its base classes.
"""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import env_checker
from gymnasium.wrappers import vector as wrappers
from stable_baselines3.common.env_checker import check_env

import parl
from parl.envs.cartpole import CartPoleVectorEnv
from parl.envs.classic import AcrobotVectorEnv

ATARI = ("parl:parl/Pong-v0", "parl:parl/Breakout-v0", "parl:parl/Qbert-v0", "parl:parl/MontezumaRevenge-v0")


@pytest.mark.parametrize("name", ATARI)
@pytest.mark.parametrize("options", [{}, {"obs_type": "ram"}, {"obs_type": "rgb"}], ids=str)
@pytest.mark.parametrize("check", [env_checker.check_env, check_env], ids=["gymnasium", "stable_baselines3"])
def test_single_environments(name, options, check):
    env = gymnasium.make(name, **options)
    with warnings.catch_warnings():
        # Warnings about rendering and about image shapes.
        warnings.simplefilter("ignore")
        check(env.unwrapped, skip_render_check=True)
    env.close()


VECTORS = {
    "atari": lambda: parl.AtariVectorEnv("pong", 3),
    "atari ram": lambda: parl.AtariVectorEnv("pong", 3, obs_type="ram"),
    "cartpole": lambda: CartPoleVectorEnv(3),
    "acrobot": lambda: AcrobotVectorEnv(3),
}


@pytest.mark.parametrize("make", VECTORS.values(), ids=VECTORS)
def test_vector_environments(make):
    envs = make()
    assert isinstance(envs, gymnasium.vector.VectorEnv)
    assert envs.num_envs == 3
    assert envs.observation_space == gymnasium.vector.utils.batch_space(envs.single_observation_space, 3)
    assert envs.action_space == gymnasium.vector.utils.batch_space(envs.single_action_space, 3)
    first, info = envs.reset(seed=7)
    assert first in envs.observation_space
    assert isinstance(info, dict)
    again, _ = envs.reset(seed=7)
    np.testing.assert_array_equal(first, again)
    envs.action_space.seed(0)
    for _ in range(20):
        obs, rewards, terminated, truncated, info = envs.step(envs.action_space.sample())
        assert obs in envs.observation_space
        assert rewards.shape == terminated.shape == truncated.shape == (3,)
        assert terminated.dtype == truncated.dtype == np.bool_
    for key, values in info.items():
        if not key.startswith("_"):
            assert len(values) == 3
    envs.close()


@pytest.mark.parametrize("make", VECTORS.values(), ids=VECTORS)
def test_vector_wrappers(make):
    envs = wrappers.RecordEpisodeStatistics(make())
    envs.reset(seed=0)
    for _ in range(5):
        envs.step(envs.action_space.sample())
    assert envs.episode_lengths.tolist() == [5, 5, 5]
    envs.close()
