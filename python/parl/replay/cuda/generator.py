"""SplitMix64, the random generator of the replay, on the host.

Source: Steele, Lea & Flood (2014), "Fast splittable pseudorandom number generators".
"""

from __future__ import annotations

_MASK = 2**64 - 1


def first_number(seed: int) -> int:
    """The first number that the generator returns for a seed."""
    z = (seed + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
