"""Actors on other machines: each is a Ray actor, fed and watched by a thread beside the learners.

The thread stands where a local actor's process would: it has the actor's row on the board, asks the pacer,
and writes into the replay. What crosses the network are weights, once per version and machine, and rows,
some vector steps at a time::

    thread     look at the command | pace | ask for rows with the newest weights | write the rows that came
    Ray actor  take the weights | step the environments `steps` times | answer

Two requests are on their way to every actor, so that it does not wait for the network. An actor that fails,
with its process or its machine, is made anew elsewhere with fresh episodes, and counted; one that fails time
and again before it has answered once ends the run. While no machine has a place for it, nothing is asked of
it, and the run goes on, and saves, with the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from parl.errors import ConfigError, NonFiniteError, WorkerError
from parl.runtime import board as b
from parl.runtime.actor import first_and_end
from parl.runtime.board import Board, Row
from parl.runtime.pacer import ACTOR_PAUSE_S
from parl.runtime.weights import Snapshot

if TYPE_CHECKING:
    from parl.runtime.setup import Setup

# Requests on their way to an actor.
_AHEAD = 2
# Failures of an actor in a row, without an answer between them, that end the run.
_FAILURES_MAX = 3
_LOOK_S = 0.1
# Tickets of rows that are kept for priorities to come.
_TICKETS = 2**16
# An actor that was made anew draws other seeds than any resumed run.
_GENERATIONS = 1_000

_log = logging.getLogger("parl")


@dataclass(frozen=True)
class Remote:
    """How a run uses Ray.

    Attributes:
        address: of the cluster, as ``ray.init`` takes it; None: the one that ``RAY_ADDRESS`` names, else a
            new one on this machine.
        steps: vector steps of an answer.
    """

    address: str | None
    steps: int


def connect(remote: Remote, actors: int) -> bool:
    """Connects this process with the cluster, if it is not yet; whether it was not.

    Raises:
        ConfigError: ray is not installed, no cluster answers, or it has too few processors.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError("engine = 'ray' needs ray: pip install 'parl-rl[dist]'") from error
    fresh = not ray.is_initialized()
    if fresh:
        try:
            ray.init(address=remote.address, include_dashboard=False, log_to_driver=False)
        except ConnectionError as error:
            raise ConfigError(f"no Ray cluster answers at {remote.address!r}: {error}") from error
    processors = int(ray.cluster_resources().get("CPU", 0))
    if actors > processors:
        if fresh:
            ray.shutdown()
        raise ConfigError(f"actors = {actors} is above the {processors} processors of the Ray cluster")
    return fresh


def disconnect() -> None:
    """Ends the connection that :func:`connect` made, and the cluster if it was made for it."""
    import ray

    ray.shutdown()


def processors(remote: Remote) -> int:
    """Processors of the cluster."""
    import ray

    fresh = connect(remote, 0)
    count = int(ray.cluster_resources().get("CPU", 0))
    if fresh:
        ray.shutdown()
    return count


