"""What loops of rollouts count and decide, without workers: the clock and learners are fakes."""

import collections
import multiprocessing
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fakes import FakeClock, ScriptedCounters

from parl.errors import WorkerError
from parl.runtime import loop
from parl.runtime.distributed.torchrun import END, ROLLOUT, SAVE
from parl.runtime.env_actor import Counts
from parl.runtime.on_policy import asynchronous, hogwild, predictor, rollout_loop, sync
from parl.runtime.on_policy.asynchronous import AsyncRolloutLoop
from parl.runtime.on_policy.hogwild import HogwildLoop
from parl.runtime.on_policy.hogwild_parameters import HogwildParameters
from parl.runtime.on_policy.predictor import PredictionSlot, PredictorClient, PredictorLoop
from parl.runtime.on_policy.rollout_loop import Collected
from parl.runtime.on_policy.size_tuner import SizeTuner
from parl.runtime.on_policy.sync import SyncRolloutLoop
from parl.runtime.shared_counters import (
    ACTOR_UPDATES,
    LAG_MAX,
    LAG_SUM,
    PARK,
    RUN,
    STEPS,
    STOP,
    SharedCounters,
)
from parl.runtime.weights import SharedWeights
from parl.types import Rollout

CONTEXT = multiprocessing.get_context()


@pytest.fixture
def clock(monkeypatch):
    made = FakeClock()
    for module in (asynchronous, hogwild, loop, predictor, rollout_loop, sync):
        monkeypatch.setattr(module, "time", made)
    return made


def rollout(number, width=2):
    """A rollout of one step whose actions, rewards and log probabilities are ``number``."""
    column = torch.full((1, width), float(number))
    done = torch.zeros((1, width), dtype=torch.bool)
    return Rollout(
        obs=torch.zeros((2, width, 1)),
        action=column.long(),
        log_prob=column,
        reward=column,
        terminated=done,
        ended=done,
        valid=~done,
        final_obs=torch.zeros((0, 1)),
        final_at=torch.zeros((0, 2), dtype=torch.int64),
    )


class DeviceTensor(torch.Tensor):
    """Stands for a tensor on a CUDA device."""

    def cpu(self):
        return self.as_subclass(torch.Tensor)


class Learner:
    """A fake learner that keeps the rewards it learned from; ``learn`` takes half a second of the clock."""

    def __init__(self, clock):
        self.weights, self.learned, self._clock, self.refreshed = torch.zeros(1), [], clock, 0

    def learn(self, rollouts, progress, average):
        self._clock.now += 0.5
        self.learned.append((rollouts.reward[0].tolist(), progress))
        self.weights += 1
        average(torch.zeros(1))
        return 2

    def refresh(self):
        self.refreshed += 1

    def metrics(self):
        return {"loss": 0.5}

    def state_dict(self):
        return {"weights": self.weights.clone()}

    def load_state_dict(self, state):
        self.weights = state["weights"]


class Worker:
    """A fake actor as the driver sees it."""

    def __init__(self, index):
        self.name, self.connection, self.sent, self.answers = f"actor {index}", object(), [], []

    def send(self, message):
        self.sent.append(message)

    def answer(self, timeout):
        return "rollout", self.answers.pop(0)


def fill(made, clock, actors=2, total=1_000, max_lag=1, **options):
    """Sets the attributes of a loop that its constructor would set."""
    made._setup = SimpleNamespace(
        actors=actors,
        max_lag=max_lag,
        algorithm=SimpleNamespace(shareable=True),
        **{"scale": 1, "joins_rollouts": False, "group": None, **options},
    )
    made._learner, made._total_steps, made._totals = Learner(clock), total, {}
    made._average, made._replay = (lambda gradients: None), None
    made._env_steps = made._updates = made._resumes = made._finished_episodes = 0
    made._episodes, made._rewards, made._interrupted = [], 0.0, False
    made._marked = (clock.now, 0, 0)
    made._shared_weights = SharedWeights(CONTEXT, 1)
    made._shared_weights.publish(made._learner.weights)
    made._buffers = [
        [SimpleNamespace(tensors=lambda n=10 * actor + slot: rollout(n)) for slot in range(2)]
        for actor in range(actors)
    ]
    made._pending, made._actors = collections.deque(), [Worker(index) for index in range(actors)]
    made._wait_s = made._learn_s = made._collect_s = 0.0
    made._received = made._left_out = made._lag_sum = made._lag_max = 0
    return made


