"""Games that continue from saved states of the console, in place of the start of the game.

An actor draws for each new game whether it continues from a state, and from which one. The states are those
of a :class:`SavedStates`, or of the actor's environment 0, which then always plays whole games.

Source: Dalton, Frosio (2020), "Accelerating Reinforcement Learning through GPU Atari Emulation", for states
of one environment that many continue from; Tavakoli et al. (2018), "Exploring Restart Distributions", for
starts at states that the run has passed.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parl.errors import RunDirectoryError
from parl.types import Array

# States of environment 0 that are kept, and the number of steps between two of them: those of the last 1,024
# steps.
KEPT, EVERY = 64, 16


@dataclass(frozen=True)
class SavedStates:
    """States of games in progress.

    Attributes:
        states: (M, S) uint8, rows of :meth:`parl.AtariVectorEnv.get_state`.
        returns: (M,) float64, points of each game up to its state, without clipping.
        lengths: (M,) int64, steps of each game up to its state.
    """

    states: Array
    returns: Array
    lengths: Array

    @classmethod
    def of(cls, rows: Sequence[Array], returns: Sequence[float], lengths: Sequence[int]) -> SavedStates:
        """Puts rows (S,), which may differ in length, side by side."""
        states = np.zeros((len(rows), max(map(len, rows), default=0)), np.uint8)
        for row, state in zip(states, rows, strict=True):
            row[: len(state)] = state
        return cls(states, np.array(returns, np.float64), np.array(lengths, np.int64))

    def take(self, indices: Array) -> SavedStates:
        """The states at ``indices``, (n,) int64."""
        return SavedStates(self.states[indices], self.returns[indices], self.lengths[indices])

    def __len__(self) -> int:
        return len(self.states)

    def to_bytes(self) -> bytes:
        """The content of a file, for :meth:`from_bytes`."""
        file = io.BytesIO()
        np.savez_compressed(file, states=self.states, returns=self.returns, lengths=self.lengths)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, where: object) -> SavedStates:
        """Inverse of :meth:`to_bytes`.

        Raises:
            RunDirectoryError: the bytes are damaged; names ``where``.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                return cls(file["states"], file["returns"], file["lengths"])
        except Exception as error:  # any error of zip or numpy
            raise RunDirectoryError(f"{where} is damaged: {error}") from error


class StartStates:
    """Draws which new games of an actor continue from states, and keeps those of its environment 0.

    Args:
        num_envs: number of environments N of the actor.
        share: probability with which a new game continues from a state, 0..1.
        saved: the states; None for those of environment 0.
        seed: seed of the draws.
    """

    def __init__(self, num_envs: int, share: float, saved: SavedStates | None, seed: int) -> None:
        self._share, self._saved = share, saved
        self._rng = np.random.default_rng([seed, num_envs])
        self._first = np.zeros(num_envs, bool)
        self._first[0] = True
        self._steps = 0
        # Of the last states of environment 0: rows, returns and lengths.
        self._rows: list[Array] = []
        self._returns: list[float] = []
        self._lengths: list[int] = []

    def draw(self, new: Array) -> tuple[Array, SavedStates, Array] | None:
        """Draws which of the new games continue from states.

        Args:
            new: (N,) bool, the environments in which a game begins.

        Returns:
            None if none does; otherwise their mask (N,) bool, n states, and n seeds of their generators.
        """
        if self._saved is None:
            new = new & ~self._first
        found = self._saved or SavedStates.of(self._rows, self._returns, self._lengths)
        if not new.any() or not len(found):
            return None
        chosen = new & (self._rng.random(len(new)) < self._share)
        count = int(chosen.sum())
        if not count:
            return None
        states = found.take(self._rng.integers(len(found), size=count))
        return chosen, states, self._rng.integers(2**31, size=count)

    def keep(self, envs: Any, returns: Array, lengths: Array, playing: bool) -> None:
        """Counts a step, and keeps the state of environment 0 after every :data:`EVERY` of them.

        Args:
            envs: the :class:`parl.AtariVectorEnv`.
            returns: (N,), points of the games in progress.
            lengths: (N,), their steps.
            playing: whether the game of environment 0 goes on after this step.
        """
        if self._saved is not None:
            return
        self._steps += 1
        if self._steps % EVERY or not playing:
            return
        self._rows = [*self._rows, envs.get_state(self._first)[0]][-KEPT:]
        self._returns = [*self._returns, float(returns[0])][-KEPT:]
        self._lengths = [*self._lengths, int(lengths[0])][-KEPT:]

    def state_dict(self) -> dict[str, Any]:
        """Generator and kept states as plain data, without those that were given."""
        return {
            "generator": self._rng.bit_generator.state,
            "steps": self._steps,
            "rows": list(self._rows),
            "returns": list(self._returns),
            "lengths": list(self._lengths),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self._rng.bit_generator.state = state["generator"]
        self._steps = int(state["steps"])
        self._rows = [np.array(row) for row in state["rows"]]
        self._returns, self._lengths = list(state["returns"]), list(state["lengths"])
