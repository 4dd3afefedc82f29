"""Calls that type checkers accept, with the types that they infer."""

from typing import assert_type

import gymnasium
import numpy as np

import parl
from parl.train import Run

assert_type(parl.train("dqn", env="CartPole-v1", total_steps=1_000, gamma=0.9, actors=2), Run)
assert_type(parl.make_vec("pong", 4, preset="machado", device="cpu"), parl.AtariVectorEnv)
assert_type(parl.PrioritizedReplay(10, {"obs": ((4,), np.float32)}), parl.PrioritizedReplay)
assert_type(parl.UniformReplay(10, {"obs": ((4,), np.float32)}, device="cuda"), parl.UniformReplay)
assert_type(parl.train("ppo", env=gymnasium.make("CartPole-v1"), wrappers=["a:B", gymnasium.Wrapper]), Run)
assert_type(parl.train("ppo", env=lambda num_envs: gymnasium.make_vec("CartPole-v1", num_envs)), Run)
assert_type(parl.train("dqn", goals="future", goals_per_transition=4.0), Run)
