"""What the driver of the async schedule computes from its counters, without workers."""

import contextlib
import dataclasses
import math
import multiprocessing
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fakes import FakeClock

from parl.runtime import loop as loops
from parl.runtime import workers
from parl.runtime.env_actor import Counts
from parl.runtime.off_policy import asynchronous
from parl.runtime.off_policy.asynchronous import AsyncOffPolicyLoop
from parl.runtime.off_policy.pacer import Pacer
from parl.runtime.off_policy.parking import PERIOD_S, ActorParking
from parl.runtime.shared_counters import (
    ACTOR_WAIT_NS,
    FAILURES,
    LAG_BUCKETS,
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
from parl.runtime.workers import Worker, WorkerTimeoutError

CONTEXT = multiprocessing.get_context()


@pytest.fixture
def clock(monkeypatch):
    made = FakeClock()
    for module in (asynchronous, loops):
        monkeypatch.setattr(module, "time", made)
    return made


class FakeLearner:
    """A fake learner."""

    weights = torch.arange(3.0)
    gradients = torch.zeros(3)

    def metrics(self):
        return {"loss": 0.5}


def make_loop(clock, actors=2, learners=1, pacer=None, group=None):
    """A loop with counters and without workers; updates succeed and are counted."""
    loop = AsyncOffPolicyLoop.__new__(AsyncOffPolicyLoop)
    loop._setup = SimpleNamespace(
        pacer=pacer or Pacer(2.0, 8, 4, 100, 10_000),
        group=group,
        scale=group.size if group else 1,
        learners=learners,
        remote=None,
    )
    loop._total_steps = loop._setup.pacer.total_steps * loop._setup.scale
    loop._counters = SharedCounters(CONTEXT, actors, learners)
    loop._interrupted, loop._updates, loop._resumes, loop._totals = False, 0, 0, {}
    loop._workers = SimpleNamespace(check=lambda: None, raise_failure=lambda within_s: None)
    loop._parking = None
    loop._next_check = loop._next_parking = 0.0
    loop._learner, loop._replay = FakeLearner(), range(77)
    loop._shared_weights = SharedWeights(CONTEXT, 3)
    loop._lags_before = loop._counters.lags.sum(axis=0)
    loop._waits_before = ((0, 0.0), clock.now)
    loop._learner_worker = SimpleNamespace(update=lambda env_steps: True)
    loop._since_report(**loop._report_totals())
    loop._marked = (clock.now, 0, 0)
    return loop


def test_a_report_covers_the_time_since_the_last_one(clock):
    loop = make_loop(clock)
    actor, learner = loop._counters.actor, loop._counters.learner
    for _ in range(2):  # the second time like the first
        clock.now += 4.0
        actor[:, STEPS] += (300, 100)
        actor[:, LAG_SUM] += (5, 4)
        actor[:, VECTOR_STEPS] += (2, 1)
        actor[:, ACTOR_WAIT_NS] += (3 * 10**9, 10**9)
        learner[0, LEARNER_WAIT_NS] += 10**9
        loop._updates += 60
        report = loop.report()
        ratio = loop._updates * 8 / (loop.env_steps - 100)
        assert report == {
            "env_steps_per_s": 100.0,
            "updates_per_s": 15.0,
            "replay_ratio": pytest.approx(ratio),
            "replay_size": 77,
            "policy_lag": 3.0,
            "actors_wait": pytest.approx(0.5),
            "learners_wait": pytest.approx(0.25),
            "actors_awake": 2,
            "loss": 0.5,
        }
    clock.now += 1.0
    actor[:, ACTOR_WAIT_NS] += 9 * 10**9
    learner[0, LEARNER_WAIT_NS] += 9 * 10**9
    report = loop.report()
    assert math.isnan(report["policy_lag"]), "no vector step"
    assert report["actors_wait"] == report["learners_wait"] == 1.0
    assert report["env_steps_per_s"] == report["updates_per_s"] == 0.0
    actor[:, VECTOR_STEPS] += (1, 0)
    assert loop.report()["policy_lag"] == 0.0, "and no time passed"


def test_failures_are_reported_for_remote_actors_only(clock):
    loop = make_loop(clock)
    loop._counters.actor[:, FAILURES] = (2, 3)
    assert "actor_failures" not in loop.report()
    loop._setup.remote = object()
    assert loop.report()["actor_failures"] == 5


def test_env_steps_counts_every_process_of_a_group(clock):
    loop = make_loop(clock, group=SimpleNamespace(size=3, rank=1))
    loop._counters.actor[:, STEPS] = (10, 20)
    assert loop.env_steps == 90 and not loop._has_followers
    loop._setup.group.rank = 0
    assert loop._has_followers
    loop._setup.group, loop._setup.scale = None, 1
    assert loop.env_steps == 30 and not loop._has_followers


def test_lags_cover_the_time_since_the_last_report(clock):
    loop = make_loop(clock)
    assert loop._lags() == {}
    loop._counters.count_lag(0, 0, 90)
    loop._counters.count_lag(1, 1, 5)
    loop._counters.count_lag(1, 6, 5)
    # 95 of 100 lags are at most 1, the upper end of their bucket.
    assert loop._lags() == {"policy_lag_histogram": [90, 5, 0, 5], "policy_lag_p95": 1.0}
    assert loop._lags() == {}
    loop._counters.count_lag(0, 0, 94)
    loop._counters.count_lag(0, 6, 6)
    assert loop._lags() == {"policy_lag_histogram": [94, 0, 0, 6], "policy_lag_p95": 7.0}
    loop._counters.count_lag(0, 0)
    assert loop._lags() == {"policy_lag_histogram": [1], "policy_lag_p95": 0.0}
    loop._counters.count_lag(0, 2**62)
    assert loop._lags()["policy_lag_p95"] == 2.0 ** (LAG_BUCKETS - 1) - 1


def test_rewards_and_episodes_of_all_actors(clock):
    loop = make_loop(clock)
    loop._counters.rewards[:] = (1.5, 2.25)
    loop._counters.add_episodes(0, [(1.0, 3)])
    loop._counters.add_episodes(1, [(2.0, 4), (3.0, 5)])
    assert loop.rewards_and_episodes() == (3.75, 3)
    assert loop.take_episodes() == [(2.0, 4), (1.0, 3), (3.0, 5)]
    assert loop.rewards_and_episodes() == (3.75, 3)


def test_waits_are_fractions_of_the_time_of_running_actors(clock, monkeypatch):
    loop = make_loop(clock, actors=4, learners=2)
    loop._parking = controller = ActorParking(4, 2)
    decided = []
    monkeypatch.setattr(controller, "decide", lambda *waits: decided.append(waits))
    clock.now += 2.0
    loop._counters.actor[:, ACTOR_WAIT_NS] += (10**9, 2 * 10**9, 0, 0)
    loop._counters.learner[:, LEARNER_WAIT_NS] += (0, 10**9)
    loop._update_parking(clock.now)
    assert not decided, "nothing is decided before learning starts"
    assert loop._next_parking == clock.now + PERIOD_S
    loop._counters.actor[0, STEPS] = 100
    clock.now += 2.0
    loop._counters.actor[:, ACTOR_WAIT_NS] += (10**9, 2 * 10**9, 0, 0)
    loop._counters.learner[:, LEARNER_WAIT_NS] += (0, 10**9)
    controller.running, controller.first = 2, 3
    loop._update_parking(clock.now)
    # Two actors waited 3 of their 4 seconds, two learners 1 of their 4.
    assert decided == [(pytest.approx(0.75), pytest.approx(0.25))]
    assert loop._counters.running_actors == (2, 3)
    clock.now += 0.5
    loop._counters.actor[:, ACTOR_WAIT_NS] += 10**9
    loop._counters.learner[:, LEARNER_WAIT_NS] += 10**9
    loop._update_parking(clock.now)
    assert decided[1:] == [(1.0, 1.0)]


def test_workers_and_waits_are_checked_at_intervals(clock, monkeypatch):
    loop = make_loop(clock)
    checks, controls = [], []
    loop._workers.check = lambda: checks.append(clock.now)
    monkeypatch.setattr(loop, "_update_parking", lambda now: controls.append(now))
    for _ in range(3):
        loop._check()
    assert checks == [100.0] and not controls
    clock.now = 100.04
    loop._check()
    assert checks == [100.0]
    clock.now = 100.05
    loop._parking, loop._next_parking = ActorParking.all_running(2), 100.06
    loop._check()
    assert checks == [100.0, 100.05] and not controls
    clock.now = loop._next_parking = 100.1
    loop._check()
    assert controls == [100.1]


def test_the_driver_learns_as_far_as_the_pacer_allows(clock):
    loop = make_loop(clock, pacer=Pacer(2.0, 8, 4, 100, 10_000, slack=2.0))
    row, steps = loop._counters.learner[0], loop._counters.actor[0]
    told = []
    loop._learner_worker.update = lambda env_steps: told.append(env_steps) or True

    def collect():
        steps[STEPS] += 60

    clock.meanwhile = collect
    loop.advance(160, math.inf)
    # No update before step 100, reached in the second sleep; then 8 * (u + 1) <= 2 * 20 + 16.
    assert clock.slept == [1e-4] * 3
    assert told == [120] * 7 and loop.updates == row[UPDATES] == 7
    assert row[LEARNER_WAIT_NS] == 3 * 10**5
    assert loop._shared_weights.version == 7
    weights = torch.zeros(3)
    loop._shared_weights.read(weights, 0)
    assert weights.tolist() == [0.0, 1.0, 2.0]
    loop.advance(10**9, 10.0 * 1e-4)
    assert 10 <= len(clock.slept) - 3 <= 11, "the time limit ends it too"
    loop.interrupt()
    loop.advance(10**9, math.inf)


def test_a_run_ends_at_the_limit_of_all_processes(clock):
    loop = make_loop(clock, pacer=Pacer(2.0, 8, 4, 100, 400), group=SimpleNamespace(size=2, rank=0))
    loop._updates = 10**6
    clock.meanwhile = lambda: loop._counters.actor[:, STEPS].__iadd__(1)
    loop.advance(7, math.inf)
    assert loop.env_steps == 8
    loop.advance(10**9, math.inf)
    assert loop.env_steps == 800


def test_schedules_count_the_steps_of_all_processes_of_a_group(clock):
    """Exploration rates and exponents of importance weights are functions of the steps of the whole run."""
    loop = make_loop(clock, group=SimpleNamespace(size=3, rank=0))
    loop._counters.actor[:, STEPS] = (80, 40)
    learned, acted = [], []
    loop._learner_worker.update = lambda env_steps: learned.append(env_steps) or loop.interrupt() or True
    loop.advance(10**9, math.inf)
    counters = loop._counters

    def step(env_steps):
        acted.append(env_steps)
        counters.command = STOP
        return Counts(4, [], 0.0)

    policy = SimpleNamespace(weights=torch.zeros(3))
    actor = SimpleNamespace(policy=policy, step=step, close=lambda: acted.append("closed"))
    setup = SimpleNamespace(pacer=loop._setup.pacer, scale=3, make_actor=lambda *args: actor)
    connection = SimpleNamespace(send=lambda message: None)
    counters.learner[0, UPDATES] = 100
    asynchronous._run_actor(connection, setup, 1, counters, loop._shared_weights, object(), 0, None)
    assert learned == [360] and acted == [360, "closed"]
    assert counters.actor[1, STEPS] == 44


def test_schedules_see_the_steps_of_all_processes(clock):
    loop = make_loop(clock, group=SimpleNamespace(size=2, rank=1))
    loop._counters.actor[0, STEPS] = 120
    told, requests = [], iter([True, False])
    loop._learner_worker.update = lambda env_steps: told.append(env_steps) or next(requests)
    loop._torchrun = SimpleNamespace(request=2.0)
    loop.run_follower_rank(None)
    assert told == [240, 240]
    loop._learner_worker.update = lambda env_steps: told.append(env_steps) or True
    loop._counters.actor[0, STEPS] = 150
    loop.advance(10**9, 1e-4)
    assert set(told[2:]) == {300}


def test_an_unexpectedly_skipped_update_is_an_error(clock):
    loop = make_loop(clock, learners=2)
    loop._counters.actor[0, STEPS] = 200
    asked = []
    loop._workers.raise_failure = lambda within_s: asked.append(within_s)
    loop._learner_worker.update = lambda env_steps: False
    with pytest.raises(RuntimeError, match="a learner skipped an update that the driver did not skip"):
        loop.advance(10**9, math.inf)
    assert asked == [3.0], "first it waits for the error of a failed peer"
    loop._setup.learners = 1
    with pytest.raises(RuntimeError, match="did not skip"):
        loop.advance(10**9, math.inf)
    assert asked == [3.0]


@pytest.mark.parametrize("interrupted", [False, True])
def test_an_interrupted_run_keeps_its_replay_if_an_actor_does_not_park(clock, monkeypatch, interrupted):
    loop = make_loop(clock)
    ours, theirs = CONTEXT.Pipe()
    loop._actors, loop._freezing, loop._allreduce = [Worker("actor 0", None, ours)], object(), object()
    monkeypatch.setattr(asynchronous, "ANSWER_S", 1.0 if interrupted else 0.0)
    monkeypatch.setattr(workers, "INTERRUPTED_S", 0.0)
    loop._interrupted, replay = interrupted, loop._replay
    error = contextlib.nullcontext() if interrupted else pytest.raises(WorkerTimeoutError, match="within 0 s")
    with error:
        loop._replace_replay()
    assert theirs.recv() == "parked" and not theirs.poll()
    assert loop._replay is replay and loop._counters.command == RUN


class Commands:
    """Counters whose command takes the next of these values at each read."""

    def __init__(self, *commands):
        self._commands = iter(commands)
        self.learner = np.zeros((2, 16), np.int64)
        self.env_steps = 96

    @property
    def command(self):
        return next(self._commands)

    def left(self):
        return list(self._commands)


@pytest.mark.parametrize("by_update", [False, True])
def test_a_learner_parks_and_stops_with_the_others(clock, by_update):
    log, answers = [], iter([True, False, True, False])

    def update(env_steps):
        log.append(env_steps)
        return next(answers)

    part = SimpleNamespace(update=update, skip=lambda: log.append("skip"))
    made = []
    pacer = Pacer(2.0, 8, 4, 100, 10_000)
    setup = SimpleNamespace(pacer=pacer, make_learner_worker=lambda *args: made.append(args) or part)
    waits = [RUN, RUN]
    # Reads of the command: before the update, while all are parked, and after that.
    left_out = [RUN, PARK, PARK, RUN, RUN]
    parked = [PARK, PARK, RUN, RUN]
    last = [RUN, RUN, PARK, STOP, STOP] if by_update else [RUN, STOP, STOP, STOP]
    counters = Commands(*waits, *left_out, *parked, *last)

    def collect():
        counters.env_steps += 4

    clock.meanwhile = collect
    asynchronous._learn(setup, 1, counters, "learner", "replay", "peers", 1)
    assert made == [("learner", "replay", "peers", 1)]
    steps = [entry for entry in log if entry != "skip"]
    assert log.count("skip") == (1 if by_update else 2)
    assert steps[:3] == [100, 100, 112]
    # The fourth update is not counted: a peer was absent in it.
    assert counters.learner[1, UPDATES] == 3 and not counters.left()
    assert clock.slept == [1e-4, 2e-3, 2e-3, 2e-3] + [2e-3] * by_update
    assert counters.learner[1, LEARNER_WAIT_NS] == 10**5 and not counters.learner[0].any()


FAILED = ["peers", "end 0.5", "end 5.0", "part"]


@pytest.mark.parametrize(
    ("learners", "group", "failure", "interrupted", "log"),
    [
        (1, None, "", False, ["end 5.0", "part"]),
        (1, None, "", True, ["end 1.0", "part"]),
        (2, None, "", False, ["check", "skip", "end 5.0", "part"]),
        (2, None, "before", False, ["check", *FAILED]),
        (2, None, "at the end", False, ["check", "skip", *FAILED]),
        (1, SimpleNamespace(size=2, rank=0), "", False, ["check", "skip", "end 5.0", "part"]),
        (1, SimpleNamespace(size=2, rank=1), "", False, ["end 5.0", "part"]),
    ],
)
def test_close_stops_learners_together_unless_one_has_failed(
    clock, learners, group, failure, interrupted, log
):
    loop = make_loop(clock, learners=learners, group=group)
    found = []

    def have_failed():
        assert loop._counters.command == RUN, "a worker that ends when told to has not failed"
        found.append("check")
        return failure == "before"

    def skip():
        found.append("skip")
        if failure:
            raise RuntimeError("a peer is gone")

    loop._workers = SimpleNamespace(
        have_failed=have_failed, end=lambda within_s: found.append(f"end {within_s}")
    )
    loop._learner_worker = SimpleNamespace(skip=skip, close=lambda: found.append("part"))
    loop._allreduce = SimpleNamespace(close=lambda: found.append("peers"))
    loop._replay = SimpleNamespace(unlink=lambda: found.append("replay"))
    loop._connection = contextlib.ExitStack()
    loop._connection.callback(found.append, "connection")
    loop._interrupted = interrupted
    loop.close()
    assert found == [*log, "connection", "replay", "peers"] and loop._counters.command == STOP
    found.clear()
    loop.close()
    assert found == []


@pytest.mark.parametrize(
    ("parks", "actors", "controls"), [(False, 2, False), (True, 1, False), (True, 2, True)]
)
def test_actors_are_parked_if_there_are_several_and_it_is_enabled(make_setup, parks, actors, controls):
    setup = dataclasses.replace(make_setup(actors=actors, processes=False), park_actors=parks)
    with contextlib.closing(AsyncOffPolicyLoop(setup)) as loop:
        assert (loop._parking is not None) == controls
