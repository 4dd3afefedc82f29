"""Actions of an episode as bytes: packed into as many bits as the game's actions need, or compressed.

Packing needs 2 bits in Breakout and 5 in a game with all 18 actions, so that a step with its part of hashes
and checkpoints takes less than a byte.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

_PACKED, _ZLIB = 0, 1


def bits_of(num_actions: int) -> int:
    """Bits of an action among ``num_actions``."""
    return max(1, (num_actions - 1).bit_length())


def encode_actions(actions: NDArray[np.uint8], num_actions: int, compress: bool) -> tuple[int, bytes]:
    """The number of the encoding and the bytes of actions (M,); ``compress`` takes the smaller one."""
    bits = actions[:, None] >> np.arange(bits_of(num_actions), dtype=np.uint8) & 1
    packed = np.packbits(bits, bitorder="little").tobytes()
    if compress:
        small = zlib.compress(actions.tobytes(), 9)
        if len(small) < len(packed):
            return _ZLIB, small
    return _PACKED, packed


def decode_actions(encoding: int, data: bytes, steps: int, num_actions: int) -> NDArray[np.uint8]:
    """The actions (steps,) uint8 that :func:`encode_actions` encoded.

    Raises:
        ValueError: the bytes are not those of so many actions.
    """
    if encoding == _ZLIB:
        inflate = zlib.decompressobj()
        try:
            plain = inflate.decompress(data, steps + 1)
        except zlib.error as error:
            raise ValueError(f"its actions cannot be decompressed: {error}") from None
        if not inflate.eof or inflate.unused_data:
            raise ValueError("its actions are not one whole stream of zlib")
        actions = np.frombuffer(plain, np.uint8)
    elif encoding == _PACKED:
        width = bits_of(num_actions)
        if len(data) != -(-steps * width // 8):
            raise ValueError(f"its actions have {len(data)} bytes, expected {-(-steps * width // 8)}")
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=steps * width, bitorder="little")
        weights = (1 << np.arange(width)).astype(np.uint8)
        actions = (bits.reshape(steps, width) * weights).sum(1, dtype=np.uint8)
    else:
        raise ValueError(f"its actions have the encoding {encoding}, expected 0 or 1")
    if len(actions) != steps or (steps and int(actions.max()) >= num_actions):
        raise ValueError(f"its actions are not {steps} numbers below {num_actions}")
    return actions
