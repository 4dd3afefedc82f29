"""The topology of A3C: workers, each with its own environments, update shared weights without locks.

A worker, a process or thread, copies the newest weights, collects a rollout and computes a gradient with
them, and updates the shared weights, which other workers may have changed in the meantime::

    worker     read the command | newest weights | collect | gradient | update the shared weights
    driver     monitors, evaluates, saves; it does not learn

Policy lag is the number of steps that other workers made between the copy and the step. It is measured for
every rollout. Only the number of workers limits it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, cast

import torch

from parl.runtime import checkpoint
from parl.runtime.checkpoint import Checkpoint
from parl.runtime.on_policy.hogwild_parameters import HogwildParameters
from parl.runtime.on_policy.rollout_loop import checked_steps
from parl.runtime.on_policy.setup import RolloutSetup
from parl.runtime.shared_counters import (
    ACTOR_UPDATES,
    LAG_MAX,
    LAG_SUM,
    PARK,
    STEPS,
    STOP,
    Row,
    SharedCounters,
)
from parl.runtime.worker_loop import ANSWER_S, IDLE_S, CommandedLoop, answer_while_parked
from parl.runtime.workers import choose_context
from parl.types import HogwildLearner

_CHECK_EVERY_S = 0.05
# Seconds between two reports of a worker's metrics to the driver.
_METRICS_EVERY_S = 0.25


def _lag_counter(parameters: HogwildParameters, row: Row, since: int) -> Callable[[torch.Tensor], None]:
    """Returns a function to call before each step, which adds the steps since ``since`` to the lag."""

    def count(gradients: torch.Tensor) -> None:
        lag = int(parameters.count) - since
        row[LAG_SUM] += lag
        row[LAG_MAX] = max(lag, int(row[LAG_MAX]))

    return count


def _run_worker(
    connection: Connection,
    setup: RolloutSetup,
    index: int,
    counters: SharedCounters,
    parameters: HogwildParameters,
    resumes: int,
    state: bytes | None,
) -> None:
    """A worker's main function: collects and learns until it is parked or stopped."""
    torch.set_num_threads(1)
    actor = setup.make_actor(index, resumes)
    if state is not None:
        actor.load(state)
    learner = cast("HogwildLearner", setup.make_learner())
    parameters.attach(learner, fill=False)
    buffer = setup.make_buffer(index)
    row = counters.actor[index]
    reported = 0.0
    while counters.command != STOP:
        env_steps = counters.env_steps
        if counters.command == PARK or env_steps >= setup.total_steps:
            answer_while_parked(connection, actor)
            continue
        learner.refresh()
        actor.policy.weights.copy_(learner.weights)
        since = int(parameters.count)
        collected = actor.collect(buffer, env_steps)
        progress = min(1.0, env_steps / setup.total_steps)
        lag_counter = _lag_counter(parameters, row, since)
        row[ACTOR_UPDATES] += checked_steps(learner.learn(buffer.tensors(), progress, lag_counter))
        counters.count(index, collected)
        now = time.monotonic()
        if index == 0 and now >= reported + _METRICS_EVERY_S:
            reported = now
            connection.send(("part", ("metrics", learner.metrics())))
    actor.close()


class HogwildLoop(CommandedLoop[HogwildLearner]):
    """See the module. An iteration reads the workers' messages and waits a moment.

    The workers go on learning between two calls of :meth:`advance`, while the driver evaluates. A checkpoint
    has the weights and counters that :meth:`advance` read at its end, those of such an evaluation.

    Args:
        setup: the run.
        saved: the checkpoint to start from, or None.
    """

    def __init__(self, setup: RolloutSetup, saved: Checkpoint | None = None) -> None:
        torch.set_num_threads(1)
        context = choose_context(setup.processes, setup.device)
        learner = cast("HogwildLearner", setup.make_learner())
        super().__init__(learner, setup.total_steps, saved, context, setup.actors)
        self._parameters = HogwildParameters(context, len(learner.weights))
        self._parameters.attach(learner, fill=True)
        counters = self._counters
        counters.actor[0, STEPS] = self._env_steps
        counters.actor[0, ACTOR_UPDATES] = self._updates
        self._latest: dict[str, float] = {}
        self._next_check = 0.0
        self._since_report(lag=0, updates=self._updates)
        try:
            for index in range(setup.actors):
                state = checkpoint.actor_state(saved, index)
                args = (setup, index, counters, self._parameters, self._resumes, state)
                self._start_actor(f"worker {index}", _run_worker, args, setup.processes)
        except BaseException:
            self.close()
            raise

    def advance(self, until_env_steps: int, seconds: float) -> None:
        """See :class:`Loop`; afterwards ``learner`` holds the newest weights."""
        self._check()
        super().advance(until_env_steps, seconds)
        self._refresh()

    def _iterate(self, seconds: float) -> None:
        time.sleep(IDLE_S)
        self._check()

    def _check(self) -> None:
        """Reads the counter and, periodically, the workers' metrics; raises the error of a failed worker."""
        self._env_steps = self._counters.env_steps
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + _CHECK_EVERY_S
        assert self._workers is not None
        for worker in self._actors:
            while worker.connection.poll():
                _, self._latest = worker.answer(ANSWER_S)
        self._workers.check()

    def _refresh(self) -> None:
        """Reads the newest weights and counters."""
        self._learner.refresh()
        self._env_steps = self._counters.env_steps
        self._updates = int(self._counters.actor[:, ACTOR_UPDATES].sum())

    def _figures(self, elapsed: float) -> dict[str, Any]:
        """See :class:`Loop`; ``policy_lag_max`` is the largest since the start."""
        rows = self._counters.actor
        new = self._since_report(lag=int(rows[:, LAG_SUM].sum()), updates=self._updates)
        return {
            "policy_lag": new["lag"] / max(new["updates"], 1),
            "policy_lag_max": float(rows[:, LAG_MAX].max()),
        }

    def _metrics(self) -> dict[str, float]:
        """Metrics of worker 0's learner, since the driver's does not learn."""
        return self._latest

    def save_after_failure(self, folder: Any) -> None:
        """Writes learner and counters; a run resumed from them starts new episodes."""
        self._refresh()
        super().save_after_failure(folder)
