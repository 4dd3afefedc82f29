"""Exploration by random actions, in numpy, since actors use it."""

from __future__ import annotations

from typing import Any

import numpy as np


def epsilon_greedy(
    greedy: np.ndarray[Any, Any], epsilon: float, num_actions: int, rng: np.random.Generator
) -> np.ndarray[Any, Any]:
    """Replaces each action in place, with probability ``epsilon``, by a uniformly drawn one.

    Args:
        greedy: (N,) integers in 0..num_actions; changed and returned.
        epsilon: in 0..1.
        num_actions: number of actions.
        rng: draws 2 N numbers whatever ``epsilon`` is, so that its sequence does not depend on ``epsilon``.
    """
    random = rng.random(greedy.shape) < epsilon
    drawn = rng.integers(num_actions, size=greedy.shape)
    np.copyto(greedy, drawn, where=random, casting="same_kind")
    return greedy
