"""Toy environments with dictionary observations: the right action needs both a picture and a number."""

import numpy as np
import pytest
from toys import ContinuousPictureAndNumber, PictureAndNumber

from parl.train import evaluate, train

COMMON = {
    "schedule": "deterministic",
    "actors": 1,
    "learners": 1,
    "num_envs": 8,
    "batch_size": 32,
    "learning_starts": 200,
    "replay_capacity": 3_000,
    "n_step": 1,
    "gamma": 0.5,
    "evaluation_episodes": 5,
    "quiet": True,
}


def test_dqn_uses_both_parts(tmp_path):
    options = {"replay_ratio": 8.0, "hidden": (32,), "epsilon_steps": 1_500, "learning_rate": 1e-3}
    options |= {"reward_scale": 1.0, "target_period": 25, "dueling": False, "layer_norm": True}
    run = train("dqn", env=PictureAndNumber, **COMMON, **options, total_steps=1_500, runs=str(tmp_path))
    np.testing.assert_array_equal(evaluate(run.path, episodes=20), 20.0)


ROLLOUTS = {"schedule": "deterministic", "num_envs": 8, "evaluation_episodes": 5, "quiet": True, "gamma": 0.5}
ROLLOUTS |= {"hidden": (32,), "rollout_steps": 16, "total_steps": 5_000}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ppo", {"minibatch_size": 64, "epochs": 4, "learning_rate": 3e-3, "total_steps": 5_500}),
        # PQN has the rollouts and the torso of PPO.
        pytest.param(
            "pqn",
            {"minibatch_size": 64, "learning_rate": 2e-3, "reward_scale": 1.0, "epsilon_steps": 2_000},
            marks=pytest.mark.slow(minutes=1),
        ),
    ],
)
def test_rollouts_hold_both_parts(tmp_path, name, options):
    run = train(name, env=PictureAndNumber, **(ROLLOUTS | options), runs=str(tmp_path))
    # From one part alone, the best mean is 10.
    assert evaluate(run.path, episodes=20).mean() > 18


# They encode observations with the same code as DQN.
@pytest.mark.slow(minutes=1)
@pytest.mark.parametrize("name", ["sac", "td3", "ddpg"])
def test_continuous_actions_use_both_parts(tmp_path, name):
    options = {"replay_ratio": 16.0, "image_features": 32, "target_tau": 0.05, "total_steps": 2_000}
    if name == "sac":
        options |= {"hidden": (32,), "learning_rate": 2e-3, "random_steps": 200, "total_steps": 1_200}
    else:  # without an entropy bonus, only a critic trained on all actions keeps the actor off the bounds
        options |= {"hidden": (64, 64), "learning_rate": 1e-3, "random_steps": 1_000}
    if name == "ddpg":  # and its actor is not delayed
        options |= {"learning_rate": 2e-4, "critic_learning_rate": 1e-3, "total_steps": 5_000}
    run = train(name, env=ContinuousPictureAndNumber, **COMMON, **options, runs=str(tmp_path))
    # From the picture alone -20 * 0.15^2 = -0.45, from the number alone -20 * 0.36.
    assert evaluate(run.path, episodes=20).mean() > -0.4
