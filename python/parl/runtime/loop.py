"""What the loops of all topologies repeat: learner, counters, episodes, interruption, and what is saved."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from parl.runtime import checkpoint
from parl.runtime.setup import Saved
from parl.types import Learned

L = TypeVar("L", bound=Learned)


class Saveable(Protocol):
    """An actor, as far as checkpoints are concerned."""

    def save(self) -> bytes:
        """Its state; raises what its environment raises when that cannot be saved."""
        ...


def state_or_reason(actor: Saveable) -> bytes | str:
    """The state of ``actor``, or why there is none."""
    try:
        return actor.save()
    except Exception as error:  # what an environment raises when it cannot be saved is its own
        return f"{type(error).__name__}: {error}"


def kept(name: str, state: bytes | str | None, exact: bool = False) -> bytes | None:
    """The ``state`` that actor ``name`` answered, if it has any; a warning where it answered a reason.

    Args:
        name: for the warning.
        state: of :func:`state_or_reason`.
        exact: a resumed run would repeat the same numbers if there were a state.
    """
    if not isinstance(state, str):
        return state
    lost = " and will not repeat the same numbers" if exact else ""
    warnings.warn(
        f"{name}'s environment cannot be saved ({state}): a resumed run starts new episodes{lost}",
        stacklevel=3,
    )
    return None


class LoopBase(Generic[L]):
    """The common part of :class:`parl.runtime.setup.Loop`.

    Args:
        learner: fresh; takes the saved state.
        saved: the checkpoint to go on from, or None.
    """

    def __init__(self, learner: L, saved: Saved | None) -> None:
        self._learner = learner
        self._env_steps = self._updates = self._resumes = 0
        if saved is not None:
            checkpoint.load_learner(saved, learner)
            self._env_steps = int(saved.counters["env_steps"])
            self._updates = int(saved.counters["updates"])
            self._resumes = int(saved.counters["resumes"]) + 1
        self._episodes: list[tuple[float, int]] = []
        self._rewards, self._ended = 0.0, 0
        self._interrupted = False
        self._marked: tuple[float, int, int] = (time.monotonic(), self._env_steps, self._updates)

    @property
    def learner(self) -> L:
        """Holds the newest weights."""
        return self._learner

    @property
    def env_steps(self) -> int:
        """Transitions collected."""
        return self._env_steps

    @property
    def updates(self) -> int:
        """Optimizer steps taken, or generations."""
        return self._updates

    def interrupt(self) -> None:
        """Makes ``advance`` return soon."""
        self._interrupted = True

    def count(self, transitions: int, finished: Iterable[tuple[float, int]], reward: float) -> None:
        """Takes what an actor collected into account.

        Args:
            transitions: their number.
            finished: return and length of each episode that ended.
            reward: sum over the transitions.
        """
        before = len(self._episodes)
        self._episodes += finished
        self._ended += len(self._episodes) - before
        self._env_steps += transitions
        self._rewards += reward

    def take_episodes(self) -> list[tuple[float, int]]:
        """Return and length of the episodes finished since the last call."""
        taken, self._episodes = self._episodes, []
        return taken

    def rewards_and_episodes(self) -> tuple[float, int]:
        """Sum of all rewards, and number of all episodes ended, since this loop was made."""
        return self._rewards, self._ended

    def rates(self) -> tuple[float, dict[str, float]]:
        """Seconds since the last call (never 0), and transitions and updates a second in them."""
        old, self._marked = self._marked, (time.monotonic(), self._env_steps, self._updates)
        elapsed = max(self._marked[0] - old[0], 1e-9)
        return elapsed, {
            "env_steps_per_s": (self._marked[1] - old[1]) / elapsed,
            "updates_per_s": (self._marked[2] - old[2]) / elapsed,
        }

    def write(self, folder: Path, actors: list[bytes | None], replay: Any = None) -> None:
        """Writes a checkpoint with these actors' states into ``folder``."""
        counters = {"env_steps": self._env_steps, "updates": self._updates, "resumes": self._resumes}
        checkpoint.write(folder, self._learner, replay, actors, counters)
