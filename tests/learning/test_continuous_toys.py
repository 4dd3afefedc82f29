"""SAC, TD3 and DDPG solve toy environments in seconds; their runs resume exactly."""

import numpy as np
import pytest
import torch
from toys import Follow, Identity

from parl.train import evaluate, resume, train
from saved_learners import weights_of

COMMON = {
    "num_envs": 8,
    "batch_size": 64,
    "replay_ratio": 16.0,
    "learning_starts": 200,
    "random_steps": 200,
    "replay_capacity": 8_000,
    "hidden": (32, 32),
    "gamma": 0.5,
    "learning_rate": 3e-3,
    "target_tau": 0.05,
    "evaluation_episodes": 5,
    "quiet": True,
}
ONCE = {"schedule": "deterministic", "actors": 1, "learners": 1}


@pytest.mark.parametrize("name", ["sac", "td3", "ddpg"])
def test_the_right_action_is_found(tmp_path, name):
    run = train(name, env=Follow, **COMMON, **ONCE, total_steps=3_000, runs=str(tmp_path))
    # Uniform actions return -33; errors of 0.2 return -20 * 0.2^2 = -0.8.
    assert evaluate(run.path, episodes=20).mean() > -0.8


def test_two_actors_two_learners_and_priorities(tmp_path):
    parallel = {"actors": 2, "learners": 2, "prioritized": True, "n_step": 2}
    run = train("td3", env=Follow, **COMMON, **parallel, total_steps=4_000, runs=str(tmp_path))
    assert evaluate(run.path, episodes=20).mean() > -2.0


def test_sac_solves_discrete_actions(tmp_path):
    options = COMMON | {"temperature": 0.1}
    run = train("sac", env=Identity, **options, **ONCE, total_steps=3_000, runs=str(tmp_path))
    np.testing.assert_array_equal(evaluate(run.path, episodes=20), 20.0)


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_a_resumed_run_repeats_the_uninterrupted_one(tmp_path, name):
    options = COMMON | ONCE | {"learners": 2, "actors": 2, "hidden": (16,), "runs": str(tmp_path)}
    whole = train(name, env=Follow, **options, total_steps=800, name="whole")
    half = train(name, env=Follow, **options, total_steps=400, name="half")
    assert not torch.equal(weights_of(half.path), weights_of(whole.path))
    resumed = resume(half.path, total_steps=800)
    assert (resumed.env_steps, resumed.updates) == (whole.env_steps, whole.updates)
    assert torch.equal(weights_of(resumed.path), weights_of(whole.path))
