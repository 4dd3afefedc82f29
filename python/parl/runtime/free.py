"""The schedule in which everything overlaps: actors and learners in processes or threads.

The driver is learner 0. The others and the actors are workers; all share the replay, the counters and the
weights by memory, and talk to the driver by a pipe only while they are parked::

    actor      look at the command | newest weights | pace | step the environments, write rows
    learner    look at the command | pace | draw, compute, average with peers, step, set priorities
    driver     learner 0, publishes the weights after each update, watches the workers

Learners leave a border together: one that cannot take part in an update says so in the all-reduce, and all
leave that update out.
"""

from __future__ import annotations

import math
import os
import time
import uuid
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from parl.replay import PrioritizedReplay
from parl.runtime import board as b
from parl.runtime import checkpoint
from parl.runtime.board import Board
from parl.runtime.controller import PERIOD_S, Controller
from parl.runtime.learning import Part
from parl.runtime.loop import kept, state_or_reason
from parl.runtime.pacer import ACTOR_PAUSE_MAX_S, ACTOR_PAUSE_S, LEARNER_PAUSE_S
from parl.runtime.peers import Alone, GlooPeers, Meeting, Peers, Rendezvous, ThreadPeers
from parl.runtime.remote import Published, connect, disconnect, run_far_actor
from parl.runtime.setup import Saved, Setup
from parl.runtime.torchrun import SAVE, GroupPeers
from parl.runtime.weights import Snapshot
from parl.runtime.workers import INTERRUPTED_END_S, Patience, Team, choose_context
from parl.types import Learner

# How long a parked actor may take to finish its step and to pickle its environment.
_ANSWER_S = 120.0
_CHECK_EVERY_S = 0.05
_IDLE_S = 0.002
PARKED_PAUSE_S = 0.01


def _run_actor(
    connection: Connection,
    setup: Setup,
    index: int,
    board: Board,
    snapshot: Snapshot,
    replay: Any,
    generation: int,
    state: bytes | None,
) -> None:
    """An actor's loop, in a process or thread; ``replay`` is a name to attach to, or the replay itself."""
    if isinstance(replay, str):
        replay = PrioritizedReplay.attach(replay)
    actor = setup.make_actor(index, replay, generation)
    if state is not None:
        actor.load(state)
    elif generation:
        actor.end_episodes()
    connection.send(("ready", None))
    row = board.actor[index]
    updates = board.learner[0]
    weights, version = actor.policy.weights, -1
    pause_s = ACTOR_PAUSE_S
    while True:
        command = board.command
        if command == b.STOP:
            break
        if command == b.PARK:
            _park_actor(connection, actor)
            continue
        if not board.is_awake(index):
            time.sleep(PARKED_PAUSE_S)
            continue
        env_steps = board.env_steps
        if not setup.pacer.may_collect(env_steps, int(updates[b.UPDATES])):
            started = time.perf_counter_ns()
            # Longer and longer: looking costs a learner that needs all cores.
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, ACTOR_PAUSE_MAX_S)
            row[b.ACTOR_WAIT_NS] += time.perf_counter_ns() - started
            continue
        pause_s = ACTOR_PAUSE_S
        version = snapshot.read(weights, version)
        transitions, finished = actor.step(env_steps)
        board.count_lag(index, snapshot.version - version)
        row[b.STEPS] += transitions
        board.rewards[index] = actor.reward_sum
        if finished:
            board.add_episodes(index, finished)
    actor.close()


def _park_actor(connection: Connection, actor: Any) -> None:
    """Answers the driver's question for the actor's state, if one comes soon."""
    if not connection.poll(_IDLE_S):
        return
    connection.recv()
    connection.send(("part", ("state", state_or_reason(actor))))


def _run_learner(
    connection: Connection,
    setup: Setup,
    rank: int,
    board: Board,
    replay: Any,
    where: str | Meeting,
    saved: Saved | None,
    learner: Learner | None = None,
) -> None:
    """The loop of learner ``rank >= 1``, in a process or thread; ``replay`` as in :func:`_run_actor`.

    A thread is given its ``learner``: seeding is process-wide.
    """
    if isinstance(replay, str):
        replay = PrioritizedReplay.attach(replay)
    learner = learner or setup.make_learner()
    updates = 0
    if saved is not None:
        checkpoint.load_learner(saved, learner)
        updates = int(saved.counters["updates"])
    connection.send(("ready", None))
    learner.use_threads(setup.threads)
    peers = _make_peers(where, rank, setup.learners)
    try:
        _learn(setup, rank, board, learner, replay, peers, updates)
    finally:
        peers.close()


