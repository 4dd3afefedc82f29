"""A tree of 2^28 leaves: one gigabyte, five levels."""

from __future__ import annotations

import numpy as np
import pytest

import parl


@pytest.mark.slow
def test_2_to_the_28_leaves_hold_their_sums():
    leaves = 2**28
    tree = parl.SumTree(leaves, seed=3)
    rng = np.random.default_rng(0)
    at = np.unique(np.concatenate([[0, leaves - 1, leaves // 2], rng.integers(0, leaves, 300_000)]))
    values = rng.integers(1, 1000, len(at)).astype(np.float64)
    for part in np.array_split(rng.permutation(len(at)), 50):
        tree.update(at[part], values[part])
    assert tree.total == values.sum()
    assert tree.positive == len(at)
    drawn = tree.sample(100_000)[0]
    assert np.isin(drawn, at).all()
    # Prefix sums just below the upper end of 1,000 random leaves.
    ends = np.cumsum(values)
    some = rng.integers(0, len(at), 1000)
    np.testing.assert_array_equal(tree.find(ends[some] - 0.5), at[some])
    tree.update(at, np.zeros(len(at)))
    assert tree.total == 0
    tree.verify()
