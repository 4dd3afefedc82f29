"""Algorithms that learn from rollouts solve toy environments in seconds, to known returns and values."""

import numpy as np
import pytest
import torch
from toys import Chain, Identity, Recall, Target

from parl.algos.ppo import PPO
from parl.envs import EnvMaker, spec_of
from parl.run import RunDirectory
from parl.train import evaluate, train
from parl.train.settings import resolve, table_layer
from saved_learners import learner_of

COMMON = {
    "num_envs": 8,
    "hidden": (32,),
    "quiet": True,
    "schedule": "deterministic",
    "evaluation_episodes": 10,
}
PPO_OPTIONS = {"rollout_steps": 16, "minibatch_size": 64, "epochs": 4, "learning_rate": 5e-3}
A2C_OPTIONS = {"rollout_steps": 8, "learning_rate": 1e-2}
A3C_OPTIONS = {"rollout_steps": 8, "learning_rate": 1e-2, "optimizer": "adam", "entropy_coefficient": 0.0}
PQN_OPTIONS = {
    "rollout_steps": 16,
    "minibatch_size": 64,
    "epochs": 4,
    "learning_rate": 2e-3,
    "reward_scale": 1.0,
    "epsilon_steps": 3_000,
}
BATCHED = A2C_OPTIONS | {"advantage": "vtrace", "window": 16, "env_groups": 2}
DISCRETE = [
    pytest.param("ppo", PPO_OPTIONS, 3_000, id="ppo"),
    pytest.param("a2c", A2C_OPTIONS, 4_000, id="a2c"),
    pytest.param("a2c", BATCHED, 4_000, id="a2c-vtrace"),
    pytest.param("a3c", A3C_OPTIONS | {"actors": 2}, 4_000, id="a3c"),
    pytest.param("ga3c", A3C_OPTIONS | {"actors": 2}, 4_000, id="ga3c"),
    pytest.param("impala", A2C_OPTIONS | {"actors": 2}, 4_000, id="impala"),
    pytest.param("pqn", PQN_OPTIONS, 4_000, id="pqn"),
]


@pytest.mark.parametrize(("name", "options", "steps"), DISCRETE)
def test_identity_is_solved(tmp_path, name, options, steps):
    run = train(name, env=Identity, **COMMON, **options, gamma=0.5, total_steps=steps, runs=str(tmp_path))
    np.testing.assert_array_equal(evaluate(run.path, episodes=30), 20.0)


@pytest.mark.parametrize(("name", "options", "steps"), DISCRETE)
def test_chain_is_solved(tmp_path, name, options, steps):
    """The cheapest step is the wrong one; only returns over several steps show that."""
    run = train(name, env=Chain, **COMMON, **options, gamma=0.95, total_steps=2 * steps, runs=str(tmp_path))
    np.testing.assert_allclose(evaluate(run.path, episodes=5), 0.5)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("ppo", PPO_OPTIONS | {"entropy_coefficient": 0.01}, id="ppo"),
        pytest.param("a2c", A2C_OPTIONS | {"entropy_coefficient": 0.01}, id="a2c"),
        # It has A2C's network and loss; `test_chain_is_solved` covers its processes.
        pytest.param("impala", A2C_OPTIONS | {"actors": 2}, id="impala", marks=pytest.mark.slow(minutes=1)),
    ],
)
def test_an_lstm_remembers_what_was_shown_once(tmp_path, name, options):
    options = options | {"lstm": 16, "learning_rate": 1e-2, "total_steps": 5_000, "runs": str(tmp_path)}
    run = train(name, env=Recall, **COMMON, **options, gamma=0.9)
    np.testing.assert_array_equal(evaluate(run.path, episodes=30), 1.0)


EVOLUTION = {
    "schedule": "deterministic",
    "quiet": True,
    "num_envs": 32,
    "hidden": (8,),
    "evaluation_episodes": 10,
}


@pytest.mark.parametrize(
    ("name", "env", "sigma", "steps", "least"),
    [
        ("es", Chain, 0.3, 20_000, 0.499),
        ("ga", Chain, 0.3, 20_000, 0.499),
        ("es", Identity, 0.3, 40_000, 19),
        ("es", Target, 0.1, 60_000, -0.3),
        ("ga", Target, 0.1, 60_000, -0.3),
    ],
)
def test_evolution_solves_toys(tmp_path, name, env, sigma, steps, least):
    run = train(name, env=env, **EVOLUTION, sigma=sigma, total_steps=steps, runs=str(tmp_path))
    assert evaluate(run.path, episodes=20).mean() >= least


def test_values_of_the_chain_are_true(tmp_path):
    """Values are right only if truncations are bootstrapped and terminations are not."""
    options = PPO_OPTIONS | {"gae_lambda": 0.9}
    run = train("ppo", env=Chain, **COMMON, **options, gamma=0.9, total_steps=20_000, runs=str(tmp_path))
    directory = RunDirectory.open(run.path)
    spec = spec_of(EnvMaker(Chain)(1))
    _, config = resolve("ppo", spec, [table_layer("ppo", directory.config)])
    learner = PPO(config, spec).make_learner(0, "cpu")
    learner.load_state_dict(learner_of(run.path))
    with torch.no_grad():
        value = learner.network(torch.eye(Chain.ROOMS))[1][:-1].numpy()
    np.testing.assert_allclose(value, Chain.values_of_right(0.9), atol=0.1)


CONTINUOUS = [
    pytest.param("ppo", PPO_OPTIONS | {"normalize_observations": True}, id="ppo"),
    pytest.param("a2c", A2C_OPTIONS, id="a2c"),
    pytest.param("a2c", BATCHED, id="a2c-vtrace"),
    pytest.param("a3c", A3C_OPTIONS | {"actors": 2}, id="a3c"),
    pytest.param("ga3c", A3C_OPTIONS | {"actors": 2}, id="ga3c"),
    pytest.param("impala", A2C_OPTIONS | {"actors": 2}, id="impala"),
]


@pytest.mark.parametrize(("name", "options"), CONTINUOUS)
def test_continuous_actions_hit_the_target(tmp_path, name, options):
    options = options | {"initial_log_std": -0.5, "gamma": 0.5, "total_steps": 12_000}
    run = train(name, env=Target, **COMMON, **options, runs=str(tmp_path))
    assert evaluate(run.path, episodes=20).mean() > -0.1
