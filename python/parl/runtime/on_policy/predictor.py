"""The topology of GA3C: predictors compute the actions of actors that have no network; trainers learn.

::

    actor       write observations, send a request, wait for the actions | step the environments, T times
    predictor   a thread: all waiting requests -> one batch -> actions by the newest weights
    trainer     rollouts_per_update rollouts side by side -> one update of the shared weights, then publish

A rollout may begin with older weights than it ends with; its lag is that of its first step. A single trainer
runs in the driver's thread. Several trainers are threads: they compute gradients at the same time, each with
the weights that were newest when it began, and apply them one after the other. The numbers of actors,
predictors, trainers and rollouts per update are tuned during the run.

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
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from parl.errors import ConfigError, WorkerError
from parl.runtime.checkpoint import Checkpoint
from parl.runtime.on_policy.asynchronous import AsyncRolloutLoop, serve_rollouts
from parl.runtime.on_policy.hogwild_parameters import HogwildParameters
from parl.runtime.on_policy.rollout import RolloutBuffer, check_sampled, concatenate
from parl.runtime.on_policy.rollout_loop import Collected, checked_steps
from parl.runtime.on_policy.setup import RolloutSetup
from parl.runtime.on_policy.size_tuner import SizeTuner
from parl.runtime.seeds import actor_seeds
from parl.runtime.weights import SharedWeights
from parl.runtime.workers import WorkerGroup
from parl.types import Array, HogwildLearner, RolloutPolicy

# Seconds between two checks of an idle predictor whether the run has ended.
_CHECK_EVERY_S = 0.05


class PredictionSlot:
    """Memory for one actor's observations and actions, and a pipe for its requests.

    Args:
        buffer: arrays of one step of the actor's environments, shared where actors are processes.
    """

    def __init__(self, buffer: RolloutBuffer) -> None:
        self.buffer = buffer
        self.actor_end, self.predictor_end = multiprocessing.Pipe()


class PredictorClient:
    """Policy of an actor without a network: requests actions from a predictor. See :class:`RolloutPolicy`.

    Attributes:
        weights: empty.
    """

    def __init__(self, slot: PredictionSlot) -> None:
        self.weights = torch.empty(0)
        self._slot = slot

    def sample(self, observations: Array, env_steps: int) -> tuple[Array, Array]:
        """Actions (N, ...) and their log-probabilities (N,) float32, valid until the next call."""
        slot = self._slot
        slot.buffer.obs[0] = observations
        slot.actor_end.send_bytes(b"?")
        slot.actor_end.recv_bytes()
        return slot.buffer.action[0], slot.buffer.log_prob[0]

    def act(self, observations: Array, env_steps: int) -> Array:
        """Actions (N, ...), valid until the next call."""
        return self.sample(observations, env_steps)[0]

    def act_greedily(self, observations: Array) -> Array:
        """The same as :meth:`act`: predictors only sample."""
        return self.sample(observations, 0)[0]

    def state_dict(self) -> dict[str, Any]:
        """Empty: the predictors have the random generators."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""


def _run_actor(
    connection: Connection,
    setup: RolloutSetup,
    index: int,
    shared_weights: SharedWeights,
    buffers: list[RolloutBuffer],
    slot: PredictionSlot,
    resumes: int,
    state: bytes | None,
) -> None:
    """An actor's main function, see :func:`parl.runtime.on_policy.asynchronous.serve_rollouts`."""
    actor = setup.make_actor(index, resumes, PredictorClient(slot))
    serve_rollouts(connection, actor, index, lambda: shared_weights.version, buffers, state)


