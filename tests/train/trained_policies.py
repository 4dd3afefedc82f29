"""Tiny runs whose policies are loaded, and an environment whose observations have parts."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from tiny_runs import CONTINUOUS, config_of, run_of, write_play

import parl
from parl.train import ALGORITHMS

RUN = {"evaluation_episodes": 1, "quiet": True}
VARIANTS = [
    *((name, {}) for name in sorted(ALGORITHMS)),
    ("ppo", {"lstm": 3}),
    ("ppo", {"env": "Pendulum-v1", "normalize_observations": True}),
    ("sac", {"env": "CartPole-v1"}),
    ("dqn", {"distribution": "iqn", "noisy": True}),
    ("es", {"env": "Pendulum-v1"}),
]
IDS = [" ".join([name, *map(str, own.values())]) for name, own in VARIANTS]


def train_small(folder, name, env=None, data=None, **own):
    """A tiny run; ``own`` are settings of the algorithm."""
    env = env or ("Pendulum-v1" if name in CONTINUOUS else "CartPole-v1")
    options = dict(RUN) | ({"data": data or write_play(folder, env)} if name == "bc" else {})
    config = run_of(name, runs=str(folder), **options)
    return parl.train(name, env=env, run_config=config, algorithm_config=config_of(name, **own))


class Parts(gymnasium.Env):
    """Episodes of five steps with observations in parts."""

    observation_space = Dict({"a": Box(-1, 1, (2,)), "b": Dict({"c": Box(0, 255, (3,), np.uint8)})})
    action_space = Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = 5
        return self._observe(), {}

    def step(self, action):
        self._left -= 1
        return self._observe(), float(action), self._left == 0, False, {}

    def _observe(self):
        rng = self.np_random
        return {
            "a": rng.uniform(-1, 1, 2).astype(np.float32),
            "b": {"c": rng.integers(0, 256, 3, np.uint8)},
        }
