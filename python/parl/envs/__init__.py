"""Vector environments: how a run makes, describes and checks them, statistics of episodes, Atari games."""

from typing import TYPE_CHECKING

from parl._system import usable_cores
from parl.envs.episodes import EpisodeTracker, games_over, points, successes
from parl.envs.finite import FiniteCheck
from parl.envs.make import EnvMaker, spec_of
from parl.envs.observations import Observer, Rows, check_final
from parl.lazy import importer

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
    "check_final",
    "games_over",
    "make_vec",
    "points",
    "spec_of",
    "successes",
    "usable_cores",
]

if not TYPE_CHECKING:  # Type checkers report names that do not exist.
    # They need gymnasium.
    __getattr__ = importer(
        "parl.envs",
        {
            "AtariEnv": "parl.envs.atari.single",
            "AtariVectorEnv": "parl.envs.atari.vector",
            "make_vec": "parl.envs.atari.vector",
        },
    )
