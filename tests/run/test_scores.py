"""Scores of evaluations against values computed by hand."""

import numpy as np
import pytest

from parl.run.scores import Scores, bootstrap_interval, interquartile_mean


def test_interquartile_mean_leaves_the_outer_quarters_out():
    # Of eight values the middle four.
    assert interquartile_mean(np.array([100.0, 1, 2, 3, 4, 5, 6, -100])) == pytest.approx((2 + 3 + 4 + 5) / 4)
    # Of six, sorted 1 ... 6: one and a half are left out at each end.
    assert interquartile_mean(np.arange(1.0, 7.0)) == pytest.approx((0.5 * 2 + 3 + 4 + 0.5 * 5) / 3)
    assert interquartile_mean(np.array([7.0])) == 7.0
    rows = interquartile_mean(np.arange(16.0).reshape(2, 8))
    np.testing.assert_allclose(rows, [3.5, 11.5])


def test_bootstrap_interval_of_a_mean_is_that_of_the_normal_distribution():
    values = np.random.default_rng(1).normal(size=400)
    low, high = bootstrap_interval([values], lambda drawn: drawn.mean(axis=-1))
    # 1.96 standard errors of 1 / sqrt(400) to both sides.
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.08)
    assert low < values.mean() < high
    assert (low, high) == bootstrap_interval([values], lambda drawn: drawn.mean(axis=-1))


def test_scores_are_printed_in_one_line():
    scores = Scores.of(np.array([1.0, 2.0, 3.0, 10.0]))
    assert (scores.mean, scores.median, scores.iqm) == (4.0, 2.5, 2.5)
    assert (scores.lowest, scores.highest, scores.episodes) == (1.0, 10.0, 4)
    assert scores.iqm_low <= scores.iqm <= scores.iqm_high
    assert "interquartile mean 2.50 (95 % " in str(scores)
    with pytest.raises(ValueError, match="at least one episode"):
        Scores.of(np.zeros(0))
