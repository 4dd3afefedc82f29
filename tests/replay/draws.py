"""Replays with given priorities, and how far counts of draws are from the expected ones."""

from __future__ import annotations

import numpy as np

import parl


def chi_square_z(counts: np.ndarray, expected: np.ndarray) -> float:
    """The chi-square statistic, transformed to a standard normal one (Wilson-Hilferty)."""
    degrees = len(counts) - 1
    statistic = ((counts - expected) ** 2 / expected).sum()
    return float(((statistic / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / (2 / (9 * degrees)) ** 0.5)


def filled(priorities: np.ndarray, **options) -> parl.PrioritizedReplay:
    buffer = parl.PrioritizedReplay(len(priorities), {"x": ((), "int64")}, **options)
    buffer.add(x=np.arange(len(priorities)), priorities=priorities)
    return buffer