def collected(actor, slot, version, transitions=10, finished=(), reward=1.5):
    return Collected(actor, Counts(transitions, list(finished), reward), slot, version, ([], []))


def test_rollouts_are_used_unless_they_are_too_old(clock):
    loop = fill(AsyncRolloutLoop.__new__(AsyncRolloutLoop), clock)
    loop._env_steps = 250
    loop._update([collected(1, 1, 1, finished=[(3.0, 4)])])
    assert loop._learner.learned == [([11.0, 11.0], 0.25)]
    assert loop.updates == 2 and loop._shared_weights.version == 2 and loop.env_steps == 260
    assert loop._actors[1].sent == [(1, 260)] and not loop._actors[0].sent
    loop._update([collected(0, 0, 1)])  # one version behind
    assert loop.updates == 4 and loop._shared_weights.version == 3
    loop._update([collected(0, 1, 1)])  # two versions behind: left out, counted, and its buffer is returned
    assert loop.updates == 4 and loop._shared_weights.version == 3 and loop.env_steps == 280
    assert loop._actors[0].sent == [(0, 270), (1, 280)]
    assert loop.take_episodes() == [(3.0, 4)] and loop.rewards_and_episodes() == (4.5, 1)
    clock.now += 3.0
    report = loop.report()
    assert report == {
        "env_steps_per_s": 280 / 4,
        "updates_per_s": 1.0,
        "policy_lag": 1.0,
        "policy_lag_max": 2.0,
        "rollouts_left_out": pytest.approx(1 / 3),
        "learner_waits": 0.0,
        "learning": 0.25,
        "loss": 0.5,
    }
    clock.now += 1.0
    report = loop.report()
    assert report["policy_lag"] == report["rollouts_left_out"] == report["learning"] == 0.0
    assert report["policy_lag_max"] == 2.0, "since the start"


def test_rollouts_are_queued_in_the_order_of_the_actors(clock, monkeypatch):
    loop = fill(AsyncRolloutLoop.__new__(AsyncRolloutLoop), clock, actors=3)
    asked = []

    def wait(connections, seconds):
        clock.now += 0.25
        asked.append(seconds)
        return [loop._actors[2].connection, loop._actors[0].connection]

    monkeypatch.setattr(asynchronous, "wait", wait)
    for index in (0, 2):
        loop._actors[index].answers = [collected(index, 0, 1)]
    loop._receive(2.0)
    assert [one.actor for one in loop._pending] == [0, 2] and loop._wait_s == 0.25
    assert loop._pending[0] == collected(0, 0, 1)
    for index in (0, 2):
        loop._actors[index].answers = [collected(index, 1, 1)]
    loop._receive(0.5)
    assert asked == [2.0, 0.5]
    clock.now += 0.5
    assert loop.report()["learner_waits"] == pytest.approx(0.5)


@pytest.mark.parametrize(("until", "seconds", "steps"), [(25, 9.0, 30), (10**6, 1.6, 40), (10**6, 99.0, 100)])
def test_advance_ends_at_its_steps_its_seconds_or_the_limit(clock, until, seconds, steps):
    loop = fill(AsyncRolloutLoop.__new__(AsyncRolloutLoop), clock, total=100)
    loop._receive = lambda seconds: loop._pending.append(collected(0, 0, loop._shared_weights.version))
    loop.advance(until, seconds)
    assert loop.env_steps == steps and loop.updates == steps // 5
    loop.interrupt()
    loop.advance(10**9, 10**9)
    assert loop.env_steps == steps


