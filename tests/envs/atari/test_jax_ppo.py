"""PPO in JAX, `examples/jax_ppo.py`: equal seeds, both kinds of observations, and that it learns."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parl.jax

jax = pytest.importorskip("jax", reason="JAX is not installed: `make test-jax` installs it")
sys.path.append(str(Path(__file__).parents[3] / "examples"))
jax_ppo = importlib.import_module("jax_ppo")


def leaves(tree: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def changes(observations: str, num_envs: int, runs: int) -> list[list[Any]]:
    """The parameters after two iterations, which must differ from those before, for each run."""
    env = parl.jax.make("pong", num_envs, **jax_ppo.OPTIONS[observations])
    before = leaves(jax_ppo.start(env, 0).params)
    assert len(before) > 5
    sizes: dict[str, Any] = {"iterations": 2, "num_envs": num_envs, "steps": 8, "minibatches": 2, "epochs": 1}
    after = [leaves(jax_ppo.train("pong", observations, seed=0, **sizes)[0].params) for _ in range(runs)]
    for old, new in zip(before, after[0], strict=True):
        assert np.isfinite(new).all() and (new != old).any()
    return after


def test_equal_seeds_give_equal_networks() -> None:
    first, again = changes("memory", 8, 2)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))


def test_updates_from_images_change_every_parameter() -> None:
    changes("images", 2, 1)


def test_advantages_are_sums_of_discounted_errors() -> None:
    """By the definition: sums of discounted errors up to the end of the episode."""
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, 6, 3)).astype(np.float32)
    ends, last = (rng.random((6, 3)) < 0.3).astype(np.float32), np.ones(3, np.float32)
    found = np.asarray(jax_ppo.advantages(rewards, values, ends, last))
    following = np.concatenate([values[1:], last[None]])
    errors = rewards + jax_ppo.GAMMA * (1 - ends) * following - values
    for env in range(3):
        for t in range(6):
            expected, weight = 0.0, 1.0
            for later in range(t, 6):
                expected += weight * errors[later, env]
                weight *= jax_ppo.GAMMA * jax_ppo.GAE_LAMBDA * (1 - ends[later, env])
            assert found[t, env] == pytest.approx(expected, abs=1e-5)


def test_moments_are_those_of_all_features() -> None:
    x = np.random.default_rng(0).normal(3, 2, (2, 50, 4, 256)).astype(np.float32)
    moments = (np.float32(1e-4), np.zeros(256, np.float32), np.full(256, 1e-4, np.float32))
    for part in x:
        moments = jax_ppo.add_moments(moments, part)
    count, mean, deviations = (np.asarray(moment) for moment in moments)
    whole = x.reshape(-1, 256)
    np.testing.assert_allclose(mean, whole.mean(0), atol=1e-3)
    np.testing.assert_allclose(deviations / count, whole.var(0), rtol=1e-3)


@pytest.mark.slow(minutes=5)
def test_pong_is_learned_from_memory() -> None:
    _, means = jax_ppo.train("pong", "memory", iterations=150, num_envs=64, steps=64)
    assert np.mean(means[:3]) < -19
    assert np.mean(means[-5:]) > -10
