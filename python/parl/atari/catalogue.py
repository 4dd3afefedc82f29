"""The games that parl knows: their names, actions and modes, and whether their ROM files are found."""

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
"""Width of every screen in pixels."""

NTSC_FPS, PAL_FPS = 60.0, 50.0
"""Frames per second."""
# Pictures of NTSC games have fewer rows.
_PAL_ROWS = 250
_SUGGESTIONS = 3


@dataclass(frozen=True)
class Game:
    """A game that parl knows, and its ROM file."""

    id: str
    """Id in lower case, as in ``Console("ms_pacman")``."""
    title: str
    """Title, as in ``Ms. Pac-Man``."""
    cartridge: str
    """Bank switching scheme of the cartridge: 2K, 4K, F8, F8SC, F6, F6SC, E0, FE or DPC."""
    players: int
    """Number of players: 1, or 2 for games that need two; on a Console these have no score, lives or end."""
    actions: tuple[Action, ...]
    """Actions that have an effect in the game (the minimal set), in ascending order."""
    legal_actions: tuple[Action, ...]
    """Actions that the game receives; others are replaced by NOOP."""
    modes: tuple[int, ...]
    """Modes of the game; the first is the default."""
    two_player_modes: tuple[int, ...]
    """Modes that two play at the same time, with ``AtariVectorEnv(players=2)``; empty if there are none."""
    difficulties: tuple[int, ...]
    """Positions of the two difficulty switches: bit 0 is the left one, bit 1 the right one."""
    screen: tuple[int, int]
    """Height and width of the screen in pixels."""
    md5: str
    """MD5 hash of its ROM in hexadecimal."""
    path: Path | None
    """Path of its ROM file; None if it was not found."""
    found: bool
    """Whether the file was found and has this hash."""


def title(game: str) -> str:
    """The title of a game, such as ``Ms. Pac-Man``, from its id."""
    return next(row.title for row in _native.game_rows() if row.id == game)


def frames_per_second(game: str) -> float:
    """Frames per second of a game by its id: 60 for NTSC, 50 for PAL."""
    height = next(row.height for row in _native.game_rows() if row.id == game)
    return PAL_FPS if height >= _PAL_ROWS else NTSC_FPS


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@functools.cache
def _ids() -> dict[str, str]:
    """Letters and digits of each id -> the id."""
    return {_letters(row.id): row.id for row in _native.game_rows()}


def find_id(name: str) -> str | None:
    """The id of a game from its id, its Gymnasium name or a name with the same letters; None if unknown."""
    stem = re.sub(r"^(?:ALE|parl)/|(?:-ram)?(?:Deterministic|NoFrameskip)?(?:-v\d+)?$", "", name)
    return _ids().get(_letters(stem))


def suggestion(name: str) -> str:
    """A question with the ids most similar to ``name``; empty if there are none."""
    close = difflib.get_close_matches(_letters(name), list(_ids()), _SUGGESTIONS)
    return f"did you mean {' or '.join(_ids()[letters] for letters in close)}?" if close else ""


def game_id(name: str) -> str:
    """The id of a game: ``MsPacman``, ``ALE/MsPacman-v5`` and ``ms-pacman`` give ``ms_pacman``.

    Raises:
        AtariError: (a ValueError) there is no such game; the message names the most similar ids.
    """
    found = find_id(name)
    if found is None:
        hint = suggestion(name) or "parl games lists them"
        raise AtariError(f"there is no game {name!r} among the {len(_ids())} known ones: {hint}")
    return found


def two_player_games() -> dict[str, tuple[int, ...]]:
    """The games that two play at the same time: id -> modes for two players, the first is the default.

    Examples:
        >>> import parl
        >>> parl.atari.two_player_games()["pong"]
        (2, 3)
    """
    return {row.id: tuple(row.two_player_modes) for row in _native.game_rows() if row.two_player_modes}


def games() -> list[Game]:
    """All games that parl knows, sorted by id.

    Reads the ROM files that it finds to compare their hashes, which takes a few milliseconds.
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
                title=row.title,
                cartridge=row.cartridge,
                players=row.players,
                actions=tuple(Action(number) for number in row.minimal_actions),
                legal_actions=tuple(Action(number) for number in row.legal_actions),
                modes=tuple(row.modes),
                two_player_modes=tuple(row.two_player_modes),
                difficulties=tuple(row.difficulties),
                screen=(row.height, SCREEN_WIDTH),
                md5=row.md5,
                path=path,
                found=md5 == row.md5,
            )
        )
    return found
