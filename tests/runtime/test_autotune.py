"""The chosen numbers of actors and learners against an exhaustive search, and rates of a real run."""

import dataclasses
import itertools
import threading
import types
from typing import ClassVar

import numpy as np
import pytest
from fakes import FakeClock

from parl.runtime import autotune
from parl.runtime.autotune import Rates, Split, choose, expected, measure
from parl.runtime.off_policy.learner_worker import LearnerWorker
from parl.runtime.off_policy.setup import OffPolicySetup


def random_rates(rng):
    numbers = range(1, int(rng.integers(2, 7)))
    step, update = rng.uniform(1e-5, 1e-2, 2)
    return Rates(
        {n: step * (0.3 + 0.7 / n) for n in numbers},
        {m: update * (0.2 + 0.8 / m) for m in numbers},
        {m: 0.0 if m == 1 else rng.uniform(1e-5, 1e-3) for m in numbers},
    )


@pytest.mark.parametrize("seed", range(50))
def test_no_other_numbers_are_faster(seed):
    rng = np.random.default_rng(seed)
    rates, cores, sampled = random_rates(rng), int(rng.integers(1, 9)), float(rng.uniform(1, 200))
    split = choose(rates, 32, sampled, cores)
    grid = {
        (n, m): min(
            32 / rates.vector_step_s[n],
            sampled / (rates.update_s[m] + rates.average_s[m]),
            cores
            / (n * rates.vector_step_s[n] / 32 + m * (rates.update_s[m] + rates.average_s[m]) / sampled),
        )
        for n, m in itertools.product(rates.vector_step_s, rates.update_s)
    }
    assert grid[split.actors, split.learners] >= 0.98 * max(grid.values())
    fewer = [pair for pair, rate in grid.items() if sum(pair) < split.actors + split.learners]
    assert all(grid[pair] < 0.98 * max(grid.values()) for pair in fewer)


def test_slow_environments_get_actors_and_slow_updates_learners():
    cheap = {1: 1e-4, 2: 0.5e-4, 3: 0.34e-4, 4: 0.25e-4}
    costly = {1: 4e-2, 2: 2e-2, 3: 1.34e-2, 4: 1e-2}
    no_cost = dict.fromkeys(cheap, 0.0)
    assert choose(Rates(costly, cheap, no_cost), 32, 32, 5).actors == 4
    assert choose(Rates(cheap, costly, no_cost), 32, 32, 5).learners == 4
    split = choose(Rates(cheap, cheap, {1: 0.0, 2: 1e-3, 3: 1e-3, 4: 1e-3}), 32, 32, 8)
    assert split.learners == 1
    assert "averaging" in split.reason


def test_a_number_that_the_caller_fixed_is_kept():
    rates = Rates({2: 1e-4}, {1: 1e-4, 2: 0.5e-4}, {1: 0.0, 2: 0.0})
    assert choose(rates, 32, 32.0, 4, actors=2).actors == 2
    assert expected(rates, 2, 1, 32, 32.0, 1) <= expected(rates, 2, 1, 32, 32.0, 4)


def test_measured_rates_of_a_real_run(make_setup, monkeypatch):
    # A clock that each call advances by a millisecond: a step or an update lies between two calls.
    calls = itertools.count()
    clock = types.SimpleNamespace(perf_counter=lambda: 1e-3 * next(calls))
    monkeypatch.setattr(autotune, "time", clock)
    rates = measure(make_setup(num_envs=8), [1, 2], [1, 2], seconds=0.02)
    assert rates.vector_step_s == pytest.approx({1: 1e-3, 2: 1e-3})
    assert rates.update_s == pytest.approx({1: 1e-3, 2: 1e-3})
    # One call per average, and up to three before the first and after the last of about twenty.
    assert rates.average_s == {1: 0.0, 2: pytest.approx(1.1e-3, rel=0.1)}


@pytest.fixture
def clock(monkeypatch):
    made = FakeClock(0.0)
    monkeypatch.setattr(autotune, "time", made)
    return made