class Recorder:
    """A sink that keeps what an actor writes until it is sent."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._priorities: list[tuple[Any, Any]] = []
        self._count = 0

    def add(self, **columns: Any) -> Any:
        """Keeps a copy of one row per environment; gives their numbers, (N,), which stand for tickets."""
        self._rows.append({name: _copied(column) for name, column in columns.items()})
        first, self._count = self._count, self._count + len(columns["env_id"])
        return np.arange(first, self._count)

    def update_priorities(self, tickets: Any, priorities: Any) -> None:
        """Keeps priorities of rows by their numbers."""
        self._priorities.append((np.array(tickets), np.array(priorities)))

    def take_priorities(self) -> tuple[Any, Any] | None:
        """Numbers and priorities since the last call, None if there are none."""
        taken, self._priorities = self._priorities, []
        if not taken:
            return None
        numbers, priorities = zip(*taken, strict=True)
        return np.concatenate(numbers), np.concatenate(priorities)

    def end_episodes(self, env_id: Any) -> None:
        """Nothing: who receives the rows knows."""

    def take(self) -> dict[str, Any]:
        """All rows since the last call, in the order they came: columns (steps * N, ...)."""
        rows, self._rows = self._rows, []
        return {name: _joined([row[name] for row in rows]) for name in rows[0]}


def _copied(column: Any) -> Any:
    if isinstance(column, Mapping):
        return {name: _copied(part) for name, part in column.items()}
    return np.array(column)


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], Mapping):
        return {name: _joined([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate(parts)


@dataclass(frozen=True)
class Answer:
    """What a Ray actor sends: rows and what the board wants to know.

    Attributes:
        rows: columns (steps * N, ...), with ``env_id``.
        transitions: in them.
        finished: return and length of each episode that ended.
        reward_sum: of the rewards of these steps.
        version: of the weights that acted.
        priorities: numbers of rows, counted over all answers, and what they get; or None.
    """

    rows: dict[str, Any]
    transitions: int
    finished: list[tuple[float, int]]
    reward_sum: float
    version: int
    priorities: tuple[Any, Any] | None


class Host:
    """The far side: an actor in a process of Ray's."""

    def __init__(self, setup: Setup, index: int, generation: int, state: bytes | None) -> None:
        torch.set_num_threads(1)
        self._recorder = Recorder()
        self._actor = setup.make_actor(index, self._recorder, generation)
        if state is not None:
            self._actor.load(state)
            self._actor.forget_estimates()  # rows have other numbers here

    def collect(self, weights: Any, version: int, env_steps: int, steps: int) -> Answer:
        """``steps`` vector steps with ``weights`` (P,) float32 of ``version``."""
        actor = self._actor
        actor.policy.weights.copy_(torch.from_numpy(np.array(weights)))
        before, transitions = actor.reward_sum, 0
        finished: list[tuple[float, int]] = []
        for _ in range(steps):
            more, ended = actor.step(env_steps + transitions)
            transitions += more
            finished += ended
        rewards = actor.reward_sum - before
        rows, priorities = self._recorder.take(), self._recorder.take_priorities()
        return Answer(rows, transitions, finished, rewards, version, priorities)

    def save(self) -> bytes | str:
        """The actor as bytes, or why it cannot be."""
        try:
            return self._actor.save()
        except Exception as error:  # what an environment raises when it cannot be pickled is its own
            return f"{error.__class__.__name__}: {error}"

    def process(self) -> tuple[str, int]:
        """Ray's name of the machine, and the process there."""
        import os

        import ray

        return ray.get_runtime_context().get_node_id(), os.getpid()


class Published:
    """The newest weights in Ray's store, put there once per version by whichever thread asks first."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._lock = threading.Lock()
        self._weights = torch.empty(snapshot.size)
        self._version = -1
        self._reference: Any = None

    @property
    def version(self) -> int:
        """Number of the newest weights."""
        return self._snapshot.version

    def newest(self) -> tuple[Any, int]:
        """Reference and version."""
        import ray

        with self._lock:
            version = self._snapshot.read(self._weights, self._version)
            if version != self._version:
                self._reference, self._version = ray.put(self._weights.numpy().copy()), version
            return self._reference, version


class Far:
    """The near side of a Ray actor: requests on their way, failures, a new actor after each.

    Args:
        setup: the run.
        index: number of the actor.
        generation: counts resumes.
        state: what :meth:`save` gave, or None.
        published: the weights.
    """

    def __init__(
        self, setup: Setup, index: int, generation: int, state: bytes | None, published: Published
    ) -> None:
        self._setup, self._index, self._generation = setup, index, generation
        self._published = published
        self._asked: deque[tuple[Any, int]] = deque()
        first, end = first_and_end(index, setup.actors, setup.num_envs)
        self.env_id = np.arange(first, end)
        self.failures = self._in_a_row = 0
        self._start(state)

    def _start(self, state: bytes | None) -> None:
        import ray

        kind = ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(Host)
        generation = self._generation + _GENERATIONS * self.failures
        self._host: Any = kind.remote(self._setup, self._index, generation, state)
        # Answered once the actor has a place and is made.
        self._placed: Any = self._host.process.remote()
        self._state = state
        self._tickets = np.zeros(0, np.uint64)
        self._first_ticket = 0

    def is_placed(self, within_s: float) -> bool:
        """Whether the actor is made, on some machine, within ``within_s``; failures as in :meth:`answer`."""
        import ray
        from ray.exceptions import RayError

        if self._placed is None:
            return True
        try:
            ready, _ = ray.wait([self._placed], timeout=within_s)
            if not ready:
                return False
            ray.get(ready[0])
        except RayError as error:
            self._replace(error)
            return False
        self._placed = self._state = None
        return True

    @property
    def in_flight(self) -> int:
        """Transitions asked for, at most."""
        return sum(steps for _, steps in self._asked) * len(self.env_id)

    def may_ask(self) -> bool:
        """Whether fewer requests are on their way than should be."""
        return len(self._asked) < _AHEAD

    def ask(self, env_steps: int, steps: int) -> None:
        """Asks for ``steps`` vector steps with the newest weights."""
        reference, version = self._published.newest()
        self._asked.append((self._host.collect.remote(reference, version, env_steps, steps), steps))

    def answer(self, within_s: float) -> Answer | None:
        """The oldest request's answer, None if it has not come within ``within_s``.

        A failed actor is replaced, and what was asked of it forgotten: :attr:`failures` has grown then.

        Raises:
            WorkerError: it failed time and again.
        """
        import ray
        from ray.exceptions import RayError

        if not self._asked:
            return None
        try:
            ready, _ = ray.wait([self._asked[0][0]], timeout=within_s)
            if not ready:
                return None
            found: Answer = ray.get(ready[0])
        except RayError as error:
            self._replace(error)
            return None
        self._asked.popleft()
        self._in_a_row = 0
        return found

    def _replace(self, error: Exception) -> None:
        import ray

        cause = getattr(error, "cause", None)
        if isinstance(cause, NonFiniteError):
            raise cause  # of the environment: another actor would have the same one
        self._asked.clear()
        self.failures += 1
        self._in_a_row += 1
        if self._in_a_row >= _FAILURES_MAX:
            raise WorkerError(f"actor {self._index} failed {self._in_a_row} times in a row:\n{error}")
        _log.warning("actor %d failed and is made anew: %s", self._index, str(error).strip().splitlines()[-1])
        ray.kill(self._host)
        self._start(None)

    def write(self, answer: Answer, replay: Any) -> None:
        """Writes an answer's rows and sets the priorities that came with them."""
        tickets = np.asarray(replay.add(**answer.rows))
        if not self._setup.algorithm.judges:
            return
        self._tickets = np.concatenate([self._tickets, tickets])
        if answer.priorities is not None:
            numbers, priorities = answer.priorities
            known = numbers >= self._first_ticket
            places = numbers[known] - self._first_ticket
            replay.update_priorities(self._tickets[places], priorities[known])
        surplus = len(self._tickets) - _TICKETS
        if surplus > 0:
            self._tickets, self._first_ticket = self._tickets[surplus:], self._first_ticket + surplus

    def save(self) -> bytes | str | None:
        """See :meth:`Host.save`; of an actor that waits for its place, the state that it will begin with."""
        import ray
        from ray.exceptions import RayError

        if not self.is_placed(0.0):
            return self._state
        try:
            return ray.get(self._host.save.remote())
        except RayError as error:
            self._replace(error)
            return self._state

    def process(self) -> tuple[str, int]:
        """See :meth:`Host.process`."""
        import ray

        return ray.get(self._host.process.remote())

    def close(self) -> None:
        """Ends the Ray actor."""
        import ray

        if ray.is_initialized():
            ray.kill(self._host)


