"""Random access to states, and the comparison of a whole dataset with its hashes and checkpoints."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parl._native import __version__
from parl.datasets.checkpoints import StickyGenerator, rest_of, unpack
from parl.datasets.format import Episode
from parl.datasets.options import check_console, console_options, make_envs
from parl.datasets.replaying import Replay, Rows
from parl.errors import AtariError, DatasetError

if TYPE_CHECKING:
    from parl.datasets.dataset import Dataset


def checkpoint_states(dataset: Dataset, number: int, episode: Episode) -> Iterator[NDArray[np.uint8]]:
    """The states of an episode's checkpoints, the first after ``dataset.interval`` steps.

    Raises:
        DatasetError: a checkpoint is damaged.
    """
    generator = StickyGenerator(episode.seed, dataset.env_options["noops"] == "numpy")
    first = b""
    for one in episode.checkpoints:
        try:
            state = unpack(one, generator, first)
            first = first or rest_of(one, b"")
        except ValueError as error:
            raise DatasetError(f"{dataset.path} is damaged: episode {number}: {error}") from None
        yield np.frombuffer(state, np.uint8)


def state_at(dataset: Dataset, number: int, step: int) -> NDArray[np.uint8]:
    """See :meth:`parl.datasets.Dataset.state_at`."""
    episode = dataset.read(number)
    if not 0 <= step <= len(episode.actions):
        raise IndexError(
            f"step {step} is outside 0..{len(episode.actions) + 1}, the steps of episode {number}"
        )
    envs = make_envs(dataset.game, 1, console_options(dataset.env_options))
    try:
        check_console(dataset.path, dataset.header, envs)
        at = 0
        before = itertools.islice(checkpoint_states(dataset, number, episode), step // dataset.interval)
        states = list(before)
        if states and _loads(envs, states[-1]):
            at = len(states) * dataset.interval
        else:
            envs.reset(seed=np.array([episode.seed]))
        ended = False
        for number_of_step in range(at, step):
            if ended:
                envs.reset(seed=np.array([-1]))
            _, _, terminated, truncated, _ = envs.step(episode.actions[[number_of_step]])
            ended = bool(terminated[0] or truncated[0])
        # With `life_loss="continues"` the game goes on after a lost life.
        if ended and step < len(episode.actions):
            envs.reset(seed=np.array([-1]))
        return envs.get_state()[0]
    finally:
        envs.close()


def _loads(envs: Any, state: NDArray[np.uint8]) -> bool:
    """Loads a state; False if this version of parl has other states."""
    try:
        envs.set_state(state[None])
    except AtariError:
        return False
    return True


class _Verification(Replay):
    """A replay that also compares the states of consoles with the checkpoints."""

    def __init__(self, dataset: Dataset, batch_size: int) -> None:
        options = console_options(dataset.env_options)
        super().__init__(dataset, range(dataset.num_episodes), batch_size, options, {}, True)
        # The checkpoints to come, by number of the episode.
        self._checkpoints: dict[int, Iterator[NDArray[np.uint8]]] = {}

    def _step(self, obs: Any) -> tuple[Rows, Any, NDArray[np.bool_]]:
        due = self._active & (self._steps > 0) & (self._steps % self._dataset.interval == 0)
        if due.any():
            for i, state in zip(np.nonzero(due)[0].tolist(), self.envs.get_state(due), strict=True):
                self._compare(i, state)
        return super()._step(obs)

    def _compare(self, env: int, state: NDArray[np.uint8]) -> None:
        number, steps = int(self._numbers[env]), int(self._steps[env])
        if steps == self._dataset.interval:
            self._checkpoints[number] = checkpoint_states(self._dataset, number, self._episodes[env])
        found = next(self._checkpoints[number], None)
        if found is None:
            raise DatasetError(f"{self._dataset.path}: episode {number} has no checkpoint at step {steps}")
        if not np.array_equal(found, state) and self._is_readable(found):
            raise DatasetError(
                f"{self._dataset.path}: the checkpoint of episode {number} at step {steps} is not the state "
                "of its replay"
            )

    def _is_readable(self, state: NDArray[np.uint8]) -> bool:
        """Whether this version of parl loads a state, or the state is damaged."""
        probe = self._make(1)
        try:
            return _loads(probe, state) or self._dataset.header["parl"] == __version__
        finally:
            probe.close()


def verify(dataset: Dataset, batch_size: int) -> int:
    """See :meth:`parl.datasets.Dataset.verify`."""
    return sum(len(rows["step"]) for rows in _Verification(dataset, batch_size))
