"""Exploration noise that is correlated from step to step."""

import numpy as np
import pytest

from parl.algos import sac, td3
from parl.algos.common.noise import CorrelatedNoise
from parl.errors import ConfigError
from parl.train.registry import make_algorithm, presets_of
from parl.train.settings import default_settings
from parl.types import EnvSpec

CAR = EnvSpec((2,), "float32", (1,), "float32", None, "next_step", (-1.0,), (1.0,))
POLE = EnvSpec((4,), "float32", (), "int64", 2, "next_step")
SETTINGS = {"noise_correlation": 0.9, "hidden": (8,)}


def correlation(series, lag):
    return np.corrcoef(series[:-lag].ravel(), series[lag:].ravel())[0, 1]


def test_noise_is_normal_and_its_correlation_falls_with_the_lag():
    noise, rng = CorrelatedNoise(500, 2, 0.9), np.random.default_rng(0)
    drawn = np.stack([noise.draw(500, rng) for _ in range(200)])
    assert drawn.dtype == np.float32 and drawn.shape == (200, 500, 2)
    # Every step has the distribution of the process, the first one too.
    assert np.abs(drawn.std(axis=(1, 2)) - 1).max() < 0.1 and abs(drawn.mean()) < 0.02
    for lag in (1, 2, 10):
        assert correlation(drawn, lag) == pytest.approx(0.9**lag, abs=0.02)
    assert abs(np.corrcoef(drawn[..., 0].ravel(), drawn[..., 1].ravel())[0, 1]) < 0.02


def test_without_correlation_it_is_independent():
    noise = CorrelatedNoise(3, 2, 0.0)
    drawn = [noise.draw(3, np.random.default_rng(1)) for _ in range(2)]
    expected = np.random.default_rng(1).standard_normal((3, 2), np.float32)
    assert (drawn[0] == expected).all() and (drawn[1] == expected).all()


def test_groups_of_environments_take_turns():
    noise, rng = CorrelatedNoise(500, 1, 0.95), np.random.default_rng(0)
    steps = [(noise.draw(300, rng), noise.draw(200, rng)) for _ in range(200)]
    for group in range(2):
        assert correlation(np.stack([step[group] for step in steps]), 1) == pytest.approx(0.95, abs=0.02)
    # Predictions for more observations than environments are independent of the process.
    before = noise.values.copy()
    assert noise.draw(501, rng).shape == (501, 1) and (noise.values == before).all()


@pytest.mark.parametrize("random_steps", [0, 10**6])
@pytest.mark.parametrize(("algorithm", "config"), [(sac.SAC, sac.Config), (td3.TD3, td3.Config)])
def test_actions_are_correlated_and_a_restored_policy_continues(algorithm, config, random_steps):
    own = config(**SETTINGS, random_steps=random_steps)
    obs = np.zeros((400, 2), np.float32)

    def policy(seed):
        return algorithm(own, CAR).make_policy(0, 1, 400, seed)

    one, other = policy(0), policy(1)
    other.weights.copy_(one.weights)
    actions = np.stack([one.act(obs, 5) for _ in range(50)])
    assert correlation(actions, 1) == pytest.approx(0.9, abs=0.05)
    if random_steps:
        assert np.abs(np.histogram(actions, 10, (-1, 1))[0] / actions.size - 0.1).max() < 0.02
    other.load_state_dict(one.state_dict())
    assert (one.act(obs, 5) == other.act(obs, 5)).all()


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
def test_a_correlation_outside_its_range_is_an_error(value):
    with pytest.raises(ConfigError, match=r"noise_correlation = .* is not in 0 <= c < 1"):
        sac.Config(noise_correlation=value)


def test_it_has_no_effect_on_discrete_actions():
    assert sac.Config(noise_correlation=0.5).unused(POLE)["noise_correlation"] == "discrete actions"


@pytest.mark.parametrize("name", ["sac", "td3", "ddpg"])
def test_the_presets_for_the_mountain_car_are_accepted(name):
    chosen = presets_of(name)["mountaincar"]
    run, own = default_settings(name, CAR, "mountaincar")
    assert (run.env, run.num_envs) == ("MountainCarContinuous-v0", 4) and chosen.tuned and chosen.note
    assert all(getattr(own, key) == value for key, value in chosen.algorithm.items())
    assert make_algorithm(name, own, CAR).make_policy(0, 1, 4, 0).weights.numel() > 4_000
