"""What each environment of a batch plays: mode, difficulty, sticky actions, frame skip, changes of RAM."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parl.atari.catalogue import game_id
from parl.atari.modifications import Bytes, Patches, modification, parse_patches, parse_ram
from parl.envs.atari import arguments
from parl.errors import AtariError

KEYS = (
    "game",
    "mode",
    "difficulty",
    "repeat_action_probability",
    "frameskip",
    "patches",
    "ram",
    "hold",
    "modifications",
)
"""Keywords of :class:`parl.AtariVectorEnv` with a value per environment, which ``reset`` can change."""
KEYS_SET = frozenset(KEYS)


@dataclass(frozen=True)
class Variation:
    """What an environment plays, and with which settings."""

    game: str
    """Id of the game."""
    mode: int | None
    """Game mode; None for the game's first mode."""
    difficulty: int | None
    """Difficulty switches; None for the game's default."""
    repeat_action_probability: float
    """Probability, for each frame, that the previous action is repeated."""
    frameskip: tuple[int, int]
    """Frames per step: fixed if both are equal, else drawn from ``low..high-1``."""
    patches: Patches
    """Bytes of the ROM that are replaced: bank (None if the cartridge has none), address, value."""
    ram: Bytes
    """Bytes of RAM that a reset sets: index and value."""
    hold: Bytes
    """Bytes of RAM that are set at a reset and before each frame: index and value."""
    modifications: tuple[str, ...]
    """Names of modifications of :func:`parl.variations`, whose bytes come before those above."""

    @property
    def settings(self) -> dict[str, Any]:
        """The keywords of :class:`parl.AtariVectorEnv`, with values that JSON can hold."""
        low, high = self.frameskip
        return {
            "game": self.game,
            "mode": self.mode,
            "difficulty": self.difficulty,
            "repeat_action_probability": self.repeat_action_probability,
            "frameskip": low if low == high else [low, high],
            "patches": _patches_text(self.patches),
            "ram": _ram_text(self.ram),
            "hold": _ram_text(self.hold),
            "modifications": list(self.modifications),
        }

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> Variation:
        """The variation with these :attr:`settings`."""
        skip = settings["frameskip"]
        values = {**settings, "frameskip": tuple(skip) if isinstance(skip, list) else skip}
        values["modifications"] = [tuple(settings["modifications"])]
        return variations_of(values, 1)[0]

    def changes(self) -> tuple[Patches, Bytes, Bytes]:
        """``patches``, ``ram`` and ``hold`` with those of the modifications."""
        known = [modification(self.game, name) for name in self.modifications]
        patches = {at[:2]: at[2] for one in (*known, self) for at in one.patches}
        ram = {index: value for one in (*known, self) for index, value in one.ram}
        hold = {index: value for one in (*known, self) for index, value in one.hold}
        places = tuple((bank, address, value) for (bank, address), value in patches.items())
        return places, tuple(sorted(ram.items())), tuple(sorted(hold.items()))

    def native(self) -> dict[str, Any]:
        """The entry of ``variations`` in the configuration of ``_native.AtariBatch``."""
        patches, ram, hold = map(list, self.changes())
        return {
            "mode": self.mode,
            "difficulty": self.difficulty,
            "repeat_action_probability": self.repeat_action_probability,
            "frameskip": self.frameskip,
            "patches": patches,
            "ram": ram,
            "hold": hold,
        }


def _patches_text(patches: Patches) -> dict[str, int]:
    return {
        f"0x{address:04X}" if bank is None else f"{bank}:0x{address:04X}": value
        for bank, address, value in patches
    }


def _ram_text(pairs: Bytes) -> dict[str, int]:
    return {f"0x{index:02X}": value for index, value in pairs}


def _modifications(value: Any) -> tuple[str, ...]:
    names = () if value is None else (value,) if isinstance(value, str) else tuple(value)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"modifications has {name!r}, expected names of modifications")
    return tuple(dict.fromkeys(names))


# Keywords whose value for one environment can be a tuple.
_PAIRS_AND_NAMES = ("frameskip", "modifications")


def is_single(name: str, value: Any) -> bool:
    """Whether ``value`` is that of all environments, not one per environment."""
    if name in _PAIRS_AND_NAMES and isinstance(value, tuple):
        # The bounds of a random number of frames, or several names.
        return True
    return isinstance(value, str | bytes | Mapping) or not _has_entries(value)


def _has_entries(value: Any) -> bool:
    if isinstance(value, Sequence):
        return True
    return hasattr(value, "__len__") and hasattr(value, "tolist") and getattr(value, "ndim", 1) == 1


def entries(name: str, value: Any, num_envs: int) -> list[Any]:
    """The value of each environment: ``value``, or its entry i modulo their number for environment i.

    Raises:
        AtariError: there is no entry.
    """
    if is_single(name, value):
        return [value] * num_envs
    values: list[Any] = value.tolist() if hasattr(value, "tolist") else list(value)
    if not values:
        raise AtariError(f"{name} is an empty sequence, expected at least one entry")
    return [values[i % len(values)] for i in range(num_envs)]


# How the value of one environment is checked and converted.
_PARSERS: dict[str, Callable[[Any], Any]] = {
    "game": game_id,
    "mode": lambda value: arguments.choice("mode", value),
    "difficulty": lambda value: arguments.choice("difficulty", value),
    "repeat_action_probability": arguments.probability,
    "frameskip": arguments.frameskip,
    "patches": parse_patches,
    "ram": lambda value: parse_ram("ram", value),
    "hold": lambda value: parse_ram("hold", value),
    "modifications": _modifications,
}