def make_predictor(clock, sizes, actors=3, **options):
    made = PredictorLoop.__new__(PredictorLoop)
    made._tuner = SizeTuner(sizes, dict.fromkeys(sizes, actors), 0)
    made._update_lock, made._parked, made._running = threading.RLock(), [], set()
    made._predicted = made._batches = 0
    made._predicted_before, made._failure, made._tuned_at = (0, 0), None, None
    made._started = []
    fill(made, clock, actors=actors, tune_every_s=0.0, **options)
    made._learners = [made._learner]
    made._start_missing = lambda: made._started.append(dict(made._tuner.sizes))
    return made


SIZES = {"actors": 3, "predictors": 1, "trainers": 1, "rollouts": 2}


def test_an_update_takes_the_tuned_number_of_rollouts(clock):
    loop = make_predictor(clock, SIZES)
    assert loop._rollouts_wanted() == 2
    loop._tuner.sizes["actors"] = 1
    assert loop._rollouts_wanted() == 1
    loop._env_steps = 500
    loop._update([collected(0, 0, 1), collected(2, 1, 1, transitions=6)])
    assert loop._learner.learned == [([0.0, 0.0, 21.0, 21.0], 0.5)] and loop._learner.refreshed == 1
    assert loop.updates == 2 and loop.env_steps == 516 and loop._shared_weights.version == 2
    assert loop._learn_s == 0.5
    # Only the first actor works now.
    assert loop._actors[0].sent == [(0, 516)] and loop._parked == [(2, 1)]
    assert not loop._update_lock._is_owned()


def test_actors_are_parked_until_the_tuned_number_rises(clock):
    loop = make_predictor(clock, SIZES | {"actors": 2})
    for index, slot in ((2, 0), (1, 1), (2, 1), (0, 0)):
        loop._refill(index, slot)
    assert loop._parked == [(2, 0), (2, 1)]
    assert [worker.sent for worker in loop._actors] == [[(0, 0)], [(1, 0)], []]
    loop._tuner.sizes["actors"] = 3
    loop._refill(2, 0)
    assert loop._actors[2].sent == [(0, 0), (1, 0), (0, 0)] and not loop._parked


def test_sizes_are_tuned_at_intervals(clock, monkeypatch):
    loop = make_predictor(clock, SIZES)
    rates, changes = [], iter([False, True])

    def measured(rate):
        rates.append(rate)
        return next(changes)

    loop._tuner.record_rate = measured
    loop._setup.tune_every_s = 10.0
    loop._tuner.sizes["actors"] = 2
    loop._parked = [(2, 1)]
    loop._env_steps = 1_000  # the run is over: nothing but the sizes changes
    for now, steps in ((100.0, 1_000), (109.9, 1_500), (110.0, 2_000), (125.0, 5_000), (134.9, 9_000)):
        clock.now, loop._env_steps = now, steps
        if now == 125.0:
            loop._tuner.sizes["actors"] = 3
        loop.advance(0, 0.0)
    assert rates == [100.0, 200.0] and len(loop._started) == 1
    assert loop._actors[2].sent == [(1, 5_000)] and not loop._parked
    loop._setup.tune_every_s, loop._tuned_at = 0.0, None
    clock.now += 1_000
    loop.advance(0, 0.0)
    assert len(rates) == 2 and loop._tuned_at is None
    loop._failure = ValueError("no weights")
    with pytest.raises(WorkerError, match=r"a predictor failed: ValueError\('no weights'\)"):
        loop.advance(0, 0.0)


def test_a_report_has_the_mean_batch_size_of_predictions(clock):
    loop = make_predictor(clock, SIZES)
    loop._predicted, loop._batches = 12, 4
    loop._pending.extend([1, 2, 3])
    report = loop.report()
    assert report["queue_depth"] == 3.0 and report["predicted_together"] == 3.0
    assert {name: report[f"{name}_now"] for name in SIZES} == SIZES
    assert np.isnan(loop.report()["predicted_together"])
    loop._predicted, loop._batches = 22, 6
    assert loop.report()["predicted_together"] == 5.0


