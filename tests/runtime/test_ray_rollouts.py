"""Rollouts and populations over Ray, on a real cluster of two nodes on this machine."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import cloudpickle
import gymnasium
import pytest
import torch
from ray_nodes import add_node, await_processors
from rollout_setup import rollout_setup, run_until

from parl.algos import es, ga, impala, ppo
from parl.envs import EnvMaker, spec_of
from parl.run import read_metrics
from parl.runtime import checkpoint
from parl.runtime.distributed import ray_cluster
from parl.runtime.distributed.ray_cluster import RayCluster
from parl.runtime.distributed.ray_population import RayPopulationLoop
from parl.runtime.distributed.ray_rollouts import RayAsyncRolloutLoop, RaySyncRolloutLoop
from parl.runtime.on_policy.sync import SyncRolloutLoop
from parl.runtime.population import PopulationLoop, PopulationSetup
from parl.train import train

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:::ray"),
    pytest.mark.usefixtures("threads_restored"),
]


@pytest.fixture(scope="module", autouse=True)
def _pickled_by_value():
    """The nodes can import parl, but not this file."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def threads_restored():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Killed(gymnasium.Wrapper):
    """CartPole of which one kills its process in a step, unless the folder says that one has."""

    def __init__(self, folder, step):
        super().__init__(gymnasium.make("CartPole-v1"))
        self._file, self._step, self._steps = Path(folder) / "killed", step, 0

    def step(self, action):
        self._steps += 1
        if self._steps == self._step and not self._file.exists():
            self._file.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def killed(folder, step):
    folder = str(folder)
    return lambda: Killed(folder, step)


PPO = ppo.Config(rollout_steps=16, hidden=(8,), minibatch_size=32, epochs=2)


def ppo_setup(cluster, **options):
    options = {"num_envs": 4, "joins_rollouts": True, "processes": False, **options}
    remote = None if cluster is None else RayCluster(cluster.address)
    return rollout_setup(ppo.PPO, PPO, remote=remote, **options)


def finished(loop, steps):
    """What a run of ``steps`` steps gives: weights, episodes, rewards, updates, failures."""
    with contextlib.closing(loop):
        run_until(loop, steps)
        report = loop.report()
        weights = loop.learner.weights.clone()
        return weights, loop.take_episodes(), loop.rewards_and_episodes(), loop.updates, report


def assert_equal(one, other):
    assert torch.equal(one[0], other[0])
    assert one[1:4] == other[1:4] and one[3] > 0


def test_ppo_over_ray_gives_the_numbers_of_the_local_engine(cluster):
    for actors in (1, 2):
        far = finished(RaySyncRolloutLoop(ppo_setup(cluster, actors=actors)), 1_000)
        assert_equal(far, finished(SyncRolloutLoop(ppo_setup(None, actors=actors)), 1_000))
        assert far[4]["actor_failures"] == 0


def test_ppo_repeats_the_rollout_of_a_killed_actor(cluster, tmp_path):
    """It is killed in the middle of a rollout; its environments were saved after the one before."""
    options = {"actors": 2, "env": killed(tmp_path, 39)}
    far = finished(RaySyncRolloutLoop(ppo_setup(cluster, **options)), 1_000)
    assert (tmp_path / "killed").exists() and far[4]["actor_failures"] == 1
    assert_equal(far, finished(SyncRolloutLoop(ppo_setup(None, **options)), 1_000))


def test_a_checkpoint_of_ppo_continues_on_ray_and_here(cluster, tmp_path):
    setup = ppo_setup(cluster, actors=2)
    with contextlib.closing(RaySyncRolloutLoop(setup)) as loop:
        run_until(loop, 500).save(tmp_path)
        run_until(loop, 1_000)
        whole = loop.learner.weights.clone()
    saved = checkpoint.read(tmp_path)
    assert saved.counters["actors_saved"] == [True, True]
    assert torch.equal(finished(RaySyncRolloutLoop(setup, saved), 1_000)[0], whole)
    here = SyncRolloutLoop(ppo_setup(None, actors=2), checkpoint.read(tmp_path))
    assert torch.equal(finished(here, 1_000)[0], whole)


