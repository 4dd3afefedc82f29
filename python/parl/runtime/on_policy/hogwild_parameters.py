"""Weights and optimizer state in shared memory, which several learners update at once without locks.

If two learners read an element before either writes it, one of the two changes is lost. With gradients of
many elements this is rare and changes little.

Source: Niu et al. (2011), "Hogwild!"; shared statistics as in Mnih et al. (2016), section 4.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch

from parl.types import HogwildLearner


class HogwildParameters:
    """Weights, two running means and a count, in memory that processes share.

    Attributes:
        weights: (P,) float32.
        mean: (P,) float32, of gradients.
        square: (P,) float32, of their squares.
        count: (1,) int64, optimizer steps.

    Args:
        context: a ``multiprocessing`` context; the memory has no name, so that it cannot outlive the run.
        size: P.
    """

    def __init__(self, context: Any, size: int) -> None:
        self.size = size
        self._memory = context.RawArray(ctypes.c_int64, 1 + (3 * size + 1) // 2)
        self._map()

    def _map(self) -> None:
        words = np.frombuffer(self._memory, np.int64)
        self.count = torch.from_numpy(words[:1])
        parts = torch.from_numpy(words[1:].view(np.float32)[: 3 * self.size]).view(3, self.size)
        self.weights, self.mean, self.square = parts[0], parts[1], parts[2]

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self.size, "memory": self._memory}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.size, self._memory = state["size"], state["memory"]
        self._map()

    def attach(self, learner: HogwildLearner, fill: bool) -> None:
        """Makes ``learner`` update these parameters; with ``fill`` its own are first copied into them."""
        learner.share(self.weights, self.mean, self.square, self.count, fill)
