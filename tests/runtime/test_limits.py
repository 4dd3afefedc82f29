"""Exact limits: the pacer's band, the waiting times at which actors are parked, and which actors run."""

import pytest

from parl.runtime.off_policy import parking
from parl.runtime.off_policy.pacer import Pacer
from parl.runtime.off_policy.parking import BUSY, IDLE, ActorParking


def test_the_band_follows_from_batch_and_vector_step():
    assert Pacer(2.0, 8, 4, 100, 1_000).band == 4.0 * 0.5 * (8 + 2.0 * 4) == 32.0
    assert Pacer(2.0, 8, 4, 100, 1_000, slack=2.0).band == 16.0
    assert Pacer(0.5, 8, 4, 100, 1_000, slack=3.0).band == 15.0


def test_both_sides_may_go_up_to_the_band():
    pacer = Pacer(2.0, 8, 4, 100, 1_000, slack=2.0)
    # 8 (u + 1) <= 2 (steps - 100) + 16
    assert pacer.may_learn(100, 1) and not pacer.may_learn(100, 2)
    assert pacer.may_learn(104, 2) and not pacer.may_learn(103, 2)
    assert not pacer.may_learn(99, 0)
    # 2 (steps + 4 - 100) <= 8 u + 16
    assert pacer.may_collect(104, 0) and not pacer.may_collect(105, 0)
    assert pacer.may_collect(108, 1) and not pacer.may_collect(109, 1)
    assert pacer.may_collect(99, 0), "collection is not limited before learning starts"
    late = Pacer(2.0, 8, 400, 100, 1_000, slack=2.0)
    assert late.may_collect(99, 0) and late.may_collect(100, 0) and not late.may_collect(109, 0)
    assert pacer.may_collect(999, 10**6) and not pacer.may_collect(1_000, 10**6)


def test_due_updates_and_the_measured_ratio():
    pacer = Pacer(2.0, 8, 4, 100, 1_000)
    assert pacer.due(104, 0) and not pacer.due(103, 0)
    assert pacer.due(108, 1) and not pacer.due(107, 1)
    assert not Pacer(2.0, 8, 4, 100, 1_000).due(99, -2)
    assert pacer.measured(104, 3) == 6.0 and pacer.measured(101, 1) == 8.0


def test_a_slack_below_2_is_refused():
    assert Pacer(2.0, 8, 4, 100, 1_000, slack=2.0).slack == 2.0
    with pytest.raises(ValueError, match=r"slack = 1\.99 is below 2: the two sides could stall each other"):
        Pacer(2.0, 8, 4, 100, 1_000, slack=1.99)
    assert Pacer(2.0, 8, 4, 100, 1_000).slack == 4.0


@pytest.mark.parametrize(
    ("awake", "actors_wait", "learners_wait", "then"),
    [
        # One more: learners wait more than 5 % of the time and actors less than 15 %.
        (2, 0.14, 0.06, 3),
        (2, 0.16, 0.06, 2),
        (2, 0.14, IDLE, 2),
        (4, 0.0, 1.0, 4),
        # One fewer: n (1 - w) <= 0.85 (n - 1).
        (4, 0.37, 0.0, 3),
        (4, 0.36, 0.0, 4),
        (4, 0.37, 0.051, 4),
        (4, 0.6, IDLE, 2),
        (4, 0.5, 0.0, 3),
        (2, 1.0, 0.0, 1),
        (1, 0.5, 0.0, 1),
    ],
)
def test_decisions_of_parking_at_their_limits(awake, actors_wait, learners_wait, then):
    actors = ActorParking(4, awake)
    actors.decide(actors_wait, learners_wait)
    assert actors.running == then


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