def _make_peers(where: str | Meeting, rank: int, learners: int) -> Peers:
    return ThreadPeers(where, rank) if isinstance(where, Meeting) else GlooPeers(where, rank, learners)


def _learn(
    setup: Setup, rank: int, board: Board, learner: Learner, replay: Any, peers: Peers, updates: int
) -> None:
    part = setup.make_part(learner, replay, peers, rank)
    row = board.learner[rank]
    row[b.UPDATES] = updates
    while True:
        if board.command != b.RUN:
            part.skip()
            if _stopped_after_border(board):
                break
            continue
        env_steps = board.env_steps
        if not setup.pacer.may_learn(env_steps, updates):
            started = time.perf_counter_ns()
            time.sleep(LEARNER_PAUSE_S)
            row[b.LEARNER_WAIT_NS] += time.perf_counter_ns() - started
        elif part.update(env_steps):
            updates += 1
            row[b.UPDATES] = updates
        elif _stopped_after_border(board):
            break


def _stopped_after_border(board: Board) -> bool:
    """Waits while the driver parks the team; whether it then stops it."""
    while board.command == b.PARK:
        time.sleep(_IDLE_S)
    return board.command == b.STOP


class FreeLoop:
    """See the module and :class:`parl.runtime.setup.Loop`.

    Args:
        setup: the run.
        saved: the checkpoint to go on from, or None.
    """

    def __init__(self, setup: Setup, saved: Saved | None = None) -> None:
        torch.set_num_threads(1)
        self._setup = setup
        self._interrupted = False
        self._team: Team | None = None
        self._replay: Any = None
        self._rendezvous: Rendezvous | None = None
        self._updates = 0
        self._resumes = 0
        self._connected = False
        self._made_part: Part | None = None
        self._peers: Peers | None = None
        try:
            self._start(setup, saved)
        except BaseException:
            self.close()
            raise

    def _start(self, setup: Setup, saved: Saved | None) -> None:
        in_processes = setup.learners > 1 and not setup.learner_threads
        shares = setup.processes or in_processes
        context = choose_context(shares, setup.device)
        name = f"parl-{os.getpid()}-{uuid.uuid4().hex[:12]}" if shares else None
        if saved is None:
            self._replay = setup.make_replay(name)
        else:
            self._replay = PrioritizedReplay.load(saved.folder / "replay.bin", shared=name)
        self.learner = setup.make_learner()
        self._board = board = Board(context, setup.actors, setup.learners)
        self._snapshot = Snapshot(context, len(self.learner.weights))
        if saved is not None:
            checkpoint.load_learner(saved, self.learner)
            self._updates = int(saved.counters["updates"])
            self._resumes = int(saved.counters["resumes"]) + 1
            board.actor[0, b.STEPS] = saved.counters["env_steps"]
        if setup.group is not None:
            # All go on from where rank 0 is: a killed one may have saved less.
            state, self._updates = setup.group.from_first((self.learner.state_dict(), self._updates))
            self.learner.load_state_dict(state)
        board.learner[:, b.UPDATES] = self._updates
        self._snapshot.publish(self.learner.weights)
        self._team = team = Team(context)
        if in_processes:
            self._rendezvous = Rendezvous()
            for rank in range(1, setup.learners):
                args = (setup, rank, board, name, self._rendezvous.path, saved)
                team.start(f"learner {rank}", _run_learner, args, process=True)
        run, weights = (_run_actor, self._snapshot)
        if setup.remote is not None:
            self._connected = connect(setup.remote, setup.actors)
            run, weights = run_far_actor, Published(self._snapshot)
        self._actors = [
            team.start(
                f"actor {index}",
                run,
                (
                    setup,
                    index,
                    board,
                    weights,
                    name if setup.processes else self._replay,
                    self._resumes,
                    checkpoint.actor_state(saved, index),
                ),
                process=setup.processes,
            )
            for index in range(setup.actors)
        ]
        self.learner.use_threads(setup.threads)  # after the forks, which copy no threads
        rendezvous = self._rendezvous
        where: str | Meeting = Meeting(setup.learners) if rendezvous is None else rendezvous.path
        if not in_processes:
            for rank in range(1, setup.learners):
                args = (setup, rank, board, self._replay, where, saved, setup.make_learner())
                team.start(f"learner {rank}", _run_learner, args, process=False)
        self._peers = self._make_peers(setup, where)
        self._made_part = setup.make_part(self.learner, self._replay, self._peers, 0)
        for worker in team.workers:
            worker.answer(_ANSWER_S)  # ready: it has attached to the replay
        if name is not None:
            self._replay.unlink()  # from here on nothing of the name can be left behind
        self._next_check = self._next_look = 0.0
        controls = setup.park_actors and setup.actors > 1 and setup.remote is None
        self._controller = Controller.of(setup.actors) if controls else None
        self._looked = ((0, 0.0), time.monotonic())
        self._lags_before = board.lags.sum(axis=0)
        self._mark = self._figures()

    def _make_peers(self, setup: Setup, where: str | Meeting) -> Peers:
        if setup.group is not None:
            self._group_peers = GroupPeers(setup.group, setup.device)
            return self._group_peers
        return _make_peers(where, 0, setup.learners) if setup.learners > 1 else Alone()

    @property
    def _part(self) -> Part:
        assert self._made_part is not None
        return self._made_part

    @property
    def _scale(self) -> int:
        """Processes of which each collects as much as this one, more or less."""
        return self._setup.group.size if self._setup.group is not None else 1

    @property
    def env_steps(self) -> int:
        """Transitions collected."""
        return self._board.env_steps * self._scale

    @property
    def updates(self) -> int:
        """Optimizer steps taken."""
        return self._updates

    def advance(self, until_env_steps: int, seconds: float) -> None:
        """Learns until ``until_env_steps`` are collected, ``seconds`` passed or an interrupt came."""
        board, pacer = self._board, self._setup.pacer
        row = board.learner[0]
        until_env_steps = min(-(-until_env_steps // self._scale), pacer.total_frames)
        end = time.monotonic() + seconds
        while not self._interrupted:
            self._check()
            env_steps = board.env_steps
            if env_steps >= until_env_steps or time.monotonic() >= end:
                return
            if not pacer.may_learn(env_steps, self._updates):
                started = time.perf_counter_ns()
                time.sleep(LEARNER_PAUSE_S)
                row[b.LEARNER_WAIT_NS] += time.perf_counter_ns() - started
            elif self._together(lambda steps=env_steps: self._part.update(steps)):
                self._count_update()
            else:
                # Only the driver asks for a border, and it does so between updates.
                self._fail_of_peers(RuntimeError("a learner left an update out unasked"))

    def _count_update(self) -> None:
        self._updates += 1
        self._board.learner[0, b.UPDATES] = self._updates
        self._snapshot.publish(self.learner.weights)

    def _check(self) -> None:
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + _CHECK_EVERY_S
            assert self._team is not None
            self._team.check()
            if self._controller is not None and now >= self._next_look:
                self._control(now)

    def _control(self, now: float) -> None:
        """Parks or wakes actors by how long each side waited since the last look."""
        assert self._controller is not None
        controller, board = self._controller, self._board
        waits = (board.actor[:, b.ACTOR_WAIT_NS].sum(), board.learner[:, b.LEARNER_WAIT_NS].mean())
        (old_waits, then), self._looked = self._looked, (waits, now)
        self._next_look = now + PERIOD_S
        if board.env_steps < self._setup.pacer.learning_starts:
            return
        elapsed_ns = max(now - then, 1e-9) * 1e9
        actors_wait = float(waits[0] - old_waits[0]) / elapsed_ns / controller.awake
        controller.look(min(1.0, actors_wait), min(1.0, float(waits[1] - old_waits[1]) / elapsed_ns))
        board.awake = controller.awake, controller.first

    def follow(self, save: Callable[[Callable[[Path], None]], None]) -> None:
        """Learns with the other processes of the group for as long as rank 0 does.

        Args:
            save: called when rank 0 saves, with what writes this process's part into a folder.
        """
        while not self._setup.pacer.may_learn(self._board.env_steps, 0) or not len(self._replay):
            self._check()
            time.sleep(LEARNER_PAUSE_S)
        while True:
            self._check()
            if self._together(lambda: self._part.update(self._board.env_steps)):
                self._count_update()
            elif self._group_peers.asked == SAVE:
                save(self.save)
            else:
                return

    def _together(self, work: Any) -> Any:
        try:
            return work()
        except RuntimeError as error:
            # The connection to a peer broke: the peer's own error says why.
            self._fail_of_peers(error)

    def _fail_of_peers(self, error: RuntimeError) -> None:
        assert self._team is not None
        if self._setup.learners > 1:
            self._team.failure(within_s=3.0)
        raise error

    def interrupt(self) -> None:
        """Makes :meth:`advance` return soon."""
        self._interrupted = True

    def take_episodes(self) -> list[tuple[float, int]]:
        """Return and length of the episodes finished since the last call."""
        return self._board.take_episodes()

    def rewards_and_episodes(self) -> tuple[float, int]:
        """Sum of all rewards, and number of all episodes ended, since this loop was made."""
        return float(self._board.rewards.sum()), self._board.episodes

    def _figures(self) -> dict[str, float]:
        actors, learners = self._board.actor, self._board.learner
        return {
            "time": time.monotonic(),
            "env_steps": self.env_steps,
            "updates": self._updates,
            "lag": int(actors[:, b.LAG_SUM].sum()),
            "vector_steps": int(actors[:, b.VECTOR_STEPS].sum()),
            "actor_wait": float(actors[:, b.ACTOR_WAIT_NS].mean()) * 1e-9,
            "learner_wait": float(learners[:, b.LEARNER_WAIT_NS].mean()) * 1e-9,
        }

    def report(self) -> dict[str, Any]:
        """Figures of the time since the last call."""
        old, self._mark = self._mark, self._figures()
        change = {key: value - old[key] for key, value in self._mark.items()}
        elapsed = max(change["time"], 1e-9)
        steps = change["vector_steps"]
        return {
            "env_steps_per_s": change["env_steps"] / elapsed,
            "updates_per_s": change["updates"] / elapsed,
            "replay_ratio": self._setup.pacer.measured(self._board.env_steps, self._updates),
            "replay_size": len(self._replay),
            "policy_lag": change["lag"] / steps if steps else math.nan,
            "actors_wait": min(1.0, change["actor_wait"] / elapsed),
            "learners_wait": min(1.0, change["learner_wait"] / elapsed),
            **self._lags(),
            "actors_awake": self._board.awake[0],
            **({"actor_failures": int(self._board.actor[:, b.FAILURES].sum())} if self._setup.remote else {}),
            **self.learner.metrics(),
        }

    def _lags(self) -> dict[str, Any]:
        """How many vector steps since the last call acted with weights how old."""
        lags = self._board.lags.sum(axis=0)
        counts, self._lags_before = lags - self._lags_before, lags
        if not counts.any():
            return {}
        last = int(counts.nonzero()[0][-1])
        upper = int((counts.cumsum() >= 0.95 * counts.sum()).argmax())
        return {
            "policy_lag_histogram": counts[: last + 1].tolist(),
            "policy_lag_p95": float(2**upper - 1),
        }

    def rescue(self, folder: Path) -> None:
        """Writes what outlives a failed worker: learner, replay and counters; no environments."""
        self._write(folder, [None] * self._setup.actors)

    def _write(self, folder: Path, states: list[bytes | None]) -> None:
        counters = {"env_steps": self._board.env_steps, "updates": self._updates, "resumes": self._resumes}
        checkpoint.write(folder, self.learner, self._replay, states, counters)

    def save(self, folder: Path) -> None:
        """Writes the checkpoint's parts into ``folder``."""
        board = self._board
        board.command = b.PARK
        try:
            if self._setup.learners > 1:
                self._together(self._part.skip)
            elif self._leads:
                self._together(lambda: self._group_peers.ask(self.learner.gradients, SAVE))
            self._part.flush()
            for worker in self._actors:
                worker.send("state")
            patience = Patience(_ANSWER_S, lambda: self._interrupted)
            states = [kept(worker.name, worker.state(patience)) for worker in self._actors]
            self._write(folder, states)
        finally:
            board.command = b.RUN

    @property
    def _leads(self) -> bool:
        """Whether other processes of a group follow this one."""
        return self._setup.group is not None and self._setup.group.rank == 0

    def close(self) -> None:
        """Ends it; safe to call twice."""
        team, self._team = self._team, None
        if team is not None:
            self._board.command = b.STOP
            if self._setup.learners > 1 or self._leads:
                try:
                    team.check()
                    self._part.skip()
                except Exception:  # a peer is gone: the others are ended below
                    if self._peers is not None:
                        self._peers.close()
                    team.end(within_s=0.5)
            team.end(within_s=INTERRUPTED_END_S if self._interrupted else 5.0)
            if self._made_part is not None:
                self._made_part.close()
        if self._connected:
            disconnect()
            self._connected = False
        if self._replay is not None:
            self._replay.unlink()
            self._replay = None
        if self._rendezvous is not None:
            if self._peers is not None:
                self._peers.close()
            self._rendezvous.close()
