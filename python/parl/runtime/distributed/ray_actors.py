"""Actors on other machines: each is a Ray actor; a thread beside the learners sends it requests.

The thread takes the place of a local actor's process: it owns the actor's row of the shared counters, asks
the pacer and writes into the replay. Weights are sent once per version and machine, rows several vector steps
at a time::

    thread     read the command | wait for the pacer | request rows with the newest weights | write rows
    Ray actor  take the weights | step the environments `steps` times | return the rows

Each actor has up to two open requests, so that it does not wait for the network. If an actor, its process or
its machine fails, the failure is counted and a new actor with new episodes replaces it. An actor that fails
several times in a row without a result ends the run. While Ray has no free processor for an actor, it gets no
requests; the run goes on, and saves, with the other actors.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from parl.runtime import shared_counters as b
from parl.runtime.distributed.ray_cluster import RayHandle, RayProcess, SaveableRayProcess, WeightsRef
from parl.runtime.env_actor import Counts, total
from parl.runtime.off_policy.pacer import ACTOR_PAUSE_S
from parl.runtime.shared_counters import Row, SharedCounters

if TYPE_CHECKING:
    from parl.runtime.off_policy.actor import Actor
    from parl.runtime.off_policy.double_buffer import DoubleBufferedActor
    from parl.runtime.off_policy.setup import OffPolicySetup

# Largest number of open requests of an actor.
_OPEN_MAX = 2
_WAIT_S = 0.1
# Number of tickets kept for priorities that arrive later than their rows.
_TICKETS_MAX = 2**16


class RowBuffer:
    """A sink that collects rows and priorities until they are sent."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._priorities: list[tuple[Any, Any]] = []
        self._count = 0

    def add(self, **columns: Any) -> Any:
        """Copies one row per environment; returns their numbers (N,), which are used as tickets."""
        self._rows.append({name: _copy_columns(column) for name, column in columns.items()})
        first, self._count = self._count, self._count + len(columns["env_id"])
        return np.arange(first, self._count)

    def update_priorities(self, tickets: Any, priorities: Any) -> None:
        """Stores priorities of rows by their numbers."""
        self._priorities.append((np.array(tickets), np.array(priorities)))

    def take_priorities(self) -> tuple[Any, Any] | None:
        """Numbers and priorities since the last call, None if there are none."""
        taken, self._priorities = self._priorities, []
        if not taken:
            return None
        numbers, priorities = zip(*taken, strict=True)
        return np.concatenate(numbers), np.concatenate(priorities)

    def end_episodes(self, env_id: Any) -> None:
        """Does nothing: the driver ends the episodes in the replay."""

    def take(self) -> dict[str, Any]:
        """All rows since the last call, in the order they came: columns (steps * N, ...)."""
        rows, self._rows = self._rows, []
        return {name: _concatenate_columns([row[name] for row in rows]) for name in rows[0]}


def _copy_columns(column: Any) -> Any:
    if isinstance(column, Mapping):
        return {name: _copy_columns(part) for name, part in column.items()}
    return np.array(column)


