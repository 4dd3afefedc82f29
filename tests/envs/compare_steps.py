"""Compares the steps of two vector environments that must return the same numbers."""

import numpy as np


def step_both(ours, theirs, action, step):
    """Steps both, asserts equal results and returns them; messages name ``step``, the number of the step."""
    one, two = ours.step(action), theirs.step(action)
    for mine, other in zip(one[:4], two[:4], strict=True):
        np.testing.assert_array_equal(mine, other, err_msg=f"step {step}", strict=True)
    assert one[4] == two[4] == {}
    return one


def play_both(ours, theirs, choose, steps):
    """Resets both and steps them; returns the last observations, and the numbers of both kinds of ends.

    ``choose(obs, step, rng)`` gives the actions of a step.
    """
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.action_space == theirs.action_space
    obs = ours.reset(seed=3)[0]
    np.testing.assert_array_equal(obs, theirs.reset(seed=3)[0], strict=True)
    rng = np.random.default_rng(0)
    ends = np.zeros(2, int)
    for step in range(steps):
        obs, _, terminated, truncated, _ = step_both(ours, theirs, choose(obs, step, rng), step)
        ends += terminated.sum(), truncated.sum()
    return obs, *ends
