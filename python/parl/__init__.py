"""parl: parallel actors and learners.

A prioritized replay on a lock-free K-ary sum tree, the Atari 2600 by the thousand, and the algorithms that
use them. ``import parl`` needs numpy alone; everything else is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from parl._gymnasium import register_with_gymnasium
from parl._native import SumTree, __version__
from parl.errors import ParlError

if TYPE_CHECKING:
    from parl import adapters as adapters
    from parl import atari as atari
    from parl.replay import Batch as Batch
    from parl.replay import Hindsight as Hindsight
    from parl.replay import PrioritizedReplay as PrioritizedReplay
    from parl.replay import SequenceReplay as SequenceReplay
    from parl.replay import UniformReplay as UniformReplay
    from parl.train import evaluate as evaluate
    from parl.train import resume as resume
    from parl.train import train as train

# Public name -> module that defines it; a module by its own name is the module itself.
_LAZY = {
    "Batch": "parl.replay",
    "Hindsight": "parl.replay",
    "PrioritizedReplay": "parl.replay",
    "SequenceReplay": "parl.replay",
    "UniformReplay": "parl.replay",
    "AtariVectorEnv": "parl.envs",
    "make_vec": "parl.envs",
    "train": "parl.train",
    "resume": "parl.train",
    "evaluate": "parl.train",
    "adapters": "parl.adapters",
    "atari": "parl.atari",
    "errors": "parl.errors",
    "replay": "parl.replay",
}

__all__ = ["ParlError", "SumTree", "__version__", *_LAZY]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used."""
    home = _LAZY.get(name)
    if home is None:
        raise AttributeError(f"module 'parl' has no attribute {name!r}")
    module = importlib.import_module(home)
    value = module if home == f"parl.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


register_with_gymnasium()
