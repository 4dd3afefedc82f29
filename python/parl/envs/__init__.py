"""Vector environments: made from an id or a function, described, and their episodes counted."""

from parl.envs.episodes import EpisodeTracker
from parl.envs.make import EnvMaker, spec_of

__all__ = ["EnvMaker", "EpisodeTracker", "spec_of"]
