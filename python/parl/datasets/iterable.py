"""Datasets for torch: :class:`TorchDataset`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from parl.datasets.dataset import Dataset, load
from parl.envs import usable_cores

# Odd number between the seeds of successive passes.
_PASS_STEP = 0x9E3779B97F4A7C15


class TorchDataset(IterableDataset[dict[str, torch.Tensor]]):
    """The steps of a dataset as batches of tensors, for ``torch.utils.data.DataLoader``.

    Each worker of a loader replays a share of the episodes, with a share of the cores. Pass
    ``batch_size=None`` to the loader: what this class yields are batches, the rows of :meth:`Dataset.replay`.

    Args:
        dataset: a dataset, or its path.
        shuffle: whether episodes begin in random order, another one in each pass, drawn from torch's
            generator as by a loader with ``shuffle=True``. The rows of a batch are of different episodes in
            any case.
        **options: those of :meth:`Dataset.replay`, ``batch_size`` included.
    """

    def __init__(self, dataset: Dataset | str | Path, *, shuffle: bool = False, **options: Any) -> None:
        self.dataset = load(dataset) if isinstance(dataset, str | Path) else dataset
        self.shuffle = shuffle
        self.options = options
        # Passes that a worker which stays has begun: its seed stays the same.
        self._passes = 0
        # An iterator that is not started checks the options.
        self.dataset.replay(**options)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yields the batches of this process."""
        options = dict(self.options)
        chosen = options.pop("episodes", None)
        order = np.arange(self.dataset.num_episodes) if chosen is None else np.asarray(chosen)
        info = get_worker_info()
        if self.shuffle:
            # Workers of a loader have the same seed plus their number.
            if info is None:
                seed = int(torch.empty((), dtype=torch.int64).random_())
            else:
                seed = info.seed - info.id + self._passes * _PASS_STEP
                self._passes += 1
            order = np.random.default_rng(seed % 2**64).permutation(order)
        if info is not None:
            order = order[info.id :: info.num_workers]
            options.setdefault("num_threads", max(1, usable_cores() // info.num_workers))
        for rows in self.dataset.replay(episodes=order.tolist(), **options):
            yield {name: torch.from_numpy(column) for name, column in rows.items()}
