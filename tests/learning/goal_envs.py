"""Environments with goals."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary


class BitFlip(gymnasium.Env):
    """Flips one of n bits per step; the reward is -1 until all bits are those of the goal, which terminates.

    An episode is truncated after n steps. A random policy reaches a goal of 15 bits in about one of 2,000
    episodes. Source: Andrychowicz et al. (2017), "Hindsight Experience Replay", section 3.1.
    """

    def __init__(self, bits=15):
        one = MultiBinary(bits)
        self.observation_space = Dict({"observation": one, "achieved_goal": one, "desired_goal": one})
        self.action_space = Discrete(bits)
        self._bits = bits

    def _show(self):
        return {
            "observation": self._state.copy(),
            "achieved_goal": self._state.copy(),
            "desired_goal": self._goal.copy(),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._state, self._goal = self.np_random.integers(0, 2, (2, self._bits), np.int8)
        self._step = 0
        return self._show(), {}

    def step(self, action):
        self._state[action] ^= 1
        self._step += 1
        goals = self._state, self._goal
        reward, over = float(self.compute_reward(*goals, {})), bool(self.compute_terminated(*goals, {}))
        return self._show(), reward, over, self._step == self._bits, {"is_success": over}

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return (achieved_goal == desired_goal).all(axis=-1)

    def compute_reward(self, achieved_goal, desired_goal, info):
        return self.compute_terminated(achieved_goal, desired_goal, info) - 1.0


class Reach(gymnasium.Env):
    """A point in the plane moves towards a goal; the reward is -1 where it is further away than 0.1."""

    observation_space = Dict(
        {name: Box(-1, 1, (2,)) for name in ("observation", "achieved_goal", "desired_goal")}
    )
    action_space = Box(-1, 1, (2,), np.float32)

    def _show(self):
        return {"observation": self._at, "achieved_goal": self._at, "desired_goal": self._goal}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._at, self._goal = self.np_random.uniform(-1, 1, (2, 2)).astype(np.float32)
        self._step = 0
        return self._show(), {}

    def step(self, action):
        self._at = np.clip(self._at + 0.3 * action, -1, 1).astype(np.float32)
        self._step += 1
        reward = float(self.compute_reward(self._at, self._goal, {}))
        return self._show(), reward, False, self._step == 20, {}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) > 0.1).astype(np.float32)

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return False
