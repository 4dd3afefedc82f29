"""Named fields of games' objects in the console's memory: :func:`objects`.

The table is ``objects.toml``. Each field is a byte of RAM, or some of its bits, with the formula that
makes pixels or a count of it. Source of the addresses: the public tables of AtariARI (Anand et al., 2019,
"Unsupervised State Representation Learning in Atari") and black-box runs of the games; every field is
compared with pictures, lives or scores by a test.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from parl.atari.catalogue import game_id
from parl.errors import AtariError

FieldType = Literal["x", "y", "counter", "flag"]

_FILE = Path(__file__).with_name("objects.toml")


@dataclass(frozen=True)
class ObjectField:
    """A field of an object of a game, one byte of RAM or some of its bits.

    Its value is ``scale * code + offset``, limited to 0..255. ``code`` is the masked bits of the byte,
    shifted down to bit 0, and read as two decimal digits where ``decimal`` is set.
    """

    name: str
    """Such as ``player_x``."""
    type: FieldType
    """``"x"`` and ``"y"``: column and row of the center of the object, in pixels of the screen of 160 columns
    and 210 rows, from the left and from the top; ``"counter"``; ``"flag"``: 0 or 1."""
    address: int
    """Index of the byte in RAM, 0..127."""
    mask: int = 255
    """Bits of the byte that belong to the field. A flag is 1 if any of them is set."""
    decimal: bool = False
    """Whether the byte holds two decimal digits, one in each half."""
    scale: int = 1
    """Pixels or counts per unit."""
    offset: int = 0
    """Value for the code 0."""

    @property
    def values(self) -> NDArray[np.uint8]:
        """(256,) uint8, the value of the field for each value of its byte."""
        code = np.arange(256) & self.mask
        if self.type == "flag":
            return (code > 0).astype(np.uint8)
        code >>= (self.mask & -self.mask).bit_length() - 1
        if self.decimal:
            code = (code >> 4) * 10 + (code & 15)
        return (self.scale * code + self.offset).clip(0, 255).astype(np.uint8)

    def read(self, ram: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Values of the field in memories (..., 128) uint8: (...) uint8.

        Raises:
            TypeError: ``ram`` has another dtype.
            AtariError: its last dimension is not 128.
        """
        memory = np.asarray(ram)
        if memory.dtype != np.uint8:
            raise TypeError(f"ram has dtype {memory.dtype}, expected uint8")
        if memory.ndim == 0 or memory.shape[-1] != 128:
            raise AtariError(f"ram has shape {memory.shape}, expected (..., 128)")
        return self.values[memory[..., self.address]]


def object_games() -> tuple[str, ...]:
    """Ids of the games that have a table of objects, sorted."""
    return tuple(sorted(_tables()))


def objects(game: str) -> tuple[ObjectField, ...]:
    """Fields of the objects of a game, in the order of observations with ``obs_type="objects"``.

    Args:
        game: id of the game, as in :func:`parl.atari.game_id`.

    Raises:
        AtariError: (a ValueError) there is no such game, or it has no table; the message lists those that do.

    Examples:
        >>> import parl
        >>> [field.name for field in parl.atari.objects("pong")][:2]
        ['player_y', 'opponent_y']
    """
    known = game_id(game)
    try:
        return _tables()[known]
    except KeyError:
        raise AtariError(
            f"the game {known!r} has no table of objects, only these have: {', '.join(object_games())}"
        ) from None


@functools.cache
def _tables() -> dict[str, tuple[ObjectField, ...]]:
    with _FILE.open("rb") as file:
        games: dict[str, dict[str, dict[str, Any]]] = tomllib.load(file)
    return {
        game: tuple(_field(name, entry) for name, entry in fields.items()) for game, fields in games.items()
    }


def _field(name: str, entry: dict[str, Any]) -> ObjectField:
    field = ObjectField(name, **entry)
    if field.type not in get_args(FieldType) or not 0 <= field.address < 128 or not 0 < field.mask < 256:
        raise AtariError(f"{_FILE}: the field {name!r} is {entry}")
    return field
