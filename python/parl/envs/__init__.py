"""Vector environments: how a run makes, describes and checks them, statistics of episodes, Atari games."""

from typing import TYPE_CHECKING

from parl.envs.episodes import EpisodeTracker, games_over, points
from parl.envs.finite import FiniteCheck
from parl.envs.make import EnvMaker, spec_of, usable_cores
from parl.envs.observations import Observer, Rows, rows_of

if TYPE_CHECKING:
    from parl.envs.atari.single import AtariEnv
    from parl.envs.atari.vector import AtariVectorEnv, make_vec

__all__ = [
    "AtariEnv",
    "AtariVectorEnv",
    "EnvMaker",
    "EpisodeTracker",
    "FiniteCheck",
    "Observer",
    "Rows",
    "games_over",
    "make_vec",
    "points",
    "rows_of",
    "spec_of",
    "usable_cores",
]

# Imported on first use, because they need gymnasium.
_LAZY = {
    "AtariEnv": "parl.envs.atari.single",
    "AtariVectorEnv": "parl.envs.atari.vector",
    "make_vec": "parl.envs.atari.vector",
}


if not TYPE_CHECKING:  # Type checkers report names that do not exist.

    def __getattr__(name):
        """Imports a name that needs gymnasium on its first use."""
        home = _LAZY.get(name)
        if home is None:
            raise AttributeError(f"module 'parl.envs' has no attribute {name!r}")
        import importlib

        value = getattr(importlib.import_module(home), name)
        globals()[name] = value
        return value