def test_a_predictor_answers_all_requests_in_one_batch(clock):
    loop = make_predictor(clock, SIZES | {"predictors": 1})
    loop._gather_lock, loop._env_steps, acted = threading.Lock(), 70, []
    loop._slots = []
    for index, width in enumerate((1, 2, 3)):
        arrays = SimpleNamespace(
            obs=np.full((2, width, 1), float(index)),
            action=np.zeros((1, width), np.int64),
            log_prob=np.zeros((1, width), np.float32),
        )
        loop._slots.append(PredictionSlot(arrays))
    asking = (0, 2)
    for index in asking:
        loop._slots[index].actor_end.send_bytes(b"?")

    class Policy:
        weights = torch.zeros(1)

        def sample(self, observations, env_steps):
            acted.append((observations[:, 0].tolist(), env_steps, float(self.weights)))
            stop.set()
            rows = len(observations)
            return np.arange(rows), np.arange(rows) / 10

    stop = loop._stop = threading.Event()
    loop._shared_weights.publish(torch.tensor([8.0]))
    loop._run_predictor(0, Policy())
    assert loop._failure is None
    assert acted == [([0.0, 2.0, 2.0, 2.0], 70, 8.0)] or acted == [([2.0, 2.0, 2.0, 0.0], 70, 8.0)]
    first = acted[0][0][0] == 0.0
    assert loop._slots[0].buffer.action.tolist() == [[0 if first else 3]]
    assert loop._slots[2].buffer.action.tolist() == [[1, 2, 3] if first else [0, 1, 2]]
    assert loop._slots[2].buffer.log_prob[0, -1] == pytest.approx(0.3 if first else 0.2)
    assert (loop._predicted, loop._batches) == (4, 1)
    for index in asking:
        assert loop._slots[index].actor_end.recv_bytes() == b"!"
    assert not loop._slots[1].actor_end.poll(0)
    # A predictor above the tuned number waits.
    waited = []
    stop.clear()
    loop._stop = SimpleNamespace(is_set=lambda: len(waited) == 2, wait=waited.append)
    loop._predict(1, Policy())
    assert waited == [0.05, 0.05]
    # A closed connection of an actor ends it without a failure.
    loop._stop = threading.Event()
    for slot in loop._slots:
        slot.actor_end.close()
    loop._run_predictor(0, Policy())
    assert loop._failure is None


def test_a_predictor_client_requests_actions():
    arrays = SimpleNamespace(
        obs=np.zeros((2, 1, 1)), action=np.full((1, 1), 3), log_prob=np.full((1, 1), -1.0)
    )
    slot = PredictionSlot(arrays)
    policy = PredictorClient(slot)
    for _ in range(3):
        slot.predictor_end.send_bytes(b"!")
    action, log_prob = policy.sample(np.ones((1, 1)), 5)
    assert (
        action.tolist() == [3] and log_prob.tolist() == [-1.0] and arrays.obs[0] == 1.0 and arrays.obs[1] == 0
    )
    assert policy.act(np.ones((1, 1)), 5).tolist() == policy.act_greedily(np.ones((1, 1))).tolist() == [3]
    assert [slot.predictor_end.recv_bytes() for _ in range(3)] == [b"?"] * 3
    assert policy.state_dict() == {} and len(policy.weights) == 0


def make_hogwild(clock, actors=2, total=1_000):
    made = HogwildLoop.__new__(HogwildLoop)
    made._learner, made._counters = Learner(clock), SharedCounters(CONTEXT, actors, 1)
    made._total_steps, made._totals = total, {}
    made._env_steps = made._updates = made._resumes = 0
    made._interrupted, made._latest, made._next_check, made._actors = False, {}, 0.0, []
    made._marked = (clock.now, 0, 0)
    made._workers = SimpleNamespace(check=lambda: None)
    return made


