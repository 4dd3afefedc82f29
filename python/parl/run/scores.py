"""Scores of evaluations in few numbers: mean, median, interquartile mean, and how sure they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.float64]]


def interquartile_mean(values: Numbers) -> Numbers:
    """Mean of the middle half, over the last axis: the lowest and the highest quarter are left out.

    Where a quarter is no whole number, the values at its border count in part.

    Args:
        values: (..., n) float64, ``n >= 1``.

    Source: Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
    """
    count = values.shape[-1]
    # Value i (sorted) covers i/n..(i+1)/n; what of it lies in 1/4..3/4 is its weight.
    edges = np.arange(count + 1) / count
    weights = np.clip(edges[1:], 0.25, 0.75) - np.clip(edges[:-1], 0.25, 0.75)
    return np.sort(values, axis=-1) @ weights / weights.sum()


def bootstrap_interval(
    values: Numbers,
    statistic: Callable[[Numbers], Numbers],
    level: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile interval of ``statistic``, from draws with replacement.

    Args:
        values: (n,) float64.
        statistic: over the last axis of (resamples, n).
        level: share of the draws inside, in 0..1.
        resamples: number of draws.
        seed: of the draws.

    Source: Efron (1979), "Bootstrap Methods: Another Look at the Jackknife".
    """
    rng = np.random.default_rng(seed)
    drawn = values[rng.integers(len(values), size=(resamples, len(values)))]
    low, high = np.quantile(statistic(drawn), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Scores:
    """Returns of episodes in few numbers.

    Attributes:
        episodes: how many.
        mean: their mean.
        std: their standard deviation.
        median: their median.
        iqm: their interquartile mean.
        iqm_low: lower end of its 95 % bootstrap interval.
        iqm_high: upper end.
        lowest: the lowest.
        highest: the highest.
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
        """The scores of ``returns`` (n,).

        Raises:
            ValueError: there are none.
        """
        values = np.asarray(returns, np.float64)
        if not len(values):
            raise ValueError("no episode to score")
        low, high = bootstrap_interval(values, interquartile_mean)
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