def _concatenate_columns(parts: list[Any]) -> Any:
    if isinstance(parts[0], Mapping):
        return {name: _concatenate_columns([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate(parts)


@dataclass(frozen=True)
class RolloutResult:
    """The result of one request.

    Attributes:
        rows: columns (steps * N, ...), with ``env_id``.
        counts: counts of these steps.
        version: version of the weights that were used.
        priorities: numbers of rows, counted over all results, and their priorities; or None.
    """

    rows: dict[str, Any]
    counts: Counts
    version: int
    priorities: tuple[Any, Any] | None


class RayActor(SaveableRayProcess):
    """An actor in a Ray process, on any machine of the cluster."""

    _actor: Actor | DoubleBufferedActor

    def __init__(self, setup: OffPolicySetup, index: int, resumes: int, state: bytes | None) -> None:
        super().__init__(setup, index, resumes)
        self._rows = RowBuffer()
        self._scale = setup.scale
        self._actor = setup.make_actor(index, self._rows, resumes)
        if state is not None:
            self._actor.load(state)
            self._actor.keep_priorities()  # the numbers of rows restart at 0

    def collect(self, weights: Any, version: int, env_steps: int, steps: int) -> RolloutResult:
        """Takes ``steps`` vector steps with ``weights`` (P,) float32 of ``version``.

        The process of the learner, one of those of torchrun, has collected ``env_steps`` before.
        """
        actor = self._actor
        actor.policy.weights.copy_(torch.from_numpy(np.array(weights)))
        counts = Counts(0, [], 0.0)
        for _ in range(steps):
            counts = total([counts, actor.step((env_steps + counts.transitions) * self._scale)])
        return RolloutResult(self._rows.take(), counts, version, self._rows.take_priorities())


class RayActorHandle(RayHandle):
    """Handle of one Ray actor in the learners' process: open requests, failures and replacement.

    Args:
        setup: the run.
        index: index of the actor.
        resumes: number of resumes of the run so far.
        state: result of :meth:`save`, or None.
        weights: the newest weights.
    """

    def __init__(
        self, setup: OffPolicySetup, index: int, resumes: int, state: bytes | None, weights: WeightsRef
    ) -> None:
        super().__init__(index)
        self._setup, self._resumes, self._state = setup, resumes, state
        self._weights = weights
        self._requests: deque[tuple[Any, int]] = deque()
        first, end = setup.env_range(index)
        self.env_id = np.arange(first, end)
        self._forget_tickets()
        self.start()

    def _make(self) -> tuple[type[RayProcess], tuple[Any, ...]]:
        return RayActor, (self._setup, self.index, self._resumes + self.seeds, self._state)

    def _forget_tickets(self) -> None:
        self._tickets = np.zeros(0, np.uint64)
        self._first_ticket = 0

    def _forget(self) -> None:
        self._requests.clear()
        self._forget_tickets()
        self._state = None

    def is_placed(self, within_s: float) -> bool:
        """See :class:`RayHandle`."""
        waited = self._placement is not None
        placed = super().is_placed(within_s)
        if waited and placed:
            self._state = None
        return placed

    @property
    def in_flight(self) -> int:
        """Largest number of transitions that open requests can return."""
        return sum(steps for _, steps in self._requests) * len(self.env_id)

    def may_send_request(self) -> bool:
        """Whether another request may be sent."""
        return len(self._requests) < _OPEN_MAX

    def send_request(self, env_steps: int, steps: int) -> None:
        """Sends a request for ``steps`` vector steps with the newest weights."""
        reference, version = self._weights.newest()
        self._requests.append((self._ray_actor.collect.remote(reference, version, env_steps, steps), steps))

    def result(self, within_s: float) -> RolloutResult | None:
        """The result of the oldest request; None if it has not arrived within ``within_s`` seconds.

        A failed actor is replaced and its requests are dropped; this increments :attr:`failures`.

        Raises:
            WorkerError: it failed several times in a row.
        """
        if not self._requests:
            return None
        found: RolloutResult | None = self.get(self._requests[0][0], within_s)
        if found is not None:
            self._requests.popleft()
        return found

    def write(self, result: RolloutResult, replay: Any) -> None:
        """Writes a result's rows and sets the priorities that came with them."""
        tickets = np.asarray(replay.add(**result.rows))
        if not self._setup.algorithm.actor_priorities:
            return
        self._tickets = np.concatenate([self._tickets, tickets])
        if result.priorities is not None:
            numbers, priorities = result.priorities
            known = numbers >= self._first_ticket
            places = numbers[known] - self._first_ticket
            replay.update_priorities(self._tickets[places], priorities[known])
        surplus = len(self._tickets) - _TICKETS_MAX
        if surplus > 0:
            self._tickets, self._first_ticket = self._tickets[surplus:], self._first_ticket + surplus

    def save(self) -> bytes | str | None:
        """See :meth:`RayActor.save`; for an actor that is not placed yet, the state that it starts from."""
        import ray
        from ray.exceptions import RayError

        if not self.is_placed(0.0):
            return self._state
        try:
            return ray.get(self._ray_actor.save.remote())
        except RayError as error:
            self._replace(error)
            return self._state


def _count_failures(actor: RayActorHandle, row: Row, replay: Any) -> None:
    """Counts failures since the last call and ends the episodes of the lost actor in the replay."""
    if actor.failures != row[b.FAILURES]:
        row[b.FAILURES] = actor.failures
        # Rows in flight are lost: the next ones do not continue the episodes in the replay.
        replay.end_episodes(actor.env_id)


def run_ray_actor(
    connection: Connection,
    setup: OffPolicySetup,
    index: int,
    counters: SharedCounters,
    weights: WeightsRef,
    replay: Any,
    resumes: int,
    state: bytes | None,
) -> None:
    """Main function of a thread that fills ``replay`` from one Ray actor; see the module."""
    assert setup.remote is not None
    actor = RayActorHandle(setup, index, resumes, state, weights)
    if resumes and state is None:
        replay.end_episodes(actor.env_id)
    connection.send(("ready", None))
    row, updates = counters.actor[index], counters.learner[0]
    try:
        while counters.command != b.STOP:
            if counters.command == b.PARK and not actor.in_flight:
                if connection.poll(_WAIT_S):
                    connection.recv()
                    connection.send(("part", ("state", actor.save())))
                continue
            env_steps = counters.env_steps + int(counters.actor[:, b.IN_FLIGHT].sum())
            if not actor.in_flight and not actor.is_placed(_WAIT_S):
                _count_failures(actor, row, replay)
                continue
            may_ask = counters.command == b.RUN and actor.may_send_request()
            if may_ask and setup.pacer.may_collect(env_steps, int(updates[b.UPDATES])):
                left = -(-(setup.pacer.total_steps - env_steps) // setup.num_envs)
                actor.send_request(env_steps, max(1, min(setup.remote.steps, left)))
                row[b.IN_FLIGHT] = actor.in_flight
            elif actor.in_flight:
                result = actor.result(_WAIT_S)
                _count_failures(actor, row, replay)
                if result is not None:
                    actor.write(result, replay)
                    steps = len(result.rows["env_id"]) // len(actor.env_id)
                    counters.count_lag(index, weights.version - result.version, steps)
                    counters.count(index, result.counts)
                row[b.IN_FLIGHT] = actor.in_flight
            else:
                started = time.perf_counter_ns()
                time.sleep(ACTOR_PAUSE_S)
                row[b.ACTOR_WAIT_NS] += time.perf_counter_ns() - started
    finally:
        actor.close()
