"""Calls that type checkers accept, with the types that they infer."""

from typing import assert_type

import gymnasium
import numpy as np
from gymnasium import Space
from torch import nn

import parl
from parl.algos.dqn import DQN, Config
from parl.train import Run
from parl.train.policy import Policy

assert_type(parl.train("dqn", env="CartPole-v1", total_steps=1_000, gamma=0.9, actors=2), Run)
assert_type(parl.load("runs/dqn", "last", env="CartPole-v1"), Policy)
assert_type(parl.make_vec("pong", 4, preset="machado", device="cpu"), parl.AtariVectorEnv)
assert_type(parl.PrioritizedReplay(10, {"obs": ((4,), np.float32)}), parl.PrioritizedReplay)
assert_type(parl.UniformReplay(10, {"obs": ((4,), np.float32)}, device="cuda"), parl.UniformReplay)


def torso(observation_space: Space[object]) -> nn.Module:
    """A torso of a user."""
    return nn.Linear(4, 8)


assert_type(parl.train("dqn", torso=torso), Run)
assert_type(parl.train("dqn", network="module:function"), Run)


class Mine(DQN):
    """An algorithm of a user."""

    Config = Config
    topology = "replay"


parl.register_algorithm("mine", Mine)
assert_type(parl.train("ppo", env=gymnasium.make("CartPole-v1"), wrappers=["a:B", gymnasium.Wrapper]), Run)
assert_type(parl.train("ppo", env=lambda num_envs: gymnasium.make_vec("CartPole-v1", num_envs)), Run)
assert_type(parl.train("dqn", goals="future", goals_per_transition=4.0), Run)