def test_lags_of_all_workers_are_reported(clock):
    loop = make_hogwild(clock)
    actor = loop._counters.actor
    for total in (1, 2):
        actor[:, LAG_SUM] += (6, 2)
        actor[:, ACTOR_UPDATES] += (3, 1)
        actor[:, STEPS] += (30, 10)
        actor[:, LAG_MAX] = (5, 4)
        clock.now += 2.0
        loop._refresh()
        assert (loop.env_steps, loop.updates) == (40 * total, 4 * total)
        assert loop.report() == {
            "env_steps_per_s": 20.0,
            "updates_per_s": 2.0,
            "policy_lag": 2.0,
            "policy_lag_max": 5.0,
        }
    assert loop.report()["policy_lag"] == 0.0


def test_the_driver_waits_for_its_seconds_the_limit_or_an_interrupt(clock):
    loop = make_hogwild(clock, total=500)
    checks, polls = [], iter([True, True, False] + [False] * 100)
    figures = iter([("part", {"loss": 1.0}), ("part", {"loss": 2.0})])
    worker = SimpleNamespace(
        connection=SimpleNamespace(poll=lambda: next(polls)), answer=lambda _: next(figures)
    )
    loop._actors = [worker]
    loop._workers = SimpleNamespace(check=lambda: checks.append(clock.now))
    loop.advance(10**9, 0.1)
    assert loop._latest == {"loss": 2.0} and loop._learner.refreshed == 1
    assert clock.slept == [0.002] * len(clock.slept) and len(clock.slept) == pytest.approx(50, abs=1)
    assert [round(now - 100, 2) for now in checks[:2]] == [0.0, 0.05]
    loop._counters.actor[0, STEPS] = 500
    before = len(clock.slept)
    loop.advance(10**9, 9.0)
    assert len(clock.slept) == before and loop.env_steps == 500
    loop._counters.actor[0, STEPS] = 499
    loop.interrupt()
    loop.advance(10**9, 9.0)
    assert len(clock.slept) == before and loop.env_steps == 499


def test_a_worker_collects_learns_and_sends_its_state(clock):
    counters, common = SharedCounters(CONTEXT, 2, 1), HogwildParameters(CONTEXT, 1)
    counters.actor[1, STEPS] = 100
    ours, theirs = multiprocessing.Pipe()
    log, learner = [], Learner(clock)
    learner.share = lambda *args: log.append(args[-1])
    common.count += 3
    learn = learner.learn

    def others(rollouts, progress, average):
        common.count += 2
        return learn(rollouts, progress, average)

    learner.learn = others

    class Actor:
        policy = SimpleNamespace(weights=torch.zeros(1))

        def collect(self, buffer, env_steps):
            log.append((env_steps, float(self.policy.weights)))
            return Counts(150, [(1.0, 2)] if env_steps == 100 else [], 2.0)

        def load(self, state):
            log.append(state)

        def save(self):
            return b"after"

        def close(self):
            log.append("closed")

    actor = Actor()
    setup = SimpleNamespace(
        total_steps=400,
        make_actor=lambda *args: log.append(args) or actor,
        make_learner=lambda: learner,
        make_buffer=lambda index: SimpleNamespace(tensors=lambda: rollout(index)),
    )

    def asks():
        ours.send("state")
        return PARK

    run = [RUN, RUN]
    commands = [*run, PARK, asks, *run, RUN, RUN, STOP]
    hogwild._run_worker(theirs, setup, 0, ScriptedCounters(counters, *commands), common, 4, b"before")
    assert log == [(0, 4), b"before", False, (100, 0.0), (250, 1.0), "closed"]
    assert [progress for _, progress in learner.learned] == [0.25, 0.625]
    row = counters.actor[0]
    assert row[STEPS] == 300 and row[ACTOR_UPDATES] == 4 and counters.env_steps == 400
    assert row[LAG_SUM] == 4 and row[LAG_MAX] == 2
    assert counters.rewards.tolist() == [4.0, 0.0] and counters.take_episodes() == [(1.0, 2)]
    # Metrics are sent at most every quarter of a second; both updates took half a second.
    found = [ours.recv()[1] for _ in range(3)]
    assert found == [("metrics", {"loss": 0.5}), ("state", b"after"), ("metrics", {"loss": 0.5})]


