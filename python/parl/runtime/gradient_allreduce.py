"""Averages gradients over learners: L learners on parts of a batch update like one on the whole batch.

The parts have equal sizes, so the mean of their mean gradients is that of the whole batch. The same
all-reduce tells every learner whether one of them has no gradients.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from parl._native import memory_fence

# Integers of a learner in shared memory, a cache line: the number of its latest average, whether it has no
# gradients for averages of even and of odd numbers, whether it has ended.
_WORDS, _ARRIVED, _ABSENT, _CLOSED = 8, 0, 1, 3
# Seconds for which a learner that waits only yields its core to others; between two looks after that, and
# once it has waited for a check, as during an evaluation; between two checks of the other learner.
_SPIN_S, _PAUSE_S, _LONG_PAUSE_S, _CHECK_EVERY_S = 1e-3, 1e-4, 2e-3, 0.05
_yield: Callable[[], object] = getattr(os, "sched_yield", lambda: time.sleep(0))


class GradientAllReduce(Protocol):
    """Protocol: averages the gradients of one learner with those of the run's other learners."""

    def average(
        self, gradients: Tensor, present: bool, meanwhile: Callable[[], object] | None = None
    ) -> bool:
        """Replaces ``gradients`` (P,) by the mean over all learners.

        Args:
            gradients: of this learner's part; ignored unless ``present``.
            present: whether this learner has gradients. If one has none, all learners skip this update.
            meanwhile: called while the gradients are transferred.

        Returns:
            Whether all learners had gradients, the same value for all. If false, ``gradients`` are undefined.
        """
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class SingleLearner:
    """For runs with one learner, whose gradients are the mean already."""

    def average(
        self, gradients: Tensor, present: bool, meanwhile: Callable[[], object] | None = None
    ) -> bool:
        """See :class:`GradientAllReduce`."""
        if meanwhile is not None:
            meanwhile()
        return present

    def close(self) -> None:
        """Does nothing."""
        pass


class SharedGradients:
    """Memory through which the learners of one machine average their gradients.

    Every learner has two slots for gradients, which it uses in turn: when it writes one of them again, all
    others have read it, because they arrived at the average in between.

    Args:
        context: a ``multiprocessing`` context; the memory has no name, so that it cannot outlive the run.
        size: P, the number of gradients.
        learners: L.
    """

    def __init__(self, context: Any, size: int, learners: int) -> None:
        self.size, self.learners = size, learners
        # Two slots of P words of 4 bytes for each learner.
        self._memory = context.RawArray(ctypes.c_int64, learners * (_WORDS + size))
        self._map()

    def _map(self) -> None:
        words = np.frombuffer(self._memory, np.int64)
        head = _WORDS * self.learners
        self.words = memoryview(self._memory).cast("B").cast("q")[:head]
        """A line of ``_WORDS`` integers for each learner."""
        self.slots = torch.from_numpy(words[head:].view(np.float32)).view(2, self.learners, self.size)

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self.size, "learners": self.learners, "memory": self._memory}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.size, self.learners, self._memory = state["size"], state["learners"], state["memory"]
        self._map()


class SharedAllReduce:
    """Averages gradients of learners in processes or threads of one machine, through shared memory.

    All learners add the gradients in the order of ranks, so that they get the same bits.

    A learner's arrival is written after its gradients and read before them, with a memory fence in between,
    which processors other than x86-64 need to keep that order.

    Args:
        shared: memory of all learners.
        rank: number of this learner, ``0 <= rank < shared.learners``.
        check: raises an error if the learner of a rank has failed; called now and then while this one waits
            for that one.
    """

    def __init__(
        self, shared: SharedGradients, rank: int, check: Callable[[int], object] = lambda rank: None
    ) -> None:
        self._shared, self._rank, self._check = shared, rank, check
        self._round = 0

    def average(
        self, gradients: Tensor, present: bool, meanwhile: Callable[[], object] | None = None
    ) -> bool:
        """See :class:`GradientAllReduce`.

        Raises:
            RuntimeError: another learner has ended.
        """
        shared, own = self._shared, self._rank * _WORDS
        self._round += 1
        half = self._round & 1
        slots = shared.slots[half]
        if present:
            slots[self._rank].copy_(gradients)
        shared.words[own + _ABSENT + half] = not present
        memory_fence()
        shared.words[own + _ARRIVED] = self._round
        if meanwhile is not None:
            meanwhile()
        for rank in range(shared.learners):
            if rank != self._rank:
                self._wait_for(rank)
        memory_fence()
        if any(shared.words[rank * _WORDS + _ABSENT + half] for rank in range(shared.learners)):
            return False
        gradients.copy_(slots[0])
        for part in slots[1:]:
            gradients.add_(part.to(gradients.device))
        gradients.div_(shared.learners)
        return True

    def _wait_for(self, rank: int) -> None:
        """Waits until learner ``rank`` has arrived at this average."""
        words, line = self._shared.words, rank * _WORDS
        started = checked = time.monotonic()
        while words[line + _ARRIVED] < self._round:
            now = time.monotonic()
            if now < started + _SPIN_S:
                _yield()
                continue
            # The learner may have arrived and ended since the last look.
            if words[line + _CLOSED] and words[line + _ARRIVED] < self._round:
                raise RuntimeError(f"learner {rank} has ended")
            if now >= checked + _CHECK_EVERY_S:
                checked = now
                try:
                    self._check(rank)
                except Exception:
                    if words[line + _ARRIVED] < self._round:
                        raise
            time.sleep(_PAUSE_S if now < started + _CHECK_EVERY_S else _LONG_PAUSE_S)

    def close(self) -> None:
        """Lets learners that wait for this one raise an error; safe to call twice."""
        self._shared.words[self._rank * _WORDS + _CLOSED] = True
