"""A fixture that makes the setup of a small run: double DQN on CartPole."""

import pytest

from parl.algos.dqn import DQN, Config
from parl.envs import EnvMaker, spec_of
from parl.runtime.off_policy.pacer import Pacer
from parl.runtime.off_policy.setup import OffPolicySetup


@pytest.fixture
def make_setup():
    def make(
        env="CartPole-v1",
        actors=1,
        learners=1,
        processes=True,
        num_envs=4,
        batch_size=32,
        ratio=4.0,
        total_steps=10**9,
        seed=0,
        learner_threads=False,
        **options,
    ):
        maker = EnvMaker(env)
        spec = spec_of(maker(1))
        algorithm = DQN(Config(**{"hidden": (16,), "n_step": 3, **options}), spec)
        pacer = Pacer(ratio, batch_size, num_envs, 100, total_steps)
        return OffPolicySetup(
            algorithm=algorithm,
            maker=maker,
            spec=spec,
            seed=seed,
            actors=actors,
            processes=processes,
            learners=learners,
            num_envs=num_envs,
            batch_size=batch_size,
            replay_capacity=5_000,
            pacer=pacer,
            device="cpu",
            learner_threads=learner_threads,
        )

    return make
