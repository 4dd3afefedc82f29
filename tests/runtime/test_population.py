"""The population topology: equal results for any number of processes, exact resumes, errors of workers."""

import contextlib

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv

from parl.algos.es import ES, Config
from parl.envs import EnvMaker, spec_of
from parl.errors import ConfigError, WorkerError
from parl.runtime import checkpoint
from parl.runtime.population import (
    _ALIGNMENT,
    PopulationLoop,
    PopulationSetup,
    _rows,
    pack_members,
    unpack_members,
)
from parl.train.topologies import TOPOLOGIES


def cartpoles(num_envs):
    return SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * num_envs)


def setup(env=cartpoles, actors=1, processes=False, seed=0, size=10, member_batches=None):
    maker = EnvMaker(env)
    spec = spec_of(maker(1))
    algorithm = ES(Config(hidden=(8,)), spec)
    member_batches = actors if member_batches is None else member_batches
    return PopulationSetup(
        algorithm=algorithm,
        maker=maker,
        spec=spec,
        seed=seed,
        num_envs=size,
        total_steps=10**6,
        actors=actors,
        processes=processes,
        member_batches=member_batches,
    )


def run(setup, steps, saved=None):
    with contextlib.closing(PopulationLoop(setup, saved)) as loop:
        loop.advance(steps, 0.0)
    return loop


def test_results_do_not_depend_on_the_number_of_processes():
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
    def __init__(self, env, kind=ValueError):
        super().__init__(env)
        self._kind = kind

    def step(self, action):
        raise self._kind("the pole is broken")


def test_an_error_of_a_worker_reaches_the_driver():
    broken = setup(lambda: Breaks(gymnasium.make("CartPole-v1")), actors=2, processes=True)
    with pytest.raises(WorkerError, match="the pole is broken"):
        run(broken, 100)


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_generation_that_fails_leaves_the_state_before_it(error, tmp_path):
    """A run that is resumed after the failure repeats the generation."""
    broken = setup(lambda: Breaks(gymnasium.make("CartPole-v1"), error))
    with contextlib.closing(PopulationLoop(broken)) as loop:
        with pytest.raises(error, match="the pole is broken"):
            loop.advance(600, 0.0)
        loop.save_after_failure(tmp_path)
    resumed, whole = run(setup(), 600, checkpoint.read(tmp_path)), run(setup(), 600)
    assert torch.equal(resumed.learner.weights, whole.learner.weights)


@pytest.mark.parametrize("env", [cartpoles, "CartPole-v1"], ids=["own generators", "one generator"])
def test_member_batches_are_equal_parts_that_do_not_change_the_result(env):
    """An idle process evaluates the next batch; its vector environment has the size of the largest batch."""
    parts = setup(size=14, member_batches=4).batch_slices()
    assert [(part.start, part.stop) for part in parts] == [(0, 3), (3, 7), (7, 10), (10, 14)]
    one = run(setup(env, size=14), 2_000)
    episodes = one.take_episodes()
    assert one.updates > 2 and len(episodes) == 14 * one.updates
    assert all(value == length for value, length in episodes)  # the reward of CartPole is 1 per step
    for other in (
        setup(env, size=14, member_batches=4),
        setup(env, size=14, member_batches=5, actors=2, processes=True),
    ):
        found = run(other, 2_000)
        assert torch.equal(found.learner.weights, one.learner.weights)
        assert found.take_episodes() == episodes


def test_seed_chains_are_packed_with_each_parent_once():
    members = [(1, 2, 3), (4, 5), (1, 2, 9), (7,), (4, 6)]
    parents, packed = pack_members(members)
    assert sorted(parents) == [(), (1, 2), (4,)]
    assert unpack_members(parents, packed) == members


def test_rows_in_shared_memory_are_aligned():
    """At any address of the memory itself, because the alignment may change sums."""
    memory = np.zeros(3 * 5 + 32, np.float32)
    starts = {_rows(memory[offset:], 3, 5).data_ptr() % _ALIGNMENT for offset in range(16)}
    assert starts == {0}


def test_numbers_of_actors_and_member_batches_are_chosen():
    topology = TOPOLOGIES["population"]
    said = []

    def settled(env, **options):
        config = topology.config(env=env, **options)
        found = topology.resolve_auto(None, config, EnvMaker(env), None, said.append)
        return found.actors, found.member_batches

    assert settled("CartPole-v1", num_envs=64, schedule="deterministic") == (1, 1)
    assert settled("CartPole-v1", num_envs=64, actors=3) == (3, 3)
    assert settled("MountainCar-v0", num_envs=65, actors=3) == (3, 5)
    assert settled("MountainCar-v0", num_envs=10, actors=2) == (2, 2)
    assert len(said) == 4 and "65 members per generation, in 5 batches, evaluated by 3 processes" in said[2]
    assert settled("CartPole-v1", num_envs=9, actors=2, member_batches=4) == (2, 4)
    assert len(said) == 4
    with pytest.raises(ConfigError, match="member_batches = 2 is below actors = 3"):
        topology.config(env="CartPole-v1", actors=3, member_batches=2)
    with pytest.raises(ConfigError, match=r"member_batches = 65 is neither auto nor 1 to num_envs = 64"):
        topology.config(env="CartPole-v1", num_envs=64, member_batches=65)
