"""DQN and its variants solve toy environments of known values in seconds, in each topology."""

import numpy as np
import pytest
import torch
from toys import Chain, Identity

from parl.algos.dqn import DQNLearner
from parl.envs import EnvMaker, spec_of
from parl.run import RunDirectory
from parl.train import evaluate, train
from parl.train.settings import resolve, table_layer
from saved_learners import learner_of

COMMON = {
    "num_envs": 8,
    "batch_size": 64,
    "replay_ratio": 4.0,
    "learning_starts": 200,
    "replay_capacity": 8_000,
    "hidden": (32,),
    "epsilon_steps": 2_000,
    "quiet": True,
}
TOPOLOGIES = [
    pytest.param({"schedule": "deterministic", "actors": 1, "learners": 1}, id="deterministic"),
    pytest.param({"actors": 2, "learners": 1}, id="processes"),
    pytest.param({"actors": 2, "learners": 1, "actor_kind": "thread"}, id="threads"),
    pytest.param({"actors": 2, "learners": 2}, id="two-learners"),
]


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_identity_is_solved(tmp_path, topology):
    run = train(
        "dqn", env=Identity, **COMMON, **topology, n_step=1, gamma=0.5, total_steps=4_000, runs=str(tmp_path)
    )
    np.testing.assert_array_equal(evaluate(run.path, episodes=30), 20.0)


VARIANTS = [
    pytest.param("dqn", {"distribution": "c51", "value_min": -0.5, "value_max": 0.5}, id="c51"),
    pytest.param("dqn", {"distribution": "qr", "quantiles": 16}, id="qr"),
    pytest.param("dqn", {"distribution": "iqn", "quantiles": 8, "policy_quantiles": 8}, id="iqn"),
    pytest.param(
        "dqn", {"munchausen": 0.9, "munchausen_temperature": 0.01, "noisy": True}, id="munchausen-noisy"
    ),
    pytest.param(
        "rainbow",
        {"learning_rate": 3e-3, "dueling_hidden": 16, "value_min": -0.5, "value_max": 0.5},
        id="rainbow",
    ),
]


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_variants_of_dqn_solve_identity(tmp_path, name, options):
    once = {"schedule": "deterministic", "actors": 1, "learners": 1, "n_step": 1, "gamma": 0.5}
    run = train(name, env=Identity, **COMMON, **once, **options, total_steps=4_500, runs=str(tmp_path))
    np.testing.assert_array_equal(evaluate(run.path, episodes=30), 20.0)


@pytest.mark.parametrize("n_step", [1, 5])
@pytest.mark.parametrize("options", [{}, {"double": False, "dueling": True, "prioritized": False}])
def test_chain_is_solved_to_its_true_values(tmp_path, n_step, options):
    """Values are right only if truncations are bootstrapped and terminations are not."""
    run = train(
        "dqn",
        env=Chain,
        **COMMON,
        **options,
        n_step=n_step,
        gamma=0.9,
        reward_scale=1.0,
        schedule="deterministic",
        actors=1,
        learners=1,
        total_steps=14_000,
        epsilon_last=0.3,
        learning_rate=1e-3,
        runs=str(tmp_path),
    )
    np.testing.assert_allclose(evaluate(run.path, episodes=5), 0.5)
    directory = RunDirectory.open(run.path)
    spec = spec_of(EnvMaker(Chain)(1))
    _, config = resolve("dqn", spec, [table_layer("dqn", directory.config)])
    learner = DQNLearner(config, spec, 0, "cpu")
    learner.load_state_dict(learner_of(run.path))
    with torch.no_grad():
        right = learner.online(torch.eye(Chain.ROOMS))[:-1, 1, 0].numpy()
    # n-step returns follow the exploring policy for up to n steps, which lowers them.
    np.testing.assert_allclose(right, Chain.values_of_right(0.9), atol=0.05 if n_step == 1 else 0.35)
