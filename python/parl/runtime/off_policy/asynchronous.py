"""The async schedule of off-policy algorithms: actors and learners overlap, in processes or threads.

The driver is learner 0. The other learners and the actors are workers. All share the replay, the counters and
the weights through memory; they use a pipe to the driver only while they are parked::

    actor      read the command | wait for the pacer | read the newest weights | step, write rows
    learner    read the command | wait for the pacer | sample, compute, average, step, set priorities
    driver     learner 0; also publishes the weights after each update and monitors the workers

Learners skip an update together: one without gradients sets a flag in the all-reduce, and all skip the
update.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import uuid
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from parl.errors import WorkerError
from parl.replay import PrioritizedReplay
from parl.runtime import checkpoint
from parl.runtime.checkpoint import Checkpoint
from parl.runtime.distributed import ray_cluster
from parl.runtime.distributed.ray_actors import run_ray_actor
from parl.runtime.distributed.torchrun import SAVE, TorchrunAllReduce
from parl.runtime.gradient_allreduce import (
    GradientAllReduce,
    SharedAllReduce,
    SharedGradients,
    SingleLearner,
)
from parl.runtime.off_policy.freezing import Freezing, SwitchableReplay
from parl.runtime.off_policy.learner_worker import LearnerWorker
from parl.runtime.off_policy.pacer import ACTOR_PAUSE_MAX_S, ACTOR_PAUSE_S, LEARNER_PAUSE_S
from parl.runtime.off_policy.parking import PERIOD_S, ActorParking
from parl.runtime.off_policy.setup import OffPolicySetup
from parl.runtime.shared_counters import (
    ACTOR_WAIT_NS,
    FAILURES,
    LAG_SUM,
    LEARNER_WAIT_NS,
    PARK,
    RUN,
    STEPS,
    STOP,
    UPDATES,
    VECTOR_STEPS,
    SharedCounters,
)
from parl.runtime.weights import SharedWeights
from parl.runtime.worker_loop import ANSWER_S, IDLE_S, CommandedLoop, answer_while_parked
from parl.runtime.workers import Deadline, WorkerGroup, WorkerTimeoutError, choose_context
from parl.types import Learner

_CHECK_EVERY_S = 0.05
PARKED_PAUSE_S = 0.01
# Seconds between two checks for a request of rank 0 of torchrun, before learning starts.
_REQUEST_PAUSE_S = 0.02
# In the checkpoint of a process of torchrun: the transitions that it has collected itself.
_OWN_STEPS = "own_env_steps"
# Requests to parked actors: to answer, and to store embeddings in the replay from now on.
_PARKED, _STORE_EMBEDDINGS = "parked", "store embeddings"


def _run_actor(
    connection: Connection,
    setup: OffPolicySetup,
    index: int,
    counters: SharedCounters,
    shared_weights: SharedWeights,
    replay: Any,
    resumes: int,
    state: bytes | None,
) -> None:
    """An actor's main function; ``replay`` is the name of a shared replay, or the replay itself."""
    if isinstance(replay, str):
        replay = PrioritizedReplay.attach(replay, hindsight=setup.make_hindsight())
    actor = setup.make_actor(index, replay, resumes)

    def store_embeddings() -> None:
        shared_weights.read(actor.policy.weights, -1)
        actor.store_embeddings()

    if isinstance(replay, SwitchableReplay) and replay.stores_embeddings:
        store_embeddings()
    if state is not None:
        actor.load(state)
    elif resumes:
        actor.end_episodes()
    connection.send(("ready", None))
    row = counters.actor[index]
    updates = counters.learner[0]
    weights, version = actor.policy.weights, -1
    pause_s = ACTOR_PAUSE_S
    requests = {_PARKED: lambda: None, _STORE_EMBEDDINGS: store_embeddings}
    while True:
        command = counters.command
        if command == STOP:
            break
        if command == PARK:
            answer_while_parked(connection, actor, requests)
            continue
        if not counters.may_run(index):
            time.sleep(PARKED_PAUSE_S)
            continue
        env_steps = counters.env_steps
        if not setup.pacer.may_collect(env_steps, int(updates[UPDATES])):
            started = time.perf_counter_ns()
            # The pause grows, because each wake-up takes CPU time from a learner that needs all cores.
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, ACTOR_PAUSE_MAX_S)
            row[ACTOR_WAIT_NS] += time.perf_counter_ns() - started
            continue
        pause_s = ACTOR_PAUSE_S
        version = shared_weights.read(weights, version)
        collected = actor.step(env_steps * setup.scale)
        counters.count_lag(index, shared_weights.version - version)
        counters.count(index, collected)
    actor.close()