def test_ppo_loses_a_node_and_continues_on_the_others(cluster, monkeypatch):
    """No node has a free processor for the lost actor: it shares one with another actor."""
    monkeypatch.setattr(ray_cluster, "_PLACEMENT_S", 0.5)
    node = add_node(cluster)
    await_processors(3)
    with contextlib.closing(RaySyncRolloutLoop(ppo_setup(cluster, actors=3, num_envs=6))) as loop:
        run_until(loop, 400)
        cluster.remove_node(node)
        run_until(loop, 1_200)
        assert loop.report()["actor_failures"] == 1
        far = loop.learner.weights.clone()
    await_processors(2)
    here = finished(SyncRolloutLoop(ppo_setup(None, actors=3, num_envs=6)), 1_200)
    assert torch.equal(far, here[0])


def test_impala_collects_on_two_nodes_and_replaces_a_killed_actor(cluster, tmp_path):
    config = impala.Config(rollout_steps=10, hidden=(8,))
    options = {"num_envs": 4, "processes": False, "max_lag": 10**6, "env": killed(tmp_path, 25)}
    setup = rollout_setup(impala.IMPALA, config, remote=RayCluster(cluster.address), **options)
    with contextlib.closing(RayAsyncRolloutLoop(setup)) as loop:
        first = loop.learner.weights.clone()
        nodes = {handle.process()[0] for handle in loop._handles}
        run_until(loop, 2_000)
        while not all(handle.is_placed(0.0) for handle in loop._handles):
            run_until(loop, loop.env_steps + 100)
        report = loop.report()
        loop.save(tmp_path)
        assert len(nodes) == 2 and report["actor_failures"] == 1
        # The first rollout of each actor has the first weights, of version 1; an actor has two open requests.
        assert report["policy_lag"] > 0 and report["rollouts_left_out"] == 0
        assert loop.updates == loop._received and not torch.equal(first, loop.learner.weights)
        episodes, (rewards, ended) = loop.take_episodes(), loop.rewards_and_episodes()
        assert len(episodes) == ended > 10
        assert sum(value for value, _ in episodes) <= rewards == pytest.approx(loop.env_steps, abs=1)
    saved = checkpoint.read(tmp_path)
    assert saved.counters["actors_saved"] == [True, True]
    with contextlib.closing(RayAsyncRolloutLoop(setup, saved)) as loop:
        run_until(loop, saved.counters["env_steps"] + 200)


def test_impala_leaves_out_rollouts_with_too_large_a_lag(cluster):
    config = impala.Config(rollout_steps=10, hidden=(8,))
    options = {"num_envs": 4, "processes": False, "max_lag": 0, "remote": RayCluster(cluster.address)}
    with contextlib.closing(RayAsyncRolloutLoop(rollout_setup(impala.IMPALA, config, **options))) as loop:
        run_until(loop, 1_000)
        report = loop.report()
        assert report["rollouts_left_out"] > 0
        assert loop.updates == loop._received - loop._left_out > 0


def population_setup(module, env, cluster):
    algorithm = {es: es.ES, ga: ga.GA}[module]
    maker = EnvMaker(env)
    return PopulationSetup(
        algorithm=algorithm(module.Config(hidden=(8,)), spec_of(maker(1))),
        maker=maker,
        spec=spec_of(maker(1)),
        seed=3,
        num_envs=12,
        total_steps=10**6,
        actors=2,
        member_batches=4,
        remote=None if cluster is None else RayCluster(cluster.address),
    )


@pytest.mark.parametrize("module", [es, ga])
def test_a_population_over_ray_gives_the_numbers_of_the_local_engine(cluster, module, tmp_path):
    """An actor is killed in the middle of a generation, and its batch is evaluated by another."""
    env = killed(tmp_path, 30)
    far = finished(RayPopulationLoop(population_setup(module, env, cluster)), 2_000)
    assert (tmp_path / "killed").exists() and far[4]["actor_failures"] == 1
    assert_equal(far, finished(PopulationLoop(population_setup(module, env, None)), 2_000))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ppo", {"rollout_steps": 16, "epochs": 1, "num_envs": 4}),
        ("impala", {"num_envs": 4}),
        ("es", {"num_envs": 8}),
    ],
)
def test_train_over_ray(cluster, tmp_path, name, options):
    options |= {"hidden": (8,), "evaluation_episodes": 1, "quiet": True, "runs": str(tmp_path)}
    options |= {"engine": "ray", "ray_address": cluster.address, "total_steps": 800}
    path = train(name, "CartPole-v1", **options).path
    records = [record for record in read_metrics(path) if "actor_failures" in record]
    assert records[-1]["actor_failures"] == 0 and records[-1]["env_steps"] >= 800
