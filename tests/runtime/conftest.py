"""Small runs that tests build on: a setup of double DQN on CartPole."""

import pytest

from parl.algos.dqn import DQN, Config
from parl.envs import EnvMaker, spec_of
from parl.runtime.pacer import Pacer
from parl.runtime.setup import Setup


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
        total_frames=10**9,
        seed=0,
        learner_threads=False,
        **options,
    ):
        maker = EnvMaker(env)
        spec = spec_of(maker(1))
        algorithm = DQN(Config(**{"hidden": (16,), "n_step": 3, **options}), spec)
        pacer = Pacer(ratio, batch_size, num_envs, 100, total_frames)
        return Setup(
            algorithm,
            maker,
            spec,
            seed,
            actors,
            processes,
            learners,
            num_envs,
            batch_size,
            5_000,
            pacer,
            "cpu",
            learner_threads=learner_threads,
        )

    return make
