"""Play kept for learning: the actions of a person, and all that is needed to see what that person saw.

An action holds for as many frames as a step of a training environment has, and is one that does something in
the game, so that the environment can take the same steps again with any kind of observation. The file is
an ``.npz`` of numpy with

- ``game`` (id), ``mode``, ``difficulty``, ``frameskip``: the console;
- ``actions``: (M,) uint8, numbers among the game's minimal actions, one a step;
- ``starts``: (E,) int64, the steps that began an episode.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from parl.atari.actions import Action
from parl.atari.console import Console
from parl.errors import ConfigError


class Recorder:
    """Holds a player's actions for whole steps and remembers them.

    Args:
        console: freshly made, of a known game for one player.
        frameskip: frames of a step.

    Raises:
        ConfigError: the game is unknown, or for two players.
    """

    def __init__(self, console: Console, frameskip: int = 4) -> None:
        if console.game is None or console.players != 1:
            raise ConfigError(f"play of {console.name} cannot be kept: it takes a known game for one player")
        self._console = console
        self._frameskip = frameskip
        self._minimal = console.minimal_actions
        self._actions: list[int] = []
        self._starts: list[int] = [0]
        self._left = 0

    def __len__(self) -> int:
        """Steps so far."""
        return len(self._actions)

    def action(self, wanted: Action) -> Action:
        """What the console shall do in this frame: ``wanted`` at the start of a step, then the same on.

        An action that does nothing in this game loses its direction or its button, as far as needed.
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
        """A new episode begins with the next frame."""
        self._left = 0
        if self._starts[-1] != len(self._actions):
            self._starts.append(len(self._actions))

    def write(self, path: Path) -> None:
        """Writes the file; its folder is made if missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            np.savez_compressed(
                file,
                game=np.array(self._console.game),
                mode=np.array(self._console.mode),
                difficulty=np.array(self._console.difficulty),
                frameskip=np.array(self._frameskip),
                actions=np.array(self._actions, np.uint8),
                starts=np.array(self._starts, np.int64),
            )
