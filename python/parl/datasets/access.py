"""Random access to states, and the comparison of a whole dataset with its hashes and checkpoints."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parl.datasets import checkpoints
from parl.datasets.checkpoints import STATE_VERSION, StickyGenerator
from parl.datasets.consoles import reference_row
from parl.datasets.format import Episode
from parl.datasets.options import check_console, console_options, make_envs
from parl.datasets.replaying import Replay, Rows
from parl.errors import DatasetError

if TYPE_CHECKING:
    from parl.datasets.dataset import Dataset


def _generator(dataset: Dataset, episode: Episode) -> StickyGenerator:
    return StickyGenerator(episode.seed, dataset.env_options["noops"] == "numpy")


class SeekConsole:
    """A console that reaches steps of a dataset's episodes; threads use it in turns."""

    def __init__(self, dataset: Dataset) -> None:
        self._lock = threading.Lock()
        self._envs = make_envs(dataset.game, 1, console_options(dataset.env_options), {"num_threads": 1})
        check_console(dataset.path, dataset.header, self._envs)
        self._reference = reference_row(dataset.game, dataset.env_options)
        self._is_readable = dataset.header.get("states") == STATE_VERSION

    def state_at(self, dataset: Dataset, number: int, step: int) -> NDArray[np.uint8]:
        """See :meth:`parl.datasets.Dataset.state_at`."""
        episode = dataset.read(number)
        if not 0 <= step <= len(episode.actions):
            raise IndexError(
                f"step {step} is outside 0 to {len(episode.actions)}, the steps of episode {number}"
            )
        with self._lock:
            at = self._begin(dataset, number, episode, step)
            while at < step:
                played, ended = self._envs.play(0, episode.actions[at:step])
                at += played
                # With `life_loss="continues"` the game goes on after a lost life.
                if ended and at < len(episode.actions):
                    self._envs.reset(seed=np.array([-1]))
            return self._envs.get_state()[0]

    def _begin(self, dataset: Dataset, number: int, episode: Episode, step: int) -> int:
        """Loads the last checkpoint that a step follows, or resets the console; returns its step."""
        place = min(checkpoints.count_of(step, episode.spacing), episode.num_checkpoints)
        if not place or not self._is_readable:
            self._envs.reset(seed=np.array([episode.seed]))
            return 0
        try:
            count, reference = episode.num_checkpoints, self._reference
            row = checkpoints.unpack_one(episode.checkpoints, count, place - 1, reference)
            core, refills = checkpoints.parts_of(row)
            generator = _generator(dataset, episode)
            if refills > 2 * len(episode.actions) + 1_000:
                raise ValueError(f"a checkpoint is {refills} refills of its generator from the start")
            generator.refill(refills)
            self._envs.set_core(0, core, generator.words())
        except ValueError as error:
            raise DatasetError(f"{dataset.path} is damaged: episode {number}: {error}") from None
        return place * episode.spacing


class _Verification(Replay):
    """A replay that also compares the states of consoles with the checkpoints."""

    def __init__(self, dataset: Dataset, batch_size: int) -> None:
        options = console_options(dataset.env_options)
        super().__init__(dataset, range(dataset.num_episodes), batch_size, options, {}, True)
        # The checkpoints to come, by number of the episode.
        self._checkpoints: dict[int, Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8]]]] = {}
        self._is_readable = dataset.header.get("states") == STATE_VERSION
        self._reference = reference_row(dataset.game, dataset.env_options)

    def _step(self, obs: Any) -> tuple[Rows, Any]:
        if self._is_readable:
            for i, (episode, step) in enumerate(zip(self._episodes, self._steps.tolist(), strict=True)):
                if step and episode.spacing and step % episode.spacing == 0:
                    self._compare(i, step)
        return super()._step(obs)

    def _compare(self, i: int, step: int) -> None:
        number, episode = int(self._numbers[i]), self._episodes[i]
        if step == episode.spacing:
            self._checkpoints[number] = self._states(episode)
        try:
            core, words = next(self._checkpoints[number])
        except ValueError as error:
            raise DatasetError(f"{self._dataset.path} is damaged: episode {number}: {error}") from None
        found, found_words = self.envs.get_core(self._env_ids[i])
        if not (np.array_equal(core, found) and np.array_equal(words, found_words)):
            raise DatasetError(
                f"{self._dataset.path}: the checkpoint of episode {number} at step {step} is not the state "
                "of its replay"
            )

    def _states(self, episode: Episode) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
        generator = _generator(self._dataset, episode)
        for row in checkpoints.unpack(episode.checkpoints, episode.num_checkpoints, self._reference):
            core, refills = checkpoints.parts_of(row)
            if not generator.refills <= refills <= generator.refills + 10_000:
                raise ValueError(f"a checkpoint is {refills} refills of its generator from the start")
            generator.refill(refills - generator.refills)
            yield core, generator.words()


def verify(dataset: Dataset, batch_size: int) -> int:
    """See :meth:`parl.datasets.Dataset.verify`."""
    return sum(len(rows["step"]) for rows in _Verification(dataset, batch_size))
