"""The training loop of all topologies: limits, interrupts, counters, rates and checkpoints.

A topology is a subclass of :class:`Loop` that defines one iteration. :class:`LocalLoop` runs its actors
in this thread, :class:`parl.runtime.worker_loop.WorkerLoop` in other processes and threads.
"""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from parl.errors import RunDirectoryError
from parl.runtime import checkpoint
from parl.runtime.checkpoint import Checkpoint
from parl.runtime.env_actor import Counts
from parl.types import Learned

L = TypeVar("L", bound=Learned)


class Loop(ABC, Generic[L]):
    """A training run in progress; ``parl.train`` calls :meth:`advance`.

    Args:
        learner: newly made; the saved state is loaded into it.
        total_steps: transitions of the whole run.
        saved: the checkpoint to start from, or None.
    """

    obeys_clock: ClassVar[bool] = True
    """Whether :meth:`advance` also returns when its seconds have passed, so that results depend on time."""
    longest_iteration_s: float = 0.0
    """Seconds that the longest iteration since the start of this loop took."""

    def __init__(self, learner: L, total_steps: int, saved: Checkpoint | None) -> None:
        self._learner, self._total_steps = learner, total_steps
        self._replay: Any = None
        self._env_steps = self._updates = self._resumes = 0
        if saved is not None:
            checkpoint.load_learner(saved, learner)
            self._env_steps = int(saved.counters["env_steps"])
            self._updates = int(saved.counters["updates"])
            self._resumes = int(saved.counters["resumes"]) + 1
        self._episodes: list[tuple[float, int]] = []
        self._rewards, self._finished_episodes = 0.0, 0
        self._interrupted = False
        self._totals: dict[str, float] = {}
        self._marked: tuple[float, int, int] = (time.monotonic(), self._env_steps, self._updates)

    @property
    def learner(self) -> L:
        """The learner that holds the newest weights."""
        return self._learner

    @property
    def env_steps(self) -> int:
        """Transitions collected."""
        return self._env_steps

    @property
    def updates(self) -> int:
        """Optimizer steps taken, or generations."""
        return self._updates

    def advance(self, until_env_steps: int, seconds: float) -> None:
        """Runs until ``until_env_steps`` are collected or :meth:`interrupt` was called.

        Unless :attr:`obeys_clock` is false it also returns when ``seconds`` have passed.

        Raises:
            WorkerError: an actor or learner failed.
        """
        until_env_steps = min(until_env_steps, self._total_steps)
        now = time.monotonic()
        end = now + (seconds if self.obeys_clock else math.inf)
        while self.env_steps < until_env_steps and not self._interrupted:
            left = end - now
            if left <= 0:
                return
            self._iterate(left)
            began, now = now, time.monotonic()
            self.longest_iteration_s = max(self.longest_iteration_s, now - began)

    @abstractmethod
    def _iterate(self, seconds: float) -> None:
        """Runs one iteration; returns after ``seconds`` at the latest if it waits for workers."""

    def interrupt(self) -> None:
        """Makes :meth:`advance` return after the current update; safe in a signal handler."""
        self._interrupted = True

    def count(self, counts: Counts, scale: int = 1) -> None:
        """Adds an actor's counts; ``scale`` is the number of processes that collect as many transitions."""
        self._episodes += counts.finished
        self._finished_episodes += len(counts.finished)
        self._env_steps += counts.transitions * scale
        self._rewards += counts.reward

    def take_episodes(self) -> list[tuple[float, int]]:
        """Return and length of the episodes finished since the last call."""
        taken, self._episodes = self._episodes, []
        return taken

    def rewards_and_episodes(self) -> tuple[float, int]:
        """Returns the sum of all rewards and the number of episodes ended since this loop was made."""
        return self._rewards, self._finished_episodes

    def rates(self) -> tuple[float, dict[str, float]]:
        """Seconds since the last call (never 0), and transitions and updates per second in them."""
        old, self._marked = self._marked, (time.monotonic(), self.env_steps, self._updates)
        elapsed = max(self._marked[0] - old[0], 1e-9)
        return elapsed, {
            "env_steps_per_s": (self._marked[1] - old[1]) / elapsed,
            "updates_per_s": (self._marked[2] - old[2]) / elapsed,
        }

    def report(self) -> dict[str, Any]:
        """Metrics of the time since the last call; lists are histograms."""
        elapsed, rates = self.rates()
        return {**rates, "policy_lag": 0.0, **self._figures(elapsed), **self._metrics()}

    def _figures(self, elapsed: float) -> dict[str, Any]:
        """Metrics of this topology for the last ``elapsed`` seconds."""
        return {}

    def _metrics(self) -> dict[str, float]:
        """Metrics of the latest update."""
        return self._learner.metrics()

    def _since_report(self, **totals: float) -> dict[str, float]:
        """Returns the increase of each of these totals since the last call."""
        old, self._totals = self._totals, totals
        return {name: value - old.get(name, 0) for name, value in totals.items()}

    @abstractmethod
    def _actor_states(self) -> Sequence[bytes | None]:
        """The state of every actor; None for one that cannot be saved."""

    def save(self, folder: Path) -> None:
        """Writes everything that a resumed run needs into ``folder``; training can continue afterwards."""
        self._write(folder, self._actor_states())

    @abstractmethod
    def save_after_failure(self, folder: Path) -> None:
        """Writes what can be saved after an iteration failed; a run resumed from it starts new episodes.

        Raises:
            ParlError, OSError: nothing could be saved.
        """

    def _write(self, folder: Path, actors: Sequence[bytes | None]) -> None:
        """Writes a checkpoint with these actors' states into ``folder``."""
        checkpoint.write(folder, self._learner, self._replay, actors, self._counts())

    def _counts(self) -> dict[str, int]:
        """The counters of a checkpoint; ``env_steps`` are those of the whole run."""
        return {"env_steps": self._env_steps, "updates": self._updates, "resumes": self._resumes}

    @abstractmethod
    def close(self) -> None:
        """Ends all workers and frees all memory; safe to call twice."""


