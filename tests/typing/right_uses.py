"""Calls that type checkers accept, with the types that they infer."""

from typing import assert_type

import numpy as np

import parl
from parl.train import Run
from parl.train.policy import Policy

assert_type(parl.train("dqn", env="CartPole-v1", total_steps=1_000, gamma=0.9, actors=2), Run)
assert_type(parl.load("runs/dqn", "last", env="CartPole-v1"), Policy)
assert_type(parl.make_vec("pong", 4, preset="machado", device="cpu"), parl.AtariVectorEnv)
assert_type(parl.PrioritizedReplay(10, {"obs": ((4,), np.float32)}), parl.PrioritizedReplay)
assert_type(parl.UniformReplay(10, {"obs": ((4,), np.float32)}, device="cuda"), parl.UniformReplay)
