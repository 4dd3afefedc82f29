"""Tunes sizes during a run: changes one of them by one, and keeps the change if the rate rises.

Measurements with the current sizes and with a change alternate, because rates drift during a run.

Source: Babaeizadeh et al. (2017), "GA3C", section 4.3, which changes sizes at random once a minute.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

# Smallest ratio of rates for which a change is kept; smaller ones are noise.
_GAIN = 1.03


class SizeTuner:
    """Hill climbing over whole numbers.

    Attributes:
        sizes: the sizes to use now.

    Args:
        sizes: name -> size at the start.
        highest: name -> largest size; the smallest is 1.
        seed: seed of the choice among changes.
    """

    def __init__(self, sizes: Mapping[str, int], highest: Mapping[str, int], seed: int) -> None:
        self.sizes = dict(sizes)
        self._best_sizes = dict(sizes)
        self._highest = dict(highest)
        self._rng = np.random.default_rng(seed)
        self._rate = 0.0
        self._trying = False

    def record_rate(self, rate: float) -> bool:
        """Takes the rate measured with ``sizes`` and chooses the next sizes; returns whether they changed."""
        before = dict(self.sizes)
        if self._trying:
            if rate > _GAIN * self._rate:
                self._best_sizes = dict(self.sizes)
            self.sizes = dict(self._best_sizes)
        else:
            self._rate = rate
            self.sizes = self._random_change()
        self._trying = not self._trying
        return self.sizes != before

    def _random_change(self) -> dict[str, int]:
        changes = [
            self._best_sizes | {name: size + by}
            for name, size in self._best_sizes.items()
            for by in (-1, 1)
            if 1 <= size + by <= self._highest[name]
        ]
        return changes[int(self._rng.integers(len(changes)))] if changes else dict(self._best_sizes)
