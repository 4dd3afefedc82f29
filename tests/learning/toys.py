"""Environments so small that their optimal policy is known."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete


class _Episodes(gymnasium.Env):
    """Episodes of 20 observations that do not depend on the actions; subclasses show and reward them."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return self._show(), {}

    def step(self, action):
        reward = float(self._reward(action))
        self._step += 1
        return self._show(), reward, False, self._step == 20, {}


class Identity(_Episodes):
    """Reward 1 for the number of the symbol that is shown, else 0; truncated after 20 symbols.

    The best return is 20; random actions return 20 / 4.
    """

    observation_space = Box(0.0, 1.0, (4,), np.float32)
    action_space = Discrete(4)

    def _show(self):
        self._symbol = int(self.np_random.integers(4))
        return np.eye(4, dtype=np.float32)[self._symbol]

    def _reward(self, action):
        return action == self._symbol


class Chain(gymnasium.Env):
    """Six rooms in a row: right leads on, left leads back, the last room ends the episode with reward 1.

    Each step costs 0.1, but staying in the first room (going left there) only 0.05: the cheapest step
    is the wrong one. After 30 steps the episode is truncated. The best return is 1 - 5 * 0.1 = 0.5.
    """

    ROOMS = 6
    observation_space = Box(0.0, 1.0, (ROOMS,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._room = self._step = 0
        return self._look(), {}

    def _look(self):
        return np.eye(self.ROOMS, dtype=np.float32)[self._room]

    def step(self, action):
        self._step += 1
        reward = -0.1
        if action == 1:
            self._room += 1
        elif self._room == 0:
            reward = -0.05
        else:
            self._room -= 1
        terminated = self._room == self.ROOMS - 1
        if terminated:
            reward += 1.0
        return self._look(), reward, terminated, not terminated and self._step >= 30, {}

    @classmethod
    def values_of_right(cls, gamma):
        """Values of going right from each room but the last, then acting optimally."""
        values, value = [], 0.0
        for room in reversed(range(cls.ROOMS - 1)):
            value = (0.9 if room == cls.ROOMS - 2 else -0.1) + gamma * value
            values.insert(0, value)
        return values


class Target(_Episodes):
    """Reward ``-(action - 0.7 x)^2`` for an observation x in -1..1; truncated after 20 steps.

    The best return is 0; always choosing 0 returns about -20 * 0.49 / 3.
    """

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def _show(self):
        self._shown = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self._shown

    def _reward(self, action):
        return -((action[0] - 0.7 * self._shown[0]) ** 2)


class Recall(gymnasium.Env):
    """Shows one of two symbols after the reset; the third action that names it gives 1, the other one 0.

    The best return is 1; without memory it is 0.5.
    """

    observation_space = Box(0.0, 1.0, (3,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        self._symbol = int(self.np_random.integers(2))
        return np.eye(3, dtype=np.float32)[self._symbol], {}

    def step(self, action):
        self._step += 1
        over = self._step == 3
        reward = float(over and action == self._symbol)
        return np.eye(3, dtype=np.float32)[2] * over, reward, over, False, {}


class Follow(_Episodes):
    """The reward is minus the squared distance to the right action; truncated after 20 steps.

    Actions are in -1..3; the right one is ``1 + 2 x`` for the observation x. The best return is 0; uniform
    actions return -20 * (4/3 + 4/12), from the variances 4/3 of the action and 4/12 of the target.
    """

    observation_space = Box(-0.5, 0.5, (1,), np.float32)
    action_space = Box(-1.0, 3.0, (1,), np.float32)

    def _show(self):
        self._x = float(self.np_random.uniform(-0.5, 0.5))
        return np.array([self._x], np.float32)

    def _reward(self, action):
        return -((action[0] - 1 - 2 * self._x) ** 2)


class PictureAndNumber(_Episodes):
    """Shows a picture with a bright half and a number; reward 1 for the action that fits both.

    Half (left or right) and number (0 or 1) give one of four actions, so neither part is enough: from the
    picture alone the best return is 10. An episode is truncated after 20 pictures.
    """

    observation_space = Dict(
        {"eye": Box(0, 255, (1, 36, 36), np.uint8), "number": Box(0.0, 1.0, (1,), np.float32)}
    )
    action_space = Discrete(4)

    def _show(self):
        self._half, self._number = (int(self.np_random.integers(2)) for _ in range(2))
        eye = np.zeros((1, 36, 36), np.uint8)
        eye[:, :, 18 * self._half : 18 * (self._half + 1)] = 255
        return {"eye": eye, "number": np.array([self._number], np.float32)}

    def _reward(self, action):
        return action == 2 * self._half + self._number


class ContinuousPictureAndNumber(PictureAndNumber):
    """As :class:`PictureAndNumber`, but the reward is minus the squared distance to the right action.

    Actions are in -1..1; the right one is -0.6 or 0.6 by the half, plus 0.3 times the number. The best
    return is 0.
    """

    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def _reward(self, action):
        right = (0.6 if self._half else -0.6) + 0.3 * self._number
        return -((action[0] - right) ** 2)