def make_sync(clock, group=None, words=(), **options):
    """A loop of two actors with rollouts of 12 and 8 transitions."""
    scale = group.size if group else 1
    loop = SyncRolloutLoop.__new__(SyncRolloutLoop)
    made = fill(loop, clock, group=group, scale=scale, **options)
    heard = iter(words)
    said = []
    made._coordinator = group and SimpleNamespace(
        send=lambda *word: said.append(word), receive=lambda: next(heard)
    )
    made._said = said

    def actor(count):
        def collect(buffer, env_steps):
            clock.now += 0.25
            seen.append((env_steps, float(one.policy.weights)))
            return Counts(count, [(1.0, count)], float(count))

        seen = []
        one = SimpleNamespace(policy=SimpleNamespace(weights=torch.zeros(1)), collect=collect, seen=seen)
        one.save, one.close = (lambda: b"PK"), (lambda: seen.append("closed"))
        return one

    made._actors = [actor(12), actor(8)]
    made._buffers = [SimpleNamespace(tensors=lambda n=n: rollout(n)) for n in range(2)]
    return made


def test_actors_collect_in_turn_and_the_learner_learns_in_between(clock):
    loop = make_sync(clock)
    loop._total_steps = 80
    loop.advance(21, 0.0)
    assert loop.env_steps == 40 and loop.updates == 8 and loop.rewards_and_episodes() == (40.0, 4)
    assert loop._actors[0].seen == [(0, 0.0), (20, 2.0)] and loop._actors[1].seen == [(12, 1.0), (32, 3.0)]
    assert [progress for _, progress in loop._learner.learned] == [0.0, 12 / 80, 20 / 80, 32 / 80]
    clock.now += 1.0
    report = loop.report()
    assert report["collecting"] == pytest.approx(0.25) and report["learning"] == pytest.approx(0.5)
    assert report["env_steps_per_s"] == 10.0 and report["policy_lag"] == 0.0 and report["loss"] == 0.5
    loop.advance(10**9, 0.0)
    assert loop.env_steps == 80
    loop.close()
    assert loop._actors == []


def test_an_update_can_join_the_rollouts_of_all_actors(clock):
    """All actors collect with the same weights and the same number of steps."""
    loop = make_sync(clock, joins_rollouts=True)
    loop.advance(21, 0.0)
    assert loop.env_steps == 40 and loop.updates == 4
    assert loop._actors[0].seen == loop._actors[1].seen == [(0, 0.0), (20, 1.0)]
    # The first actor's rollout is the left half of what the learner gets.
    assert [values for values, _ in loop._learner.learned] == [[0.0, 0.0, 1.0, 1.0]] * 2


def test_rank_0_starts_an_update_of_impala_when_it_has_a_rollout(clock):
    said, heard = [], iter([(ROLLOUT, 90), (END, 120)])
    channel = SimpleNamespace(send=lambda *word: said.append(word), receive=lambda: next(heard))
    for rank in (0, 1):
        group = SimpleNamespace(size=2, rank=rank)
        loop = fill(AsyncRolloutLoop.__new__(AsyncRolloutLoop), clock, group=group, scale=2, max_lag=0)
        loop._coordinator = channel
        loop._shared_weights.publish(loop._learner.weights)
        # The first rollout is too old, so that it gives no update.
        loop._pending.extend([collected(0, 0, 1), collected(1, 0, 2)])
        if rank == 0:
            loop._iterate(1.0)
            assert not said and loop.updates == 0
            loop._iterate(1.0)
            assert said == [(ROLLOUT, 20)] and loop.env_steps == 40
        else:
            loop.run_follower_rank(None)
            assert said == [(ROLLOUT, 20)] and loop.env_steps == 120
        # Its transitions do not change the progress of the run, which is that of rank 0 in all processes.
        assert [progress for _, progress in loop._learner.learned] == [0.09 if rank else 0.02]
        assert loop._left_out == 1 and not loop._pending


