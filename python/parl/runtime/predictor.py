"""The topology of GA3C: actors without networks ask predictors for actions; a trainer learns from a queue.

::

    actor       writes its observations, asks, waits for the actions | step the environments, T times
    predictor   a thread: all that ask now -> one batch -> actions by the newest weights
    trainer     rollouts_per_update rollouts side by side -> one update of the common weights, publishes them

A rollout may begin with older weights than it ends with; its lag is that of its first step. One trainer is
the driver itself; several are threads, which compute gradients at the same time, each at the weights that
were the newest when it began, and step one after the other. How many actors work, how many predictors
answer, how many trainers learn and how many rollouts make an update is tuned while the run goes on.

Source: Babaeizadeh et al. (2017), "Reinforcement Learning through Asynchronous Advantage Actor-Critic on a
GPU".
"""

from __future__ import annotations

import collections
import contextlib
import math
import multiprocessing
import threading
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from parl.errors import ConfigError, WorkerError
from parl.runtime.asynchronous import AsyncLoop, serve
from parl.runtime.common import Common
from parl.runtime.rollout import RolloutBuffer, side_by_side
from parl.runtime.setup import Saved
from parl.runtime.sync import RolloutSetup
from parl.runtime.tuner import Tuner
from parl.runtime.weights import Snapshot
from parl.runtime.workers import Worker
from parl.types import Array, CommonLearner, RolloutPolicy

# Predictors look this often whether the run is over.
_LOOK_S = 0.05


class Desk:
    """Where an actor's questions and answers lie: a rollout of one step, and a pipe that wakes who waits.

    Args:
        buffer: arrays of one step of the actor's environments, shared where actors are processes.
    """

    def __init__(self, buffer: RolloutBuffer) -> None:
        self.buffer = buffer
        self.asking, self.answering = multiprocessing.Pipe()


class RemotePolicy:
    """Asks a predictor. See :class:`parl.types.RolloutPolicy`.

    Attributes:
        weights: none of its own.
    """

    def __init__(self, desk: Desk) -> None:
        self.weights = torch.empty(0)
        self._desk = desk

    def sample(self, observations: Array, env_steps: int) -> tuple[Array, Array]:
        """Actions (N, ...) and their log-probabilities (N,) float32, valid until the next call."""
        desk = self._desk
        desk.buffer.obs[0] = observations
        desk.asking.send_bytes(b"?")
        desk.asking.recv_bytes()
        return desk.buffer.action[0], desk.buffer.log_prob[0]

    def act(self, observations: Array, env_steps: int) -> Array:
        """The actions alone."""
        return self.sample(observations, env_steps)[0]

    def act_greedily(self, observations: Array) -> Array:
        """The same: actors explore."""
        return self.sample(observations, 0)[0]

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the predictors draw."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""


def _run_actor(
    connection: Connection,
    setup: RolloutSetup,
    index: int,
    snapshot: Snapshot,
    buffers: list[RolloutBuffer],
    desk: Desk,
    generation: int,
    state: bytes | None,
) -> None:
    """An actor's loop, see :func:`parl.runtime.asynchronous.serve`."""
    actor = setup.make_actor(index, generation, RemotePolicy(desk))
    serve(connection, actor, lambda: snapshot.version, buffers, state)


