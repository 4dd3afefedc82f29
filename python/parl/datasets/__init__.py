"""Datasets of Atari games as logs of actions: small files that are replayed to any kind of observation.

An episode is stored as the seed of its reset and one action per step. The console is deterministic, so the
replay gives the observations, rewards and ends of episodes again, bit for bit. Hashes in the file prove it.
"""

from typing import TYPE_CHECKING

from parl.lazy import importer

if TYPE_CHECKING:
    from parl.datasets.atari_head import AtariHead, read_atari_head
    from parl.datasets.dataset import Dataset, load
    from parl.datasets.dqn_replay import DQNReplay, read_dqn_replay
    from parl.datasets.editing import merge, recover, split
    from parl.datasets.format import EpisodeInfo
    from parl.datasets.iterable import TorchDataset
    from parl.datasets.minari import from_minari, to_minari
    from parl.datasets.recording import from_play, record

__all__ = [
    "AtariHead",
    "DQNReplay",
    "Dataset",
    "EpisodeInfo",
    "TorchDataset",
    "from_minari",
    "from_play",
    "load",
    "merge",
    "read_atari_head",
    "read_dqn_replay",
    "record",
    "recover",
    "split",
    "to_minari",
]

if not TYPE_CHECKING:  # Type checkers report names that do not exist.
    # Some need gymnasium, torch or Minari.
    __getattr__ = importer(
        "parl.datasets",
        {
            "AtariHead": "parl.datasets.atari_head",
            "DQNReplay": "parl.datasets.dqn_replay",
            "Dataset": "parl.datasets.dataset",
            "EpisodeInfo": "parl.datasets.format",
            "TorchDataset": "parl.datasets.iterable",
            "from_minari": "parl.datasets.minari",
            "from_play": "parl.datasets.recording",
            "load": "parl.datasets.dataset",
            "merge": "parl.datasets.editing",
            "read_atari_head": "parl.datasets.atari_head",
            "read_dqn_replay": "parl.datasets.dqn_replay",
            "record": "parl.datasets.recording",
            "recover": "parl.datasets.editing",
            "split": "parl.datasets.editing",
            "to_minari": "parl.datasets.minari",
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
