"""Checkpoints: states of a console inside an episode, as small as a few hundred bytes.

Most of a state are the 2,496 bytes of the generator of sticky actions, a Mersenne Twister (MT19937), which
depend on the seed of the episode only: it is stored how often the generator was refilled. The rest is
compressed, with the episode's first checkpoint as the dictionary of the later ones.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np

_WORDS = 624
_WORD_BYTES = 4 * _WORDS
# Refills that are tried between two checkpoints: 1,350 steps of 4 frames take 10,800 numbers, 18 refills.
_MAX_REFILLS = 2_000
# Larger than any state without pictures.
_MAX_BYTES = 1 << 20


class Checkpoint(NamedTuple):
    """A packed state.

    Attributes:
        refills: how often the generator was refilled; 0: the state is stored whole.
        position: of the generator's words in the state.
        data: the state without these words, compressed.
    """

    refills: int
    position: int
    data: bytes


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
        self.refills = 0

    def words(self) -> bytes:
        """The 2,496 bytes of the words."""
        return self._generator.state["state"]["key"].astype("<u4").tobytes()

    def refill(self) -> None:
        """Computes the next 624 numbers."""
        self._generator.random_raw(_WORDS, output=False)
        self.refills += 1


def pack(state: bytes, generator: StickyGenerator, first: bytes) -> Checkpoint:
    """Packs a state.

    Args:
        state: of :meth:`parl.AtariVectorEnv.get_state`.
        generator: of this episode, not advanced past the state; it is advanced to it.
        first: what :func:`rest_of` returns for the first checkpoint of the episode, empty for that one.
    """
    position = state.find(generator.words())
    for _ in range(_MAX_REFILLS):
        if position >= 0:
            break
        generator.refill()
        position = state.find(generator.words())
    if position < 0 or generator.refills == 0:
        return Checkpoint(0, 0, _compress(state, first))
    rest = state[:position] + state[position + _WORD_BYTES :]
    return Checkpoint(generator.refills, position, _compress(rest, first))


def rest_of(checkpoint: Checkpoint, first: bytes) -> bytes:
    """The bytes of a state that are stored, decompressed.

    Raises:
        ValueError: the data cannot be decompressed.
    """
    inflate = zlib.decompressobj(-15, first) if first else zlib.decompressobj(-15)
    try:
        return inflate.decompress(checkpoint.data, _MAX_BYTES)
    except zlib.error as error:
        raise ValueError(f"a checkpoint cannot be decompressed: {error}") from None


def unpack(checkpoint: Checkpoint, generator: StickyGenerator, first: bytes) -> bytes:
    """The state that :func:`pack` packed; advances the generator to it."""
    rest = rest_of(checkpoint, first)
    if checkpoint.refills == 0:
        return rest
    while generator.refills < checkpoint.refills:
        generator.refill()
    return rest[: checkpoint.position] + generator.words() + rest[checkpoint.position :]


def _compress(data: bytes, first: bytes) -> bytes:
    if first:
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, first)
    else:
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15, 9)
    return deflate.compress(data) + deflate.flush()
