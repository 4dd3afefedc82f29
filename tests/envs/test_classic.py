"""`AcrobotVectorEnv` returns the numbers of Gymnasium's vector environment, bit for bit."""

import gymnasium
import numpy as np
import pytest
from compare_steps import play_both, step_both

from parl.envs import EnvMaker
from parl.envs.classic import AcrobotVectorEnv


def pushed(obs, step, rng):
    """Random actions, then those against the first joint's motion: angles wrap around and episodes end."""
    return rng.integers(3, size=len(obs)) if step % 300 < 60 else np.where(obs[:, 4] > 0, 0, 2)


@pytest.mark.parametrize("num_envs", [1, 5])
def test_every_step_equals_gymnasiums(num_envs):
    theirs = gymnasium.make_vec("Acrobot-v1", num_envs=num_envs)
    obs, terminations, _ = play_both(AcrobotVectorEnv(num_envs), theirs, pushed, 500)
    assert terminations >= num_envs and np.abs(obs).max() > 1


def test_the_time_limit_equals_gymnasiums():
    theirs, ours = gymnasium.make_vec("Acrobot-v1", num_envs=2), AcrobotVectorEnv(2)
    theirs.reset(seed=0), ours.reset(seed=0)
    for step in range(502):
        truncated = step_both(ours, theirs, np.ones(2, int), step)[3]
        assert truncated.all() == (step == 499)


def test_resets_with_masks_and_bounds_equal_gymnasiums():
    theirs, ours = gymnasium.make_vec("Acrobot-v1", num_envs=3), AcrobotVectorEnv(3)
    theirs.reset(seed=[4, 9, 2]), ours.reset(seed=[4, 9, 2])
    theirs.step(np.full(3, 2)), ours.step(np.full(3, 2))
    for seed in (None, 7):
        given = {"reset_mask": np.array([False, True, True]), "low": -0.3, "high": 0.2}
        mine = ours.reset(seed=seed, options=dict(given))[0]
        np.testing.assert_array_equal(mine, theirs.reset(seed=seed, options=dict(given))[0])
    with pytest.raises(ValueError, match="seed has 2 entries, expected 3"):
        ours.reset(seed=[1, 2])
    with pytest.raises(ValueError, match="reset_mask"):
        ours.reset(options={"reset_mask": np.ones(2, bool)})


@pytest.mark.parametrize(
    ("actions", "named"),
    [
        ([0, 1, 3], "from 0 to 3, expected 0 to 2"),
        ([0, 1, -1], "from -1 to 1"),
        ([1], r"of shape \(1,\), expected integers of \(3,\)"),
        (1, r"of shape \(\)"),
        ([True, False, True], "are bool"),
        ([0.0, 1.0, 2.0], "are float64"),
    ],
)
def test_wrong_actions_are_named(actions, named):
    envs = AcrobotVectorEnv(3)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=named):
        envs.step(np.array(actions))


def test_a_maker_uses_it_for_four_environments_or_more():
    assert isinstance(EnvMaker("Acrobot-v1")(4), AcrobotVectorEnv)
    assert not isinstance(EnvMaker("Acrobot-v1")(3), AcrobotVectorEnv)
    assert not isinstance(EnvMaker("Acrobot-v1", {"vectorization_mode": "sync"})(4), AcrobotVectorEnv)
