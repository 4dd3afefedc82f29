"""Named modifications of games, and :func:`variations`, which lists what a game can be played with.

A modification replaces bytes of the ROM, or sets bytes of the console's RAM. ``modifications.toml`` has those
that parl knows.
"""

from __future__ import annotations

import functools
import operator
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from parl import _native
from parl.atari.catalogue import game_id
from parl.errors import AtariError

Patches = tuple[tuple[int | None, int, int], ...]
"""Bank (None if the cartridge has none), address and value of bytes of a ROM."""
Bytes = tuple[tuple[int, int], ...]
"""Index and value of bytes of RAM."""

_RAM_BYTES = 128


@dataclass(frozen=True)
class Modification:
    """Changes of a game."""

    name: str
    """Name, as in ``AtariVectorEnv(modifications="infinite_lives")``."""
    description: str
    """What is different."""
    patches: Patches
    """Bytes of the ROM that are replaced."""
    ram: Bytes
    """Bytes of RAM that a reset sets."""
    hold: Bytes
    """Bytes of RAM that are set at a reset and before each frame."""


@dataclass(frozen=True)
class GameVariations:
    """What a game can be played with."""

    game: str
    """Id of the game."""
    modes: tuple[int, ...]
    """Modes; the first is the default."""
    difficulties: tuple[int, ...]
    """Positions of the difficulty switches: bit 0 is the left one, bit 1 the right one."""
    modifications: dict[str, Modification]
    """Modifications by name."""


def variations(game: str) -> GameVariations:
    """Lists modes, difficulties and modifications of a game.

    Args:
        game: the game's id.

    Raises:
        AtariError: there is no such game.

    Examples:
        >>> import parl
        >>> found = parl.variations("breakout")
        >>> found.modes, found.difficulties
        ((0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44), (0, 1))
        >>> list(found.modifications)
        ['infinite_lives', 'one_life', 'other_colors']
    """
    name = game_id(game)
    row = next(row for row in _native.game_rows() if row.id == name)
    return GameVariations(name, tuple(row.modes), tuple(row.difficulties), dict(_of_game(name)))


def modification(game: str, name: str) -> Modification:
    """A modification of a game.

    Args:
        game: id of the game.
        name: name of the modification.

    Raises:
        AtariError: the game has no such modification; the message lists those that it has.
    """
    known = _of_game(game)
    if name not in known:
        listed = ", ".join(known) or "none"
        raise AtariError(f"modification {name!r} is not one of {game}'s modifications: {listed}")
    return known[name]


@functools.cache
def _of_game(game: str) -> Mapping[str, Modification]:
    rows: dict[str, Any] = _table().get(game, {})
    return {
        name: Modification(
            name,
            row["description"],
            parse_patches(row.get("patches")),
            parse_ram("ram", row.get("ram")),
            parse_ram("hold", row.get("hold")),
        )
        for name, row in rows.items()
    }


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads(resources.files("parl.atari").joinpath("modifications.toml").read_text("utf-8"))


def parse_patches(value: Any) -> Patches:
    """Converts a mapping of places in a ROM to values.

    Args:
        value: None, or a mapping. A key is an address, or (bank, address); or either as text, such as
            ``"0xF123"`` and ``"2:0xF123"``.

    Raises:
        TypeError: ``value`` is not a mapping, or a key or value has another type.
        AtariError: a value is outside 0..255, or a key is not of these forms.
    """
    found: dict[tuple[int | None, int], int] = {}
    keys: dict[Any, Any] = {}
    for key, byte in _items("patches", value):
        bank: Any
        if isinstance(key, tuple) and len(key) == 2:
            bank, address = key
        elif isinstance(key, str) and ":" in key:
            bank, _, address = key.partition(":")
        else:
            bank, address = None, key
        place = (None if bank is None else _number("patches", bank), _number("patches", address))
        for part in place:
            if part is not None and not 0 <= part < 2**32:
                raise AtariError(f"patches has the key {key!r}, expected an address or a bank and an address")
        _check_new("patches", keys, place, key)
        found[place] = _byte("patches", key, byte)
    return tuple((bank, address, byte) for (bank, address), byte in found.items())


def parse_ram(name: str, value: Any) -> Bytes:
    """Converts a mapping of places in RAM to values.

    Args:
        name: the keyword, for messages.
        value: None, or a mapping. A key is the index of a byte of ``info["ram"]`` (0 to 127) or the address
            of the same byte (0x80 to 0xFF), also as text.

    Raises:
        TypeError: ``value`` is not a mapping, or a key or value has another type.
        AtariError: a key or value is outside 0..255.
    """
    found: dict[int, int] = {}
    keys: dict[Any, Any] = {}
    for key, byte in _items(name, value):
        place = _number(name, key)
        if not 0 <= place < 2 * _RAM_BYTES:
            raise AtariError(f"{name} has the key {place}, expected an index 0 to 127 or address 128 to 255")
        _check_new(name, keys, place % _RAM_BYTES, key)
        found[place % _RAM_BYTES] = _byte(name, key, byte)
    return tuple(sorted(found.items()))


def _check_new(name: str, keys: dict[Any, Any], place: Any, key: Any) -> None:
    """Notes the ``key`` of a place.

    Raises:
        AtariError: the place has another key already.
    """
    if place in keys:
        raise AtariError(f"{name} has the keys {keys[place]!r} and {key!r} for the same byte")
    keys[place] = key


def _items(name: str, value: Any) -> list[tuple[Any, Any]]:
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is {value!r}, expected a mapping of addresses to values")
    return list(value.items())


def _number(name: str, value: Any) -> int:
    if isinstance(value, str):
        try:
            return int(value, 0)
        except ValueError:
            raise AtariError(f"{name} has {value!r}, expected a number such as 0xF123") from None
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} has {value!r}, expected an int") from None


def _byte(name: str, key: Any, value: Any) -> int:
    number = _number(name, value)
    if not 0 <= number <= 255:
        raise AtariError(f"{name} has {number} at {key!r}, expected a value of 0 to 255")
    return number
