"""Gradients averaged over learners, so that L learners on parts step like one on the whole batch.

The parts have equal sizes, so the mean of their mean gradients is that of the concatenated batch. One
all-reduce does it, and tells every learner whether one of them could not take part.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor


class Peers(Protocol):
    """The learners of a run, seen from one of them."""

    def average(
        self, gradients: Tensor, present: bool, meanwhile: Callable[[], object] | None = None
    ) -> bool:
        """Replaces ``gradients`` (P,) by the mean over all learners.

        Args:
            gradients: of this learner's part; ignored unless ``present``.
            present: this learner has gradients; False asks all to leave this update out.
            meanwhile: called while the gradients travel.

        Returns:
            whether all were present, the same for every learner; if not, ``gradients`` are undefined.
        """
        ...

    def close(self) -> None:
        """Ends the connection."""
        ...


class Alone:
    """One learner: its gradients are the mean."""

    def average(
        self, gradients: Tensor, present: bool, meanwhile: Callable[[], object] | None = None
    ) -> bool:
        """See :class:`Peers`."""
        if meanwhile is not None:
            meanwhile()
        return present

    def close(self) -> None:
        """Ends it; safe to call twice."""
        pass


class Rendezvous:
    """A file in memory, without a name, where processes of one machine find each other.

    It goes with the process that made it, however that ends, and leaves nothing behind.

    Attributes:
        path: where any process of this user opens the file, until :meth:`close`.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = os.memfd_create("parl-rendezvous")
        self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def close(self) -> None:
        """Frees it; safe to call twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class GlooPeers:
    """Learners in processes of one machine, connected by ``torch.distributed``'s gloo over loopback.

    Args:
        path: of an empty file where the processes find each other.
        rank: number of this learner, ``0 <= rank < learners``.
        learners: L.
        timeout_s: how long a peer may keep the others waiting.
    """

    def __init__(self, path: str, rank: int, learners: int, timeout_s: float = 600.0) -> None:
        import torch.distributed as dist

        # A group of its own: the process-wide default one, and its network settings, are the user's.
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname="127.0.0.1")]
        options._timeout = timedelta(seconds=timeout_s)
        store: Any = getattr(dist, "FileStore")(path, learners)  # noqa: B009 - not exported
        self._group: Any = gloo(store, rank, learners, options)
        self._learners = learners
        self._buffer = torch.empty(0)

    def average(
        self, gradients: Tensor, present: bool, meanwhile: Callable[[], object] | None = None
    ) -> bool:
        """See :class:`Peers`."""
        # [gradients | learners that are absent]
        buffer = self._buffer = packed(self._buffer, gradients, 0.0 if present else 1.0)
        work = self._group.allreduce([buffer])
        if meanwhile is not None:
            meanwhile()
        work.wait()
        if buffer[-1].item() != 0.0:
            return False
        gradients.copy_(buffer[:-1].div_(self._learners))
        return True

    def close(self) -> None:
        """Ends it; safe to call twice."""
        self._group = None


class Meeting:
    """Where learners in threads of one process find each other.

    Args:
        learners: L.
        timeout_s: how long a peer may keep the others waiting.
    """

    def __init__(self, learners: int, timeout_s: float = 600.0) -> None:
        self.barrier = threading.Barrier(learners, timeout=timeout_s)
        self.gradients = [torch.empty(0)] * learners
        self.present = [False] * learners


class ThreadPeers:
    """Learners in threads: each averages a part of all gradients, where they lie, in the order of the ranks.

    Args:
        meeting: the same for all.
        rank: number of this learner, ``0 <= rank < learners``.
    """

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting, self._rank = meeting, rank

    def average(
        self, gradients: Tensor, present: bool, meanwhile: Callable[[], object] | None = None
    ) -> bool:
        """See :class:`Peers`."""
        meeting, rank = self._meeting, self._rank
        meeting.gradients[rank], meeting.present[rank] = gradients, present
        if meanwhile is not None:
            meanwhile()
        meeting.barrier.wait()
        all_present = all(meeting.present)
        if all_present:
            parts = [whole.tensor_split(len(meeting.gradients))[rank] for whole in meeting.gradients]
            mean = parts[0].clone()
            for part in parts[1:]:
                mean.add_(part)
            mean.div_(len(parts))
            for part in parts:
                part.copy_(mean)
        meeting.barrier.wait()
        return all_present

    def close(self) -> None:
        """Ends it, and the waiting of the others; safe to call twice."""
        self._meeting.barrier.abort()


def packed(buffer: Tensor, gradients: Tensor, sign: float) -> Tensor:
    """``gradients`` (P,) and a number behind them in one buffer (P + 1,); zeros unless the number is 0."""
    size = len(gradients)
    if len(buffer) != size + 1:
        buffer = torch.zeros(size + 1, device=buffer.device)
    if sign == 0.0:
        buffer[:size] = gradients
    else:
        buffer.zero_()
    buffer[size] = sign
    return buffer
