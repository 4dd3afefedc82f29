"""Double-buffered actors: results do not depend on thread timing, no rows are lost, runs resume exactly."""

import contextlib
import dataclasses
import math
from concurrent.futures import Executor, Future

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv

from parl.errors import ConfigError
from parl.runtime import checkpoint
from parl.runtime.off_policy import double_buffer
from parl.runtime.off_policy.asynchronous import AsyncOffPolicyLoop
from parl.runtime.off_policy.deterministic import DeterministicOffPolicyLoop
from parl.train import train


def cartpoles(num_envs):
    return SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * num_envs)


class AtOnce(Executor):
    """Runs each function in `submit`, in the calling thread."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def run(setup, steps):
    loop = DeterministicOffPolicyLoop(setup)
    loop.advance(steps, 0.0)
    return loop


def test_results_are_the_same_with_and_without_the_thread(make_setup, monkeypatch):
    setup = dataclasses.replace(make_setup(env=cartpoles, actors=2, num_envs=6), double_buffer=True)
    one = run(setup, 1_200)
    monkeypatch.setattr(double_buffer, "ThreadPoolExecutor", lambda *_: AtOnce())
    other = run(setup, 1_200)
    assert one.updates == other.updates > 100
    assert torch.equal(one.learner.weights, other.learner.weights)
    assert one.take_episodes() == other.take_episodes()


def test_environments_and_rows_are_those_of_an_actor_without_groups(make_setup):
    """First observations are equal, and each row continues the previous row of its environment."""
    setup = make_setup(env=cartpoles, num_envs=6)
    split = dataclasses.replace(setup, double_buffer=True)
    rows = []
    for one in (setup, split):
        replay = one.make_replay(None)
        actor = one.make_actor(0, replay, 0)
        transitions = sum(actor.step(0)[0] for _ in range(40))
        rows.append(replay.sample(2_000, mode="uniform"))
        assert transitions >= (40 if one is setup else 39) * 6 - 40
        actor.close()
    firsts = [{tuple(obs) for obs in np.round(batch.obs, 5)} for batch in rows]
    # First observations of all six environments, drawn from their own generators.
    assert len(firsts[0] & firsts[1]) >= 6
    batch = rows[1]
    assert {round(float(r), 4) for r in batch.reward} <= {1.0, 1.99, 2.9701}
    assert np.abs(batch.next_obs - batch.obs).max() < 1.5


def test_end_episodes_covers_both_groups(make_setup, monkeypatch):
    """An actor that replaces a lost one ends the episodes of all its environments."""
    setup = dataclasses.replace(make_setup(env=cartpoles, num_envs=6), double_buffer=True)
    replay = setup.make_replay(None)
    ended, end = [], type(replay).end_episodes
    monkeypatch.setattr(
        type(replay), "end_episodes", lambda self, ids: ended.extend(np.atleast_1d(ids)) or end(self, ids)
    )
    with contextlib.closing(setup.make_actor(0, replay, 1)) as actor:
        actor.end_episodes()
    assert sorted(ended) == list(range(6))


@pytest.mark.parametrize("save_at", [60, 900])
def test_a_resumed_run_repeats_the_uninterrupted_one(make_setup, tmp_path, save_at):
    """The same holds for a run that continues after saving: a checkpoint changes nothing."""
    setup = dataclasses.replace(make_setup(env=cartpoles, actors=2, num_envs=6), double_buffer=True)
    whole = run(setup, 1_500)
    half = run(setup, save_at)
    half.save(tmp_path)
    half.advance(1_500, 0.0)
    resumed = DeterministicOffPolicyLoop(setup, checkpoint.read(tmp_path))
    resumed.advance(1_500, 0.0)
    for other in (half, resumed):
        assert other.updates == whole.updates and other.env_steps == whole.env_steps
        assert torch.equal(other.learner.weights, whole.learner.weights)


def test_the_async_schedule_supports_a_double_buffer(make_setup, tmp_path):
    setup = dataclasses.replace(make_setup(actors=2), double_buffer=True)
    with contextlib.closing(AsyncOffPolicyLoop(setup)) as loop:
        loop.advance(1_500, seconds=math.inf)
        loop.save(tmp_path)
        assert loop.updates > 100
        loop._replay.verify()
    with pytest.raises(ConfigError, match="two environments per actor"):
        train("dqn", "CartPole-v1", actors=4, num_envs=6, double_buffer=True)