def test_slow_environments_fill_the_replay_for_a_second_only(make_setup, clock, monkeypatch):
    steps = []
    make_actor, update = OffPolicySetup.make_actor, LearnerWorker.update

    def make_slow(self, *arguments):
        actor = make_actor(self, *arguments)

        def step(env_steps):
            clock.now += 0.64 / self.actors
            steps.append(self.actors)
            return type(actor).step(actor, env_steps)

        actor.step = step
        return actor

    def slow_update(self, env_steps):
        clock.now += 0.01
        return update(self, env_steps)

    monkeypatch.setattr(OffPolicySetup, "make_actor", make_slow)
    monkeypatch.setattr(LearnerWorker, "update", slow_update)
    rates = measure(make_setup(num_envs=8), [1, 2], [1])
    assert rates.vector_step_s == pytest.approx({1: 0.64, 2: 0.32}) and len(steps) <= 12
    assert rates.update_s == pytest.approx({1: 0.01})


def test_a_time_is_the_median_of_the_calls_that_fit(clock):
    durations = iter([9.0, 9.0, 9.0, 0.25, 0.5, 0.25, 0.125, 0.25])

    def work():
        clock.now += next(durations)

    # Three calls to warm up, then calls until one second is over: 0.25 + 0.5 + 0.25.
    assert autotune._time(work, 1.0) == 0.25
    assert clock.now == 28.0
    durations = iter([0.0, 0.0, 0.0, 3.0])
    assert autotune._time(work, 1.0) == 3.0, "at least one call is timed"
    durations = iter([0.0, 0.0, 0.0, 1.0, 2.0])
    assert autotune._time(work, 1.5) == 1.5
    durations = iter([0.0, 0.0, 0.0, 4.0])
    assert autotune._time(work, 0.0) == 4.0


@pytest.mark.parametrize(("seconds", "rounds"), [(1.0, 4), (0.9, 4), (0.2, 1), (0.0, 0)])
def test_the_time_of_an_average_counts_the_rounds_of_all(clock, monkeypatch, seconds, rounds):
    """Each average takes a quarter of a second; in the last one a learner is absent, which ends them."""
    learners, made, closed, rounds_seen = 3, [], [], []
    present = [True] * learners

    def count_round():
        clock.now += 0.25
        rounds_seen.append(all(present))

    barrier = threading.Barrier(learners, count_round, timeout=120.0)

    class Peers:
        def __init__(self, shared, rank):
            assert (shared.size, shared.learners) == (7, learners)
            made.append(rank)
            self._rank = rank

        def average(self, gradients, is_present):
            assert gradients.shape == (7,)
            present[self._rank] = is_present
            barrier.wait()
            return rounds_seen[-1]

        def close(self):
            closed.append(self._rank)

    monkeypatch.setattr(autotune, "SharedAllReduce", Peers)
    found = autotune._time_average(7, learners, seconds)
    # The round in which a learner is absent takes time too.
    assert found == pytest.approx((rounds + 1) * 0.25 / max(rounds, 1))
    assert rounds_seen == [True] * rounds + [False]
    assert sorted(made) == sorted(closed) == [0, 1, 2]


def test_the_expected_rate_of_numbers_of_actors_and_learners():
    rates = Rates({2: 0.5}, {3: 0.25}, {3: 0.15})
    # The actors collect 8 / 0.5 = 16, the learners serve 4 / 0.4 = 10; together they take
    # 2 * 0.5 / 8 + 3 * 0.4 / 4 = 0.425 core seconds a transition.
    assert expected(rates, 2, 3, 8, 4.0, 8) == pytest.approx(10.0)
    assert expected(rates, 2, 3, 8, 4.0, 4) == pytest.approx(4 / 0.425)
    assert expected(rates, 2, 3, 8, 400.0, 100) == pytest.approx(16.0)


