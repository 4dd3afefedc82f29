"""Gymnasium's vectorized CartPole-v1 in half to two thirds of the time, with bitwise equal results.

A step of Gymnasium's class takes about fifty numpy operations, checks all actions against their space and
draws first states even if no episode starts; their time hardly depends on the number of environments. Here a
step does the same operations on float64 in the same order, without those that do not affect the result, and
with one operation for rows of the state that need the same one. A test compares both.

Source of the dynamics: Barto, Sutton and Anderson (1983), "Neuronlike adaptive elements that can solve
difficult learning control problems", as Gymnasium writes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.classic_control import cartpole

from parl.envs.spaces import discrete_actions
from parl.types import Array

_SIGNS = np.array([-1.0, 1.0])


class CartPoleVectorEnv(cartpole.CartPoleVectorEnv):
    """Gymnasium's CartPole vector environment with a faster step and the reset option ``part``.

    Attributes:
        starts_parts: True: :meth:`reset` accepts the option ``part``.
    """

    starts_parts = True
    screens: Any = None  # Gymnasium before 1.2 reads it when an instance whose constructor failed is freed.

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Resets all environments.

        Args:
            seed: seed of the one generator for all environments; None keeps its state.
            options: ``low`` and ``high``, the bounds of the first state; ``part`` = (first, total), to start
                with the states of environments first to first + N of a vector environment of ``total``
                environments; those beyond the last one get the state of the last one.

        Returns:
            Observations (N, 4) float32 and empty infos.

        Raises:
            ValueError: ``first`` is outside 0..total.
        """
        given = dict(options or {})
        part = given.pop("part", None)
        if part is None:
            return super().reset(seed=seed, options=options)
        first, total = part
        if not 0 <= first < total:
            raise ValueError(f"part is ({first}, {total}), expected (first, total) with 0 <= first < total")
        own, self.num_envs = self.num_envs, total
        try:
            obs, _ = super().reset(seed=seed, options=given)
        finally:
            self.num_envs = own
        chosen = np.minimum(np.arange(first, first + own), total - 1)
        state = self.state
        assert state is not None
        self.state = state[:, chosen]
        self.steps, self.prev_done = self.steps[chosen], self.prev_done[chosen]
        return obs[chosen], {}

    def step(self, action: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Steps all environments; those that ended in the last step are reset instead.

        Args:
            action: (N,) integers, 0 or 1.

        Returns:
            Observations (N, 4) float32, rewards (N,) float32, terminated and truncated (N,) bool, empty
            infos.

        Raises:
            ValueError: actions are not (N,) integers, or not 0 or 1.
        """
        if self.kinematics_integrator != "euler" or self._sutton_barto_reward:
            return super().step(action)
        state = self.state
        assert state is not None, "Call reset before using step method."
        actions = discrete_actions(action, self.num_envs, 2)
        change = np.empty_like(state)
        change[0::2] = state[1::2]
        theta, theta_dot = state[2], state[3]
        cos, sin = np.cos(theta), np.sin(theta)
        pole = self.polemass_length
        temp = np.square(theta_dot)
        temp *= pole
        temp *= sin
        temp += _SIGNS.take(actions) * self.force_mag
        temp /= self.total_mass
        inertia = np.square(cos)
        inertia *= self.masspole
        inertia /= self.total_mass
        np.subtract(4.0 / 3.0, inertia, out=inertia)
        inertia *= self.length
        theta_acc = np.multiply(sin, self.gravity, out=change[3])
        theta_acc -= cos * temp
        theta_acc /= inertia
        x_acc = np.multiply(theta_acc, pole, out=change[1])
        x_acc *= cos
        x_acc /= self.total_mass
        np.subtract(temp, x_acc, out=x_acc)
        change *= self.tau
        change += state
        state = self.state = change

        distance = np.abs(state[0::2])
        terminated = (distance[0] > self.x_threshold) | (distance[1] > self.theta_threshold_radians)
        self.steps += 1
        truncated = self.steps >= self.max_episode_steps
        reward = np.ones(self.num_envs, np.float32)
        over = self.prev_done
        resets = np.count_nonzero(over)
        if resets:
            state[:, over] = self.np_random.uniform(low=self.low, high=self.high, size=(4, resets))
            self.steps[over] = 0
            reward[over] = 0.0
            terminated[over] = False
            truncated[over] = False
        self.prev_done = terminated | truncated
        return state.T.astype(np.float32, order="C"), reward, terminated, truncated, {}
