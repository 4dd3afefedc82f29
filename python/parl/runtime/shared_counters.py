"""Counters of actors and learners, and the driver's command, in shared memory.

There are no locks that a killed process could leave locked. Each row takes two cache lines and has one
writer; readers may read slightly older values.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from parl._native import memory_fence
from parl.runtime.env_actor import Counts

# Commands of the driver.
RUN, PARK, STOP = 0, 1, 2
# Columns of an actor's row.
(
    STEPS,
    EPISODES,
    LAG_SUM,
    VECTOR_STEPS,
    ACTOR_WAIT_NS,
    ACTOR_UPDATES,
    LAG_MAX,
    IN_FLIGHT,
    FAILURES,
) = range(9)
# Columns of a learner's row.
UPDATES, LEARNER_WAIT_NS = range(2)
_WORDS = 16
# Vector steps are counted by their policy's lag in versions: 0, 1, 2-3, 4-7, ..., the last bucket open.
LAG_BUCKETS = 16
# Number of finished episodes kept per actor until the driver reads them; older ones are overwritten.
EPISODE_SLOTS = 512
Row = np.ndarray[Any, np.dtype[np.int64]]


class SharedCounters:
    """Counters of ``actors`` actors and ``learners`` learners, and the driver's command.

    Args:
        context: a ``multiprocessing`` context; the memory has no name, so that it cannot outlive the run.
    """

    def __init__(self, context: Any, actors: int, learners: int) -> None:
        self.actors, self.learners = actors, learners
        rows = 1 + actors + learners
        words = (rows + actors) * _WORDS + actors * (LAG_BUCKETS + 2 * EPISODE_SLOTS)
        self._memory = context.RawArray(ctypes.c_int64, words)
        self._map()
        self.running_actors = actors, 0

    def _map(self) -> None:
        words = np.frombuffer(self._memory, np.int64)
        end = (1 + self.actors + self.learners) * _WORDS
        rows = words[:end].reshape(-1, _WORDS)
        self._control = rows[0]
        self.actor = rows[1 : 1 + self.actors]
        """(A, 16) int64, see the column names."""
        self.learner = rows[1 + self.actors :]
        """(L, 16) int64, see the column names."""
        self._steps = self.actor[:, STEPS]
        lags_end = end + self.actors * LAG_BUCKETS
        self.lags = words[end:lags_end].reshape(self.actors, LAG_BUCKETS)
        """(A, 16) int64, vector steps of each actor by lag, see LAG_BUCKETS."""
        floats = words[lags_end:].view(np.float64)
        self.rewards = floats[: self.actors * _WORDS].reshape(self.actors, _WORDS)[:, 0]
        """(A,) float64, sum of the rewards that each actor received; a cache line each."""
        self._episodes = floats[self.actors * _WORDS :].reshape(self.actors, EPISODE_SLOTS, 2)
        self._read = np.zeros(self.actors, np.int64)

    def __getstate__(self) -> dict[str, Any]:
        return {"actors": self.actors, "learners": self.learners, "memory": self._memory}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.actors, self.learners, self._memory = state["actors"], state["learners"], state["memory"]
        self._map()

    @property
    def command(self) -> int:
        """The driver's command: RUN, PARK or STOP."""
        return int(self._control[0])

    @command.setter
    def command(self, value: int) -> None:
        self._control[0] = value

    @property
    def running_actors(self) -> tuple[int, int]:
        """Number of actors that may run, and the index of the first of them."""
        return int(self._control[1]), int(self._control[2])

    @running_actors.setter
    def running_actors(self, value: tuple[int, int]) -> None:
        self._control[1], self._control[2] = value

    def may_run(self, actor: int) -> bool:
        """Whether ``actor`` may run."""
        count, first = self.running_actors
        return (actor - first) % self.actors < count

    def count_lag(self, actor: int, lag: int, steps: int = 1) -> None:
        """Counts ``steps`` vector steps that ``actor`` took with weights ``lag`` versions old."""
        self.actor[actor, LAG_SUM] += lag * steps
        self.actor[actor, VECTOR_STEPS] += steps
        self.lags[actor, min(lag.bit_length(), LAG_BUCKETS - 1)] += steps

    @property
    def env_steps(self) -> int:
        """Transitions collected by all actors."""
        return int(self._steps.sum())

    @property
    def episodes(self) -> int:
        """Episodes ended in all actors."""
        return int(self.actor[:, EPISODES].sum())

    def count(self, actor: int, counts: Counts) -> None:
        """Adds an actor's counts; only that actor calls this."""
        self.actor[actor, STEPS] += counts.transitions
        self.rewards[actor] += counts.reward
        if counts.finished:
            self.add_episodes(actor, counts.finished)

    def add_episodes(self, actor: int, finished: list[tuple[float, int]]) -> None:
        """Adds the return and length of each episode that ``actor`` finished."""
        row = self.actor[actor]
        count = int(row[EPISODES])
        for item in finished:
            self._episodes[actor, count % EPISODE_SLOTS] = item
            count += 1
        memory_fence()
        row[EPISODES] = count

    def take_episodes(self) -> list[tuple[float, int]]:
        """Return and length of the episodes finished since the last call; only the driver calls this.

        Each actor's episodes keep their order and are spread evenly over the list, so that its end has the
        same share of the episodes of every actor.
        """
        taken: list[tuple[float, tuple[float, int]]] = []
        for actor in range(self.actors):
            count = int(self.actor[actor, EPISODES])
            memory_fence()
            first = max(int(self._read[actor]), count - EPISODE_SLOTS)
            for number in range(first, count):
                value, length = self._episodes[actor, number % EPISODE_SLOTS].tolist()
                taken.append(((number - first + 0.5) / (count - first), (value, int(length))))
            self._read[actor] = count
        taken.sort(key=lambda one: one[0])
        return [episode for _, episode in taken]
