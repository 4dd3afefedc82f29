"""Vector environments: made from an id or a function, described, and their episodes counted; Atari games."""

from typing import TYPE_CHECKING, Any

from parl.envs.episodes import EpisodeTracker, games_over, points
from parl.envs.finite import FiniteCheck
from parl.envs.make import EnvMaker, spec_of, usable_cores
from parl.envs.observations import Observer, Rows, rows_of

if TYPE_CHECKING:
    from parl.envs.atari import AtariVectorEnv, make_vec
    from parl.envs.atari_single import AtariEnv

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

# These need gymnasium, the others do not.
_LAZY = {
    "AtariEnv": "parl.envs.atari_single",
    "AtariVectorEnv": "parl.envs.atari",
    "make_vec": "parl.envs.atari",
}


def __getattr__(name: str) -> Any:
    """Loads what needs gymnasium when it is first used."""
    home = _LAZY.get(name)
    if home is None:
        raise AttributeError(f"module 'parl.envs' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
