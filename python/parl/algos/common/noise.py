"""Noise of continuous actions that is correlated from one step of an environment to its next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from parl.types import Array


class CorrelatedNoise:
    """Standard normal noise of N environments: a discretized Ornstein-Uhlenbeck process for each element.

    ``x_t = c x_{t-1} + sqrt(1 - c^2) n_t`` with ``n_t ~ N(0, 1)``; the correlation of ``x_t`` and ``x_{t+k}``
    is c^k. Episodes continue the noise of those before them.

    Args:
        count: N.
        size: D, elements of an action.
        correlation: c, 0 <= c < 1.

    Attributes:
        values: (N, D) float32, the last noise of each environment.

    Source: Uhlenbeck and Ornstein (1930), "On the Theory of the Brownian Motion"; used for exploration by
    Lillicrap et al. (2016), "Continuous Control with Deep Reinforcement Learning".
    """

    def __init__(self, count: int, size: int, correlation: float) -> None:
        self.correlation = correlation
        self.values = np.zeros((count, size), np.float32)
        self._next = 0
        self._begun = np.zeros(count, bool)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that :meth:`load_state_dict` restores."""
        return {"values": self.values.copy(), "begun": self._begun.copy(), "next": self._next}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.values[:] = state["values"]
        self._begun[:] = state["begun"]
        self._next = int(state["next"])

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Returns the next noise of ``count`` environments, (count, D) float32.

        Groups of environments may act in turn (double buffering): a call is for the environments after those
        of the last call, or for the first ones if too few are left. More than N get independent noise.
        """
        drawn = rng.standard_normal((count, self.values.shape[1]), np.float32)
        if not self.correlation or count > len(self.values):
            return drawn
        first = self._next if self._next + count <= len(self.values) else 0
        self._next = first + count
        rows = slice(first, first + count)
        # An environment's first noise is a sample of the process's stationary distribution, N(0, 1).
        share = np.where(
            self._begun[rows, None], np.float32(math.sqrt(1 - self.correlation**2)), np.float32(1)
        )
        self.values[rows] = self.correlation * self.values[rows] + share * drawn
        self._begun[rows] = True
        return self.values[rows].copy()