def variations_of(values: Mapping[str, Any], num_envs: int) -> list[Variation]:
    """The variation of each environment.

    Args:
        values: each keyword of :data:`KEYS` with a value for all environments or a sequence of values.
        num_envs: number of environments N.

    Raises:
        AtariError: a value is out of its bounds, or a sequence of values is empty.
        TypeError: a value has another type.
    """
    if all(is_single(name, values[name]) for name in KEYS):
        found = [Variation(*(_PARSERS[name](values[name]) for name in KEYS))] * num_envs
    else:
        columns = [_parsed(name, values[name], num_envs) for name in KEYS]
        found = [Variation(*row) for row in zip(*columns, strict=True)]
    for one in distinct(found):
        for name in one.modifications:
            modification(one.game, name)
    return found


def _parsed(name: str, value: Any, num_envs: int) -> list[Any]:
    parse = _PARSERS[name]
    given = entries(name, value, num_envs)
    if is_single(name, value):
        return [parse(value)] * num_envs
    return [parse(one) for one in given]


def check_options(options: Mapping[str, Any] | None) -> None:
    """Checks that no key of the options of ``reset`` is a misspelled one.

    Raises:
        AtariError: names the key and the one that is probably meant.
    """
    known = ("reset_mask", "states", *KEYS)
    for name in options or ():
        if name in known:  # first, since programs may reset with a mask in every step
            continue
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.8)
        if near:
            raise AtariError(f"options has the key {name!r}: did you mean {near[0]!r}?")


def changed(
    current: Sequence[Variation],
    options: Mapping[str, Any] | None,
    mask: NDArray[np.bool_] | None,
) -> list[Variation] | None:
    """The variations after a reset with ``options``; None if they have no keyword of :data:`KEYS`.

    Args:
        current: the variation of each of N environments.
        options: of ``reset``: for a keyword a value for all environments, or N values.
        mask: (N,) bool, the environments that are reset; None for all.

    Raises:
        AtariError: a value is out of its bounds, or there are neither one nor N values.
        TypeError: a value has another type.
    """
    given = {name: options[name] for name in KEYS if name in options} if options else {}
    if not given:
        return None
    count = len(current)
    for name, value in given.items():
        if not is_single(name, value) and len(value) != count:
            raise AtariError(f"options[{name!r}] has {len(value)} entries, expected {count}: num_envs")
    columns = {name: _parsed(name, value, count) for name, value in given.items()}
    found = list(current)
    for i in range(count):
        if mask is None or mask[i]:
            found[i] = dataclasses.replace(current[i], **{name: columns[name][i] for name in columns})
            for name in found[i].modifications:
                modification(found[i].game, name)
    return found


def config_of(variations: Sequence[Variation], among: Iterable[Variation] | None = None) -> dict[str, Any]:
    """The entries ``games``, ``variations`` and ``assignment`` of the configuration of a batch.

    Args:
        variations: of each environment.
        among: all variations of the batch; None for those of the environments.
    """
    known = distinct(variations if among is None else among)
    return {
        "games": [one.game for one in known],
        "variations": [one.native() for one in known],
        "assignment": numbers_of(variations, known),
    }


def numbers_of(variations: Sequence[Variation], known: Sequence[Variation]) -> list[int]:
    """The index in ``known`` of each variation."""
    numbers = {one: number for number, one in enumerate(known)}
    by_id = {id(one): numbers[one] for one in _objects(variations)}
    return [by_id[id(one)] for one in variations]


def _objects(variations: Iterable[Variation]) -> Iterable[Variation]:
    """The objects among ``variations``: many environments may have the same one."""
    return {id(one): one for one in variations}.values()


def distinct(variations: Iterable[Variation]) -> list[Variation]:
    """The different ones of ``variations``, in the order of their first occurrence."""
    return list(dict.fromkeys(_objects(variations)))


def expanded(game: str, given: Mapping[str, Any], names: Any) -> dict[str, Any]:
    """``patches``, ``ram`` and ``hold`` with those of modifications, in a form that JSON can hold.

    Args:
        game: id of the game.
        given: values of ``patches``, ``ram`` and ``hold``, or None.
        names: of the modifications.

    Raises:
        AtariError: the game has no such modification.
    """
    plain_game = {"mode": None, "difficulty": None, "repeat_action_probability": 0.0, "frameskip": 1}
    one = variations_of({"game": game, **plain_game, **given, "modifications": [names]}, 1)[0]
    patches, ram, hold = one.changes()
    found = {"patches": _patches_text(patches), "ram": _ram_text(ram), "hold": _ram_text(hold)}
    return {name: value or None for name, value in found.items()}


def plain(name: str, value: Any) -> Any:
    """The value of a keyword of :data:`KEYS` in a form that JSON can hold, with the same effect."""
    if isinstance(value, np.generic):
        return value.item()
    if is_single(name, value):
        if name == "patches" and value is not None:
            return _patches_text(parse_patches(value))
        if name in ("ram", "hold") and value is not None:
            return _ram_text(parse_ram(name, value))
        # A list would have an entry for each environment.
        return [list(value)] if name in _PAIRS_AND_NAMES and isinstance(value, tuple) else value
    values: list[Any] = value.tolist() if hasattr(value, "tolist") else list(value)
    if name in _PAIRS_AND_NAMES:
        return [list(one) if isinstance(one, tuple) else one for one in values]
    return [plain(name, one) for one in values]
