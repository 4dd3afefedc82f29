"""Recorded play in the place of an environment: rollouts are rows of files, in random order."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from parl.envs.recorded import read_play
from parl.runtime import states
from parl.runtime.rollout import RolloutBuffer
from parl.runtime.sync import RolloutSetup
from parl.types import Array, RolloutPolicy


class RecordedActor:
    """Fills rollouts with recorded rows, every row once before any comes again.

    Args:
        obs: (M, *observation_shape).
        action: (M, *action_shape).
        policy: has the weights that a loop writes; it does not act.
        seed: of the order.
    """

    def __init__(self, obs: Array, action: Array, policy: RolloutPolicy, seed: int) -> None:
        self.policy = policy
        self.reward_sum = 0.0
        """Recorded play has none."""
        self._obs, self._action = obs, action
        self._rng = np.random.default_rng(seed)
        self._order = np.zeros(0, np.int64)

    def collect(self, buffer: RolloutBuffer, env_steps: int) -> tuple[int, list[tuple[float, int]]]:
        """Fills ``buffer`` with T N rows that have nothing to do with each other; returns their number."""
        steps, envs = buffer.reward.shape
        count = steps * envs
        while len(self._order) < count:
            self._order = np.concatenate([self._order, self._rng.permutation(len(self._obs))])
        rows, self._order = self._order[:count], self._order[count:]
        buffer.obs[:-1] = self._obs[rows].reshape(steps, envs, *self._obs.shape[1:])
        buffer.obs[-1] = buffer.obs[-2]
        buffer.action[:] = self._action[rows].reshape(steps, envs, *self._action.shape[1:])
        for column in (buffer.log_prob, buffer.reward, buffer.terminated):
            column[:] = 0
        buffer.ended[:] = True
        buffer.valid[:] = True
        return count, []

    def save(self) -> bytes:
        """The order as bytes; the rows stay in their files."""
        return states.to_bytes((self._rng.bit_generator.state, self._order))

    def load(self, state: bytes) -> None:
        """Takes back what :meth:`save` gave."""
        self._rng.bit_generator.state, self._order = states.from_bytes(state)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class RecordedSetup(RolloutSetup):
    """One run that learns from files.

    Attributes:
        data: their paths, see :mod:`parl.envs.recorded`.
    """

    data: tuple[str, ...] = dataclasses.field(default=())

    def make_actor(self, index: int, generation: int, policy: RolloutPolicy | None = None) -> Any:
        """The files' rows; ``generation`` counts resumes."""
        obs, action = read_play(self.data, self.maker, self.spec)
        seed = self.seed + 1_000_003 * generation
        own = policy or self.algorithm.make_policy(index, self.actors, self.num_envs, seed)
        return RecordedActor(obs, action, own, seed)
