"""Gymnasium's Acrobot-v1, all environments of a vector stepped together: the same numbers, bit for bit.

Gymnasium steps Acrobot one environment at a time, 60 to 80 microseconds each, which is more than learning
from the step costs. Here a step of all is some two hundred numpy operations, however many there are.
Observations, rewards, ends and the first states of seeds are those of ``SyncVectorEnv`` on ``Acrobot-v1`` (a
test steps both): every operation is the same one on float64, in the same order; numpy's sine and cosine give
an element the same result alone and among others, and squares go by C's ``pow`` as those of numpy's scalars
do, since ``x * x`` differs in the last bit now and then.

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

from parl.types import Array

_GRAVITY = 9.8
_DT = 0.2
_FASTEST = (4 * math.pi, 9 * math.pi)
_STEPS = 500
_TORQUES = np.array([-1.0, 0.0, 1.0])


def _squares(x: Array) -> Array:
    """C's ``pow(x, 2)`` of (N,) float64."""
    return np.array([value**2.0 for value in x.tolist()])


def _derivative(state: Array, torque: Array) -> Array:
    """(4, N): how angles and speeds (4, N) change in a second."""
    theta_1, theta_2, speed_1, speed_2 = state
    cos_2, sin_2 = np.cos(theta_2), np.sin(theta_2)
    d_1 = 0.25 + (1.25 + cos_2) + 1.0 + 1.0
    d_2 = (0.25 + 0.5 * cos_2) + 1.0
    phi_2 = 0.5 * _GRAVITY * np.cos(theta_1 + theta_2 - math.pi / 2)
    phi_1 = -0.5 * _squares(speed_2) * sin_2 - speed_2 * speed_1 * sin_2
    phi_1 = phi_1 + 1.5 * _GRAVITY * np.cos(theta_1 - math.pi / 2) + phi_2
    turned = torque + d_2 / d_1 * phi_1 - 0.5 * _squares(speed_1) * sin_2 - phi_2
    change_2 = turned / (1.25 - _squares(d_2) / d_1)
    return np.stack((speed_1, speed_2, -(d_2 * change_2 + phi_1) / d_1, change_2))


def _wrapped(angle: Array) -> Array:
    """Angles brought into -pi..pi, a turn at a time, in place."""
    while (above := angle > math.pi).any():
        angle[above] -= 2 * math.pi
    while (below := angle < -math.pi).any():
        angle[below] += 2 * math.pi
    return angle


class AcrobotVectorEnv(VectorEnv[Array, Array, Array]):
    """N Acrobots. Observations (N, 6) float32; actions (N,) int in 0..2; an end is followed by a reset step.

    Args:
        num_envs: N.
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
        # Of float32 here, as the first state is.
        one, two = first[0], first[1]
        self._obs[index] = (np.cos(one), np.sin(one), np.cos(two), np.sin(two), first[2], first[3])
        self._steps[index] = 0
        self._over[index] = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """First observations; environment i has the seed ``seed + i``.

        Args:
            seed: one for all, or one for each; None goes on with the generators there are.
            options: ``reset_mask`` (N,) bool starts only these anew; ``low`` and ``high`` bound the first
                state.

        Raises:
            ValueError: there are not N seeds, or the mask is not (N,) bool.
        """
        given = dict(options or {})
        mask = given.pop("reset_mask", None)
        chosen = np.ones(self.num_envs, bool) if mask is None else np.asarray(mask)
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed
        if seeds is not None and len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        if chosen.shape != (self.num_envs,) or chosen.dtype != np.bool_:
            raise ValueError(
                f"reset_mask is {chosen.dtype} of shape {chosen.shape}, not bool of ({self.num_envs},)"
            )
        for index in np.nonzero(chosen)[0].tolist():
            own = None if seeds is None else seeds[index]
            if own is not None:
                self._generators[index] = seeding.np_random(own)[0]
            self._start(index, **given)
        return self._obs.copy(), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Observations (N, 6) float32, rewards (N,) float64, terminated and truncated (N,) bool."""
        torque = _TORQUES[actions]
        begin = np.nonzero(self._over)[0]
        state = self._state
        k_1 = _derivative(state, torque)
        k_2 = _derivative(state + _DT / 2.0 * k_1, torque)
        k_3 = _derivative(state + _DT / 2.0 * k_2, torque)
        k_4 = _derivative(state + _DT * k_3, torque)
        state += _DT / 6.0 * (k_1 + 2 * k_2 + 2 * k_3 + k_4)
        one, two = _wrapped(state[0]), _wrapped(state[1])
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