class PredictorLoop(AsyncLoop):
    """See the module and :class:`parl.runtime.setup.Loop`.

    Args:
        setup: the run.
        saved: the checkpoint to go on from, or None.

    Raises:
        ConfigError: several trainers are wanted of an algorithm whose learners keep statistics of their own.
    """

    def __init__(self, setup: RolloutSetup, saved: Saved | None = None) -> None:
        start = {
            "actors": setup.actors,
            "predictors": min(setup.predictors, setup.actors),
            "trainers": min(setup.trainers, setup.actors),
            "rollouts": min(setup.rollouts, setup.actors),
        }
        highest = dict.fromkeys(start, setup.actors)
        if not setup.algorithm.shareable:
            if setup.trainers > 1:
                raise ConfigError(
                    f"trainers = {setup.trainers}: running statistics of observations need one trainer"
                )
            highest["trainers"] = 1
        self._tuner = Tuner(start, highest, setup.seed)
        self._turn = threading.RLock()
        """Held while the common weights, the queue's counters and the actors' slots change."""
        self._pool = ThreadPoolExecutor(
            highest["trainers"], "trainer", torch.set_num_threads, (setup.threads,)
        )
        self._running: set[Future[None]] = set()
        self._tuned_at: tuple[float, int] | None = None
        self._resting: list[tuple[int, int]] = []
        self._stop = threading.Event()
        self._gathering = threading.Lock()
        self._predictors: list[threading.Thread] = []
        self._failure: BaseException | None = None
        """Of a predictor, whose actors would wait for ever."""
        self._asked = self._batches = 0
        self._asked_mark = (0, 0)
        self._desks: list[Desk] = []
        super().__init__(setup, saved)
        self._learners = [cast("CommonLearner", self._learner)]
        self._common = Common(multiprocessing, len(self._learner.weights))
        self._share(fill=True)
        self._idle = collections.deque(self._learners)
        self._hire()

    def _share(self, fill: bool) -> None:
        """Lets the newest learner step on the common weights; ``fill`` writes its own there first."""
        if not self._setup.algorithm.shareable:
            return  # the only one, and its statistics are part of its weights
        common = self._common
        self._learners[-1].share(common.weights, common.mean, common.square, common.count, fill)

    def _start(self, index: int, context: Any, state: bytes | None) -> Worker:
        assert self._team is not None
        setup = self._setup
        shared = context if setup.processes else None
        desk = Desk(RolloutBuffer(setup.spec, 1, setup.envs_of(index), shared))
        self._desks.append(desk)
        args = (setup, index, self._snapshot, self._buffers[index], desk, self._resumes, state)
        return self._team.start(f"actor {index}", _run_actor, args, process=setup.processes)

    def _hire(self) -> None:
        """Makes the trainers and predictors that are missing; those too many find nothing to do."""
        setup = self._setup
        while len(self._learners) < self._tuner.sizes["trainers"]:
            self._learners.append(cast("CommonLearner", setup.make_learner()))
            self._share(fill=False)
            self._idle.append(self._learners[-1])
        for number in range(len(self._predictors), self._tuner.sizes["predictors"]):
            policy = setup.algorithm.make_policy(number, setup.actors, setup.num_envs, setup.seed + number)
            thread = threading.Thread(target=self._serve, args=(number, policy), daemon=True)
            self._predictors.append(thread)
            thread.start()

    def _serve(self, number: int, policy: RolloutPolicy) -> None:
        """A predictor's thread; :meth:`advance` raises what it fails by."""
        try:
            self._predict(number, policy)
        except BaseException as error:
            self._failure = error

    def _predict(self, number: int, policy: RolloutPolicy) -> None:
        torch.set_num_threads(1)
        version = -1
        by_pipe = {id(desk.answering): desk for desk in self._desks}
        while not self._stop.is_set():
            if number >= self._tuner.sizes["predictors"]:
                self._stop.wait(_LOOK_S)
                continue
            with self._gathering:
                asked: list[Desk] = []
                for pipe in wait([desk.answering for desk in self._desks], _LOOK_S):
                    desk = by_pipe[id(pipe)]
                    try:
                        desk.answering.recv_bytes()
                    except (EOFError, OSError):
                        return  # an actor is gone, and the driver will hear of it
                    asked.append(desk)
            if not asked:
                continue
            version = self._snapshot.read(policy.weights, version)
            obs = np.concatenate([desk.buffer.obs[0] for desk in asked])
            action, log_prob = policy.sample(obs, self._env_steps)
            start = 0
            for desk in asked:
                end = start + len(desk.buffer.obs[0])
                desk.buffer.action[0], desk.buffer.log_prob[0] = action[start:end], log_prob[start:end]
                desk.answering.send_bytes(b"!")
                start = end
            self._asked += start
            self._batches += 1

    def _learn(self, messages: list[tuple[int, Any]]) -> None:
        """One update, here or by a trainer, for which it waits until one of as many as shall work is idle."""
        trainers = self._tuner.sizes["trainers"]
        self._settle(trainers - 1)
        if trainers == 1:
            self._update(self._learners[0], messages)
            return
        self._running.add(self._pool.submit(self._train, self._idle.popleft(), messages))

    def _settle(self, at_work: int) -> None:
        """Waits until no more than ``at_work`` trainers are."""
        while len(self._running) > at_work:
            done, self._running = wait_for(self._running, return_when=FIRST_COMPLETED)
            for one in done:
                one.result()

    def _train(self, learner: CommonLearner, messages: list[tuple[int, Any]]) -> None:
        try:
            self._update(learner, messages)
        finally:
            self._idle.append(learner)

    def _update(self, learner: CommonLearner, messages: list[tuple[int, Any]]) -> None:
        """Gradients at the newest weights, and, once it is ``learner``'s turn, a step."""
        started = time.perf_counter()
        with self._turn:
            chosen = self._choose(messages)
            progress = self._env_steps / self._setup.total_frames
            learner.refresh()
        with contextlib.ExitStack() as held:

            def take_turn(gradients: torch.Tensor | None) -> None:
                held.enter_context(self._turn)

            if chosen:
                steps = learner.learn(side_by_side(chosen), progress, take_turn)
                take_turn(None)
                self._updates += steps
                self._snapshot.publish(learner.weights)
            take_turn(None)
            self._return(messages)
            self._learn_s += time.perf_counter() - started

    def wanted(self) -> int:
        """Rollouts of the next update."""
        return min(self._tuner.sizes["rollouts"], self._tuner.sizes["actors"])

    def give_back(self, index: int, slot: int) -> None:
        """Lets an actor fill a slot again, or keeps it while the actor rests."""
        self._resting.append((index, slot))
        working = self._tuner.sizes["actors"]
        for found, kept in [pair for pair in self._resting if pair[0] < working]:
            super().give_back(found, kept)
        self._resting = [pair for pair in self._resting if pair[0] >= working]

    def advance(self, until_env_steps: int, seconds: float) -> None:
        """See :class:`AsyncLoop`; the sizes change here.

        Raises:
            WorkerError: an actor or a predictor failed.
        """
        super().advance(until_env_steps, seconds)
        if self._failure is not None:
            raise WorkerError(f"a predictor failed: {self._failure!r}") from self._failure
        self._settle(0)
        self._learners[0].refresh()
        every_s, now = self._setup.tune_every_s, time.monotonic()
        if not every_s:
            return
        if self._tuned_at is None:
            self._tuned_at = (now, self._env_steps)
        elapsed = now - self._tuned_at[0]
        if elapsed < every_s:
            return
        if self._tuner.measured((self._env_steps - self._tuned_at[1]) / elapsed):
            self._hire()
            resting, self._resting = self._resting, []
            for index, slot in resting:
                self.give_back(index, slot)
        self._tuned_at = (now, self._env_steps)

    def report(self) -> dict[str, float]:
        """Figures of the time since the last call, and the sizes that the run has now."""
        old, self._asked_mark = self._asked_mark, (self._asked, self._batches)
        batches = self._asked_mark[1] - old[1]
        return {
            **super().report(),
            "queue_depth": float(len(self._pending)),
            "predicted_together": (self._asked_mark[0] - old[0]) / batches if batches else math.nan,
            **{f"{name}_now": float(size) for name, size in self._tuner.sizes.items()},
        }

    def rescue(self, folder: Path) -> None:
        """Writes the learner; environments start anew."""
        wait_for(self._running)
        self._learners[0].refresh()
        super().rescue(folder)

    def close(self) -> None:
        """Ends it; safe to call twice."""
        self._pool.shutdown()
        super().close()
        self._stop.set()
        for thread in self._predictors:
            thread.join(2.0)
        self._predictors = []
