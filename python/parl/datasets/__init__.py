"""Datasets of Atari games as logs of actions: small files that are replayed to any kind of observation.

An episode is stored as the seed of its reset and one action per step. The console is deterministic, so the
replay gives the observations, rewards and ends of episodes again, bit for bit. Hashes in the file prove it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parl.datasets.dataset import Dataset, load
    from parl.datasets.editing import merge, recover, split
    from parl.datasets.format import EpisodeInfo
    from parl.datasets.iterable import TorchDataset
    from parl.datasets.minari import from_minari, to_minari
    from parl.datasets.recording import from_play, record

__all__ = [
    "Dataset",
    "EpisodeInfo",
    "TorchDataset",
    "from_minari",
    "from_play",
    "load",
    "merge",
    "record",
    "recover",
    "split",
    "to_minari",
]

# Imported on first use: gymnasium, torch and Minari are needed by some of them only.
_LAZY = {
    "Dataset": "dataset",
    "EpisodeInfo": "format",
    "TorchDataset": "iterable",
    "from_minari": "minari",
    "from_play": "recording",
    "load": "dataset",
    "merge": "editing",
    "record": "recording",
    "recover": "editing",
    "split": "editing",
    "to_minari": "minari",
}

if not TYPE_CHECKING:  # Type checkers report names that do not exist.

    def __getattr__(name):
        """Imports a name on its first use."""
        home = _LAZY.get(name)
        if home is None:
            raise AttributeError(f"module 'parl.datasets' has no attribute {name!r}")
        import importlib

        value = getattr(importlib.import_module(f"parl.datasets.{home}"), name)
        globals()[name] = value
        return value
