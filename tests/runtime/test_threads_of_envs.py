"""Actors that run beside each other divide the threads of Atari environments."""

import pytest

from parl.bench.loops import make_loop
from parl.envs import EnvMaker
from parl.runtime.population import Evaluation


@pytest.mark.parametrize("name", ["dqn", "a2c", "impala", "es"])
def test_every_actor_says_how_many_there_are(monkeypatch, name):
    actors = 1 if name == "a2c" else 2
    loop = make_loop(name, "CartPole-v1", num_envs=4, **({} if name == "a2c" else {"actors": actors}))
    said = []
    beside = EnvMaker.beside
    monkeypatch.setattr(EnvMaker, "beside", lambda self, count: (said.append(count), beside(self, count))[1])
    try:
        setup = loop._setup
        if name == "es":
            Evaluation(setup, 1)
        elif name == "dqn":
            setup.make_actor(1, setup.make_replay(None), 0)
        else:
            setup.make_actor(actors - 1, 0)
    finally:
        loop.close()
    assert said == [actors]
