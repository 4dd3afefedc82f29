"""Publishes the policy's weights from learner to actors through shared memory: two buffers and a version.

The writer fills the idle buffer and then increments the version. A reader copies the buffer of the version it
read, and copies again if the writer has reused that buffer meanwhile. There are no locks.

The version is written after the buffer and read before it, with a memory fence in between, which processors
other than x86-64 need to keep that order.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parl._native import memory_fence

_HEADER_WORDS = 8


class SharedWeights:
    """Versioned weights of ``size`` float32.

    Args:
        context: a ``multiprocessing`` context.
        size: P, the length of the policy's ``weights``.
    """

    def __init__(self, context: Any, size: int) -> None:
        self.size = size
        self._memory = context.RawArray(ctypes.c_int64, _HEADER_WORDS + size)  # 2 P words of 4 bytes
        self._map()

    def _map(self) -> None:
        words = np.frombuffer(self._memory, np.int64)
        # header[0]: the version that readers take; header[1]: the version being written.
        self._header = words[:_HEADER_WORDS]
        values = words[_HEADER_WORDS:].view(np.float32)
        self._buffers = (torch.from_numpy(values[: self.size]), torch.from_numpy(values[self.size :]))

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self.size, "memory": self._memory}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.size, self._memory = state["size"], state["memory"]
        self._map()

    @property
    def version(self) -> int:
        """Version of the newest published weights; 0 before the first."""
        return int(self._header[0])

    def publish(self, weights: Tensor) -> int:
        """Publishes ``weights`` (P,), on any device; returns their version. Only one process may write."""
        version = int(self._header[0]) + 1
        self._header[1] = version
        memory_fence()
        self._buffers[version & 1].copy_(weights.detach())
        memory_fence()
        self._header[0] = version
        return version

    def read(self, weights: Tensor, have: int) -> int:
        """Copies the newest weights into ``weights`` (P,) unless version ``have`` is the newest.

        Returns:
            The version that ``weights`` now has.
        """
        while True:
            version = int(self._header[0])
            if version == have:
                return have
            memory_fence()
            weights.copy_(self._buffers[version & 1])
            memory_fence()
            # The writer enters this buffer again when it starts version + 2.
            if int(self._header[1]) < version + 2:
                return version
