"""What all topologies that learn from rollouts share: progress of the run, equal runs, errors of actors."""

import contextlib

import gymnasium
import numpy as np
import pytest
import torch
from rollout_setup import rollout_setup, run_until

from parl.algos import a2c, a3c, ga3c, impala
from parl.errors import WorkerError
from parl.runtime.on_policy.asynchronous import AsyncRolloutLoop
from parl.runtime.on_policy.hogwild import HogwildLoop
from parl.runtime.on_policy.predictor import PredictorLoop
from parl.runtime.on_policy.sync import SyncRolloutLoop

TOTAL = 600
LOOPS = [(SyncRolloutLoop, a2c), (HogwildLoop, a3c), (AsyncRolloutLoop, impala), (PredictorLoop, ga3c)]


@pytest.mark.parametrize(("loop", "module"), LOOPS)
def test_progress_goes_from_0_to_1(loop, module):
    told, rates = [], []

    class Learner(a2c.A2CLearner):
        def learn(self, rollout, progress, average):
            told.append(progress)
            return super().learn(rollout, progress, average)

        def learning_rate(self, progress):
            rates.append(super().learning_rate(progress))
            return rates[-1]

    class Algorithm(a2c.A2C):
        learner = Learner

    config = module.Config(rollout_steps=5, hidden=(2,), learning_rate=1e-3)
    options = {"num_envs": 2, "total_steps": TOTAL, "processes": False, "max_lag": 10**6}
    with contextlib.closing(loop(rollout_setup(Algorithm, config, **options))) as running:
        run_until(running, TOTAL)
    assert min(told) < 0.1 and 0.8 < max(told) <= 1.1
    # One of the two actors may be some rollouts behind the other.
    assert np.corrcoef(told, np.arange(len(told)))[0, 1] > 0.8
    assert max(rates) > 0.9e-3 and min(rates) < 0.2e-3


@pytest.mark.parametrize(
    ("algorithm", "config", "steps"),
    [
        (impala.IMPALA, impala.Config(rollout_steps=10, hidden=(16,)), 1_500),
        (a3c.A3C, a3c.Config(rollout_steps=5, hidden=(16,)), 600),
        (ga3c.GA3C, ga3c.Config(rollout_steps=5, hidden=(16,)), 600),
    ],
)
def test_deterministic_runs_of_two_actors_are_equal(algorithm, config, steps):
    one, two = (run_until(SyncRolloutLoop(rollout_setup(algorithm, config)), steps) for _ in range(2))
    assert torch.equal(one.learner.weights, two.learner.weights) and one.updates > 20


class Breaks(gymnasium.Wrapper):
    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps > 20:
            raise ValueError("the wheel came off")
        return super().step(action)


@pytest.mark.parametrize(
    ("loop", "algorithm", "config", "processes"),
    [
        (AsyncRolloutLoop, impala.IMPALA, impala.Config(hidden=(16,)), True),
        (AsyncRolloutLoop, impala.IMPALA, impala.Config(hidden=(16,)), False),
        (HogwildLoop, a3c.A3C, a3c.Config(hidden=(16,)), True),
    ],
)
def test_an_error_of_an_actor_reaches_the_driver(loop, algorithm, config, processes):
    broken = {"env": lambda: Breaks(gymnasium.make("CartPole-v1")), "processes": processes}
    with contextlib.closing(loop(rollout_setup(algorithm, config, **broken))) as running:
        with pytest.raises(WorkerError, match="the wheel came off"):
            run_until(running, 10_000)