def _run_learner(
    connection: Connection,
    setup: OffPolicySetup,
    rank: int,
    counters: SharedCounters,
    replay: Any,
    gradients: SharedGradients,
    saved: Checkpoint | None,
    learner: Learner | None = None,
) -> None:
    """The loop of learner ``rank >= 1``, in a process or thread; ``replay`` as in :func:`_run_actor`.

    A thread gets its ``learner``, because seeding torch affects the whole process.
    """
    if isinstance(replay, str):
        replay = PrioritizedReplay.attach(replay, hindsight=setup.make_hindsight())
    learner = setup.make_learner() if learner is None else learner
    assert learner is not None
    updates = 0
    if saved is not None:
        checkpoint.load_learner(saved, learner)
        updates = int(saved.counters["updates"])
    connection.send(("ready", None))
    learner.use_threads(setup.threads)
    allreduce = SharedAllReduce(gradients, rank)
    try:
        _learn(setup, rank, counters, learner, replay, allreduce, updates)
    finally:
        allreduce.close()


def _learn(
    setup: OffPolicySetup,
    rank: int,
    counters: SharedCounters,
    learner: Learner,
    replay: Any,
    allreduce: GradientAllReduce,
    updates: int,
) -> None:
    worker = setup.make_learner_worker(learner, replay, allreduce, rank)
    row = counters.learner[rank]
    row[UPDATES] = updates
    while True:
        if counters.command != RUN:
            worker.skip()
            if _stop_requested_while_parked(counters):
                break
            continue
        env_steps = counters.env_steps
        if not setup.pacer.may_learn(env_steps, updates):
            started = time.perf_counter_ns()
            time.sleep(LEARNER_PAUSE_S)
            row[LEARNER_WAIT_NS] += time.perf_counter_ns() - started
        elif worker.update(env_steps):
            updates += 1
            row[UPDATES] = updates
        elif _stop_requested_while_parked(counters):
            break


def _stop_requested_while_parked(counters: SharedCounters) -> bool:
    """Waits while the workers are parked; returns whether they must stop then."""
    while counters.command == PARK:
        time.sleep(IDLE_S)
    return counters.command == STOP


