"""The topology of IMPALA: actors collect rollouts while the learner learns from earlier ones.

Every actor, a process or thread, has two rollout buffers in memory that it shares with the learner. It
receives the number of a buffer, takes the newest weights, fills the buffer and sends a message. The learner
learns from buffers in the order in which they come, publishes its weights and sends the buffer's number back.
An actor is therefore at most two rollouts ahead, but the learner may learn from other actors in the meantime.
Policy lag, the number of updates made since the rollout's weights were published, is measured for every
rollout; rollouts with a lag above ``max_lag`` are discarded.

Under ``torchrun`` every process learns from rollouts of its own actors. Rank 0 starts an update when it has a
rollout; the others join it with their next one.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from parl.runtime import checkpoint
from parl.runtime.checkpoint import Checkpoint
from parl.runtime.distributed.torchrun import ROLLOUT
from parl.runtime.on_policy.grouped import GroupedRolloutLoop
from parl.runtime.on_policy.rollout import RolloutActor, RolloutBuffer
from parl.runtime.on_policy.rollout_loop import Collected
from parl.runtime.on_policy.setup import RolloutSetup
from parl.runtime.weights import SharedWeights
from parl.runtime.worker_loop import ANSWER_S, WorkerLoop, send_state
from parl.runtime.workers import WorkerGroup, choose_context
from parl.types import Rollout, RolloutLearner

_SLOTS = 2


def _run_actor(
    connection: Connection,
    setup: RolloutSetup,
    index: int,
    shared_weights: SharedWeights,
    buffers: list[RolloutBuffer],
    resumes: int,
    state: bytes | None,
) -> None:
    """An actor's main function, see :func:`serve_rollouts`."""
    actor = setup.make_actor(index, resumes)
    version = -1

    def newest() -> int:
        nonlocal version
        version = shared_weights.read(actor.policy.weights, version)
        return version

    serve_rollouts(connection, actor, index, newest, buffers, state)


def serve_rollouts(
    connection: Connection,
    actor: RolloutActor,
    index: int,
    newest: Callable[[], int],
    buffers: list[RolloutBuffer],
    state: bytes | None,
) -> None:
    """Fills the buffers whose numbers it receives; answers ``"state"`` with the actor's state; ends on None.

    Args:
        connection: connection to the driver.
        actor: the actor, which is closed at the end.
        index: index of the actor.
        newest: called before each rollout; returns the version of the weights that act.
        buffers: rollout buffers, shared with the driver.
        state: state of the actor from a checkpoint, or None.
    """
    torch.set_num_threads(1)
    if state is not None:
        actor.load(state)
    while (request := connection.recv()) is not None:
        if request == "state":
            send_state(connection, actor)
            continue
        slot, env_steps = request
        version = newest()
        buffer = buffers[slot]
        counts = actor.collect(buffer, env_steps)
        final = (buffer.final_obs, buffer.final_at)
        connection.send(("part", ("rollout", Collected(index, counts, slot, version, final))))
    actor.close()


class AsyncRolloutLoop(GroupedRolloutLoop, WorkerLoop[RolloutLearner]):
    """See the module. An iteration waits for rollouts and makes one update if enough came.

    Args:
        setup: the run.
        saved: the checkpoint to start from, or None.
    """

    def __init__(self, setup: RolloutSetup, saved: Checkpoint | None = None) -> None:
        torch.set_num_threads(setup.threads)
        self._context = choose_context(setup.processes, setup.device)
        super().__init__(setup, setup.make_learner(), saved, self._context)
        self._join_group()
        self._shared_weights = SharedWeights(self._context, len(self._learner.weights))
        self._publish()
        self._buffers = [
            [setup.make_buffer(index, self._context) for _ in range(_SLOTS)] for index in range(setup.actors)
        ]
        self._pending: collections.deque[Collected] = collections.deque()
        self._wait_s = 0.0
        self._received = self._left_out = self._lag_sum = self._lag_max = 0
        try:
            for index in range(setup.actors):
                self._start_rollout_actor(index, checkpoint.actor_state(saved, index))
            for index in range(setup.actors):
                for slot in range(_SLOTS):
                    self._request(index, slot)
        except BaseException:
            self.close()
            raise

    def _start_rollout_actor(self, index: int, state: bytes | None) -> None:
        args = (self._setup, index, self._shared_weights, self._buffers[index], self._resumes, state)
        self._start_actor(f"actor {index}", _run_actor, args, self._setup.processes)

    def _collect(self, seconds: float) -> Iterator[list[Collected]]:
        wanted = self._rollouts_wanted()
        if len(self._pending) < wanted:
            self._receive(seconds)
        if len(self._pending) >= wanted:
            yield [self._pending.popleft() for _ in range(wanted)]

    def _before_learning(self) -> None:
        self._broadcast(ROLLOUT)
        super()._before_learning()

    def _update(self, group: Sequence[Collected]) -> None:
        super()._update(group)
        self._is_updating = False

    def _rollouts_wanted(self) -> int:
        """Number of rollouts for the next update."""
        return 1

    def _receive(self, seconds: float) -> None:
        """Waits for rollouts and queues those that came, in the order of the actors."""
        started = time.perf_counter()
        ready = set(map(id, wait([worker.connection for worker in self._actors], seconds)))
        self._wait_s += time.perf_counter() - started
        for worker in self._actors:
            if id(worker.connection) in ready:
                self._pending.append(worker.answer(ANSWER_S)[1])

    def _rollouts(self, group: Sequence[Collected]) -> list[Rollout]:
        found: list[Rollout] = []
        for one in group:
            buffer = self._buffers[one.actor][one.slot]
            assert one.final is not None
            buffer.final_obs, buffer.final_at = one.final
            lag = self._shared_weights.version - one.version
            self._received += 1
            self._lag_sum += lag
            self._lag_max = max(self._lag_max, lag)
            if lag > self._setup.max_lag:
                self._left_out += 1
            else:
                found.append(buffer.tensors())
        return found

    def _publish(self) -> None:
        self._shared_weights.publish(self._learner.weights)

    def _finish(self, group: Sequence[Collected]) -> None:
        """Adds the counts of the rollouts and lets the actors fill the buffers again."""
        super()._finish(group)
        for one in group:
            self._refill(one.actor, one.slot)

    def _refill(self, index: int, slot: int) -> None:
        """Lets actor ``index`` fill a buffer again."""
        self._request(index, slot)

    def _request(self, index: int, slot: int) -> None:
        """Asks actor ``index`` to fill a buffer."""
        self._actors[index].send((slot, self._env_steps))

    def _figures(self, elapsed: float) -> dict[str, Any]:
        """See :class:`Loop`; ``policy_lag_max`` is the largest since the start."""
        new = self._since_report(
            wait=self._wait_s,
            learn=self._learn_s,
            received=self._received,
            left_out=self._left_out,
            lag=self._lag_sum,
        )
        received = max(new["received"], 1)
        return {
            "policy_lag": new["lag"] / received,
            "policy_lag_max": float(self._lag_max),
            "rollouts_left_out": new["left_out"] / received,
            "learner_waits": min(1.0, new["wait"] / elapsed),
            "learning": min(1.0, new["learn"] / elapsed),
        }

    def _actor_states(self) -> list[bytes | None]:
        """See :class:`Loop`; rollouts that arrive before the states are queued."""
        return self._ask_for_states(lambda index, value: self._pending.append(value))

    def _stop_workers(self, workers: WorkerGroup) -> None:
        for worker in self._actors:
            worker.send_if_running(None)
