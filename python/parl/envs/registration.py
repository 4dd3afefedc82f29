"""Gymnasium ids of all games: ``parl/Breakout-v0`` and ``parl/BreakoutNoFrameskip-v0``.

The second gives each frame as it is, as ``BreakoutNoFrameskip-v4`` of ale-py does, for wrappers that prepare
pictures themselves.
"""

from __future__ import annotations

import functools

from parl import _native

NAMESPACE = "parl"
_VERSION = 0
# Where capitals do not follow the underscores.
_NAMES = {"tic_tac_toe_3d": "TicTacToe3D"}


def env_name(game: str) -> str:
    """``ms_pacman`` -> ``MsPacman``."""
    return _NAMES.get(game) or "".join(word.capitalize() for word in game.split("_"))


def env_id(game: str) -> str:
    """``ms_pacman`` -> ``parl/MsPacman-v0``."""
    return f"{NAMESPACE}/{env_name(game)}-v{_VERSION}"


@functools.cache
def register() -> None:
    """Tells Gymnasium of every game for one player; a second call does nothing."""
    # While gymnasium is being imported, only this module of it is complete.
    from gymnasium.envs import registration

    for row in _native.game_rows():
        if row.players == 1:
            registration.register(
                id=env_id(row.id),
                entry_point="parl.envs.atari_single:AtariEnv",
                vector_entry_point="parl.envs.atari:make_vec",
                kwargs={"game": row.id},
            )
            registration.register(
                id=f"{NAMESPACE}/{env_name(row.id)}NoFrameskip-v{_VERSION}",
                entry_point="parl.envs.atari_single:AtariEnv",
                vector_entry_point="parl.envs.atari:make_vec",
                kwargs={"game": row.id, "preset": "raw"},
            )
