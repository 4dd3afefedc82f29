"""Actions of an episode as bytes: many of them in a number of 64 bits, or compressed.

In a game with A actions, k of them in a row are the digits in base A of one number, with the largest k for
which ``A**k <= 2**64``: 40 with 3 actions, 15 with all 18. An action then takes 0.1 to 0.3 bits more than its
entropy in random play.
"""

from __future__ import annotations

import functools
import zlib

import numpy as np
from numpy.typing import NDArray

_PACKED, _ZLIB, _DIGITS = 0, 1, 2
_WORD_BITS = 64


@functools.cache
def digits_of(num_actions: int) -> int:
    """Number of actions in a number of 64 bits."""
    base, count = max(2, num_actions), 1
    while base ** (count + 1) <= 1 << _WORD_BITS:
        count += 1
    return count


def digit_bytes(steps: int, num_actions: int) -> int:
    """Returns the number of bytes of ``steps`` actions that are stored as digits."""
    count = digits_of(num_actions)
    whole, left = divmod(steps, count)
    return 8 * whole + -(-(max(2, num_actions) ** left - 1).bit_length() // 8)


def encode_actions(actions: NDArray[np.uint8], num_actions: int, compress: bool) -> tuple[int, bytes]:
    """The number of the encoding and the bytes of actions (M,); ``compress`` takes the smaller one."""
    count, base = digits_of(num_actions), max(2, num_actions)
    digits = np.zeros(-(-len(actions) // count) * count, np.uint64)
    digits[: len(actions)] = actions
    weights = np.array([base**place for place in range(count)], np.uint64)
    words = (digits.reshape(-1, count) * weights).sum(1, dtype=np.uint64)
    packed = words.astype("<u8").tobytes()[: digit_bytes(len(actions), num_actions)]
    if compress:
        small = zlib.compress(actions.tobytes(), 9)
        if len(small) < len(packed):
            return _ZLIB, small
    return _DIGITS, packed


def decode_actions(encoding: int, data: bytes, steps: int, num_actions: int) -> NDArray[np.uint8]:
    """The actions (steps,) uint8 that :func:`encode_actions` encoded.

    Raises:
        ValueError: the bytes are not those of ``steps`` actions.
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
    elif encoding == _DIGITS:
        _check_size(data, digit_bytes(steps, num_actions))
        actions = _read_digits(data, steps, num_actions)
    elif encoding == _PACKED:  # of files of version 1
        width = max(1, (num_actions - 1).bit_length())
        _check_size(data, -(-steps * width // 8))
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=steps * width, bitorder="little")
        weights = (1 << np.arange(width)).astype(np.uint8)
        actions = (bits.reshape(steps, width) * weights).sum(1, dtype=np.uint8)
    else:
        raise ValueError(f"its actions have the encoding {encoding}, expected 0, 1 or 2")
    if len(actions) != steps or (steps and int(actions.max()) >= num_actions):
        raise ValueError(f"its actions are not {steps} numbers below {num_actions}")
    return actions


def _check_size(data: bytes, expected: int) -> None:
    if len(data) != expected:
        raise ValueError(f"its actions have {len(data)} bytes, expected {expected}")


def _read_digits(data: bytes, steps: int, num_actions: int) -> NDArray[np.uint8]:
    count, base = digits_of(num_actions), np.uint64(max(2, num_actions))
    words = np.frombuffer(data + bytes(-len(data) % 8), "<u8").astype(np.uint64)
    digits = np.empty((len(words), count), np.uint8)
    for place in range(count):
        words, digits[:, place] = np.divmod(words, base)
    if words.any():
        raise ValueError(f"its actions are not numbers below {num_actions}")
    return digits.reshape(-1)[:steps]