class Saveable(Protocol):
    """Protocol of an actor whose state is saved in checkpoints."""

    def load(self, state: bytes) -> None:
        """Restores what :meth:`save` returned."""
        ...

    def save(self) -> bytes:
        """Returns the state; raises the environment's error if that cannot be saved."""
        ...

    def close(self) -> None:
        """Closes the environment."""
        ...


def state_or_reason(actor: Saveable) -> bytes | str:
    """Returns the state of ``actor``, or the reason why it cannot be saved."""
    try:
        return actor.save()
    except Exception as error:  # an environment may raise any error
        return f"{type(error).__name__}: {error}"


def state_or_warn(name: str, state: bytes | str | None, exact: bool = False) -> bytes | None:
    """Returns ``state`` if it is bytes or None; if it is a reason why there is none, warns and returns None.

    Args:
        name: name of the actor, for the warning.
        state: from :func:`state_or_reason`.
        exact: whether a resumed run repeats the same numbers if there is a state.
    """
    if not isinstance(state, str):
        return state
    lost = " and will not repeat the same numbers" if exact else ""
    warnings.warn(
        f"{name}'s environment cannot be saved ({state}): a resumed run starts new episodes{lost}",
        stacklevel=3,
    )
    return None


class LocalLoop(Loop[L]):
    """A loop whose actors run in this thread, one after the other."""

    exact: ClassVar[bool] = False
    """Whether a resumed run repeats the numbers of an uninterrupted one."""

    def _load_actors(self, actors: Sequence[Any], saved: Checkpoint | None) -> None:
        """Stores ``actors`` and loads their saved states."""
        self._actors = list(actors)
        for index, actor in enumerate(self._actors):
            state = checkpoint.actor_state(saved, index)
            if state is not None:
                actor.load(state)
            elif saved is not None and self._replay is not None:
                actor.end_episodes()

    def _actor_states(self) -> list[bytes | None]:
        return [
            state_or_warn(f"actor {index}", state_or_reason(actor), self.exact)
            for index, actor in enumerate(self._actors)
        ]

    def save_after_failure(self, folder: Path) -> None:
        """Writes learner, replay and counters; a run resumed from them starts new episodes.

        Raises:
            RunDirectoryError: the loop is exact, which it cannot be after half of an iteration.
        """
        if self.exact:
            raise RunDirectoryError(
                f"nothing is written into {folder}: a deterministic run goes on from its last checkpoint"
            )
        self._write(folder, [None] * len(self._actors))

    def close(self) -> None:
        """Closes the environments and the replay; safe to call twice."""
        for actor in self._actors:
            actor.close()
        self._actors = []
        if self._replay is not None:
            self._replay.close()
