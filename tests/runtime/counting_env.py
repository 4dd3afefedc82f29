"""An environment whose transitions are known, for tests of actors."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class CountingEnv(gymnasium.Env):
    """The observation is the step of the episode, which has ``length`` steps; keeps its seeds and actions.

    Each reward is ``reward``; None: the step.
    """

    observation_space = Box(0, 100, (1,), np.float32)

    def __init__(self, length, truncates=False, reward=10.0, action_space=None):
        self.action_space = action_space or Discrete(9)
        self._length, self._truncates, self._reward = length, truncates, reward
        self.seeds, self.actions = [], []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self._step = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._step += 1
        self.actions.append(np.asarray(action).tolist())
        obs, over = np.full(1, self._step, np.float32), self._step == self._length
        reward = float(self._step) if self._reward is None else self._reward
        return obs, reward, over and not self._truncates, over and self._truncates, {}
