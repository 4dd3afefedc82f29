"""The topology of IMPALA: actors collect rollouts while the learner learns from earlier ones.

Every actor, a process or thread, has two rollout buffers in memory that it shares with the learner. It is
told to fill one, takes the newest weights, fills it, and says so; the learner learns from buffers in the
order in which they come, publishes its weights, and hands the buffer back. An actor is thus at most two
rollouts ahead, but others may be learned from while it works: how far its weights are behind is measured for
every rollout, and one that is more than ``max_lag`` updates behind is left out.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from parl.runtime import checkpoint
from parl.runtime.loop import LoopBase, kept, state_or_reason
from parl.runtime.rollout import RolloutActor, RolloutBuffer, side_by_side
from parl.runtime.setup import Saved
from parl.runtime.sync import RolloutSetup, alone
from parl.runtime.weights import Snapshot
from parl.runtime.workers import INTERRUPTED_END_S, Patience, Team, Worker, choose_context
from parl.types import Rollout, RolloutLearner

_SLOTS = 2
# How long an actor may take to finish its rollouts and to pickle its environment.
_ANSWER_S = 120.0


def _run_actor(
    connection: Connection,
    setup: RolloutSetup,
    index: int,
    snapshot: Snapshot,
    buffers: list[RolloutBuffer],
    generation: int,
    state: bytes | None,
) -> None:
    """An actor's loop, see :func:`serve`."""
    actor = setup.make_actor(index, generation)
    version = -1

    def newest() -> int:
        nonlocal version
        version = snapshot.read(actor.policy.weights, version)
        return version

    serve(connection, actor, newest, buffers, state)


def serve(
    connection: Connection,
    actor: RolloutActor,
    newest: Callable[[], int],
    buffers: list[RolloutBuffer],
    state: bytes | None,
) -> None:
    """Fills the buffer it is told to, answers ``"state"`` with its state, ends on None.

    Args:
        connection: to the driver.
        actor: closed at the end.
        newest: called before each rollout; returns the version of the weights that act.
        buffers: shared with the driver.
        state: of a checkpoint, or None.
    """
    torch.set_num_threads(1)
    if state is not None:
        actor.load(state)
    while (question := connection.recv()) is not None:
        if question == "state":
            connection.send(("part", ("state", state_or_reason(actor))))
            continue
        slot, env_steps = question
        version = newest()
        before = actor.reward_sum
        buffer = buffers[slot]
        transitions, finished = actor.collect(buffer, env_steps)
        reward = actor.reward_sum - before
        final = (buffer.final_obs, buffer.final_at)
        connection.send(("part", ("rollout", (slot, version, transitions, finished, reward, final))))
    actor.close()


