"""Actors on one machine divide the threads of Atari environments."""

import pytest

from parl.algos import a2c, dqn
from parl.bench.loops import make_loop
from parl.envs import EnvMaker
from parl.runtime.population import PopulationEvaluator
from parl.train import topologies
from parl.train.config import OffPolicyRunConfig, SyncRunConfig
from parl.types import EnvSpec


@pytest.mark.parametrize("name", ["dqn", "a2c", "impala", "es"])
def test_environments_get_the_number_of_actors(monkeypatch, name):
    actors = 1 if name == "a2c" else 2
    loop = make_loop(name, "CartPole-v1", num_envs=4, **({} if name == "a2c" else {"actors": actors}))
    said = []
    for_actors = EnvMaker.for_actors
    monkeypatch.setattr(
        EnvMaker, "for_actors", lambda self, count: (said.append(count), for_actors(self, count))[1]
    )
    try:
        setup = loop._setup
        if name == "es":
            PopulationEvaluator(setup, 1)
        elif name == "dqn":
            setup.make_actor(1, setup.make_replay(None), 0)
        else:
            setup.make_actor(actors - 1, 0)
    finally:
        loop.close()
    assert said == [actors]


SPEC = EnvSpec((4, 84, 84), "uint8", (), "int64", 6, "next_step")


def test_the_number_of_threads_is_reported(monkeypatch):
    for module in ("parl.envs.make.usable_cores", "parl.train.topologies.rollouts.usable_cores"):
        monkeypatch.setattr(module, lambda: 4)
    said = []

    def settled(name, config, **options):
        maker = EnvMaker(*options.pop("env", ("parl/Pong-v0",)))
        topology = topologies.TOPOLOGIES[name]
        topology.resolve_auto(a2c.A2C(a2c.Config(), SPEC), config(**options), maker, SPEC, said.append)
        return said[-1]

    assert settled("rollout", SyncRunConfig) == "8 environments on 4 threads, 4 threads of torch"
    assert settled("rollout", SyncRunConfig, num_envs=2).startswith("2 environments on 2 threads, ")
    own = ("parl/Pong-v0", {"num_threads": 3})
    assert settled("rollout", SyncRunConfig, env=own).startswith("8 environments on 3 threads, ")
    assert settled("rollout", SyncRunConfig, env=("CartPole-v1",)).startswith("8 environments, ")
    config = topologies.TOPOLOGIES["async"].config
    assert settled("async", config, num_envs=16) == "4 actors of 4 environments on 1 thread each"


@pytest.mark.parametrize(
    ("env", "kind", "processes"),
    [
        ("parl/Pong-v0", "auto", False),
        ("CartPole-v1", "auto", True),
        ("parl/Pong-v0", "process", True),
        ("CartPole-v1", "thread", False),
    ],
)
def test_actors_of_atari_games_are_threads_by_default(env, kind, processes):
    config = OffPolicyRunConfig(env=env, actor_kind=kind, actors=2, learners=1)
    topology = topologies.TOPOLOGIES["replay"]
    made = topology.setup(dqn.DQN(dqn.Config(), SPEC), config, EnvMaker(env), SPEC)
    assert made.processes == processes
