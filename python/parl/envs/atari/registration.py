"""Gymnasium ids of all games: ``parl/Breakout-v0`` and ``parl/BreakoutNoFrameskip-v0``.

Environments of the second kind return single native frames, as ale-py's ``BreakoutNoFrameskip-v4``, for
wrappers that do the preprocessing.
"""

from __future__ import annotations

import functools

from parl import _native

NAMESPACE = "parl"
_VERSION = 0
# Names that cannot be derived from the game's id.
_NAMES = {"tic_tac_toe_3d": "TicTacToe3D"}


def env_name(game: str) -> str:
    """Name of a game in its Gymnasium id: ``ms_pacman`` -> ``MsPacman``."""
    return _NAMES.get(game) or "".join(word.capitalize() for word in game.split("_"))


def env_id(game: str) -> str:
    """Gymnasium id of a game: ``ms_pacman`` -> ``parl/MsPacman-v0``."""
    return f"{NAMESPACE}/{env_name(game)}-v{_VERSION}"


@functools.cache
def register() -> None:
    """Registers all games for one player with Gymnasium; a second call does nothing."""
    # This may run while gymnasium is being imported, when only this module of it is complete.
    from gymnasium.envs import registration

    for row in _native.game_rows():
        if row.players == 1:
            registration.register(
                id=env_id(row.id),
                entry_point="parl.envs.atari.single:AtariEnv",
                vector_entry_point="parl.envs.atari.vector:make_vec",
                kwargs={"game": row.id},
            )
            registration.register(
                id=f"{NAMESPACE}/{env_name(row.id)}NoFrameskip-v{_VERSION}",
                entry_point="parl.envs.atari.single:AtariEnv",
                vector_entry_point="parl.envs.atari.vector:make_vec",
                kwargs={"game": row.id, "preset": "raw"},
            )
