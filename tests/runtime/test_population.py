"""The population topology: processes and one process agree, resumed runs go on, failures are named."""

import gymnasium
import pytest
import torch
from gymnasium.vector import SyncVectorEnv

from parl.algos.es import ES, Config
from parl.envs import EnvMaker, spec_of
from parl.errors import WorkerError
from parl.runtime import checkpoint
from parl.runtime.population import PopulationLoop, PopulationSetup


def cartpoles(num_envs):
    return SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * num_envs)


def setup(env=cartpoles, actors=1, processes=False, seed=0, size=10):
    maker = EnvMaker(env)
    spec = spec_of(maker(1))
    algorithm = ES(Config(hidden=(8,)), spec)
    return PopulationSetup(algorithm, maker, spec, seed, size, 10**6, actors, processes, "cpu")


def run(setup, steps, saved=None):
    loop = PopulationLoop(setup, saved)
    try:
        loop.advance(steps, 0.0)
    finally:
        loop.close()
    return loop


def test_results_do_not_depend_on_who_evaluates():
    """Environments with generators of their own: the same members see the same episodes."""
    one = run(setup(), 1_500)
    assert one.updates > 2 and one.env_steps >= 1_500
    for other in (run(setup(actors=3), 1_500), run(setup(actors=2, processes=True), 1_500)):
        assert (other.updates, other.env_steps) == (one.updates, one.env_steps)
        assert torch.equal(other.learner.weights, one.learner.weights)
    assert not torch.equal(run(setup(seed=1), 1_500).learner.weights, one.learner.weights)


def test_a_resumed_run_repeats_the_uninterrupted_one(tmp_path):
    whole = PopulationLoop(setup())
    whole.advance(600, 0.0)
    whole.save(tmp_path)
    whole.take_episodes()
    whole.advance(1_500, 0.0)
    resumed = run(setup(), 1_500, checkpoint.read(tmp_path))
    assert (resumed.updates, resumed.env_steps) == (whole.updates, whole.env_steps)
    assert torch.equal(resumed.learner.weights, whole.learner.weights)
    assert resumed.take_episodes() == whole.take_episodes()
    report = whole.report()
    assert report["return_best"] >= report["return_mean"] > 0
    whole.close()


class Breaks(gymnasium.Wrapper):
    def step(self, action):
        raise ValueError("the pole is broken")


def test_a_failing_worker_is_named():
    broken = setup(lambda: Breaks(gymnasium.make("CartPole-v1")), actors=2, processes=True)
    with pytest.raises(WorkerError, match="the pole is broken"):
        run(broken, 100)
