"""The replay of recorded episodes: many at a time, one per environment of a vector environment."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parl.datasets import hashes
from parl.datasets.format import ENDS, Episode
from parl.datasets.options import check_console, make_envs
from parl.envs.atari.step_results import (
    EPISODE_FRAME,
    GAME_OVER,
    LIVES,
    RAW_REWARD,
    REWARD,
    TERMINATED,
    TRUNCATED,
)
from parl.errors import DatasetError

if TYPE_CHECKING:
    from parl.datasets.dataset import Dataset

Rows = dict[str, Any]
"""Arrays with a row for each environment that made a step of an episode."""
_CUT = ENDS.index("cut")


class Replay:
    """Iterator over the steps of episodes.

    An environment whose episode is over begins the next one within the same call. When none is left, it is
    not stepped any more.

    Args:
        dataset: where the episodes are.
        order: numbers of the episodes.
        batch_size: number of environments.
        options: keywords of the environments.
        threads: keywords ``num_threads`` and ``thread_affinity_offset``.
        verify: whether hashes are compared.
    """

    def __init__(
        self,
        dataset: Dataset,
        order: Sequence[int],
        batch_size: int,
        options: Mapping[str, Any],
        threads: Mapping[str, Any],
        verify: bool,
    ) -> None:
        self._dataset, self._options, self._threads, self._verify = dataset, options, threads, verify
        self._order = order
        self._batch_size = batch_size
        self._reward_dtype = np.dtype(options.get("reward_dtype", "int32"))
        self.envs: Any = None

    def __iter__(self) -> Iterator[Rows]:
        """Yields the rows of each step of the vector environment."""
        waiting = self._read()
        begun = list(itertools.islice(waiting, self._batch_size))
        if not begun:
            return
        self._waiting = waiting
        self._episodes = [episode for _, episode in begun]
        # Actions as bytes, which Python reads faster than arrays.
        self._actions = [episode.actions.tobytes() for episode in self._episodes]
        self._env_ids = list(range(len(begun)))
        self._ids = np.arange(len(begun))
        self._numbers = np.array([number for number, _ in begun], np.int64)
        self._steps = np.zeros(len(begun), np.int64)
        self._lengths = np.array([len(actions) for actions in self._actions], np.int64)
        self._hashes: NDArray[np.uint64] = np.zeros(len(begun), np.uint64)
        self.envs = make_envs(self._dataset.game, len(begun), self._options, self._threads)
        try:
            check_console(self._dataset.path, self._dataset.header, self.envs)
            obs, _ = self.envs.reset(seed=np.array([episode.seed for episode in self._episodes]))
            while self._env_ids:
                rows, obs = self._step(obs)
                yield rows
        finally:
            self.envs.close()

    def _read(self) -> Iterator[tuple[int, Episode]]:
        """Numbers and records of the episodes that have steps."""
        for number in self._order:
            episode = self._dataset.read(number)
            if len(episode.actions):
                yield number, episode

    def _step(self, obs: Any) -> tuple[Rows, Any]:
        """Steps the environments; returns the rows, and the observations of the next step."""
        steps = self._steps
        actions = np.array(
            [codes[step] for codes, step in zip(self._actions, steps.tolist(), strict=True)], np.int64
        )
        self._steps = steps + 1
        last = self._steps == self._lengths
        finished: list[int] = np.nonzero(last)[0].tolist()
        begun: dict[int, tuple[int, Episode]] = {}
        seeds = None
        if finished:
            begun = dict(zip(finished, self._waiting, strict=False))
            seeds = [-1] * len(last)
            for i, (_, episode) in begun.items():
                seeds[i] = episode.seed
        following, next_obs, numbers, flags, ram = self.envs.step_and_reset(self._env_ids, actions, seeds)
        if self._verify:
            lives, frames, raw = numbers[LIVES], numbers[EPISODE_FRAME], numbers[RAW_REWARD]
            self._hashes = hashes.updated(self._hashes, ram, lives, frames, raw)
        self._check(last, flags[GAME_OVER])
        truncated = flags[TRUNCATED]
        for i in finished:
            if self._episodes[i].end == _CUT:
                truncated[i] |= not flags[TERMINATED, i]
        reward = numbers[REWARD]
        rows: Rows = {
            "observation": obs,
            "action": actions,
            "reward": reward if reward.dtype == self._reward_dtype else reward.astype(self._reward_dtype),
            "next_observation": next_obs,
            "terminated": flags[TERMINATED],
            "truncated": truncated,
            "episode": self._numbers,
            "step": steps,
            "env_id": self._ids,
        }
        if finished:
            following = self._begin(finished, begun, following)
        return rows, following

    def _begin(self, finished: list[int], begun: dict[int, tuple[int, Episode]], obs: Any) -> Any:
        """Puts episodes in place of those that are finished; returns the observations that are needed."""
        # The arrays of the rows do not change.
        self._numbers, self._lengths = self._numbers.copy(), self._lengths.copy()
        for i, (number, episode) in begun.items():
            self._episodes[i], self._numbers[i] = episode, number
            self._actions[i] = episode.actions.tobytes()
            self._steps[i], self._lengths[i], self._hashes[i] = 0, len(episode.actions), 0
        dropped = set(finished) - begun.keys()
        if not dropped:
            return obs
        kept = [i for i in range(len(self._env_ids)) if i not in dropped]
        self._episodes = [self._episodes[i] for i in kept]
        self._actions = [self._actions[i] for i in kept]
        self._env_ids = [self._env_ids[i] for i in kept]
        self._hashes = self._hashes[kept]
        columns = (self._ids, self._numbers, self._steps, self._lengths)
        self._ids, self._numbers, self._steps, self._lengths = (column[kept] for column in columns)
        return obs[kept]

    def _check(self, last: NDArray[np.bool_], over: NDArray[np.bool_]) -> None:
        """Compares hashes and ends with those recorded.

        Args:
            last: (N,) where the recorded episode has its last step.
            over: (N,) where the game has ended.

        Raises:
            DatasetError: they differ.
        """
        interval = self._dataset.interval
        due = last | over | (self._steps % interval == 0)
        if not due.any():
            return
        for i in np.nonzero(due)[0].tolist():
            episode, step = self._episodes[i], int(self._steps[i])
            where = f"{self._dataset.path}: the replay of episode {self._numbers[i]}"
            if over[i] and not last[i]:
                raise DatasetError(
                    f"{where} ends after {step} steps, it was recorded with {self._lengths[i]}"
                )
            if last[i] and not over[i] and episode.end != _CUT:
                raise DatasetError(f"{where} goes on after step {step}, with which it ended when recorded")
            if self._verify and (last[i] or step % interval == 0):
                recorded = episode.hashes[(step - 1) // interval]
                if int(self._hashes[i]) != recorded:
                    raise DatasetError(
                        f"{where} differs from the recording within the steps up to {step}: hash "
                        f"{int(self._hashes[i]):016x}, recorded {recorded:016x}"
                    )