class AsyncLoop(LoopBase[RolloutLearner]):
    """See the module and :class:`parl.runtime.setup.Loop`.

    Args:
        setup: the run.
        saved: the checkpoint to go on from, or None.
    """

    def __init__(self, setup: RolloutSetup, saved: Saved | None = None) -> None:
        torch.set_num_threads(setup.threads)
        self._setup = setup
        super().__init__(setup.make_learner(), saved)
        context = choose_context(setup.processes, setup.device)
        self._snapshot = Snapshot(context, len(self._learner.weights))
        self._snapshot.publish(self._learner.weights)
        self._buffers = [
            [setup.make_buffer(index, context) for _ in range(_SLOTS)] for index in range(setup.actors)
        ]
        self._pending: collections.deque[tuple[int, Any]] = collections.deque()
        self._wait_s = self._learn_s = 0.0
        self._rollouts = self._dropped = self._lag_sum = self._lag_max = 0
        self._team: Team | None = Team(context)
        self._workers: list[Worker] = []
        try:
            for index in range(setup.actors):
                state = checkpoint.actor_state(saved, index)
                self._workers.append(self._start(index, context, state))
            for worker in self._workers:
                for slot in range(_SLOTS):
                    worker.send((slot, self._env_steps))
        except BaseException:
            self.close()
            raise
        self._mark = self._figures()

    def _start(self, index: int, context: Any, state: bytes | None) -> Worker:
        """Starts actor ``index``, a process of ``context`` or a thread."""
        assert self._team is not None
        args = (self._setup, index, self._snapshot, self._buffers[index], self._resumes, state)
        return self._team.start(f"actor {index}", _run_actor, args, process=self._setup.processes)

    def advance(self, until_env_steps: int, seconds: float) -> None:
        """Learns until ``until_env_steps`` came, ``seconds`` passed or an interrupt came.

        Raises:
            WorkerError: an actor failed.
        """
        until_env_steps = min(until_env_steps, self._setup.total_frames)
        end = time.monotonic() + seconds
        while self._env_steps < until_env_steps and not self._interrupted and time.monotonic() < end:
            wanted = self.wanted()
            if len(self._pending) < wanted:
                self._receive(end - time.monotonic())
            if len(self._pending) >= wanted:
                self._learn([self._pending.popleft() for _ in range(wanted)])

    def _receive(self, seconds: float) -> None:
        """Waits for rollouts and queues those that came, the actors in order."""
        started = time.perf_counter()
        connections = [worker.connection for worker in self._workers]
        ready = set(map(id, wait(connections, max(0.0, seconds))))
        self._wait_s += time.perf_counter() - started
        for index, worker in enumerate(self._workers):
            if id(worker.connection) in ready:
                self._pending.append((index, worker.answer(_ANSWER_S)[1]))

    def _learn(self, messages: list[tuple[int, Any]]) -> None:
        """One update from rollouts of equal length, side by side, without those that are too old."""
        started = time.perf_counter()
        progress = self._env_steps / self._setup.total_frames
        chosen = self._choose(messages)
        if chosen:
            self._updates += self._learner.learn(side_by_side(chosen), progress, alone)
            self._snapshot.publish(self._learner.weights)
        self._return(messages)
        self._learn_s += time.perf_counter() - started

    def _choose(self, messages: list[tuple[int, Any]]) -> list[Rollout]:
        """The rollouts that are not too old."""
        chosen: list[Rollout] = []
        for index, (slot, version, *_, final) in messages:
            buffer = self._buffers[index][slot]
            buffer.final_obs, buffer.final_at = final
            lag = self._snapshot.version - version
            self._rollouts += 1
            self._lag_sum += lag
            self._lag_max = max(self._lag_max, lag)
            if lag > self._setup.max_lag:
                self._dropped += 1
            else:
                chosen.append(buffer.tensors())
        return chosen

    def _return(self, messages: list[tuple[int, Any]]) -> None:
        """Counts what came with the rollouts and lets the actors fill them again."""
        for index, (slot, _, transitions, finished, reward, _) in messages:
            self.count(transitions, finished, reward)
            self.give_back(index, slot)

    def wanted(self) -> int:
        """Rollouts of the next update."""
        return 1

    def give_back(self, index: int, slot: int) -> None:
        """Lets actor ``index`` fill a slot again."""
        self._workers[index].send((slot, self._env_steps))

    def _figures(self) -> tuple[float, ...]:
        return self._wait_s, self._learn_s, self._rollouts, self._dropped, self._lag_sum

    def report(self) -> dict[str, float]:
        """Figures of the time since the last call; ``policy_lag_max`` since the start."""
        old, self._mark = self._mark, self._figures()
        wait_s, learn_s, rollouts, dropped, lag = (
            new - before for new, before in zip(self._mark, old, strict=True)
        )
        elapsed, rates = self.rates()
        return {
            **rates,
            "policy_lag": lag / max(rollouts, 1),
            "policy_lag_max": float(self._lag_max),
            "rollouts_left_out": dropped / max(rollouts, 1),
            "learner_waits": min(1.0, wait_s / elapsed),
            "learning": min(1.0, learn_s / elapsed),
            **self._learner.metrics(),
        }

    def rescue(self, folder: Path) -> None:
        """Writes the learner; environments start anew."""
        self.write(folder, [None] * len(self._workers))

    def save(self, folder: Path) -> None:
        """Writes the checkpoint's parts; rollouts on their way are learned from afterwards."""
        for worker in self._workers:
            worker.send("state")
        patience = Patience(_ANSWER_S, lambda: self._interrupted)
        states: list[bytes | None] = []
        for index, worker in enumerate(self._workers):

            def queue(value: Any, index: int = index) -> None:
                self._pending.append((index, value))

            states.append(kept(worker.name, worker.state(patience, queue)))
        self.write(folder, states)

    def close(self) -> None:
        """Ends it; safe to call twice."""
        team, self._team = self._team, None
        if team is not None:
            for worker in self._workers:
                worker.tell(None)
            team.end(within_s=INTERRUPTED_END_S if self._interrupted else 5.0)
