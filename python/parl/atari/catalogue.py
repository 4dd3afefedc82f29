"""The games that parl knows: their names, what can be done in them, and whether their ROM is here."""

from __future__ import annotations

import difflib
import functools
import re
from dataclasses import dataclass
from pathlib import Path

from parl import _native
from parl.atari.actions import Action
from parl.atari.roms import ale_py_folder
from parl.errors import AtariError

SCREEN_WIDTH = 160
"""Pixels in a row of every screen."""

# Titles that are not the words of the id with capitals.
_TITLES = {
    "atlantis2": "Atlantis II",
    "battle_zone": "Battlezone",
    "beam_rider": "Beamrider",
    "darkchambers": "Dark Chambers",
    "earthworld": "SwordQuest: EarthWorld",
    "et": "E.T. the Extra-Terrestrial",
    "hero": "H.E.R.O.",
    "jamesbond": "James Bond 007",
    "journey_escape": "Journey Escape",
    "kaboom": "Kaboom!",
    "koolaid": "Kool-Aid Man",
    "kung_fu_master": "Kung-Fu Master",
    "montezuma_revenge": "Montezuma's Revenge",
    "mr_do": "Mr. Do!",
    "ms_pacman": "Ms. Pac-Man",
    "pacman": "Pac-Man",
    "pitfall": "Pitfall!",
    "pitfall2": "Pitfall II",
    "pong": "Pong (Video Olympics)",
    "qbert": "Q*bert",
    "riverraid": "River Raid",
    "robotank": "Robot Tank",
    "tic_tac_toe_3d": "3-D Tic-Tac-Toe",
    "trondead": "TRON: Deadly Discs",
    "up_n_down": "Up'n Down",
    "wizard_of_wor": "Wizard of Wor",
    "yars_revenge": "Yars' Revenge",
}
# Rows of the picture; 250 where the television is PAL.
_HEIGHT = 210
_HEIGHTS = {
    "adventure": 250,
    "air_raid": 250,
    "carnival": 214,
    "combat": 256,
    "journey_escape": 230,
    "keystone_kapers": 250,
    "king_kong": 250,
    "klax": 250,
    "laser_gates": 250,
    "maze_craze": 250,
    "mr_do": 250,
    "pacman": 250,
    "pooyan": 220,
    "sir_lancelot": 250,
    "space_war": 250,
}
_SUGGESTIONS = 3


@dataclass(frozen=True)
class Game:
    """A game that parl knows, and where its ROM is."""

    id: str
    """Name in lower case, as in ``Console("ms_pacman")``."""
    title: str
    """Name for people."""
    cartridge: str
    """How its ROM sits on the bus: 2K, 4K, F8, F8SC, F6, F6SC, E0, FE or DPC."""
    players: int
    """1, or 2 for the cartridges without rules for one player: no score, no lives, no end."""
    actions: tuple[Action, ...]
    """The actions that do something in it (the minimal set), in ascending order."""
    legal_actions: tuple[Action, ...]
    """The actions that are passed on; the others count as NOOP."""
    modes: tuple[int, ...]
    """Variants that can be chosen; the first is the default."""
    difficulties: tuple[int, ...]
    """Positions of the two difficulty switches: bit 0 is the left one, bit 1 the right one."""
    screen: tuple[int, int]
    """Height and width of the picture in pixels."""
    md5: str
    """Hash of its ROM, in hexadecimal."""
    path: Path | None
    """The file of its ROM; None if it was not found."""
    found: bool
    """True when the file is there and has that hash."""


def title(game: str) -> str:
    """A game's name for people."""
    return _TITLES.get(game) or " ".join(word.capitalize() for word in game.split("_"))


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@functools.cache
def _ids() -> dict[str, str]:
    """Letters and digits of every id -> the id."""
    return {_letters(row.id): row.id for row in _native.game_rows()}


def find_id(name: str) -> str | None:
    """The id of a game called by its id, its Gymnasium name or with the same letters, or None."""
    stem = re.sub(r"^(?:ALE|parl)/|(?:-ram)?(?:Deterministic|NoFrameskip)?(?:-v\d+)?$", "", name)
    return _ids().get(_letters(stem))


def suggestion(name: str) -> str:
    """A sentence with the ids that are spelled like ``name``; empty if there are none."""
    close = difflib.get_close_matches(_letters(name), list(_ids()), _SUGGESTIONS)
    return f"did you mean {' or '.join(_ids()[letters] for letters in close)}?" if close else ""


def game_id(name: str) -> str:
    """The id of a game: ``MsPacman``, ``ALE/MsPacman-v5`` and ``ms-pacman`` are ``ms_pacman``.

    Raises:
        ValueError: no game is called so; names the closest ones.
    """
    found = find_id(name)
    if found is None:
        hint = suggestion(name) or "parl games lists them"
        raise AtariError(f"there is no game {name!r} among the {len(_ids())} known ones: {hint}")
    return found


def games() -> list[Game]:
    """All games that parl knows, in alphabetical order of their ids, with what is known about each.

    Reads the ROM files that are found, to compare their hashes; a few milliseconds.
    """
    folders = [folder for folder in [ale_py_folder()] if folder is not None]
    found: list[Game] = []
    for row in _native.game_rows():
        try:
            rom = _native.Rom.find(row.id, folders, True)
            path, md5 = Path(rom.path), rom.md5
        except (OSError, ValueError):
            path, md5 = None, ""
        found.append(
            Game(
                id=row.id,
                title=title(row.id),
                cartridge=row.cartridge,
                players=row.players,
                actions=tuple(Action(number) for number in row.minimal_actions),
                legal_actions=tuple(Action(number) for number in row.legal_actions),
                modes=tuple(row.modes),
                difficulties=tuple(row.difficulties),
                screen=(_HEIGHTS.get(row.id, _HEIGHT), SCREEN_WIDTH),
                md5=row.md5,
                path=path,
                found=md5 == row.md5,
            )
        )
    return found
