"""Exploration by random actions, in numpy, since actors use it."""

from __future__ import annotations

from typing import Any

import numpy as np


def epsilon_greedy(
    greedy: np.ndarray[Any, Any],
    epsilon: float,
    num_actions: int,
    rng: np.random.Generator,
    mask: Any = None,
) -> np.ndarray[Any, Any]:
    """Replaces each action in place, with probability ``epsilon``, by a uniformly drawn one.

    Args:
        greedy: (N,) integers in 0..num_actions; changed and returned.
        epsilon: in 0..1.
        num_actions: number of actions.
        rng: draws as many numbers whatever ``epsilon`` is, so that its sequence does not depend on it.
        mask: (N, num_actions), not 0 for the actions to draw from, at least one per row; None: all.
    """
    random = rng.random(greedy.shape) < epsilon
    if mask is None:
        drawn = rng.integers(num_actions, size=greedy.shape)
    else:
        drawn = np.where(mask, rng.random(mask.shape), -1.0).argmax(axis=1)
    np.copyto(greedy, drawn, where=random, casting="same_kind")
    return greedy


def sample_softmax(logits: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Draws an action (N,) int64 from softmax(``logits``) of each row: the argmax of logit + Gumbel noise.

    Source: Gumbel (1954), "Statistical theory of extreme values and some practical applications".

    Args:
        logits: (N, actions) float32.
        rng: draws as many numbers as there are logits.
    """
    noise = rng.standard_exponential(logits.shape, np.float32) + 1e-30  # never 0
    return (logits - np.log(noise)).argmax(axis=1)
