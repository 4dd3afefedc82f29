"""Recorded episodes in place of an environment: rollouts are rows of files, in random order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from parl.envs.recorded import read_play
from parl.runtime import states
from parl.runtime.env_actor import Counts
from parl.runtime.on_policy.rollout import RolloutBuffer
from parl.runtime.on_policy.setup import RolloutSetup
from parl.types import Array, RolloutPolicy


def fill_rollout(buffer: RolloutBuffer, obs: Array, action: Array) -> None:
    """Writes T * N independent rows into a rollout."""
    steps, envs = buffer.reward.shape
    buffer.obs[:-1] = obs.reshape(steps, envs, *obs.shape[1:])
    buffer.obs[-1] = buffer.obs[-2]
    buffer.action[:] = action.reshape(steps, envs, *action.shape[1:])
    for column in (buffer.log_prob, buffer.reward, buffer.terminated):
        column[:] = 0
    buffer.ended[:] = True
    buffer.valid[:] = True


class RecordedActor:
    """Fills rollouts with recorded rows, each row once before any is repeated.

    Args:
        obs: (M, *observation_shape).
        action: (M, *action_shape).
        policy: holds the weights that the loop writes; it does not act.
        seed: seed of the order.
    """

    def __init__(self, obs: Array, action: Array, policy: RolloutPolicy, seed: int) -> None:
        self.policy = policy
        self._obs, self._action = obs, action
        self._rng = np.random.default_rng(seed)
        self._order = np.zeros(0, np.int64)

    def collect(self, buffer: RolloutBuffer, env_steps: int) -> Counts:
        """Fills ``buffer`` with T * N independent rows."""
        count = buffer.reward.size
        while len(self._order) < count:
            self._order = np.concatenate([self._order, self._rng.permutation(len(self._obs))])
        rows, self._order = self._order[:count], self._order[count:]
        fill_rollout(buffer, self._obs[rows], self._action[rows])
        return Counts(count, [], 0.0)

    def save(self) -> bytes:
        """The order as bytes; the rows stay in their files."""
        return states.to_bytes((self._rng.bit_generator.state, self._order))

    def load(self, state: bytes) -> None:
        """Restores what :meth:`save` returned."""
        self._rng.bit_generator.state, self._order = states.from_bytes(state)

    def close(self) -> None:
        """Does nothing."""


@dataclass(frozen=True, kw_only=True)
class RecordedSetup(RolloutSetup):
    """Description of a run that learns from files.

    Attributes:
        data: paths of the files, see :mod:`parl.envs.recorded`.
        dataset: path of a dataset in place of files, see :mod:`parl.datasets`; empty without one.
    """

    data: tuple[str, ...]
    dataset: str = ""

    def make_actor(self, index: int, resumes: int, policy: RolloutPolicy | None = None) -> Any:
        """Makes an actor that reads the files' rows, in another order after each resume."""
        seed = self.own_seed(resumes)
        own = policy or self.algorithm.make_policy(index, self.actors, self.num_envs, seed)
        if self.dataset:
            from parl.runtime.on_policy.dataset_rows import make_dataset_actor

            return make_dataset_actor(self.dataset, self.maker, self.spec, own, seed)
        obs, action = read_play(self.data, self.maker, self.spec)
        return RecordedActor(obs, action, own, seed)
