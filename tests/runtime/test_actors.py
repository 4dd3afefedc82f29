"""Rows, counts and restarts of actors, with environments and policies whose values are known."""

import multiprocessing
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from counting_env import CountingEnv
from fakes import ScriptedCounters
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from parl.envs import spec_of
from parl.errors import ConfigError
from parl.runtime import evaluate
from parl.runtime.env_actor import Counts
from parl.runtime.evaluate import Evaluator, _SingleEpisode
from parl.runtime.off_policy import asynchronous
from parl.runtime.off_policy.actor import Actor
from parl.runtime.off_policy.double_buffer import DoubleBufferedActor
from parl.runtime.on_policy import recorded
from parl.runtime.on_policy.recorded import RecordedActor
from parl.runtime.on_policy.rollout import RolloutActor, RolloutBuffer
from parl.runtime.shared_counters import (
    ACTOR_WAIT_NS,
    LAG_SUM,
    PARK,
    RUN,
    STEPS,
    STOP,
    UPDATES,
    VECTOR_STEPS,
    SharedCounters,
)
from parl.runtime.weights import SharedWeights

CONTEXT = multiprocessing.get_context()
SAME, NEXT = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP


class Policy:
    """Actions follow from the number of the call; keeps the observations and steps of each call."""

    def __init__(self, num_envs, continuous=False):
        self.weights = torch.zeros(2)
        self.told, self.num_envs, self._continuous = [], num_envs, continuous

    def act(self, observations, env_steps):
        self.told.append((np.array(observations)[:, 0].tolist(), env_steps))
        if self._continuous:
            return np.full((self.num_envs, 1), 3.0, np.float32)
        return np.full(self.num_envs, len(self.told) % 3)

    def sample(self, observations, env_steps):
        action = self.act(observations, env_steps)
        return action, np.full(self.num_envs, -0.5, np.float32)

    def act_greedily(self, observations):
        return self.act(observations, 0)

    def state_dict(self):
        return {"calls": len(self.told)}

    def load_state_dict(self, state):
        self.told = [None] * state["calls"]