def _count_failures(far: Far, row: Row, replay: Any) -> None:
    """Tells the board, and the replay, of failures since the last call."""
    if far.failures != row[b.FAILURES]:
        row[b.FAILURES] = far.failures
        # Rows on their way are lost: those to come do not follow on those that are there.
        replay.end_episodes(far.env_id)


def run_far_actor(
    connection: Connection,
    setup: Setup,
    index: int,
    board: Board,
    published: Published,
    replay: Any,
    generation: int,
    state: bytes | None,
) -> None:
    """A thread's loop that feeds ``replay`` from one Ray actor; see the module."""
    assert setup.remote is not None
    far = Far(setup, index, generation, state, published)
    if generation and state is None:
        replay.end_episodes(far.env_id)
    connection.send(("ready", None))
    row, updates = board.actor[index], board.learner[0]
    try:
        while board.command != b.STOP:
            if board.command == b.PARK and not far.in_flight:
                if connection.poll(_LOOK_S):
                    connection.recv()
                    connection.send(("part", ("state", far.save())))
                continue
            env_steps = board.env_steps + int(board.actor[:, b.IN_FLIGHT].sum())
            if not far.in_flight and not far.is_placed(_LOOK_S):
                _count_failures(far, row, replay)
                continue
            may_ask = board.command == b.RUN and far.may_ask()
            if may_ask and setup.pacer.may_collect(env_steps, int(updates[b.UPDATES])):
                left = -(-(setup.pacer.total_frames - env_steps) // setup.num_envs)
                far.ask(env_steps, max(1, min(setup.remote.steps, left)))
                row[b.IN_FLIGHT] = far.in_flight
            elif far.in_flight:
                answer = far.answer(_LOOK_S)
                _count_failures(far, row, replay)
                if answer is not None:
                    far.write(answer, replay)
                    steps = len(answer.rows["env_id"]) // len(far.env_id)
                    board.count_lag(index, published.version - answer.version, steps)
                    row[b.STEPS] += answer.transitions
                    board.rewards[index] += answer.reward_sum
                    if answer.finished:
                        board.add_episodes(index, answer.finished)
                row[b.IN_FLIGHT] = far.in_flight
            else:
                started = time.perf_counter_ns()
                time.sleep(ACTOR_PAUSE_S)
                row[b.ACTOR_WAIT_NS] += time.perf_counter_ns() - started
    finally:
        far.close()