class AsyncOffPolicyLoop(CommandedLoop[Learner]):
    """See the module. An iteration is an update, or a short wait if the replay ratio allows none.

    Args:
        setup: the run.
        saved: the checkpoint to start from, or None.
    """

    _freezing: Freezing | None = None

    def __init__(self, setup: OffPolicySetup, saved: Checkpoint | None = None) -> None:
        torch.set_num_threads(1)
        self._setup = setup
        self._learner_worker: LearnerWorker | None = None
        self._allreduce: GradientAllReduce | None = None
        self._connection = contextlib.ExitStack()
        in_processes = setup.learners > 1 and not setup.learner_threads
        shares = setup.processes or in_processes
        name = f"parl-{os.getpid()}-{uuid.uuid4().hex[:12]}" if shares else None
        context = choose_context(shares, setup.device, setup.threads if in_processes else 1)
        if saved is None:
            replay = setup.make_replay(name)
        else:
            file, hindsight = saved.folder / "replay.bin", setup.make_hindsight()
            replay = PrioritizedReplay.load(file, shared=name, hindsight=hindsight)
        try:
            total_steps = setup.pacer.total_steps * setup.scale
            learner = setup.make_learner()
            super().__init__(learner, total_steps, saved, context, setup.actors, setup.learners)
        except BaseException:
            replay.unlink()
            raise
        self._replay = replay
        try:
            self._start(setup, saved, name, context, in_processes)
        except BaseException:
            self.close()
            raise

    def _start(
        self,
        setup: OffPolicySetup,
        saved: Checkpoint | None,
        name: str | None,
        context: Any,
        in_processes: bool,
    ) -> None:
        """Starts the workers; ``name`` is that of the replay's shared memory, None if it is not shared."""
        assert self._workers is not None
        counters, workers, learner = self._counters, self._workers, self._learner
        if saved is not None and setup.group is not None:
            self._env_steps = int(saved.counters.get(_OWN_STEPS, self._env_steps))
        counters.actor[0, STEPS] = self._env_steps
        if setup.group is not None:
            # All take the state of rank 0: a process that was killed may have saved an older one.
            own = (checkpoint.on_cpu(learner.state_dict()), self._updates)
            state, self._updates = setup.group.from_rank_zero(own)
            learner.load_state_dict(state)
        counters.learner[:, UPDATES] = self._updates
        self._shared_weights = SharedWeights(context, len(learner.weights))
        self._shared_weights.publish(learner.weights)
        several = setup.learners > 1
        gradients = SharedGradients(context, len(learner.gradients), setup.learners) if several else None
        if in_processes:
            for rank in range(1, setup.learners):
                args = (setup, rank, counters, name, gradients, saved)
                workers.start(f"learner {rank}", _run_learner, args, process=True)
        run, weights = (_run_actor, self._shared_weights)
        if setup.remote is not None:
            self._connection.enter_context(ray_cluster.connection(setup.remote, setup.actors, setup.scale))
            run, weights = run_ray_actor, ray_cluster.WeightsRef(self._shared_weights)
        actors_replay: Any = name if setup.processes else self._replay
        if setup.freeze_after:
            self._freezing = Freezing(setup.freeze_after, learner, self._replay)
            self._actors_replay = actors_replay = SwitchableReplay(self._replay)
        for index in range(setup.actors):
            state = checkpoint.actor_state(saved, index)
            args = (setup, index, counters, weights, actors_replay, self._resumes, state)
            self._start_actor(f"actor {index}", run, args, setup.processes)
        learner.use_threads(setup.threads)  # after the forks, which copy no threads
        if not in_processes:
            for rank in range(1, setup.learners):
                args = (setup, rank, counters, self._replay, gradients, saved, setup.make_learner())
                workers.start(f"learner {rank}", _run_learner, args, process=False)
        self._allreduce = self._make_allreduce(gradients, workers)
        self._learner_worker = setup.make_learner_worker(learner, self._replay, self._allreduce, 0)
        for worker in workers.workers:
            worker.answer(ANSWER_S)  # "ready": it has attached to the replay
        if name is not None:
            self._replay.unlink()  # all have attached; without a name the memory cannot outlive the run
        controls = setup.park_actors and setup.actors > 1 and setup.remote is None
        self._parking = ActorParking.all_running(setup.actors) if controls else None
        self._next_check = self._next_parking = 0.0
        self._waits_before = ((0, 0.0), time.monotonic())
        self._lags_before = counters.lags.sum(axis=0)
        self._since_report(**self._report_totals())
        self.rates()

    def _make_allreduce(self, gradients: SharedGradients | None, workers: WorkerGroup) -> GradientAllReduce:
        setup = self._setup
        if setup.group is not None:
            self._torchrun = TorchrunAllReduce(setup.group, setup.device, setup.gradient_compression)
            return self._torchrun
        if gradients is None:
            return SingleLearner()
        named = {worker.name: worker for worker in workers.workers}
        return SharedAllReduce(gradients, 0, lambda rank: named[f"learner {rank}"].check())

    @property
    def _learner_zero(self) -> LearnerWorker:
        """Learner 0."""
        assert self._learner_worker is not None
        return self._learner_worker

    @property
    def env_steps(self) -> int:
        """Transitions collected; with torchrun by all processes, as if each had collected as many as this."""
        return self._counters.env_steps * self._setup.scale

    def advance(self, until_env_steps: int, seconds: float) -> None:
        """See :class:`Loop`."""
        self._check()
        super().advance(until_env_steps, seconds)

    def _iterate(self, seconds: float) -> None:
        self._check()
        env_steps = self._counters.env_steps  # of this process; schedules take those of all
        if not self._setup.pacer.may_learn(env_steps, self._updates):
            started = time.perf_counter_ns()
            time.sleep(LEARNER_PAUSE_S)
            self._counters.learner[0, LEARNER_WAIT_NS] += time.perf_counter_ns() - started
        elif self._with_peer_errors(lambda: self._learner_zero.update(self.env_steps)):
            self._after_update()
        else:
            # Only the driver requests a skipped update, and it does so between updates.
            self._raise_peer_error(RuntimeError("a learner skipped an update that the driver did not skip"))

    def _after_update(self) -> None:
        self._updates += 1
        self._counters.learner[0, UPDATES] = self._updates
        self._shared_weights.publish(self._learner.weights)
        if self._freezing is None:
            return
        if self._freezing.is_due(self._counters.env_steps):
            self._freezing.start_thread()
        elif self._freezing.is_ready():
            self._replace_replay()

    def _replace_replay(self) -> None:
        """Replaces the replay by one of the same rows that stores embeddings, while no actor steps.

        An interrupted run does not wait for actors in a long step: it is saved with the replay of images.
        """
        assert self._freezing is not None
        assert self._allreduce is not None
        self._counters.command = PARK
        try:
            try:
                self._request_of_actors(_PARKED, lambda: self._interrupted)
            except WorkerTimeoutError:
                if self._interrupted:
                    return
                raise
            self._learner_zero.flush()
            self._learner_zero.close()
            old, self._replay = self._replay, self._freezing.finish()
            self._actors_replay.replay = self._replay
            make_worker = self._setup.make_learner_worker
            self._learner_worker = make_worker(self._learner, self._replay, self._allreduce, 0)
            # At once, so that a checkpoint never has an actor with the observations of the old replay.
            self._request_of_actors(_STORE_EMBEDDINGS, lambda: False)
            old.close()
        finally:
            self._counters.command = RUN

    def _request_of_actors(self, request: str, interrupted: Callable[[], bool]) -> None:
        """Sends a request to all parked actors and waits until they have done it.

        Args:
            request: one of those of :func:`_run_actor`.
            interrupted: see :class:`Deadline`.

        Raises:
            WorkerTimeoutError: one did not answer in time.
        """
        for worker in self._actors:
            worker.send(request)
        deadline = Deadline(ANSWER_S, interrupted)
        for worker in self._actors:
            worker.answer(deadline)

    def _check(self) -> None:
        """Raises the error of a failed worker, and parks or wakes actors; does so periodically."""
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + _CHECK_EVERY_S
            assert self._workers is not None
            self._workers.check()
            if self._parking is not None and now >= self._next_parking:
                self._update_parking(now)

    def _update_parking(self, now: float) -> None:
        """Parks or wakes actors, depending on how long each side has waited since the last call."""
        assert self._parking is not None
        parking, counters = self._parking, self._counters
        waits = (counters.actor[:, ACTOR_WAIT_NS].sum(), counters.learner[:, LEARNER_WAIT_NS].mean())
        (old_waits, then), self._waits_before = self._waits_before, (waits, now)
        self._next_parking = now + PERIOD_S
        if counters.env_steps < self._setup.pacer.learning_starts:
            return
        elapsed_ns = max(now - then, 1e-9) * 1e9
        actors_wait = float(waits[0] - old_waits[0]) / elapsed_ns / parking.running
        parking.decide(min(1.0, actors_wait), min(1.0, float(waits[1] - old_waits[1]) / elapsed_ns))
        counters.running_actors = parking.running, parking.first

    def run_follower_rank(self, save: Callable[[Callable[[Path], None]], None]) -> None:
        """Takes part in the updates of rank 0 of torchrun until rank 0 ends.

        Args:
            save: called when rank 0 saves, with a function that writes this process's part into a folder.
        """
        gradients = self._learner.gradients
        learns = False
        while True:
            self._check()
            learns = learns or (
                self._setup.pacer.may_learn(self._counters.env_steps, 0) and len(self._replay) > 0
            )
            if learns:
                updated = self._with_peer_errors(lambda: self._learner_zero.update(self.env_steps))
                if updated:
                    self._after_update()
                    continue
            elif self._torchrun.has_request:
                self._with_peer_errors(lambda: self._torchrun.receive_request(gradients))
            else:
                time.sleep(_REQUEST_PAUSE_S)
                continue
            if self._torchrun.request != SAVE:
                return
            save(self.save)

    def _with_peer_errors(self, work: Callable[[], Any]) -> Any:
        """Returns ``work()``, which communicates with other learners; raises their error if that fails."""
        try:
            return work()
        except WorkerError:
            raise
        except RuntimeError as error:
            self._raise_peer_error(error)

    def _raise_peer_error(self, error: RuntimeError) -> None:
        assert self._workers is not None
        if self._setup.learners > 1:
            self._workers.raise_failure(within_s=3.0)
        raise error

    def _report_totals(self) -> dict[str, float]:
        actors, learners = self._counters.actor, self._counters.learner
        return {
            "lag": int(actors[:, LAG_SUM].sum()),
            "vector_steps": int(actors[:, VECTOR_STEPS].sum()),
            "actors_wait": float(actors[:, ACTOR_WAIT_NS].mean()) * 1e-9,
            "learners_wait": float(learners[:, LEARNER_WAIT_NS].mean()) * 1e-9,
        }

    def _figures(self, elapsed: float) -> dict[str, Any]:
        new, counters = self._since_report(**self._report_totals()), self._counters
        steps = new["vector_steps"]
        failures = {"actor_failures": int(counters.actor[:, FAILURES].sum())}
        return {
            "replay_ratio": self._setup.pacer.measured(counters.env_steps, self._updates),
            "replay_size": len(self._replay),
            "policy_lag": new["lag"] / steps if steps else math.nan,
            "actors_wait": min(1.0, new["actors_wait"] / elapsed),
            "learners_wait": min(1.0, new["learners_wait"] / elapsed),
            **self._lags(),
            "actors_awake": counters.running_actors[0],
            **(self._freezing.figures() if self._freezing else {}),
            **(failures if self._setup.remote else {}),
        }

    def _lags(self) -> dict[str, Any]:
        """Histogram of the policy lag of vector steps since the last call."""
        lags = self._counters.lags.sum(axis=0)
        counts, self._lags_before = lags - self._lags_before, lags
        if not counts.any():
            return {}
        last = int(counts.nonzero()[0][-1])
        upper = int((counts.cumsum() >= 0.95 * counts.sum()).argmax())
        return {
            "policy_lag_histogram": counts[: last + 1].tolist(),
            "policy_lag_p95": float(2**upper - 1),
        }

    def _actor_states(self) -> list[bytes | None]:
        """See :class:`Loop`; all learners first skip an update, so that all have made the same ones."""
        if self._setup.learners > 1:
            self._with_peer_errors(self._learner_zero.skip)
        elif self._has_followers:
            self._with_peer_errors(lambda: self._torchrun.send_request(self._learner.gradients, SAVE))
        self._learner_zero.flush()
        return super()._actor_states()

    def _write(self, folder: Path, actors: Sequence[bytes | None]) -> None:
        self._env_steps = self._counters.env_steps  # of this process
        super()._write(folder, actors)

    def _counts(self) -> dict[str, int]:
        own = {} if self._setup.group is None else {_OWN_STEPS: self._env_steps}
        return super()._counts() | {"env_steps": self._env_steps * self._setup.scale} | own

    @property
    def _has_followers(self) -> bool:
        """Whether other processes of torchrun follow this one."""
        return self._setup.group is not None and self._setup.group.rank == 0

    def _stop_workers(self, workers: WorkerGroup) -> None:
        together = self._setup.learners > 1 or self._has_followers
        # Before they are told to stop: a worker that ends after that has not failed.
        failed = together and workers.have_failed()
        super()._stop_workers(workers)
        if not together:
            return
        if not failed:
            with contextlib.suppress(Exception):  # another learner may fail only now
                self._learner_zero.skip()
                return
        if self._allreduce is not None:
            self._allreduce.close()
        workers.end(within_s=0.5)

    def close(self) -> None:
        """Ends the workers and frees the replay; safe to call twice."""
        if self._freezing is not None:
            self._freezing.close()
        super().close()
        worker, self._learner_worker = self._learner_worker, None
        if worker is not None:
            worker.close()
        self._connection.close()
        if self._replay is not None:
            self._replay.unlink()
            self._replay = None
        allreduce, self._allreduce = self._allreduce, None
        if allreduce is not None:
            allreduce.close()
