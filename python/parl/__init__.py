"""parl: parallel actors and learners.

Prioritized replay on a K-ary sum tree, batched Atari 2600 environments, and reinforcement learning
algorithms that train on them. ``import parl`` imports only NumPy; everything else is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parl._gymnasium import register_with_gymnasium
from parl._native import SumTree, __version__
from parl.errors import ParlError
from parl.lazy import importer

if TYPE_CHECKING:
    from parl import adapters, atari, datasets, errors, jax, replay, types
    from parl.atari.modifications import variations
    from parl.envs import AtariVectorEnv, make_vec
    from parl.replay import Batch, Hindsight, PrioritizedReplay, SequenceReplay, UniformReplay
    from parl.train import Callback, evaluate, load, register_algorithm, resume, train
    from parl.train.search import tune

__all__ = [
    "AtariVectorEnv",
    "Batch",
    "Callback",
    "Hindsight",
    "ParlError",
    "PrioritizedReplay",
    "SequenceReplay",
    "SumTree",
    "UniformReplay",
    "__version__",
    "adapters",
    "atari",
    "datasets",
    "errors",
    "evaluate",
    "jax",
    "load",
    "make_vec",
    "register_algorithm",
    "replay",
    "resume",
    "train",
    "tune",
    "types",
    "variations",
]

# Public name -> module that defines it. The value of a module's own name is the module.
_MODULES = {
    "AtariVectorEnv": "parl.envs",
    "Batch": "parl.replay",
    "Callback": "parl.train",
    "Hindsight": "parl.replay",
    "PrioritizedReplay": "parl.replay",
    "SequenceReplay": "parl.replay",
    "UniformReplay": "parl.replay",
    "adapters": "parl.adapters",
    "atari": "parl.atari",
    "datasets": "parl.datasets",
    "errors": "parl.errors",
    "evaluate": "parl.train",
    "jax": "parl.jax",
    "load": "parl.train",
    "make_vec": "parl.envs",
    "register_algorithm": "parl.train",
    "replay": "parl.replay",
    "resume": "parl.train",
    "train": "parl.train",
    "tune": "parl.train.search",
    "types": "parl.types",
    "variations": "parl.atari.modifications",
}

if not TYPE_CHECKING:  # Type checkers report names that do not exist.
    __getattr__ = importer("parl", _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


register_with_gymnasium()
