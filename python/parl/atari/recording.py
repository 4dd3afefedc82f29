"""Recordings of a player's actions, as demonstrations for behavior cloning.

An action lasts for the frames of a step of a training environment and is one of the game's minimal actions,
so that an environment can repeat the steps with any kind of observation. Every episode starts as one of an
environment that is reset with a seed, with the memory of a console that was switched on, since a console
keeps its memory at a reset and some games then start differently. The file is a NumPy ``.npz`` with

- ``game`` (id), ``mode``, ``difficulty``, ``frameskip``: settings of the console;
- ``actions``: (M,) uint8, indices into the game's minimal actions, one per step;
- ``starts``: (E,) int64, the steps at which episodes start.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parl import _native
from parl._system import write_atomically
from parl.atari.actions import Action
from parl.atari.archive import UNREADABLE
from parl.atari.console import Console
from parl.errors import ConfigError


class Recorder:
    """Records the actions of a player, each for a whole step.

    Args:
        console: a console with a known game for one player, which is put to the start of the game.
        frameskip: number of frames per step.

    Raises:
        ConfigError: the game is unknown, or for two players.
    """

    def __init__(self, console: Console, frameskip: int = 4) -> None:
        if console.game is None or console.players != 1:
            raise ConfigError(f"{console.name} cannot be recorded, expected a known game for one player")
        self._console = console
        self._frameskip = frameskip
        self._minimal = console.minimal_actions
        self._actions: list[int] = []
        self._starts: list[int] = [0]
        self._left = 0
        self._start = _start_of(console)
        console.load(self._start)

    def __len__(self) -> int:
        """Number of steps so far."""
        return len(self._actions)

    def action(self, wanted: Action) -> Action:
        """The action for the console in this frame.

        At the start of a step this is ``wanted``, in its other frames the same action again. An action that
        has no effect in the game is replaced by one without its button or its direction.

        Args:
            wanted: the action of the player in this frame.
        """
        if self._left == 0:
            self._left = self._frameskip
            self._actions.append(self._minimal.index(self._nearest(wanted)))
        self._left -= 1
        return self._minimal[self._actions[-1]]

    def _nearest(self, wanted: Action) -> Action:
        name = wanted.name
        others = [name.removesuffix("FIRE"), "FIRE" if name.endswith("FIRE") else "NOOP", "NOOP"]
        for candidate in (name, *others):
            if candidate and Action[candidate] in self._minimal:
                return Action[candidate]
        return self._minimal[0]

    def restart(self) -> None:
        """Puts the console to the start of the game; a new episode starts with the next frame."""
        self._console.load(self._start)
        self._left = 0
        if self._starts[-1] != len(self._actions):
            self._starts.append(len(self._actions))

    def write(self, path: Path) -> None:
        """Writes the recording to a file; its folder is created if missing."""
        content = io.BytesIO()
        np.savez_compressed(
            content,
            game=np.array(self._console.game),
            mode=np.array(self._console.mode),
            difficulty=np.array(self._console.difficulty),
            frameskip=np.array(self._frameskip),
            actions=np.array(self._actions, np.uint8),
            starts=np.array(self._starts, np.int64),
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content.getvalue())


def read_arrays(path: str | Path) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file by name.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no such file, is damaged, or holds Python objects.
    """
    content = io.BytesIO(Path(path).read_bytes())
    try:
        with np.load(content, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except UNREADABLE as error:
        raise ValueError(f"{path} is not an .npz file of arrays: {error}") from None


def check_play(columns: Mapping[str, NDArray[Any]]) -> None:
    """Checks that the arrays of a file are those of a recording.

    Raises:
        ValueError: one is missing or of another shape or type, or the first episode does not start at step 0.
    """
    for name in ("game", "mode", "difficulty", "frameskip", "actions", "starts"):
        if name not in columns:
            raise ValueError(f"it has no array {name!r}")
    for name in ("actions", "starts"):
        if columns[name].ndim != 1 or columns[name].dtype.kind not in "iu":
            raise ValueError(
                f"{name} is {columns[name].dtype} of shape {columns[name].shape}, expected integers"
            )
    if columns["starts"][:1].tolist() != [0]:
        raise ValueError(f"starts begins with {columns['starts'][:1].tolist()}, expected 0")


def settings_of(columns: Mapping[str, NDArray[Any]]) -> dict[str, int | None]:
    """Mode, difficulty and frame skip of a recording as keywords of environments.

    Args:
        columns: arrays of the file.
    """
    found: dict[str, int | None] = {name: int(columns[name]) for name in ("mode", "difficulty", "frameskip")}
    row = next((row for row in _native.game_rows() if row.id == str(columns["game"])), None)
    if row is not None and found["difficulty"] not in row.difficulties:
        # Backgammon does not list the difficulty 0 that consoles begin with; None is that one.
        found["difficulty"] = None
    return found


def _start_of(console: Console) -> bytes:
    """The state after a reset with seed 0 of an environment with the console's game, mode and difficulty."""
    # Not all games have the difficulty 0 that consoles begin with.
    difficulty = console.difficulty if console.difficulty in console.difficulties else None
    fresh = Console(console._rom.path, seed=0, mode=console.mode, difficulty=difficulty, rules=console.game)
    return fresh.save()
