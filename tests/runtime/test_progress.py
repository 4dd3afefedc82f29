"""Every loop passes its progress from 0 to 1 to the learner, whose learning rate falls with it."""

import numpy as np
import pytest

from parl.algos import a2c, a3c, ga3c, impala
from parl.envs import EnvMaker, spec_of
from parl.runtime.on_policy.asynchronous import AsyncRolloutLoop
from parl.runtime.on_policy.hogwild import HogwildLoop
from parl.runtime.on_policy.predictor import PredictorLoop
from parl.runtime.on_policy.setup import RolloutSetup
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

    maker = EnvMaker("CartPole-v1")
    spec = spec_of(maker(1))
    config = module.Config(rollout_steps=5, hidden=(2,), learning_rate=1e-3)
    setup = RolloutSetup(
        algorithm=Algorithm(config, spec),
        maker=maker,
        spec=spec,
        seed=0,
        num_envs=2,
        total_steps=TOTAL,
        threads=1,
        device="cpu",
        actors=2,
        processes=False,
        max_lag=10**6,
    )
    running = loop(setup)
    try:
        while running.env_steps < TOTAL:
            running.advance(TOTAL, 60.0)
    finally:
        running.close()
    assert min(told) < 0.1 and 0.8 < max(told) <= 1.1
    # One of the two actors may be some rollouts behind the other.
    assert np.corrcoef(told, np.arange(len(told)))[0, 1] > 0.8
    assert max(rates) > 0.9e-3 and min(rates) < 0.2e-3
