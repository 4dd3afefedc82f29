"""The async topology: learning, policy lag and its limit, saving and resuming, errors of actors."""

import multiprocessing

import gymnasium
import numpy as np
import pytest
import torch

from parl.algos.impala import IMPALA, Config
from parl.envs import EnvMaker, spec_of
from parl.errors import WorkerError
from parl.run import RunDirectory, read_metrics
from parl.runtime import checkpoint
from parl.runtime.on_policy import asynchronous
from parl.runtime.on_policy.asynchronous import AsyncRolloutLoop
from parl.runtime.on_policy.setup import RolloutSetup
from parl.runtime.on_policy.sync import SyncRolloutLoop
from parl.train import evaluate, resume, train


def setup(env="CartPole-v1", actors=2, processes=True, max_lag=32, seed=0):
    maker = EnvMaker(env)
    spec = spec_of(maker(1))
    algorithm = IMPALA(Config(rollout_steps=10, hidden=(16,)), spec)
    return RolloutSetup(
        algorithm=algorithm,
        maker=maker,
        spec=spec,
        seed=seed,
        num_envs=5,
        total_steps=10**6,
        threads=1,
        device="cpu",
        actors=actors,
        processes=processes,
        max_lag=max_lag,
    )


def run(loop, steps):
    while loop.env_steps < steps:
        loop.advance(steps, 60.0)
    return loop


def test_a_forkserver_shares_the_buffers_too(monkeypatch):
    """Its processes receive pickled objects. With copies of the buffers, those of the driver stay empty."""
    context = multiprocessing.get_context("forkserver")
    monkeypatch.setattr(asynchronous, "choose_context", lambda *_: context)
    loop = AsyncRolloutLoop(setup(actors=1))
    try:
        run(loop, 200)
        assert loop._buffers[0][0].valid.any() and loop._buffers[0][0].obs.any()
        assert loop.rewards_and_episodes()[0] == pytest.approx(loop.env_steps, abs=1)
    finally:
        loop.close()


@pytest.mark.parametrize("processes", [True, False])
def test_the_learner_learns_from_rollouts_of_all_actors(processes):
    loop = AsyncRolloutLoop(setup(processes=processes))
    try:
        before = loop.learner.weights.clone()
        run(loop, 2_000)
        assert not torch.equal(loop.learner.weights, before)
        report = loop.report()
        assert 0 <= report["policy_lag"] <= report["policy_lag_max"]
        assert report["rollouts_left_out"] == 0
        assert loop.updates > 50
        episodes = loop.take_episodes()
        rewards, ended = loop.rewards_and_episodes()
        assert len(episodes) == ended > 10
        assert sum(value for value, _ in episodes) <= rewards == pytest.approx(loop.env_steps, abs=1)
    finally:
        loop.close()


def test_rollouts_above_the_lag_limit_are_left_out():
    loop = AsyncRolloutLoop(setup(max_lag=0))
    try:
        run(loop, 3_000)
        report = loop.report()
        # Each actor has two buffers: at least one rollout starts before the other has been learned from.
        assert 0 < report["rollouts_left_out"] < 1
        assert loop.updates < 3_000 / 10 / 2
    finally:
        loop.close()


def test_deterministic_runs_of_two_actors_are_equal():
    one, two = (run(SyncRolloutLoop(setup()), 1_500) for _ in range(2))
    assert torch.equal(one.learner.weights, two.learner.weights) and one.updates > 20


def test_a_saved_run_resumes(tmp_path):
    loop = AsyncRolloutLoop(setup())
    try:
        run(loop, 500)
        loop.save(tmp_path)
        saved = loop.learner.weights.clone()
        steps = loop.env_steps
        run(loop, 1_000)
    finally:
        loop.close()
    resumed = AsyncRolloutLoop(setup(), checkpoint.read(tmp_path))
    try:
        assert torch.equal(resumed.learner.weights, saved) and resumed.env_steps == steps
        run(resumed, 1_000)
    finally:
        resumed.close()


class Breaks(gymnasium.Wrapper):
    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps > 40:
            raise ValueError("the wheel came off")
        return super().step(action)


@pytest.mark.parametrize("processes", [True, False])
def test_an_error_of_an_actor_reaches_the_driver(processes):
    loop = AsyncRolloutLoop(setup(lambda: Breaks(gymnasium.make("CartPole-v1")), processes=processes))
    try:
        with pytest.raises(WorkerError, match="the wheel came off"):
            run(loop, 10_000)
    finally:
        loop.close()


def test_impala_learns_by_name_and_resumes(tmp_path):
    options = {"env": "CartPole-v1", "actors": 2, "quiet": True, "evaluation_episodes": 10}
    path = train("impala", **options, total_steps="30k", runs=str(tmp_path)).path
    assert evaluate(path, episodes=10).mean() > 60
    last = [record for record in read_metrics(path) if "policy_lag_max" in record][-1]
    assert np.isfinite(last["policy_lag"])
    assert resume(path, total_steps="32k").env_steps >= 32_000
    assert RunDirectory.open(path).config["impala"]["advantage"] == "vtrace"