class PredictorLoop(AsyncRolloutLoop):
    """See the module. As :class:`AsyncRolloutLoop`, with predictors and several trainers.

    Args:
        setup: the run.
        saved: the checkpoint to start from, or None.

    Raises:
        ConfigError: ``trainers`` is above 1, but the algorithm's learners cannot share weights.
    """

    def __init__(self, setup: RolloutSetup, saved: Checkpoint | None = None) -> None:
        sizes = {
            "actors": setup.actors,
            "predictors": min(setup.predictors, setup.actors),
            "trainers": min(setup.trainers, setup.actors),
            "rollouts": min(setup.rollouts_per_update, setup.actors),
        }
        highest = dict.fromkeys(sizes, setup.actors)
        if not setup.algorithm.shareable:
            if setup.trainers > 1:
                raise ConfigError(
                    f"trainers = {setup.trainers}: running statistics of observations need one trainer"
                )
            highest["trainers"] = 1
        self._tuner = SizeTuner(sizes, highest, setup.seed)
        self._update_lock = threading.RLock()
        """Held while the shared weights, the counters and the actors' slots change."""
        self._pool = ThreadPoolExecutor(
            highest["trainers"], "trainer", torch.set_num_threads, (setup.threads,)
        )
        self._running: set[Future[None]] = set()
        self._tuned_at: tuple[float, int] | None = None
        self._parked: list[tuple[int, int]] = []
        """Actor and free slot, for actors above the current number."""
        self._stop = threading.Event()
        self._gather_lock = threading.Lock()
        self._predictors: list[threading.Thread] = []
        self._failure: BaseException | None = None
        """Error of a predictor, whose actors would wait forever."""
        self._predicted = self._batches = 0
        self._predicted_before = (0, 0)
        self._slots: list[PredictionSlot] = []
        super().__init__(setup, saved)
        try:
            self._learners = [cast("HogwildLearner", self._learner)]
            self._parameters = HogwildParameters(multiprocessing, len(self._learner.weights))
            self._attach(fill=True)
            self._idle = collections.deque(self._learners)
            self._start_missing()
        except BaseException:
            self.close()
            raise

    def _refresh(self, learner: HogwildLearner) -> None:
        """Copies the shared weights into ``learner``; one that is not shareable has the newest itself."""
        if self._setup.algorithm.shareable:
            learner.refresh()

    def _attach(self, fill: bool) -> None:
        """Makes the newest learner update the shared weights; ``fill``: its own are first copied there."""
        # An algorithm that is not shareable has one learner, with its running statistics among its weights.
        if self._setup.algorithm.shareable:
            self._parameters.attach(self._learners[-1], fill)

    def _start_rollout_actor(self, index: int, state: bytes | None) -> None:
        setup = self._setup
        context = self._context if setup.processes else None
        slot = PredictionSlot(RolloutBuffer(setup.spec, 1, setup.num_envs_of(index), context))
        self._slots.append(slot)
        args = (setup, index, self._shared_weights, self._buffers[index], slot, self._resumes, state)
        self._start_actor(f"actor {index}", _run_actor, args, setup.processes)

    def _start_missing(self) -> None:
        """Starts trainers and predictors up to the current numbers; surplus ones stay idle."""
        setup = self._setup
        while len(self._learners) < self._tuner.sizes["trainers"]:
            self._learners.append(cast("HogwildLearner", setup.make_learner()))
            self._attach(fill=False)
            self._idle.append(self._learners[-1])
        for number in range(len(self._predictors), self._tuner.sizes["predictors"]):
            seed, _ = actor_seeds(setup.own_seed(self._resumes), number)
            policy = setup.algorithm.make_policy(number, setup.actors, setup.num_envs, seed)
            thread = threading.Thread(target=self._run_predictor, args=(number, policy), daemon=True)
            self._predictors.append(thread)
            thread.start()

    def _run_predictor(self, number: int, policy: RolloutPolicy) -> None:
        """A predictor's thread; :meth:`advance` raises its error."""
        try:
            self._predict(number, policy)
        except BaseException as error:
            self._failure = error

    def _predict(self, number: int, policy: RolloutPolicy) -> None:
        torch.set_num_threads(1)
        version = -1
        ends: dict[Any, PredictionSlot] = {slot.predictor_end: slot for slot in self._slots}
        while not self._stop.is_set():
            if number >= self._tuner.sizes["predictors"]:
                self._stop.wait(_CHECK_EVERY_S)
                continue
            requests = self._gather(ends)
            if requests is None:
                return  # an actor has ended; the driver raises its error
            if not requests:
                continue
            version = self._shared_weights.read(policy.weights, version)
            obs = np.concatenate([slot.buffer.obs[0] for slot in requests])
            action, log_prob = policy.sample(obs, self._env_steps)
            check_sampled(action, log_prob, len(obs), requests[0].buffer.action)
            start = 0
            for slot in requests:
                end = start + len(slot.buffer.obs[0])
                slot.buffer.action[0], slot.buffer.log_prob[0] = action[start:end], log_prob[start:end]
                slot.predictor_end.send_bytes(b"!")
                start = end
            self._predicted += start
            self._batches += 1

    def _gather(self, ends: Mapping[Any, PredictionSlot]) -> list[PredictionSlot] | None:
        """Receives all pending requests; returns their slots, or None if an actor's pipe is closed."""
        with self._gather_lock:
            found: list[PredictionSlot] = []
            for end in wait(list(ends), _CHECK_EVERY_S):
                try:
                    cast("Any", end).recv_bytes()
                except (EOFError, OSError):
                    return None
                found.append(ends[end])
            return found

    def _update(self, group: Sequence[Collected]) -> None:
        """Makes one update: in this thread if there is one trainer, else in the next idle trainer thread."""
        trainers = self._tuner.sizes["trainers"]
        self._wait_for_trainers(trainers - 1)
        if trainers == 1:
            self._train(self._learners[0], group)
        else:
            self._running.add(self._pool.submit(self._train_and_return, self._idle.popleft(), group))

    def _wait_for_trainers(self, busy: int) -> None:
        """Waits until no more than ``busy`` trainers work."""
        while len(self._running) > busy:
            done, self._running = wait_for(self._running, return_when=FIRST_COMPLETED)
            for one in done:
                one.result()

    def _train_and_return(self, learner: HogwildLearner, group: Sequence[Collected]) -> None:
        try:
            self._train(learner, group)
        finally:
            self._idle.append(learner)

    def _train(self, learner: HogwildLearner, group: Sequence[Collected]) -> None:
        """Computes gradients with the newest weights, and applies them while holding the lock."""
        started = time.perf_counter()
        with self._update_lock:
            rollouts = self._rollouts(group)
            progress = self._progress
            self._refresh(learner)
        with contextlib.ExitStack() as held:

            def lock(gradients: torch.Tensor | None) -> None:
                held.enter_context(self._update_lock)

            if rollouts:
                steps = checked_steps(learner.learn(concatenate(rollouts), progress, lock))
                lock(None)
                self._updates += steps
                self._shared_weights.publish(learner.weights)
            lock(None)
            self._finish(group)
            self._learn_s += time.perf_counter() - started

    def _rollouts_wanted(self) -> int:
        """Number of rollouts for the next update."""
        return min(self._tuner.sizes["rollouts"], self._tuner.sizes["actors"])

    def _refill(self, index: int, slot: int) -> None:
        """Lets an actor fill a slot again; parks it if it is above the current number of actors."""
        self._parked.append((index, slot))
        actors = self._tuner.sizes["actors"]
        for resumed, free in [pair for pair in self._parked if pair[0] < actors]:
            super()._refill(resumed, free)
        self._parked = [pair for pair in self._parked if pair[0] >= actors]

    def advance(self, until_env_steps: int, seconds: float) -> None:
        """See :class:`Loop`; afterwards the sizes may change.

        Raises:
            WorkerError: an actor or a predictor failed.
        """
        super().advance(until_env_steps, seconds)
        if self._failure is not None:
            raise WorkerError(f"a predictor failed: {self._failure!r}") from self._failure
        self._wait_for_trainers(0)
        self._refresh(self._learners[0])
        self._tune()

    def _tune(self) -> None:
        """Changes the sizes every ``tune_every_s``, see :class:`SizeTuner`."""
        every_s, now = self._setup.tune_every_s, time.monotonic()
        if not every_s:
            return
        if self._tuned_at is None:
            self._tuned_at = (now, self._env_steps)
        elapsed = now - self._tuned_at[0]
        if elapsed < every_s:
            return
        if self._tuner.record_rate((self._env_steps - self._tuned_at[1]) / elapsed):
            self._start_missing()
            parked, self._parked = self._parked, []
            for index, slot in parked:
                self._refill(index, slot)
        self._tuned_at = (now, self._env_steps)

    def _figures(self, elapsed: float) -> dict[str, Any]:
        """See :class:`AsyncRolloutLoop`; with the current sizes."""
        old, self._predicted_before = self._predicted_before, (self._predicted, self._batches)
        batches = self._predicted_before[1] - old[1]
        return {
            **super()._figures(elapsed),
            "queue_depth": float(len(self._pending)),
            "predicted_together": (self._predicted_before[0] - old[0]) / batches if batches else math.nan,
            **{f"{name}_now": float(size) for name, size in self._tuner.sizes.items()},
        }

    def save_after_failure(self, folder: Path) -> None:
        """Writes the learner; a run resumed from it starts new episodes."""
        wait_for(self._running)
        self._refresh(self._learners[0])
        super().save_after_failure(folder)

    def _stop_workers(self, workers: WorkerGroup) -> None:
        super()._stop_workers(workers)
        if self._failure is not None:
            self._end_predictions()

    def _end_predictions(self) -> None:
        """Ends the predictors; an actor that waits for actions then ends with an EOFError."""
        self._stop.set()
        for thread in self._predictors:
            thread.join(2.0)
        self._predictors = []
        for slot in self._slots:
            slot.predictor_end.close()

    def close(self) -> None:
        """Ends the threads and workers; safe to call twice."""
        self._pool.shutdown()
        actors = [worker.runner for worker in self._actors]
        super().close()
        self._end_predictions()
        for actor in actors:
            actor.join(2.0)
