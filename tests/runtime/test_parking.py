"""The controller parks actors that the ratio does not need and wakes them when learners wait."""

import dataclasses
import multiprocessing
import time

import numpy as np
import pytest

from parl.runtime.off_policy.asynchronous import AsyncOffPolicyLoop
from parl.runtime.off_policy.parking import BUSY, IDLE, ActorParking
from parl.runtime.shared_counters import LAG_BUCKETS, SharedCounters


def resolve_auto(actors, needed, periods=60):
    """Runs a controller against learners that keep ``needed`` actors busy; the numbers awake, by period."""
    controller, seen = ActorParking.of(actors), []
    for _ in range(periods):
        busy = min(needed, controller.awake)
        controller.decide(1 - busy / controller.awake, max(0.0, 1 - controller.awake / needed))
        seen.append(controller.awake)
    return controller, seen


@pytest.mark.parametrize("needed", [0.1, 0.8, 1.5, 2.0, 3.3, 7.9, 12.0])
def test_as_many_are_awake_as_are_busy(needed):
    controller, seen = resolve_auto(8, needed)
    late = seen[20:]
    assert len(set(late)) == 1, "it settles"
    assert min(8, needed) <= controller.awake, "learners never wait for those who are parked"
    assert controller.awake == 1 or (controller.awake - 1) * BUSY < needed, "and no more than needed"


@pytest.mark.parametrize(
    ("awake", "actors_wait", "learners_wait", "then"),
    [
        (8, 0.5, 0.0, 5),  # four are busy, and five of them are so below 85 %
        (8, 0.75, 0.0, 3),
        (8, 0.99, IDLE, 1),
        (8, 0.1, 0.0, 8),  # 7.2 are busy, more than 85 % of seven
        (3, 0.0, 2 * IDLE, 4),
        (3, 0.2, 2 * IDLE, 3),  # learners wait, and yet actors do
        (8, 0.0, 1.0, 8),
        (1, 1.0, 0.0, 1),
    ],
)
def test_one_decision(awake, actors_wait, learners_wait, then):
    controller = ActorParking(8, awake)
    controller.decide(actors_wait, learners_wait)
    assert controller.awake == then


def test_it_wakes_them_when_the_learners_turn_faster():
    controller, _ = resolve_auto(6, 1.0)
    few = controller.awake
    for _ in range(10):
        controller.decide(0.0, 4 * IDLE)
    assert few < controller.awake == 6


def test_every_actor_has_its_turns():
    controller = ActorParking.of(5)
    turns = np.zeros(5)
    for _ in range(100):
        controller.decide(1 - 2 * BUSY / controller.awake, 0.0)
        assert sum(controller.wakes(i) for i in range(5)) == controller.awake
        turns += [controller.wakes(i) for i in range(5)]
    assert turns.min() > 20


def test_lags_are_counted_by_powers_of_two():
    board = SharedCounters(multiprocessing.get_context(), 2, 1)
    for lag in (0, 0, 1, 2, 3, 4, 7, 8, 10**9):
        board.count_lag(1, lag)
    board.count_lag(0, 5, steps=16)
    assert board.lags[1, :5].tolist() == [2, 1, 2, 2, 1] and board.lags[1, LAG_BUCKETS - 1] == 1
    assert board.lags[0].sum() == board.lags[0, 3] == 16
    assert [board.is_awake(i) for i in range(2)] == [True, True]
    board.awake = 1, 1
    assert [board.is_awake(i) for i in range(2)] == [False, True]


def test_a_run_parks_actors_holds_its_ratio_and_says_how_old_weights_were(make_setup):
    """Learners of large batches are far slower than four actors: one or two of them do."""
    setup = make_setup(actors=4, num_envs=4, batch_size=512, ratio=64.0, hidden=(128, 128))
    loop = AsyncOffPolicyLoop(dataclasses.replace(setup, park_actors=True))
    try:
        awake, histograms = [], []
        end = time.monotonic() + 120
        while not awake or (min(awake) == 4 and time.monotonic() < end):
            loop.advance(10**9, seconds=0.5)
            report = loop.report()
            awake.append(report["actors_awake"])
            histograms += report.get("policy_lag_histogram", [])
        assert min(awake) < 4
        assert sum(histograms) > 0
        distance = abs(loop.updates * 512 - 64.0 * (loop.env_steps - 100))
        assert distance <= setup.pacer.band + 64.0 * setup.num_envs
    finally:
        loop.close()
