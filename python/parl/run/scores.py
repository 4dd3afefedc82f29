"""Statistics of evaluation returns: mean, median, interquartile mean and bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.float64]]
# Confidence level and number of resamples of bootstrap intervals.
_LEVEL, _RESAMPLES = 0.95, 2_000


def interquartile_mean(values: Numbers) -> Numbers:
    """Mean of the middle half of the values along the last axis.

    If n is not a multiple of 4, the values at the quartiles are weighted in part.

    Args:
        values: (..., n) float64, ``n >= 1``.

    Returns:
        (...) float64.

    Source: Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
    """
    count = values.shape[-1]
    # Sorted value i covers i/n..(i+1)/n; its weight is the part of that interval within 1/4..3/4.
    edges = np.arange(count + 1) / count
    weights = np.clip(edges[1:], 0.25, 0.75) - np.clip(edges[:-1], 0.25, 0.75)
    return np.sort(values, axis=-1) @ weights / weights.sum()


def bootstrap_interval(
    strata: Sequence[Numbers],
    statistic: Callable[[Numbers], Numbers],
    seed: int = 0,
) -> tuple[float, float]:
    """Stratified percentile bootstrap interval, 95 %, of a statistic of all values together.

    Args:
        strata: values (n_i,) float64 of each stratum, such as a game or environment, whose runs are resampled
            among themselves.
        statistic: function of (resamples, n) values to (resamples,), along the last axis.
        seed: seed of the resampling.

    Returns:
        Lower and upper end of the interval.

    Source: Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
    """
    rng = np.random.default_rng(seed)
    drawn = [values[rng.integers(len(values), size=(_RESAMPLES, len(values)))] for values in strata]
    low, high = np.quantile(statistic(np.concatenate(drawn, axis=1)), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Scores:
    """Statistics of episode returns.

    Attributes:
        episodes: number of episodes.
        mean: mean return.
        std: standard deviation of the returns.
        median: median return.
        iqm: interquartile mean of the returns.
        iqm_low: lower end of the 95 % bootstrap interval of ``iqm``.
        iqm_high: upper end of the interval.
        lowest: smallest return.
        highest: largest return.
    """

    episodes: int
    mean: float
    std: float
    median: float
    iqm: float
    iqm_low: float
    iqm_high: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, returns: Numbers) -> Scores:
        """Computes the statistics of ``returns`` (n,).

        Raises:
            ValueError: ``returns`` is empty.
        """
        values = np.asarray(returns, np.float64)
        if not len(values):
            raise ValueError("returns is empty, expected at least one episode")
        low, high = bootstrap_interval([values], interquartile_mean)
        return cls(
            len(values),
            float(values.mean()),
            float(values.std()),
            float(np.median(values)),
            float(interquartile_mean(values)),
            low,
            high,
            float(values.min()),
            float(values.max()),
        )

    def __str__(self) -> str:
        return (
            f"mean {self.mean:.2f}, standard deviation {self.std:.2f}, median {self.median:.2f}, "
            f"interquartile mean {self.iqm:.2f} (95 % {self.iqm_low:.2f} to {self.iqm_high:.2f}), "
            f"lowest {self.lowest:.2f}, highest {self.highest:.2f}"
        )
