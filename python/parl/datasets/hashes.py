"""Hashes of consoles over a whole episode: they show at any time that a replay is the recorded episode."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
_MASK = 2**64 - 1
_RAM_WORDS = 16


def _odd_numbers(count: int) -> NDArray[np.uint64]:
    """Odd 64-bit numbers of SplitMix64 (Steele et al., 2014)."""
    numbers: list[int] = []
    state = 0
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
        numbers.append((z ^ (z >> 31)) | 1)
    return np.array(numbers, np.uint64)


_STEP, *_NUMBERS = _odd_numbers(4)
# Signed, as the numbers are; sums and products are the same modulo 2^64.
_LIVES, _FRAME, _REWARD = np.array(_NUMBERS).view(np.int64)
_RAM_FACTORS = _odd_numbers(4 + _RAM_WORDS)[4:].view(np.int64)


def updated(
    hashes: NDArray[np.uint64], ram: NDArray[np.uint8], lives: Ints, frames: Ints, reward: Ints
) -> NDArray[np.uint64]:
    """The hashes (N,) after a step, over the memory and the numbers of all steps so far.

    Args:
        hashes: before the step, 0 at the start of an episode.
        ram: (N, 128), the memory.
        lives: (N,) lives.
        frames: (N,) frames since the reset.
        reward: (N,) rewards before clipping.
    """
    now = ram.view("<i8") @ _RAM_FACTORS
    now += lives * _LIVES
    now += frames * _FRAME
    now += reward * _REWARD
    return hashes * _STEP + now.view(np.uint64)
