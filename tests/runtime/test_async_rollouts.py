"""The async topology: learning, policy lag and its limit, saving and resuming."""

import contextlib
import multiprocessing

import numpy as np
import pytest
import torch
from rollout_setup import rollout_setup, run_until

from parl.algos.impala import IMPALA, Config
from parl.run import RunDirectory, read_metrics
from parl.runtime import checkpoint
from parl.runtime.on_policy import asynchronous
from parl.runtime.on_policy.asynchronous import AsyncRolloutLoop
from parl.train import evaluate, resume, train


def setup(**options):
    return rollout_setup(IMPALA, Config(rollout_steps=10, hidden=(16,)), **{"max_lag": 32, **options})


def test_a_forkserver_shares_the_buffers_too(monkeypatch):
    """Its processes receive pickled objects. With copies of the buffers, those of the driver stay empty."""
    context = multiprocessing.get_context("forkserver")
    monkeypatch.setattr(asynchronous, "choose_context", lambda *_: context)
    with contextlib.closing(AsyncRolloutLoop(setup(actors=1))) as loop:
        run_until(loop, 200)
        assert loop._buffers[0][0].valid.any() and loop._buffers[0][0].obs.any()
        assert loop.rewards_and_episodes()[0] == pytest.approx(loop.env_steps, abs=1)


@pytest.mark.parametrize("processes", [True, False])
def test_the_learner_learns_from_rollouts_of_all_actors(processes):
    with contextlib.closing(AsyncRolloutLoop(setup(processes=processes))) as loop:
        before = loop.learner.weights.clone()
        run_until(loop, 2_000)
        assert not torch.equal(loop.learner.weights, before)
        report = loop.report()
        assert 0 <= report["policy_lag"] <= report["policy_lag_max"]
        assert report["rollouts_left_out"] == 0
        assert loop.updates > 50
        episodes = loop.take_episodes()
        rewards, ended = loop.rewards_and_episodes()
        assert len(episodes) == ended > 10
        assert sum(value for value, _ in episodes) <= rewards == pytest.approx(loop.env_steps, abs=1)


def test_rollouts_above_the_lag_limit_are_left_out():
    with contextlib.closing(AsyncRolloutLoop(setup(max_lag=0))) as loop:
        run_until(loop, 3_000)
        report = loop.report()
        # Each actor has two buffers: at least one rollout starts before the other has been learned from.
        assert 0 < report["rollouts_left_out"] < 1
        assert loop.updates < 3_000 / 10 / 2


def test_a_saved_run_resumes(tmp_path):
    with contextlib.closing(AsyncRolloutLoop(setup())) as loop:
        run_until(loop, 500)
        loop.save(tmp_path)
        saved = loop.learner.weights.clone()
        steps = loop.env_steps
        run_until(loop, 1_000)
    with contextlib.closing(AsyncRolloutLoop(setup(), checkpoint.read(tmp_path))) as resumed:
        assert torch.equal(resumed.learner.weights, saved) and resumed.env_steps == steps
        run_until(resumed, 1_000)


def test_impala_learns_by_name_and_resumes(tmp_path):
    options = {"env": "CartPole-v1", "actors": 2, "quiet": True, "evaluation_episodes": 10}
    path = train("impala", **options, total_steps="30k", runs=str(tmp_path)).path
    assert evaluate(path, episodes=10).mean() > 60
    last = [record for record in read_metrics(path) if "policy_lag_max" in record][-1]
    assert np.isfinite(last["policy_lag"])
    assert resume(path, total_steps="32k").env_steps >= 32_000
    assert RunDirectory.open(path).config["impala"]["advantage"] == "vtrace"
