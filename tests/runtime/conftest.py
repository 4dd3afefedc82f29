"""Fixtures: the setup of a small run (double DQN on CartPole), and a Ray cluster of two nodes."""

import os

import pytest
from fake_ray import install
from ray_nodes import add_node

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


@pytest.fixture
def fake_ray(monkeypatch):
    """Replaces Ray, see :class:`fake_ray.FakeRay`."""
    return install(monkeypatch)


@pytest.fixture(scope="session")
def cluster():
    """Two nodes of one processor each on this machine, for all tests; this process is connected to it."""
    import ray
    from ray.cluster_utils import Cluster

    # Otherwise Ray gives its workers a lower priority than other processes.
    os.environ.setdefault("RAY_worker_niceness", "0")
    cluster = Cluster(initialize_head=False)
    add_node(cluster, include_dashboard=False)
    add_node(cluster)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()
