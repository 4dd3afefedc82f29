"""Gymnasium's Acrobot-v1 as one vector environment, with bitwise equal results.

Gymnasium steps one Acrobot at a time, in 60 to 80 microseconds each, which is more than learning from the
step takes. Here about two hundred numpy operations step all environments. Observations, rewards, ends and the
first states of seeds equal those of ``SyncVectorEnv`` on ``Acrobot-v1`` (a test compares both), because the
operations on float64 and their order are the same. numpy's sine and cosine give the same result for an
element alone and in an array. Squares are computed by C's ``pow``, as for numpy's scalars, since ``x * x``
can differ in the last bit.

Source of the dynamics: Sutton (1996), "Generalization in Reinforcement Learning", section 4; Sutton and Barto
(2018), section 11.3 of the first edition, with both links of length, mass and inertia 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from parl.envs.spaces import discrete_actions
from parl.types import Array

_GRAVITY = 9.8
_DT = 0.2
_FASTEST = (4 * math.pi, 9 * math.pi)
_STEPS = 500
_TORQUES = np.array([-1.0, 0.0, 1.0])


def _squares(x: Array) -> Array:
    """C's ``pow(x, 2)`` for each element of (N,) float64."""
    return np.array([value**2.0 for value in x.tolist()])


def _derivative(state: Array, torque: Array) -> Array:
    """Time derivatives (4, N) of the state (4, N), angles in rad and speeds in rad/s, under a torque (N,)."""
    theta_1, theta_2, speed_1, speed_2 = state
    cos_2, sin_2 = np.cos(theta_2), np.sin(theta_2)
    d_1 = 0.25 + (1.25 + cos_2) + 1.0 + 1.0
    d_2 = (0.25 + 0.5 * cos_2) + 1.0
    phi_2 = 0.5 * _GRAVITY * np.cos(theta_1 + theta_2 - math.pi / 2)
    phi_1 = -0.5 * _squares(speed_2) * sin_2 - speed_2 * speed_1 * sin_2
    phi_1 = phi_1 + 1.5 * _GRAVITY * np.cos(theta_1 - math.pi / 2) + phi_2
    moment = torque + d_2 / d_1 * phi_1 - 0.5 * _squares(speed_1) * sin_2 - phi_2
    change_2 = moment / (1.25 - _squares(d_2) / d_1)
    return np.stack((speed_1, speed_2, -(d_2 * change_2 + phi_1) / d_1, change_2))


def _wrap(angle: Array) -> Array:
    """Wraps angles into -pi..pi in place, by adding or subtracting 2 pi repeatedly as Gymnasium does."""
    while (above := angle > math.pi).any():
        angle[above] -= 2 * math.pi
    while (below := angle < -math.pi).any():
        angle[below] += 2 * math.pi
    return angle


class AcrobotVectorEnv(VectorEnv[Array, Array, Array]):
    """N Acrobot environments with next-step autoreset.

    Observations are (N, 6) float32, actions (N,) integers from 0 to 2.

    Args:
        num_envs: number of environments N.
    """

    def __init__(self, num_envs: int) -> None:
        super().__init__()
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}
        high = np.array([1.0, 1.0, 1.0, 1.0, *_FASTEST], np.float32)
        self.single_observation_space = Box(-high, high, dtype=np.float32)
        self.single_action_space = Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._generators: list[np.random.Generator | None] = [None] * num_envs
        # Angles of the first joint and of the second to the first, rad; their speeds, rad/s.
        self._state = np.zeros((4, num_envs))
        self._obs = np.zeros((num_envs, 6), np.float32)
        self._steps = np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, bool)

    def _start(self, index: int, low: float = -0.1, high: float = 0.1) -> None:
        generator = self._generators[index]
        if generator is None:
            generator = self._generators[index] = seeding.np_random(None)[0]
        first = generator.uniform(low, high, 4).astype(np.float32)
        self._state[:, index] = first
        # In float32, as Gymnasium computes the first observation from a float32 state.
        one, two = first[0], first[1]
        self._obs[index] = (np.cos(one), np.sin(one), np.cos(two), np.sin(two), first[2], first[3])
        self._steps[index] = 0
        self._over[index] = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Resets all environments, or those of a mask.

        Args:
            seed: an int, with which environment i gets seed + i, or a list with one seed or None for each;
                None keeps the states of the generators.
            options: ``reset_mask``, (N,) bool, the environments to reset; ``low`` and ``high``, the bounds of
                the first state.

        Returns:
            Observations (N, 6) float32 and empty infos.

        Raises:
            ValueError: there are not N seeds, or the mask is not (N,) bool.
        """
        given = dict(options or {})
        mask = given.pop("reset_mask", None)
        chosen = np.ones(self.num_envs, bool) if mask is None else np.asarray(mask)
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed
        if seeds is not None and len(seeds) != self.num_envs:
            raise ValueError(f"seed has {len(seeds)} entries, expected {self.num_envs}, one per environment")
        if chosen.shape != (self.num_envs,) or chosen.dtype != np.bool_:
            raise ValueError(
                f"reset_mask is {chosen.dtype} of shape {chosen.shape}, expected bool of ({self.num_envs},)"
            )
        for index in np.nonzero(chosen)[0].tolist():
            own = None if seeds is None else seeds[index]
            if own is not None:
                self._generators[index] = seeding.np_random(own)[0]
            self._start(index, **given)
        return self._obs.copy(), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Steps all environments; those that ended in the last step are reset instead.

        Args:
            actions: (N,) integers from 0 to 2.

        Returns:
            Observations (N, 6) float32, rewards (N,) float64, terminated and truncated (N,) bool, empty
            infos.

        Raises:
            ValueError: actions are not (N,) integers, or not 0 to 2.
        """
        torque = _TORQUES[discrete_actions(actions, self.num_envs, 3)]
        begin = np.nonzero(self._over)[0]
        state = self._state
        k_1 = _derivative(state, torque)
        k_2 = _derivative(state + _DT / 2.0 * k_1, torque)
        k_3 = _derivative(state + _DT / 2.0 * k_2, torque)
        k_4 = _derivative(state + _DT * k_3, torque)
        state += _DT / 6.0 * (k_1 + 2 * k_2 + 2 * k_3 + k_4)
        one, two = _wrap(state[0]), _wrap(state[1])
        for speed, fastest in zip(state[2:], _FASTEST, strict=True):
            np.clip(speed, -fastest, fastest, out=speed)
        obs = self._obs
        cos_1 = np.cos(one)
        for column, values in enumerate((cos_1, np.sin(one), np.cos(two), np.sin(two), state[2], state[3])):
            obs[:, column] = values
        terminated = -cos_1 - np.cos(two + one) > 1.0
        reward = np.where(terminated, 0.0, -1.0)
        self._steps += 1
        truncated = self._steps >= _STEPS
        for index in begin.tolist():
            self._start(index)
            reward[index], terminated[index], truncated[index] = 0.0, False, False
        self._over = terminated | truncated
        return obs.copy(), reward, terminated, truncated, {}
