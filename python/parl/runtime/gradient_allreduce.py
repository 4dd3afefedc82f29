"""Averages gradients over learners: L learners on parts of a batch update like one on the whole batch.

The parts have equal sizes, so the mean of their mean gradients is that of the whole batch. The same
all-reduce tells every learner whether one of them has no gradients.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor

# Seconds for which learners wait for another one. Between two averages the first learner of a run evaluates,
# saves and calls callbacks, which may take hours. A learner that fails or is killed ends the wait at once.
_TIMEOUT_S = 86_400.0


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


class Rendezvous:
    """A temporary file through which the learners of one machine connect; rank 0 removes it afterwards.

    A file in memory would not do: torch opens the path again when it frees a group, which an exception can
    delay beyond the end of the run, and the file descriptor in the path may be another file's by then.

    Attributes:
        path: path of the file.
    """

    def __init__(self) -> None:
        descriptor, self.path = tempfile.mkstemp(prefix="parl-rendezvous-")
        os.close(descriptor)

    def close(self) -> None:
        """Removes the file if it still exists; safe to call twice."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


class GlooAllReduce:
    """Learners in processes of one machine, connected by ``torch.distributed``'s gloo over loopback.

    Args:
        path: path of an empty file through which the processes connect. Rank 0 removes it.
        rank: number of this learner, ``0 <= rank < learners``.
        learners: L.
        timeout_s: seconds after which a learner that waits for the others raises an error.
    """

    def __init__(self, path: str, rank: int, learners: int, timeout_s: float = _TIMEOUT_S) -> None:
        import torch.distributed as dist

        # A separate group, because the default group and its network settings belong to the user.
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname="127.0.0.1")]
        options._timeout = timedelta(seconds=timeout_s)
        store: Any = getattr(dist, "FileStore")(path, learners)  # noqa: B009 - not exported
        self._group: Any = gloo(store, rank, learners, options)
        self._learners = learners
        self._buffer = torch.empty(0)
        self._group.allreduce([torch.zeros(1)]).wait()  # returns when all have connected
        if rank == 0:
            os.unlink(path)

    def average(
        self, gradients: Tensor, present: bool, meanwhile: Callable[[], object] | None = None
    ) -> bool:
        """See :class:`GradientAllReduce`."""
        # [gradients | number of learners without gradients]
        buffer = self._buffer = pack_flag(self._buffer, gradients, 0.0 if present else 1.0)
        work = self._group.allreduce([buffer])
        if meanwhile is not None:
            meanwhile()
        work.wait()
        if buffer[-1].item() != 0.0:
            return False
        gradients.copy_(buffer[:-1].div_(self._learners))
        return True

    def close(self) -> None:
        """Leaves the group; safe to call twice."""
        self._group = None


class ThreadGroup:
    """State that the :class:`ThreadAllReduce` objects of one process share.

    Args:
        learners: L.
        timeout_s: seconds after which a learner that waits for the others raises an error.
    """

    def __init__(self, learners: int, timeout_s: float = _TIMEOUT_S) -> None:
        self.barrier = threading.Barrier(learners, timeout=timeout_s)
        self.gradients = [torch.empty(0)] * learners
        self.present = [False] * learners


class ThreadAllReduce:
    """Averages gradients of threads: each thread averages one section of them, added in the order of ranks.

    Args:
        group: shared by all learners.
        rank: number of this learner, ``0 <= rank < learners``.
    """

    def __init__(self, group: ThreadGroup, rank: int) -> None:
        self._group, self._rank = group, rank

    def average(
        self, gradients: Tensor, present: bool, meanwhile: Callable[[], object] | None = None
    ) -> bool:
        """See :class:`GradientAllReduce`."""
        group, rank = self._group, self._rank
        group.gradients[rank], group.present[rank] = gradients, present
        if meanwhile is not None:
            meanwhile()
        group.barrier.wait()
        all_present = all(group.present)
        if all_present:
            parts = [whole.tensor_split(len(group.gradients))[rank] for whole in group.gradients]
            mean = parts[0].clone()
            for part in parts[1:]:
                mean.add_(part)
            mean.div_(len(parts))
            for part in parts:
                part.copy_(mean)
        group.barrier.wait()
        return all_present

    def close(self) -> None:
        """Wakes learners that wait in :meth:`average`, with an error; safe to call twice."""
        self._group.barrier.abort()


def pack_flag(buffer: Tensor, gradients: Tensor, flag: float) -> Tensor:
    """Returns ``gradients`` (P,), or zeros unless ``flag`` is 0, and ``flag``, in a buffer (P + 1,)."""
    size = len(gradients)
    if len(buffer) != size + 1:
        buffer = torch.zeros(size + 1, device=buffer.device, dtype=buffer.dtype)
    if flag == 0.0:
        buffer[:size] = gradients
    else:
        buffer.zero_()
    buffer[size] = flag
    return buffer
