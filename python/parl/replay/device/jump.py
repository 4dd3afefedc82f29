"""The generator of the draws: seeds, and the matrices that jump over its numbers.

xoshiro256++ is linear over GF(2): so many steps are one matrix of 256 x 256 bits. Source: Blackman & Vigna,
"Scrambled linear pseudorandom number generators" (2021).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MASK = 2**64 - 1
DIGITS, BASE, BLOCK = 3, 16, 32
# A batch of more draws would need a fourth digit.
DRAWS_MAX = BLOCK * (BASE**DIGITS - 1)


def seeded(seed: int) -> list[int]:
    """The state that a seed gives: four outputs of SplitMix64."""
    state, words = seed & _MASK, list[int]()
    for _ in range(4):
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        words.append(z ^ (z >> 31))
    return words


def first_number(seed: int) -> int:
    """The first number of a seed's sequence."""
    s = seeded(seed)
    total = (s[0] + s[3]) & _MASK
    return ((total << 23 | total >> 41) + s[0]) & _MASK


def _step() -> NDArray[np.float32]:
    """One step as a matrix: column c is the state that follows bit c alone."""
    unit = np.zeros((256, 4), np.uint64)
    unit[np.arange(256), np.arange(256) // 64] = np.uint64(1) << (np.arange(256) % 64).astype(np.uint64)
    a, b, c, d = unit.T.copy()
    shifted = b << np.uint64(17)
    c ^= a
    d ^= b
    b ^= c
    a ^= d
    c ^= shifted
    d = d << np.uint64(45) | d >> np.uint64(19)
    states = np.stack([a, b, c, d], 1).astype("<u8")
    return np.unpackbits(states.view(np.uint8), axis=1, bitorder="little").T.astype(np.float32)


def _product(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    # Sums of at most 256 ones are exact.
    return np.mod(a @ b, 2)


def _packed(matrix: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Rows as eight words each, as a warp reads them: [row // 32][half][row % 32][four words]."""
    rows = np.packbits(matrix.astype(np.uint8), axis=1, bitorder="little").view("<u4")
    return rows.reshape(8, 32, 2, 4).transpose(0, 2, 1, 3).reshape(-1)


@functools.cache
def matrices() -> NDArray[np.uint32]:
    """Jumps of ``32 * d * 16**k`` steps for digits d from 1 to 15 and k from 0 to 2, one after the other."""
    power = _step()
    for _ in range(BLOCK.bit_length() - 1):
        power = _product(power, power)
    found: list[NDArray[np.uint32]] = []
    for _ in range(DIGITS):
        times = power
        for _ in range(BASE - 1):
            found.append(_packed(times))
            times = _product(times, power)
        power = times
    return np.concatenate(found)
