"""The replay of recorded episodes: many at a time, one per environment of a vector environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parl.datasets import hashes
from parl.datasets.format import ENDS, Episode
from parl.datasets.options import check_console, make_envs
from parl.errors import DatasetError

if TYPE_CHECKING:
    from parl.datasets.dataset import Dataset

Rows = dict[str, Any]
"""Arrays with a row for each environment that made a step of an episode."""
# What an environment without an episode plays until the others are moved to a smaller vector environment.
_IDLE = Episode(0, np.zeros(0, np.uint8), ENDS.index("cut"), 0, [])


class Replay:
    """Iterator over the steps of episodes.

    An environment whose episode has ended begins the next one. When none is left, and half of the
    environments have none, the others are moved to a smaller vector environment.

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
        self._waiting = iter(order)
        self._count = min(batch_size, len(order))
        self._episodes = [_IDLE] * self._count
        # Actions as bytes, which Python reads faster than arrays; one more for environments without episode.
        self._actions = [b"\0"] * self._count
        self._ids = np.arange(self._count)
        self._numbers = np.full(self._count, -1, np.int64)
        self._active = np.zeros(self._count, bool)
        self._steps = np.zeros(self._count, np.int64)
        self._lengths = np.zeros(self._count, np.int64)
        self._hashes = np.zeros(self._count, np.uint64)
        self.envs: Any = None

    def __iter__(self) -> Iterator[Rows]:
        """Yields the rows of each step of the vector environment."""
        if self._count == 0:
            return
        self.envs = self._make(self._count)
        try:
            check_console(self._dataset.path, self._dataset.header, self.envs)
            obs = self._reset(np.ones(self._count, bool), np.zeros(self._count, bool))
            while self._active.any():
                rows, obs, ended = self._step(obs)
                yield rows
                finished = self._active & (self._steps == self._lengths)
                due = ended | finished
                if due.any():
                    obs = self._reset(finished, due & ~finished)
                    if 2 * int(self._active.sum()) <= self._count and self._active.any():
                        obs = self._shrink(obs)
        finally:
            self.envs.close()

    def _make(self, count: int) -> Any:
        return make_envs(self._dataset.game, count, self._options, self._threads)

    def _reset(self, finished: NDArray[np.bool_], continued: NDArray[np.bool_]) -> Any:
        """Begins the next episodes where one is finished, and the next life where a game is continued."""
        seeds = np.full(self._count, -1, np.int64)
        for i in np.nonzero(finished)[0].tolist():
            number = next(self._waiting, -1)
            episode = self._dataset.read(number) if number >= 0 else _IDLE
            self._episodes[i], self._numbers[i] = episode, number
            self._actions[i] = episode.actions.tobytes() + b"\0"
            self._steps[i], self._lengths[i], self._hashes[i] = 0, len(episode.actions), 0
            seeds[i] = episode.seed
        self._active = self._numbers >= 0
        mask = finished | continued
        obs, _ = self.envs.reset(seed=seeds[mask], options={"reset_mask": mask})
        return obs

    def _shrink(self, obs: Any) -> Any:
        """Moves the environments that have an episode to a vector environment of just these."""
        active = self._active
        smaller = self._make(int(active.sum()))
        smaller.set_state(self.envs.get_state(active))
        self.envs.close()
        self.envs, self._count = smaller, smaller.num_envs
        kept = np.nonzero(active)[0].tolist()
        self._episodes = [self._episodes[i] for i in kept]
        self._actions = [self._actions[i] for i in kept]
        self._active = active[kept]
        columns = (self._ids, self._numbers, self._steps, self._lengths, self._hashes)
        self._ids, self._numbers, self._steps, self._lengths, self._hashes = (
            column[kept] for column in columns
        )
        return obs[active]

    def _step(self, obs: Any) -> tuple[Rows, Any, NDArray[np.bool_]]:
        """Steps all environments; returns the rows, the new observations, and where a reset is needed."""
        steps = self._steps
        actions = np.array(
            [codes[step] for codes, step in zip(self._actions, steps.tolist(), strict=True)], np.int64
        )
        following, reward, terminated, truncated, infos = self.envs.step(actions)
        ended = infos["game_over"] if self.envs.life_loss == "reports" else terminated | truncated
        active = self._active
        self._steps = steps + active
        last = self._steps == self._lengths
        if self._verify:
            self._hashes = hashes.updated(self._hashes, infos, reward)
        self._check(active, last, ended, infos)
        cut = [i for i in np.nonzero(active & last)[0].tolist() if ENDS[self._episodes[i].end] == "cut"]
        if cut:
            truncated = truncated.copy()
            truncated[cut] |= ~terminated[cut]
        rows: Rows = {
            "observation": obs,
            "action": actions,
            "reward": reward,
            "next_observation": following,
            "terminated": terminated,
            "truncated": truncated,
            "episode": self._numbers.copy(),
            "step": steps,
            "env_id": self._ids.copy(),
        }
        if not active.all():
            rows = {name: column[active] for name, column in rows.items()}
        return rows, following, ended

    def _check(
        self, active: NDArray[np.bool_], last: NDArray[np.bool_], ended: NDArray[np.bool_], infos: Rows
    ) -> None:
        """Compares hashes and ends with those recorded.

        Raises:
            DatasetError: they differ.
        """
        interval = self._dataset.interval
        due = active & (last | ended | (self._steps % interval == 0))
        for i in np.nonzero(due)[0].tolist():
            episode, step = self._episodes[i], int(self._steps[i])
            where = f"{self._dataset.path}: the replay of episode {self._numbers[i]}"
            # With `life_loss="continues"` only the end of a game is that of its log.
            over = bool(infos["game_over"][i]) if "game_over" in infos else bool(ended[i])
            if over and not last[i]:
                raise DatasetError(
                    f"{where} ends after {step} steps, it was recorded with {self._lengths[i]}"
                )
            if last[i] and not over and ENDS[episode.end] != "cut":
                raise DatasetError(f"{where} goes on after step {step}, with which it ended when recorded")
            if self._verify and (last[i] or step % interval == 0):
                recorded = episode.hashes[(step - 1) // interval]
                if int(self._hashes[i]) != recorded:
                    raise DatasetError(
                        f"{where} differs from the recording within the steps up to {step}: hash "
                        f"{int(self._hashes[i]):016x}, recorded {recorded:016x}"
                    )
