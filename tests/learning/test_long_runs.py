"""Longer runs with the defaults still solve CartPole with their last weights."""

import pytest

from parl.train import evaluate, train


@pytest.mark.slow(minutes=8)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "steps", "seed"), [("pqn", 300_000, 203), ("rainbow", 120_000, 0)])
def test_the_last_weights_of_a_longer_run_solve_cartpole(tmp_path, name, steps, seed):
    """With the defaults of earlier versions these runs ended at 117 and 126."""
    options = {"total_steps": steps, "seed": seed, "evaluation_episodes": 0, "quiet": True}
    run = train(name, env="CartPole-v1", runs=str(tmp_path), **options)
    assert evaluate(run.path, checkpoint="last").mean() >= 475
