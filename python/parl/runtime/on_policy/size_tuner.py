"""Sizes tuned while running: one of them changes by one, and the change stays if the rate rises.

Measurements with the present sizes and with a change take turns, since rates drift while a run goes on.

Source: Babaeizadeh et al. (2017), "GA3C", section 4.3, which changes sizes at random once a minute.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

# A change that gains less than this is noise.
_GAIN = 1.03


class SizeTuner:
    """Hill climbing over whole numbers.

    Attributes:
        sizes: what to run with now.

    Args:
        sizes: name -> size at the start.
        highest: name -> bound; the lowest is 1.
        seed: of the choice among changes.
    """

    def __init__(self, sizes: Mapping[str, int], highest: Mapping[str, int], seed: int) -> None:
        self.sizes = dict(sizes)
        self._kept = dict(sizes)
        self._highest = dict(highest)
        self._rng = np.random.default_rng(seed)
        self._rate = 0.0
        self._trying = False

    def measured(self, rate: float) -> bool:
        """Takes the rate that ``sizes`` gave and chooses the next; True where they changed."""
        before = dict(self.sizes)
        if self._trying:
            if rate > _GAIN * self._rate:
                self._kept = dict(self.sizes)
            self.sizes = dict(self._kept)
        else:
            self._rate = rate
            self.sizes = self._changed()
        self._trying = not self._trying
        return self.sizes != before

    def _changed(self) -> dict[str, int]:
        changes = [
            self._kept | {name: size + by}
            for name, size in self._kept.items()
            for by in (-1, 1)
            if 1 <= size + by <= self._highest[name]
        ]
        return changes[int(self._rng.integers(len(changes)))] if changes else dict(self._kept)
