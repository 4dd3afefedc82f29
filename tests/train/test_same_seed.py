"""In the deterministic schedule of every algorithm, equal seeds give equal weights and others do not."""

import os
import random

import gymnasium
import numpy as np
import pytest
import torch

from parl.train import ALGORITHMS, resume, train
from saved_learners import weights_of

REPLAY = {"learning_starts": 40, "batch_size": 8, "replay_capacity": 500, "total_steps": 120}
REPLAY |= {"replay_ratio": 4.0}
ROLLOUT = {"total_steps": 400, "rollout_steps": 8}
OPTIONS = {
    "replay": REPLAY,
    "rollout": ROLLOUT,
    "async": ROLLOUT | {"actors": 2},
    "hogwild": ROLLOUT | {"actors": 2},
    "predictor": ROLLOUT | {"actors": 2},
    "population": {"total_steps": 400},
    "data": {"total_steps": 400},
}


def weights(name, folder, seed, label):
    options = OPTIONS[ALGORITHMS[name].topology] | {"num_envs": 4, "hidden": (8,), "evaluation_episodes": 0}
    if name == "bc":
        rng = np.random.default_rng(0)
        play = folder / "play.npz"
        np.savez(play, observations=rng.normal(size=(99, 4)).astype("f"), actions=rng.integers(0, 2, 99))
        options |= {"data": (str(play),)}
    env = "Pendulum-v1" if name in ("sac", "td3", "ddpg") else "CartPole-v1"
    run = train(
        name,
        env=env,
        schedule="deterministic",
        seed=seed,
        name=label,
        quiet=True,
        runs=str(folder),
        **options,
    )
    assert run.updates > 0
    return weights_of(run.path)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_same_seed_same_bits(tmp_path, name):
    one, two, other = (weights(name, tmp_path, seed, label) for seed, label in ((3, "a"), (3, "b"), (4, "c")))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


class Noise(gymnasium.Env):
    """Draws observations from ``random`` and ``numpy.random`` and writes them into a file of ``folder``."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, folder=None):
        self._folder = folder

    def reset(self, *, seed=None, options=None):
        self._step = 0
        return self._draw(), {}

    def step(self, action):
        self._step += 1
        return self._draw(), 1.0, False, self._step == 7, {}

    def _draw(self):
        seen = np.array([random.random(), np.random.random()], np.float32)
        if self._folder is not None:
            with open(f"{self._folder}/{os.getpid()}", "a") as file:
                file.write(f"{seen[0]} {seen[1]}\n")
        return seen


NOISE = {"num_envs": 2, "rollout_steps": 8, "hidden": (8,), "anneal": False, "evaluation_episodes": 0}
NOISE |= {"seed": 3, "quiet": True}


def test_actors_draw_different_numbers_from_the_modules_and_the_same_ones_in_another_run(tmp_path):
    found = []
    for label in ("a", "b"):
        (folder := tmp_path / label).mkdir()
        run = {"actors": 2, "actor_kind": "process", "total_steps": 64, "runs": str(tmp_path / "runs")}
        run["env_options"] = {"folder": str(folder)}
        train("impala", Noise, **NOISE, **run)
        mine = folder / str(os.getpid())
        first = {file.read_text().split()[i] for file in folder.iterdir() if file != mine for i in (0, 1)}
        assert len(first) == 4
        found.append(first)
    assert found[0] == found[1]


def test_a_resumed_run_goes_on_with_the_modules_numbers_and_the_callers_are_left_alone(tmp_path):
    options = NOISE | {"schedule": "deterministic", "runs": str(tmp_path)}
    random.seed(0)
    before = random.getstate()
    whole = train("a2c", Noise(), **options, total_steps=128)
    begun = train("a2c", Noise(), **options, total_steps=64)
    resumed = resume(begun.path, total_steps=128)
    assert torch.equal(weights_of(resumed.path), weights_of(whole.path))
    random.setstate(before)
    drawn = random.random()
    random.setstate(before)
    train("ppo", "CartPole-v1", **options, total_steps=64)
    assert random.random() == drawn


class Lottery(Noise):
    """Rewards are random numbers of the modules."""

    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, float(obs.sum()), *rest


@pytest.mark.parametrize("name", ["es", "ga"])
def test_members_of_a_population_draw_the_same_numbers_from_the_modules_wherever_they_are_evaluated(
    name, tmp_path
):
    """After a resume, and in any number of processes. A generation has 42 steps."""
    options = {"num_envs": 6, "member_batches": 3, "hidden": (8,), "evaluation_episodes": 0, "seed": 3}
    options |= {"quiet": True, "runs": str(tmp_path)}
    before = random.getstate(), np.random.get_state()[1].tolist()
    exact = options | {"schedule": "deterministic"}
    whole = weights_of(train(name, Lottery(), **exact, total_steps=160).path)
    begun = train(name, Lottery(), **exact, total_steps=80)
    np.testing.assert_array_equal(weights_of(resume(begun.path, total_steps=160).path), whole)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    for actors in (1, 2):
        run = train(name, Lottery, **options, actors=actors, total_steps=160)
        np.testing.assert_array_equal(weights_of(run.path), whole)
    other = train(name, Lottery, **exact | {"seed": 4}, total_steps=160)
    assert not torch.equal(weights_of(other.path), whole)
