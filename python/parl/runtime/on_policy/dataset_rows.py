"""Rows of a dataset of :mod:`parl.datasets` in place of an environment, in memory or replayed as needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from parl.datasets import Dataset, load
from parl.datasets.learning import view_of
from parl.envs import EnvMaker
from parl.errors import ConfigError
from parl.runtime import states
from parl.runtime.env_actor import Counts
from parl.runtime.on_policy.recorded import RecordedActor, fill_rollout
from parl.runtime.on_policy.rollout import RolloutBuffer
from parl.types import Array, EnvSpec, RolloutPolicy

MEMORY_BYTES = 1 << 30
"""Observations of a dataset that are kept in memory: all of a small one, a random part of a large one."""


def make_dataset_actor(path: str, maker: EnvMaker, spec: EnvSpec, policy: RolloutPolicy, seed: int) -> Any:
    """An actor that reads a dataset.

    Args:
        path: the dataset.
        maker: makes the environments of the run.
        spec: description of these environments.
        policy: holds the weights that the loop writes; it does not act.
        seed: seed of the order.

    Raises:
        ConfigError: the dataset is empty, or of another game, or its actions are not those of the run.
        DatasetError: the file is not a dataset, or is damaged.
    """
    if Path(path).is_dir():
        raise ConfigError(f"{path} is a folder: logged replays of DQN are for dqn and rainbow")
    dataset = load(path)
    if dataset.num_steps == 0:
        raise ConfigError(f"{path} has no steps")
    view = view_of(dataset, maker)
    row_bytes = int(np.prod(spec.observation_shape)) * np.dtype(spec.observation_dtype).itemsize
    most = max(1, MEMORY_BYTES // row_bytes)
    if dataset.num_steps > most:
        return DatasetActor(dataset, view, spec, policy, seed, most)
    obs = np.empty((dataset.num_steps, *spec.observation_shape), spec.observation_dtype)
    action = np.empty(dataset.num_steps, spec.action_dtype)
    at = 0
    for rows in dataset.replay(**view):
        end = at + len(rows["step"])
        obs[at:end], action[at:end] = rows["observation"], rows["action"]
        at = end
    return RecordedActor(obs, action, policy, seed)


class DatasetActor:
    """Fills rollouts with rows that are drawn at random from many, which a replay replaces one by one.

    A replay begins episodes in random order, each once before any is repeated.

    Args:
        dataset: a dataset.
        view: options of the replay.
        spec: description of the environments.
        policy: holds the weights that the loop writes; it does not act.
        seed: seed of the order.
        rows: number of rows to draw from, less than the dataset has.
    """

    def __init__(
        self,
        dataset: Dataset,
        view: Mapping[str, Any],
        spec: EnvSpec,
        policy: RolloutPolicy,
        seed: int,
        rows: int,
    ) -> None:
        self.policy = policy
        self._dataset, self._view = dataset, dict(view)
        self._rng = np.random.default_rng(seed)
        self._obs = np.empty((rows, *spec.observation_shape), spec.observation_dtype)
        self._action = np.empty(rows, spec.action_dtype)
        self._empty = np.arange(rows)
        self._stream = self._replays()
        self._rest: tuple[Array, Array] = (self._obs[:0], self._action[:0])

    def collect(self, buffer: RolloutBuffer, env_steps: int) -> Counts:
        """Fills ``buffer`` with T * N rows."""
        count = buffer.reward.size
        if count > len(self._action):
            raise ConfigError(
                f"a rollout has {count} rows, but memory is for {len(self._action)} of {self._dataset.path}: "
                "choose a smaller num_envs or rollout_steps"
            )
        self._refill()
        rows = self._rng.choice(len(self._action), count, replace=False)
        fill_rollout(buffer, self._obs[rows], self._action[rows])
        self._empty = rows
        return Counts(count, [], 0.0)

    def _refill(self) -> None:
        """Puts the next rows of the replay in place of those drawn."""
        while len(self._empty):
            if not len(self._rest[1]):
                self._rest = next(self._stream)
            (obs, action), free = self._rest, self._empty[: len(self._rest[1])]
            self._obs[free], self._action[free] = obs[: len(free)], action[: len(free)]
            self._rest = (obs[len(free) :], action[len(free) :])
            self._empty = self._empty[len(free) :]

    def _replays(self) -> Iterator[tuple[Array, Array]]:
        while True:
            order = self._rng.permutation(self._dataset.num_episodes)
            for rows in self._dataset.replay(episodes=order.tolist(), **self._view):
                yield rows["observation"], rows["action"]

    def save(self) -> bytes:
        """The generator of the order as bytes; a resumed run begins with new rows."""
        return states.to_bytes(self._rng.bit_generator.state)

    def load(self, state: bytes) -> None:
        """Restores what :meth:`save` returned."""
        self._rng.bit_generator.state = states.from_bytes(state)

    def close(self) -> None:
        """Frees the environments of the replay."""
        self._stream.close()  # pyright: ignore[reportAttributeAccessIssue]