def test_rank_0_sends_commands_to_all_processes(clock, tmp_path):
    loop = make_sync(clock, group=SimpleNamespace(size=3, rank=0))
    loop.advance(50, 0.0)
    assert loop.env_steps == 60, "every process collects the same number of steps"
    loop.save(tmp_path)
    actors = list(loop._actors)
    loop.close()
    loop.close()
    assert loop._said == [(ROLLOUT, 0), (SAVE, 60), (END, 60)]
    assert all(actor.seen[-1] == "closed" for actor in actors)


def test_rank_0_that_fails_within_an_update_sends_no_command(clock):
    """The others then average gradients: they would not hear it, and both sides would wait for ever."""
    loop = make_sync(clock, group=SimpleNamespace(size=3, rank=0))
    loop.advance(50, 0.0)

    def fails(buffer, env_steps):
        raise ValueError("an environment")

    loop._actors[0].collect = fails
    with pytest.raises(ValueError, match="an environment"):
        loop.advance(100, 0.0)
    loop.close()
    assert loop._said == [(ROLLOUT, 0), (ROLLOUT, 60)]


@pytest.mark.parametrize("failing", [0, 1])
def test_rank_0_saves_alone_after_a_failure_within_an_update(clock, tmp_path, failing):
    """The others then average gradients, also between the updates of one iteration."""
    loop = make_sync(clock, group=SimpleNamespace(size=3, rank=0))

    def fails(buffer, env_steps):
        raise WorkerError("an actor")

    loop._actors[failing].collect = fails
    with pytest.raises(WorkerError, match="an actor"):
        loop.advance(100, 0.0)
    loop.save_after_failure(tmp_path)
    loop.close()
    assert loop._said == [(ROLLOUT, 0)] and (tmp_path / "counters.json").exists()


def test_other_ranks_follow_the_commands(clock):
    words = [(ROLLOUT, 30), (SAVE, 60), (ROLLOUT, 60), (END, 90)]
    loop = make_sync(clock, group=SimpleNamespace(size=3, rank=1), words=words)
    saves = []
    loop.run_follower_rank(saves.append)
    assert loop.env_steps == 90 and len(saves) == 1 and len(loop._actors[0].seen) == 2
    # That of rank 0, in the updates from both actors.
    assert [progress for _, progress in loop._learner.learned] == [0.03, 0.03, 0.06, 0.06]
    loop.close()
    assert not loop._said


@pytest.mark.parametrize(("first", "takes"), [((0, 0, 0), False), ((90, 6, 1), True)])
def test_a_process_starts_from_the_state_of_rank_0(clock, first, takes):
    loop = make_sync(clock, group=SimpleNamespace(size=3, rank=1))
    loop._learner.weights = torch.zeros(1).as_subclass(DeviceTensor)
    given = []
    state = {"weights": torch.tensor([7.0])}
    group = SimpleNamespace(from_rank_zero=lambda value: given.append(value) or (state, first))
    loop._load_from_rank_zero(group)
    assert given[0][1] == (0, 0, 0) and given[0][0]["weights"].tolist() == [0.0]
    # Each process would restore tensors of rank 0's device on that device.
    assert type(given[0][0]["weights"]) is torch.Tensor
    assert (loop._env_steps, loop._updates, loop._resumes) == first
    assert loop._learner.weights.tolist() == ([7.0] if takes else [0.0])