class RecurrentPolicy(Policy):
    """A recurrent policy whose memory is the number of its steps in each environment."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.memory, self.restarts = torch.zeros(2, num_envs, 1), []

    def restart(self, starting):
        self.restarts.append(starting.tolist())
        self.memory[:, torch.from_numpy(np.array(starting))] = 0.0

    def sample(self, observations, env_steps):
        self.memory += 1
        return super().sample(observations, env_steps)


class Sink:
    """A fake replay that keeps rows; tickets count up."""

    def __init__(self):
        self.rows, self.ended = [], []

    def add(self, **columns):
        self.rows.append({name: np.array(column) for name, column in columns.items()})
        return np.arange(len(columns["env_id"]))

    def end_episodes(self, env_id):
        self.ended.append(env_id.tolist())

    def update_priorities(self, tickets, priorities):
        raise AssertionError("no actor gives priorities here")


def vector(mode, *envs):
    return SyncVectorEnv([lambda env=env: env for env in envs], autoreset_mode=mode)


@pytest.mark.parametrize("mode", [SAME, NEXT])
def test_an_actor_writes_the_transitions_of_its_environments(mode):
    env = vector(mode, CountingEnv(2), CountingEnv(3, True))
    spec, policy, sink = spec_of(env), Policy(2), Sink()
    actor = Actor(env, spec, policy, sink, 5, 40)
    assert [one.seeds[-1] for one in env.envs] == [40, 41] and not actor.has_results
    results = [actor.step(100 * step) for step in range(5)]
    counted, reward = [one[:2] for one in results], sum(one.reward for one in results)
    assert [steps for _, steps in policy.told] == [0, 100, 200, 300, 400]
    obs = {NEXT: [[0, 0], [1, 1], [2, 2], [0, 3], [1, 0]], SAME: [[0, 0], [1, 1], [0, 2], [1, 0], [0, 1]]}[
        mode
    ]
    assert [row["obs"][:, 0].tolist() for row in sink.rows] == obs
    assert [seen for seen, _ in policy.told] == obs
    for number, row in enumerate(sink.rows):
        assert row["env_id"].tolist() == [5, 6] and row["action"].tolist() == [(number + 1) % 3] * 2
        assert row["reward"].dtype == np.float32 and ("final_obs" in row) == (mode is SAME)
    terminated = [row["terminated"].tolist() for row in sink.rows]
    truncated = [row["truncated"].tolist() for row in sink.rows]
    if mode is SAME:
        assert terminated == [[False, False], [True, False], [False, False], [True, False], [False, False]]
        assert truncated == [[False, False]] * 2 + [[False, True]] + [[False, False]] * 2
        assert sink.rows[1]["final_obs"][0] == 2.0 and sink.rows[2]["final_obs"][1] == 3.0
        assert counted == [(2, []), (2, [(20.0, 2)]), (2, [(30.0, 3)]), (2, [(20.0, 2)]), (2, [])]
        assert reward == 100.0
    else:
        # A row that only resets is not a transition and has no reward.
        assert counted == [(2, []), (2, [(20.0, 2)]), (1, [(30.0, 3)]), (1, []), (2, [(20.0, 2)])]
        assert reward == 80.0
    actor.end_episodes()
    assert sink.ended == [[5, 6]]
    actor.close()


@pytest.mark.parametrize("truncates", [True, False])
@pytest.mark.parametrize("relabels_goals", [True, False])
def test_ends_without_their_last_observation_are_refused_where_it_is_needed(truncates, relabels_goals):
    """The first observation of the next episode took its place."""
    env = vector(SAME, CountingEnv(3), CountingEnv(2, truncates))
    step = env.step
    env.step = lambda action: (*step(action)[:4], {})
    sink = Sink()
    actor = Actor(env, spec_of(env), Policy(2), sink, 0, 0, relabels_goals=relabels_goals)
    actor.step(0)
    if truncates or relabels_goals:
        with pytest.raises(
            ConfigError, match="infos have no final_obs for environment 1, whose episode ended"
        ):
            actor.step(1)
    else:
        actor.step(1)
    assert len(sink.rows) == 2 - (truncates or relabels_goals)


def test_end_episodes_discards_results_that_are_not_written():
    env = vector(NEXT, CountingEnv(9))
    actor = Actor(env, spec_of(env), Policy(1), Sink(), 0, 0)
    actor.act(0)
    actor.step_envs()
    assert actor.has_results
    actor.end_episodes()
    assert not actor.has_results


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_actions_that_would_be_rounded_are_refused(kind):
    env, policy = vector(NEXT, CountingEnv(9)), Policy(1)
    policy.act = lambda observations, env_steps: kind(np.array([1.6]))
    actor = Actor(env, spec_of(env), policy, Sink(), 0, 0)
    with pytest.raises(ConfigError, match="act of the policy returned actions of dtype float64, expected"):
        actor.act(0)


def test_two_groups_of_environments_alternate():
    one, two = (vector(NEXT, CountingEnv(4), CountingEnv(4)) for _ in range(2))
    sink = Sink()
    spec = spec_of(one)
    policy = Policy(2)
    actor = DoubleBufferedActor(Actor(one, spec, policy, sink, 0, 0), Actor(two, spec, policy, sink, 2, 2))
    assert actor.num_envs == 4
    # The second group's rows are those of the previous step.
    assert [actor.step(step)[0] for step in range(3)] == [2, 4, 4]
    assert [row["env_id"][0] for row in sink.rows] == [0, 2, 0, 2, 0]
    assert [steps for _, steps in policy.told] == [0, 0, 1, 1, 2, 2]
    assert actor.step(3) == (4, [(40.0, 4), (40.0, 4)], 40.0)
    assert actor.step(4) == (2, [(40.0, 4), (40.0, 4)], 20.0)
    actor.end_episodes()
    assert sink.ended == [[0, 1], [2, 3]]
    actor.close()


def test_actions_beyond_the_bounds_are_clipped_for_the_environment_only():
    inner = CountingEnv(9, action_space=Box(-1.0, 0.5, (1,), np.float32))
    env = vector(NEXT, inner)
    spec = spec_of(env)
    actor = RolloutActor(env, spec, Policy(1, continuous=True), 0)
    buffer = RolloutBuffer(spec, 2, 1)
    actor.collect(buffer, 0)
    assert inner.actions == [[0.5], [0.5]] and buffer.action.ravel().tolist() == [3.0, 3.0]
    actor.close()


@pytest.mark.parametrize("mode", [SAME, NEXT])
def test_a_recurrent_policy_restarts_where_episodes_begin(mode):
    env = vector(mode, CountingEnv(2), CountingEnv(3, True))
    spec, policy = spec_of(env), RecurrentPolicy(2)
    actor = RolloutActor(env, spec, policy, 0)
    buffer = RolloutBuffer(spec, 4, 2, memory=1)
    transitions, finished, reward = actor.collect(buffer, 100)
    starts = {
        SAME: [[True, True], [False, False], [True, False], [False, True], [True, False]],
        NEXT: [[True, True], [False, False], [False, False], [True, False], [False, True]],
    }[mode]
    assert buffer.starts.tolist() == starts and policy.restarts == starts[:4]
    assert not buffer.memory.any()
    counts = {SAME: [100, 102, 104, 106], NEXT: [100, 102, 104, 105]}[mode]
    assert [steps for _, steps in policy.told] == counts
    assert transitions == {SAME: 8, NEXT: 6}[mode]
    assert finished == [(20.0, 2), (30.0, 3)] + ([(20.0, 2)] if mode is SAME else [])
    assert reward == {SAME: 80.0, NEXT: 60.0}[mode]
    before = policy.memory.clone()
    before[:, torch.tensor(starts[4])] = 0.0
    actor.collect(buffer, 0)
    assert buffer.memory.tolist() == before.tolist() and buffer.starts[0].tolist() == starts[4]
    if mode is SAME:
        assert buffer.final_at == [(1, 1)] and buffer.final_obs[0].tolist() == [3.0]
    actor.close()


def test_random_steps_are_taken_once_and_counted():
    env = vector(NEXT, CountingEnv(50), CountingEnv(50))
    spec, policy = spec_of(env), Policy(2)
    actor = RolloutActor(env, spec, policy, 3, random_steps=7)
    buffer = RolloutBuffer(spec, 2, 2)
    due = np.random.default_rng([3, 7]).integers(8, size=2)
    assert actor.collect(buffer, 10)[0] == 18
    # Environment i is reset after due[i] steps; if that is 0, it is not reset again.
    first = [7.0 - step for step in due]
    assert buffer.obs[0, :, 0].tolist() == first
    assert [steps for _, steps in policy.told] == [24, 26]
    assert actor.collect(buffer, 10)[0] == 4
    state = actor.save()
    fresh = vector(NEXT, CountingEnv(50), CountingEnv(50))
    again = RolloutActor(fresh, spec, Policy(2), 3, random_steps=7)
    again.load(state)
    assert again.collect(buffer, 0)[0] == 4
    actor.close()


def test_recorded_rows_are_all_used_before_one_is_repeated():
    spec = SimpleNamespace(flat_row=((2,), "float32"), action_shape=(), action_dtype="int64")
    obs = np.arange(20, dtype=np.float32).reshape(10, 2)
    action = np.arange(10)
    actor = RecordedActor(obs, action, "policy", 4)
    buffer = RolloutBuffer(spec, 3, 2)
    for column in (buffer.log_prob, buffer.reward):
        column[:] = 7
    buffer.terminated[:] = True
    seen = []
    for _ in range(5):
        assert actor.collect(buffer, 0) == (6, [], 0.0)
        np.testing.assert_array_equal(buffer.obs[:-1, :, 0], 2 * buffer.action)
        np.testing.assert_array_equal(buffer.obs[-1], buffer.obs[-2])
        assert not buffer.log_prob.any() and not buffer.reward.any() and not buffer.terminated.any()
        assert buffer.ended.all() and buffer.valid.all()
        seen += buffer.action.ravel().tolist()
    for start in (0, 10, 20):
        assert sorted(seen[start : start + 10]) == list(range(10))
    assert seen[:10] == np.random.default_rng(4).permutation(10).tolist()
    other = RecordedActor(obs, action, "policy", 5)
    other.load(actor.save())
    actor.collect(buffer, 0)
    expected = buffer.action.copy()
    other.collect(buffer, 0)
    np.testing.assert_array_equal(buffer.action, expected)


def test_an_environment_plays_one_game_of_each_seed_and_stops():
    inner = CountingEnv(2)
    once = _SingleEpisode(inner)
    assert once.observation_space is inner.observation_space
    assert once.step(0) == (None, 0.0, False, False, {}), "before the first seed"
    obs, _ = once.reset(seed=3)
    assert obs == [0.0] and inner.seeds[-1] == 3
    assert once.step(0)[1:4] == (10.0, False, False)
    assert once.step(0)[1:4] == (10.0, True, False)
    obs, reward, terminated, truncated, _ = once.step(0)
    assert obs == [2.0] and (reward, terminated, truncated) == (0.0, False, False) and len(inner.actions) == 2
    assert once.reset()[0] == [2.0] and inner.seeds[-1] == 3
    assert once.reset(seed=4)[0] == [0.0] and inner.seeds[-1] == 4
    assert once.step(0)[1] == 10.0
    once.reset()
    assert inner.seeds[-1] is None, "the reset after a lost life reaches the environment"


def test_games_are_played_in_rounds(monkeypatch):
    monkeypatch.setattr(evaluate, "_ENVS_MAX", 3)
    made, resets = [], []

    class Maker:
        def __call__(self, count):
            env = vector(NEXT, *(CountingEnv(2 + index) for index in range(count)))
            reset = env.reset
            env.reset = lambda *, seed: resets.append(seed) or reset(seed=seed)
            made.append(count)
            return env

    spec = spec_of(vector(NEXT, CountingEnv(2)))
    policy = Policy(0)
    policy.act = lambda observations, env_steps: np.zeros(len(observations), np.int64)
    evaluator = Evaluator(Maker(), policy, spec)
    assert evaluator.play(7, 100).tolist() == [20.0, 30.0, 40.0, 20.0, 30.0, 40.0, 20.0]
    assert resets == [100, 103, 106] and made == [3, 1]
    assert evaluator.play(3, 7).tolist() == [20.0, 30.0, 40.0] and made == [3, 1]
    evaluator.close()
    assert not evaluator._envs


@pytest.mark.parametrize("mode", [SAME, NEXT])
def test_evaluations_restart_a_recurrent_policy_at_new_episodes(mode):
    env = vector(mode, CountingEnv(2), CountingEnv(3))
    policy = RecurrentPolicy(2)
    policy.act_greedily = lambda observations: np.zeros(2, np.int64)
    evaluator = Evaluator(lambda count: env, policy, spec_of(env))
    assert evaluator.play(2, 0).tolist() == [20.0, 30.0]
    begun = [True, True]
    assert (
        policy.restarts
        == {
            SAME: [begun, [True, False], [False, True]],
            NEXT: [begun, [True, False]],
        }[mode]
    )
    evaluator.close()


class FakeActor:
    """A fake actor with a log of its calls."""

    def __init__(self):
        self.policy, self.log = SimpleNamespace(weights=torch.zeros(1)), []

    def step(self, env_steps):
        self.log.append((env_steps, float(self.policy.weights)))
        return Counts(4, [(1.0, len(self.log))] if len(self.log) == 2 else [], 1.5)

    def save(self):
        return b"state"

    def load(self, state):
        self.log.append(state)

    def end_episodes(self):
        self.log.append("ended")

    def close(self):
        self.log.append("closed")


@pytest.mark.parametrize(
    ("generation", "state", "first"), [(0, None, []), (1, None, ["ended"]), (1, b"before", [b"before"])]
)
def test_an_actor_steps_waits_parks_and_stops(monkeypatch, generation, state, first):
    slept, may = [], iter([True, False, False, False, False, True, False, True])
    ticks = iter(range(0, 10**9, 100))
    clock = SimpleNamespace(sleep=slept.append, perf_counter_ns=lambda: next(ticks))
    monkeypatch.setattr(asynchronous, "time", clock)
    counters, actor = SharedCounters(CONTEXT, 2, 1), FakeActor()
    asked = []
    pacer = SimpleNamespace(may_collect=lambda *counts: asked.append(counts) or next(may))
    # With two processes of torchrun the schedules of exploration see the steps of both.
    setup = SimpleNamespace(pacer=pacer, make_actor=lambda *args: made.append(args) or actor, scale=2)
    made = []
    ours, theirs = multiprocessing.Pipe()
    snapshot = SharedWeights(CONTEXT, 1)
    snapshot.publish(torch.tensor([3.0]))
    counters.learner[0, UPDATES] = 9

    def parks():
        ours.send("state")
        return PARK

    def sleeps():
        counters.running_actors = 1, 0
        return RUN

    def wakes():
        counters.running_actors = 2, 0
        snapshot.publish(torch.tensor([5.0]))
        snapshot.publish(torch.tensor([6.0]))
        return RUN

    commands = [RUN] * 6 + [parks, sleeps, wakes, RUN, STOP]
    asynchronous._run_actor(
        theirs, setup, 1, ScriptedCounters(counters, *commands), snapshot, [], generation, state
    )
    assert made == [(1, [], generation)]
    assert ours.recv() == ("ready", None) and ours.recv() == ("part", ("state", b"state"))
    # Waits grow up to a limit and start again after a step.
    assert slept == [5e-4, 1e-3, 2e-3, 2e-3, asynchronous.PARKED_PAUSE_S, 5e-4]
    assert actor.log == [*first, (0, 3.0), (8, 3.0), (16, 6.0), "closed"]
    assert asked == [(0, 9)] + [(4, 9)] * 5 + [(8, 9)] * 2
    row = counters.actor[1]
    assert row[ACTOR_WAIT_NS] == 500 and row[STEPS] == 12 and row[VECTOR_STEPS] == 3
    assert row[LAG_SUM] == 0 and counters.lags[1, 0] == 3
    assert counters.rewards.tolist() == [0.0, 4.5] and len(counters.take_episodes()) == 1


def test_an_actor_of_recorded_rows_has_the_policy_of_the_run(monkeypatch):
    asked = []
    monkeypatch.setattr(
        recorded, "read_play", lambda *files: asked.append(files) or (np.zeros(4), np.ones(4))
    )
    algorithm = SimpleNamespace(make_policy=lambda *args: args)
    setup = recorded.RecordedSetup(
        algorithm=algorithm,
        maker="maker",
        spec="spec",
        seed=5,
        num_envs=8,
        total_steps=10**6,
        actors=2,
        data=("a", "b"),
    )
    actor = setup.make_actor(1, 3)
    assert asked == [(("a", "b"), "maker", "spec")] and actor.policy == (1, 2, 8, 5 + 3_000_009)
    fresh = np.random.default_rng(5 + 3_000_009).bit_generator.state
    assert actor._rng.bit_generator.state == fresh
    assert setup.make_actor(1, 3, "other").policy == "other"
