"""The controller parks actors that the replay ratio does not need and wakes them when learners wait."""

import contextlib
import dataclasses
import multiprocessing
import time

import numpy as np
import pytest

from parl.runtime.off_policy import parking
from parl.runtime.off_policy.asynchronous import AsyncOffPolicyLoop
from parl.runtime.off_policy.parking import BUSY, IDLE, ActorParking
from parl.runtime.shared_counters import LAG_BUCKETS, SharedCounters


def simulate(actors, needed, periods=60):
    """Runs a controller with learners that keep ``needed`` actors busy; returns it and how many ran."""
    controller, seen = ActorParking.all_running(actors), []
    for _ in range(periods):
        busy = min(needed, controller.running)
        controller.decide(1 - busy / controller.running, max(0.0, 1 - controller.running / needed))
        seen.append(controller.running)
    return controller, seen


@pytest.mark.parametrize("needed", [0.1, 0.8, 1.5, 2.0, 3.3, 7.9, 12.0])
def test_as_many_actors_run_as_are_busy(needed):
    controller, seen = simulate(8, needed)
    late = seen[20:]
    assert len(set(late)) == 1, "the number settles"
    assert min(8, needed) <= controller.running, "learners never wait for parked actors"
    assert controller.running == 1 or (controller.running - 1) * BUSY < needed, "no more run than needed"


@pytest.mark.parametrize(
    ("actors", "awake", "actors_wait", "learners_wait", "then"),
    [
        # One more: learners wait more than 5 % of the time and actors less than 15 %.
        (4, 2, 0.14, 0.06, 3),
        (4, 2, 0.16, 0.06, 2),
        (4, 2, 0.14, IDLE, 2),
        (4, 4, 0.0, 1.0, 4),
        (8, 3, 0.0, 2 * IDLE, 4),
        # One fewer: n (1 - w) <= 0.85 (n - 1).
        (4, 4, 0.37, 0.0, 3),
        (4, 4, 0.36, 0.0, 4),
        (4, 4, 0.37, 0.051, 4),
        (4, 4, 0.5, 0.0, 3),
        (4, 2, 1.0, 0.0, 1),
        (4, 1, 0.5, 0.0, 1),
        # Several fewer.
        (4, 4, 0.6, IDLE, 2),
        (8, 8, 0.75, 0.0, 3),
        (8, 8, 0.99, IDLE, 1),
    ],
)
def test_a_decision_follows_from_the_waits_of_actors_and_learners(
    actors, awake, actors_wait, learners_wait, then
):
    controller = ActorParking(actors, awake)
    controller.decide(actors_wait, learners_wait)
    assert controller.running == then


def test_parked_actors_wake_when_learners_get_faster():
    controller, _ = simulate(6, 1.0)
    few = controller.running
    for _ in range(10):
        controller.decide(0.0, 4 * IDLE)
    assert few < controller.running == 6


def test_all_actors_run_for_a_share_of_the_periods():
    controller = ActorParking.all_running(5)
    periods = np.zeros(5)
    for _ in range(100):
        controller.decide(1 - 2 * BUSY / controller.running, 0.0)
        assert sum(controller.may_run(i) for i in range(5)) == controller.running
        periods += [controller.may_run(i) for i in range(5)]
    assert periods.min() > 20


def test_parking_rotates_among_actors():
    actors, firsts, awake = ActorParking(3, 2), [], []
    for _ in range(4):
        actors.decide(0.1, 0.0)
        firsts.append(actors.first)
        awake.append([actors.may_run(actor) for actor in range(3)])
    assert firsts == [1, 2, 0, 1]
    assert awake == [[False, True, True], [True, False, True], [True, True, False], [False, True, True]]
    actors.decide(0.0, 1.0)
    assert (actors.running, actors.first) == (3, 0)
    assert [actors.may_run(actor) for actor in range(3)] == [True] * 3
    assert ActorParking.all_running(5) == ActorParking(5, 5, 0)


def test_constants_of_parking():
    assert (BUSY, IDLE, parking.PERIOD_S) == (0.85, 0.05, 0.5)


def test_lags_are_counted_by_powers_of_two():
    counters = SharedCounters(multiprocessing.get_context(), 2, 1)
    for lag in (0, 0, 1, 2, 3, 4, 7, 8, 10**9):
        counters.count_lag(1, lag)
    counters.count_lag(0, 5, steps=16)
    assert counters.lags[1, :5].tolist() == [2, 1, 2, 2, 1] and counters.lags[1, LAG_BUCKETS - 1] == 1
    assert counters.lags[0].sum() == counters.lags[0, 3] == 16
    assert [counters.may_run(i) for i in range(2)] == [True, True]
    counters.running_actors = 1, 1
    assert [counters.may_run(i) for i in range(2)] == [False, True]


def test_a_run_parks_actors_keeps_its_ratio_and_reports_lags(make_setup):
    """Learning from large batches is far slower than four actors: one or two of them suffice."""
    setup = make_setup(actors=4, num_envs=4, batch_size=512, ratio=64.0, hidden=(128, 128))
    with contextlib.closing(AsyncOffPolicyLoop(dataclasses.replace(setup, park_actors=True))) as loop:
        awake, histograms = [], []
        end = time.monotonic() + 120
        while not (awake and min(awake) < 4 and sum(histograms)) and time.monotonic() < end:
            loop.advance(10**9, seconds=0.5)
            report = loop.report()
            awake.append(report["actors_awake"])
            histograms += report.get("policy_lag_histogram", [])
        assert min(awake) < 4
        assert sum(histograms) > 0
        distance = abs(loop.updates * 512 - 64.0 * (loop.env_steps - 100))
        assert distance <= setup.pacer.band + 64.0 * setup.num_envs
