"""Chooses the numbers of actors and learners: measures their rates, then maximizes the lower one.

If n actors collect a(n) transitions per second and m learners sample l(m) per second, a run with replay ratio
r collects ``min(a(n), l(m) / r)`` transitions per second.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from parl.runtime.gradient_allreduce import SharedAllReduce, SharedGradients, SingleLearner
from parl.runtime.off_policy.learner_worker import LearnerWorker
from parl.runtime.off_policy.setup import OffPolicySetup

# Seconds after which the replay is filled no further: slow environments would take minutes.
_FILL_S = 1.0


@dataclass(frozen=True)
class Rates:
    """Measured times, in seconds of one core.

    Attributes:
        vector_step_s: for each number of actors n, one vector step of num_envs / n environments, with the
            write to the replay.
        update_s: for each number of learners m, one learner's update with its part of the batch.
        average_s: for each number of learners m, one average of their gradients.
    """

    vector_step_s: dict[int, float]
    update_s: dict[int, float]
    average_s: dict[int, float]


@dataclass(frozen=True)
class Split:
    """The chosen numbers of actors and learners.

    Attributes:
        actors: n.
        learners: m.
        reason: one line that explains the choice.
    """

    actors: int
    learners: int
    reason: str


def expected(rates: Rates, actors: int, learners: int, num_envs: int, sampled: float, cores: int) -> float:
    """Expected transitions per second of n actors and m learners on ``cores`` cores.

    Alone, the actors collect ``num_envs / vector_step_s[n]`` and the learners allow
    ``sampled / (update_s[m] + average_s[m])``, where ``sampled = batch / ratio`` transitions are collected
    per update. Together they cannot use more than ``cores`` core-seconds per second.

    Args:
        rates: measured times.
        actors: n.
        learners: m.
        num_envs: environments of all actors.
        sampled: transitions collected per update.
        cores: number of usable cores.
    """
    collect = num_envs / rates.vector_step_s[actors]
    update_s = rates.update_s[learners] + rates.average_s[learners]
    core_s = actors * rates.vector_step_s[actors] / num_envs + learners * update_s / sampled
    return min(collect, sampled / update_s, cores / core_s)


def choose(
    rates: Rates,
    num_envs: int,
    sampled: float,
    cores: int,
    actors: int | None = None,
    learners: int | None = None,
) -> Split:
    """Returns the fastest split; among equally fast ones (within 2 %) that with the fewest processes.

    Args:
        rates: measured times; their keys are the numbers to choose from.
        num_envs: environments of all actors.
        sampled: transitions collected per update.
        cores: number of usable cores.
        actors: fixed by the caller, or None.
        learners: fixed by the caller, or None.
    """
    splits = {
        (n, m): expected(rates, n, m, num_envs, sampled, cores)
        for n in ([actors] if actors else rates.vector_step_s)
        for m in ([learners] if learners else rates.update_s)
    }
    fastest = max(splits.values())
    n, m = min((pair for pair, rate in splits.items() if rate >= 0.98 * fastest), key=sum)
    collect = num_envs / rates.vector_step_s[n]
    learn = sampled / (rates.update_s[m] + rates.average_s[m])
    bound = "learner-bound" if learn < collect else "actor-bound"
    more = ""
    if m + 1 in rates.update_s and learners is None:
        gain = splits.get((n, m + 1), 0.0) / splits[n, m]
        more = (
            f"; one more learner would give {gain:.2f}x (its part takes {rates.update_s[m + 1] * 1e3:.2f} ms "
            f"instead of {rates.update_s[m] * 1e3:.2f}, averaging {rates.average_s[m + 1] * 1e3:.2f} ms)"
        )
    reason = (
        f"{n} actor{'s' * (n > 1)}, {m} learner{'s' * (m > 1)} on {cores} cores: {bound}, alone the actors "
        f"collect {collect:,.0f} and the learners serve {learn:,.0f} transitions/s, together about "
        f"{splits[n, m]:,.0f}{more}"
    )
    return Split(n, m, reason)


def measure(setup: OffPolicySetup, actors: list[int], learners: list[int], seconds: float = 0.1) -> Rates:
    """Times vector steps and updates, each for ``seconds`` in this process. The run itself is not affected.

    Args:
        setup: the run; its own numbers of actors and learners are ignored.
        actors: numbers of actors to time.
        learners: numbers of learners to time.
        seconds: duration of each measurement.
    """
    torch.set_num_threads(1)
    enough = 4 * (setup.batch_size + setup.num_envs) + setup.num_envs * 128
    capacity = min(setup.replay_capacity, enough)
    trial = replace(setup, replay_capacity=capacity, seed=setup.seed + 1, learners=1)
    replay = trial.make_replay(shared=None)
    vector_step_s: dict[int, float] = {}
    for count in [1, *(n for n in actors if n != 1)]:
        # Times one of `count` actors. The first, with all environments, also fills the replay.
        actor = replace(trial, actors=count).make_actor(0, replay, 0)
        if count == 1:
            end = time.perf_counter() + _FILL_S
            while len(replay) < capacity // 2 and (time.perf_counter() < end or not replay.sampleable):
                actor.step(0)
        vector_step_s[count] = _time(lambda actor=actor: actor.step(0), seconds)
        actor.close()
    update_s: dict[int, float] = {}
    average_s: dict[int, float] = {}
    for count in learners:
        learner = trial.make_learner()
        size = max(1, setup.batch_size // count)
        part = LearnerWorker(trial.algorithm, learner, replay, SingleLearner(), size)
        update_s[count] = _time(lambda part=part: part.update(0), seconds)
        average_s[count] = 0.0 if count == 1 else _time_average(len(learner.gradients), count, seconds)
    replay.close()
    return Rates({n: vector_step_s[n] for n in actors}, update_s, average_s)


def _time(work: Callable[[], object], seconds: float) -> float:
    """Median time of one call, in seconds."""
    for _ in range(3):
        work()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def _time_average(size: int, learners: int, seconds: float) -> float:
    """Seconds per average of gradients of ``learners`` learners, which are threads here."""
    shared = SharedGradients(multiprocessing, size, learners)
    rounds = 0
    elapsed = 0.0

    def run(rank: int) -> None:
        nonlocal rounds, elapsed
        peers = SharedAllReduce(shared, rank)
        gradients = torch.zeros(size)
        start = time.perf_counter()
        # Rank 0 marks the last average in its own gradients, so that all peers stop after the same one.
        while peers.average(gradients, rank != 0 or time.perf_counter() < start + seconds):
            if rank == 0:
                rounds += 1
        if rank == 0:
            elapsed = time.perf_counter() - start
        peers.close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(learners)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return elapsed / max(rounds, 1)
