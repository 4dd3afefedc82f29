"""Loops whose actors are worker processes or threads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from parl.runtime.checkpoint import Checkpoint
from parl.runtime.loop import L, Loop, Saveable, state_or_reason, state_or_warn
from parl.runtime.shared_counters import PARK, RUN, STOP, SharedCounters
from parl.runtime.workers import INTERRUPTED_END_S, Deadline, Worker, WorkerGroup

ANSWER_S = 3600.0
"""Seconds within which an actor must make its environments, or finish its rollouts or a batch of members.

Actors that fail or are killed are noticed at once.
"""
IDLE_S = 0.002
"""Seconds between two reads of the driver's command while parked."""


def send_state(connection: Connection, actor: Saveable) -> None:
    """Sends an actor's state to the driver, or the reason why it cannot be saved."""
    connection.send(("part", ("state", state_or_reason(actor))))


def answer_while_parked(
    connection: Connection, actor: Saveable, requests: Mapping[str, Callable[[], None]] | None = None
) -> None:
    """Waits for a request of the driver for :data:`IDLE_S`, and answers it.

    Args:
        connection: to the driver.
        actor: the parked actor, whose state is the answer to a message that ``requests`` does not have.
        requests: functions by message; the function is called, and the answer sent when it has returned.
    """
    if not connection.poll(IDLE_S):
        return
    message = connection.recv()
    if requests is None or message not in requests:
        send_state(connection, actor)
        return
    requests[message]()
    connection.send(("part", (message, None)))


class WorkerLoop(Loop[L]):
    """A loop whose actors are worker processes or threads: starts them, collects their states and stops them.

    Args:
        learner: see :class:`Loop`.
        total_steps: see :class:`Loop`.
        saved: see :class:`Loop`.
        context: a ``multiprocessing`` context, for workers and shared memory.
    """

    def __init__(self, learner: L, total_steps: int, saved: Checkpoint | None, context: Any) -> None:
        super().__init__(learner, total_steps, saved)
        self._workers: WorkerGroup | None = WorkerGroup(context)
        self._actors: list[Worker] = []

    def _start_actor(
        self, name: str, target: Callable[..., None], args: tuple[Any, ...], process: bool
    ) -> None:
        """Starts ``target(connection, *args)`` in a process or a thread."""
        assert self._workers is not None
        self._actors.append(self._workers.start(name, target, args, process))

    def _ask_for_states(self, other: Callable[[int, Any], object]) -> list[bytes | None]:
        """Requests and returns the state of every actor.

        Args:
            other: called with an actor's index and each message that it sends before its state.
        """
        for worker in self._actors:
            worker.send("state")
        deadline = Deadline(ANSWER_S, lambda: self._interrupted)
        return [
            state_or_warn(worker.name, worker.state(deadline, lambda value, index=index: other(index, value)))
            for index, worker in enumerate(self._actors)
        ]

    def _actor_states(self) -> list[bytes | None]:
        return self._ask_for_states(lambda index, value: None)

    def save_after_failure(self, folder: Path) -> None:
        """Writes learner, replay and counters; a run resumed from them starts new episodes."""
        self._write(folder, [None] * len(self._actors))

    @abstractmethod
    def _stop_workers(self, workers: WorkerGroup) -> None:
        """Tells ``workers`` to stop; some may have failed."""

    def close(self) -> None:
        """Ends the workers; safe to call twice."""
        workers, self._workers = self._workers, None
        if workers is not None:
            self._stop_workers(workers)
            workers.end(within_s=INTERRUPTED_END_S if self._interrupted else 5.0)


class CommandedLoop(WorkerLoop[L]):
    """A loop whose workers read the driver's command from :class:`SharedCounters` and write counters to it.

    Args:
        learner: see :class:`Loop`.
        total_steps: see :class:`Loop`.
        saved: see :class:`Loop`.
        context: a ``multiprocessing`` context.
        actors: number of actors.
        learners: number of learners.
    """

    def __init__(
        self,
        learner: L,
        total_steps: int,
        saved: Checkpoint | None,
        context: Any,
        actors: int,
        learners: int = 1,
    ) -> None:
        super().__init__(learner, total_steps, saved, context)
        self._counters = SharedCounters(context, actors, learners)

    def take_episodes(self) -> list[tuple[float, int]]:
        """Return and length of the episodes finished since the last call."""
        return self._counters.take_episodes()

    def rewards_and_episodes(self) -> tuple[float, int]:
        """Sum of all rewards, and number of all episodes ended, since this loop was made."""
        return float(self._counters.rewards.sum()), self._counters.episodes

    def save(self, folder: Path) -> None:
        """Pauses the workers between two of their steps and writes a checkpoint into ``folder``."""
        self._counters.command = PARK
        try:
            super().save(folder)
        finally:
            self._counters.command = RUN

    def _stop_workers(self, workers: WorkerGroup) -> None:
        self._counters.command = STOP