def test_a_choice_has_a_reason():
    rates = Rates({1: 0.5, 2: 0.25}, {1: 0.002, 2: 0.001}, {1: 0.0, 2: 0.004})
    reason = (
        "2 actors, 1 learner on 8 cores: actor-bound, alone the actors collect 4,000 and the learners serve "
        "5,000 transitions/s, together about 4,000; one more learner would give 0.50x (its part takes 1.00 "
        "ms instead of 2.00, averaging 4.00 ms)"
    )
    assert choose(rates, 1_000, 10.0, 8) == Split(2, 1, reason)
    reason = (
        "1 actor, 2 learners on 8 cores: learner-bound, alone the actors collect 2,000 and the learners "
        "serve 200 transitions/s, together about 200"
    )
    assert choose(rates, 1_000, 1.0, 8, actors=1, learners=2) == Split(1, 2, reason)
    # Equally fast: neither learners nor actors wait.
    assert "actor-bound" in choose(Rates({1: 0.5}, {1: 0.5}, {1: 0.0}), 1, 1.0, 8).reason
    # A number that the caller fixed has no alternative.
    assert "more" not in choose(rates, 1_000, 10.0, 8, learners=1).reason


def test_the_fewest_processes_within_2_percent_are_chosen():
    steps = {1: 1.0, 2: 0.5, 3: 0.489}
    quick = {1: 1e-6}
    # The third actor gains 2.2 %, then 1.9 %.
    assert choose(Rates(steps, quick, {1: 0.0}), 1, 1.0, 8).actors == 3
    assert choose(Rates(steps | {3: 0.4905}, quick, {1: 0.0}), 1, 1.0, 8).actors == 2
    assert choose(Rates(steps | {3: 0.5}, quick, {1: 0.0}), 1, 1.0, 8).actors == 2
    # Just 2 % slower.
    assert choose(Rates({1: 1.0, 2: 0.98}, quick, {1: 0.0}), 98, 1.0, 8).actors == 1


@dataclasses.dataclass(frozen=True)
class Watched(OffPolicySetup):
    """A setup that keeps a list of the replays and actors it makes."""

    made: ClassVar = []

    def make_replay(self, shared, device="cpu"):
        replay = super().make_replay(shared, device)
        self.made.append(("replay", shared, replay.capacity, self.seed, self.learners, replay))
        return replay

    def make_actor(self, index, replay, generation):
        self.made.append(("actor", index, self.actors, generation))
        return super().make_actor(index, replay, generation)


@pytest.mark.parametrize(("capacity", "kept"), [(5_000, 4 * (32 + 4) + 4 * 128), (200, 200)])
def test_measure_times_actors_learners_and_averages(make_setup, monkeypatch, capacity, kept):
    setup = make_setup(num_envs=4, batch_size=32, seed=7, learners=2)
    fields = {field.name: getattr(setup, field.name) for field in dataclasses.fields(OffPolicySetup)}
    setup = Watched(**fields | {"replay_capacity": capacity})
    setup.made.clear()
    timed, averaged, updates = [], [], []

    def timing(work, seconds):
        replay = setup.made[0][-1]
        timed.append((seconds, len(replay)))
        before = len(replay)
        work()
        return float(len(timed)) if len(replay) != before else -float(len(timed))

    class Timed(autotune.LearnerWorker):
        def __init__(self, algorithm, learner, replay, peers, size):
            updates.append(size)
            super().__init__(algorithm, learner, replay, peers, size)

    def averaging(size, count, seconds):
        averaged.append((size, count, seconds))
        return 100.0 * count

    monkeypatch.setattr(autotune, "_time", timing)
    monkeypatch.setattr(autotune, "_time_average", averaging)
    monkeypatch.setattr(autotune, "LearnerWorker", Timed)
    rates = measure(setup, [2, 4], [1, 3, 64], seconds=0.5)
    assert [found[:5] for found in setup.made[:1]] == [("replay", None, kept, 8, 1)]
    # An actor with all environments fills the replay, also if 1 is not among the numbers to measure.
    assert setup.made[1:] == [("actor", 0, count, 0) for count in (1, 2, 4)]
    rows = [rows for _, rows in timed]
    assert kept // 2 <= rows[0] < kept // 2 + 4 and all(seconds == 0.5 for seconds, _ in timed)
    # Actors with all, half and a quarter of the environments add rows; updates do not.
    assert rates.vector_step_s == {2: 2.0, 4: 3.0}
    assert rates.update_s == {1: -4.0, 3: -5.0, 64: -6.0}
    assert updates == [32, 10, 1]
    size = len(setup.make_learner().gradients)
    assert averaged == [(size, 3, 0.5), (size, 64, 0.5)]
    assert rates.average_s == {1: 0.0, 3: 300.0, 64: 6400.0}
