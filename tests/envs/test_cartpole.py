"""parl's `CartPoleVectorEnv` returns the numbers of Gymnasium's, bit for bit."""

import gymnasium
import numpy as np
import pytest
from compare_steps import play_both

from parl.envs import EnvMaker
from parl.envs.cartpole import CartPoleVectorEnv


def pair(num_envs):
    return gymnasium.make_vec("CartPole-v1", num_envs=num_envs), EnvMaker("CartPole-v1")(num_envs)


def balancing(obs, step, rng):
    """Random actions, then those that keep the pole up and the cart in the middle until the time limit."""
    if step < 200:
        return rng.integers(2, size=len(obs))
    return (obs @ np.array([0.1, 0.3, 3.0, 1.0]) > 0).astype(np.int64)


@pytest.mark.parametrize("num_envs", [1, 7])
def test_every_step_equals_gymnasiums(num_envs):
    theirs, ours = pair(num_envs)
    assert type(ours) is CartPoleVectorEnv and type(theirs) is not CartPoleVectorEnv
    assert ours.metadata == theirs.metadata
    _, terminations, truncations = play_both(ours, theirs, balancing, 900)
    assert terminations >= num_envs and truncations >= num_envs


def test_resets_with_bounds_or_without_seed_equal_gymnasiums():
    theirs, ours = pair(3)
    for seed, given in ((5, {"low": -0.2, "high": 0.1}), (None, None)):
        mine, other = (env.reset(seed=seed, options=given)[0] for env in (ours, theirs))
        np.testing.assert_array_equal(mine, other, strict=True)


def test_a_part_of_the_environments_starts_as_in_the_whole():
    whole, part = EnvMaker("CartPole-v1")(7), EnvMaker("CartPole-v1")(4)
    obs = whole.reset(seed=9)[0]
    np.testing.assert_array_equal(part.reset(seed=9, options={"part": (2, 7)})[0], obs[2:6], strict=True)
    np.testing.assert_array_equal(
        part.step(np.ones(4, int))[0], whole.step(np.ones(7, int))[0][2:6], strict=True
    )
    np.testing.assert_array_equal(part.reset(seed=9, options={"part": (5, 7)})[0], obs[[5, 6, 6, 6]])
    assert part.num_envs == 4 and part.step(np.zeros(4, int))[0].shape == (4, 4)
    with pytest.raises(ValueError, match=r"part is \(7, 7\)"):
        part.reset(options={"part": (7, 7)})


def test_wrong_actions_are_named():
    env = EnvMaker("CartPole-v1")(2)
    env.reset(seed=0)
    for wrong in ([0, 2], [-1, 0]):
        with pytest.raises(ValueError, match="expected 0 to 1"):
            env.step(np.array(wrong))
    with pytest.raises(ValueError, match="float64 of shape"):
        env.step(np.zeros(2))
    with pytest.raises(ValueError, match=r"shape \(3,\), expected integers of \(2,\)"):
        env.step(np.zeros(3, int))


def test_a_maker_with_options_uses_gymnasiums_environment():
    made = EnvMaker("CartPole-v1", {"sutton_barto_reward": True})(2)
    assert type(made.unwrapped) is not CartPoleVectorEnv
