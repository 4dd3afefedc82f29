"""Checkpoints: states of a console inside an episode, as small as 40 to 110 bytes.

Of a state only its core is stored, what the next step depends on. The 2,496 bytes of the generator of sticky
actions, a Mersenne Twister (MT19937), are not among them: they depend on the seed of the episode, and it is
enough to know how often the generator was refilled. Of each core the differences of its bytes from those of
the one before it are stored, of the first one those from a fixed reset. They are mostly zeros, at the same
places in all of them: the bytes of many cores at one place follow each other, compressed by LZMA.
"""

from __future__ import annotations

import lzma
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parl._native import AtariBatch

Bytes = NDArray[np.uint8]

STATE_VERSION: int = AtariBatch.STATE_VERSION
"""Version of cores: those of another one are not used."""
SPACING = 25
"""Steps between two cores that a recording keeps; a file has every fifth of them, or fewer."""
_FEWEST = 5
_WORDS = 624
# Refills that are tried between two cores: 25 steps of 4 frames take 200 numbers.
_MAX_REFILLS = 20_000
_REFILLS = struct.Struct("<I")
_LENGTH = struct.Struct("<I")
# Cores that are compressed together.
_GROUP = 64
_FILTERS: list[dict[str, Any]] = [
    {"id": lzma.FILTER_LZMA1, "lc": 0, "lp": 0, "pb": 0, "dict_size": 1 << 16, "nice_len": 273}
]


class StickyGenerator:
    """The words of the generator of sticky actions of an episode, as they are after each refill.

    Args:
        seed: of the episode's reset.
        numpy_seeds: whether the environments seed the generator as with ``noops="numpy"``.
    """

    def __init__(self, seed: int, numpy_seeds: bool) -> None:
        number = int(np.random.SeedSequence(seed).generate_state(2)[1]) if numpy_seeds else seed
        self._generator = np.random.MT19937()
        # Seeds with one integer as the reference implementation does.
        self._generator._legacy_seeding(number)
        self._words: Bytes | None = None
        self.refills = 0

    def words(self) -> Bytes:
        """The 2,496 bytes of the words."""
        if self._words is None:
            self._words = self._generator.state["state"]["key"].astype("<u4").view(np.uint8)
        return self._words

    def refill(self, count: int = 1) -> None:
        """Computes the next 624 numbers, ``count`` times."""
        self._generator.random_raw(_WORDS * count, output=False)
        self._words = None
        self.refills += count

    def find(self, words: Bytes) -> int | None:
        """The number of refills after which the words are these; None if that is not found."""
        for _ in range(_MAX_REFILLS):
            if np.array_equal(self.words(), words):
                return self.refills
            self.refill()
        return None


def row_of(core: Bytes, refills: int) -> Bytes:
    """A core and the number of refills of its generator as one row."""
    return np.concatenate([core, np.frombuffer(_REFILLS.pack(refills), np.uint8)])


def parts_of(row: Bytes) -> tuple[Bytes, int]:
    """What :func:`row_of` joined."""
    core, refills = np.split(row, [-_REFILLS.size])
    return np.ascontiguousarray(core), _REFILLS.unpack(refills.tobytes())[0]


def count_of(steps: int, spacing: int) -> int:
    """Number of checkpoints of an episode: one at each multiple of ``spacing`` before its end."""
    return max(0, steps - 1) // spacing if spacing else 0


def pack(rows: list[Bytes], reference: Bytes, budget: float) -> tuple[int, bytes]:
    """Packs as many cores of an episode as the budget allows, at regular distances, two or more.

    Args:
        rows: (size,) uint8 each, after every :data:`SPACING` steps.
        reference: (size,) uint8, that of a fixed reset.
        budget: number of bytes.

    Returns:
        Number of steps between two checkpoints, 0 if there is none, and their bytes.
    """
    every = _FEWEST
    while len(chosen := rows[every - 1 :: every]) > 1:
        data = _compressed(np.stack(chosen), reference)
        if len(data) <= budget:
            return every * SPACING, data
        every += 1 + every // 16
    return 0, b""


def _compressed(rows: Bytes, reference: Bytes) -> bytes:
    parts: list[bytes] = []
    for at in range(0, len(rows), _GROUP):
        group = rows[at : at + _GROUP]
        group = group - np.concatenate([reference[None], group[:-1]])
        small = lzma.compress(group.T.tobytes(), lzma.FORMAT_RAW, filters=_FILTERS)
        parts += [_LENGTH.pack(len(small)), small]
    return b"".join(parts)


def check(data: bytes, count: int) -> None:
    """Checks that there are the groups of ``count`` checkpoints.

    Raises:
        ValueError: there are fewer or more bytes.
    """
    at = groups = 0
    while at + _LENGTH.size <= len(data):
        at += _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
        groups += 1
    expected = -(-count // _GROUP)
    if at != len(data) or groups != expected:
        raise ValueError(
            f"its {count} checkpoints are {groups} groups that end at byte {at}, expected {expected} "
            f"groups and byte {len(data)}"
        )


def unpack(data: bytes, count: int, reference: Bytes) -> Iterator[Bytes]:
    """The rows that :func:`pack` packed, each read when it is needed.

    Raises:
        ValueError: the data is damaged.
    """
    for number in range(-(-count // _GROUP)):
        yield from _group(data, count, number, reference)


def unpack_one(data: bytes, count: int, number: int, reference: Bytes) -> Bytes:
    """One of the rows of :func:`unpack`."""
    return _group(data, count, number // _GROUP, reference)[number % _GROUP]


def _group(data: bytes, count: int, number: int, reference: Bytes) -> Bytes:
    at = 0
    for _ in range(number):
        at += _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
    length = _LENGTH.unpack_from(data, at)[0]
    rows = min(_GROUP, count - number * _GROUP)
    expected = rows * len(reference)
    try:
        inflate = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_FILTERS)
        plain = inflate.decompress(data[at + _LENGTH.size : at + _LENGTH.size + length], expected)
    except lzma.LZMAError as error:
        raise ValueError(f"a checkpoint cannot be decompressed: {error}") from None
    if len(plain) != expected:
        raise ValueError(f"{rows} checkpoints have {len(plain)} bytes, expected {expected}")
    differences = np.frombuffer(plain, np.uint8).reshape(-1, rows).T
    return np.cumsum(np.concatenate([reference[None], differences]), axis=0, dtype=np.uint8)[1:]
