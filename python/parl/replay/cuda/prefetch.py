"""Sampling of batches in advance from a replay on a CUDA device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from parl.replay.batch import Batch
    from parl.replay.cuda.replay import CudaReplay


class CudaPrefetch(Iterator["Batch"]):
    """Iterator over batches sampled ``depth`` in advance, as :class:`parl.replay.Prefetch` with ``ordered``.

    The first ``depth`` batches are sampled at once, and another one each time a batch is taken, so that the
    batches equal those of the CPU's class. Sampling only enqueues kernels on torch's current stream, so no
    thread is used.

    Args:
        replay: the replay to sample from.
        batch_size: batch size B.
        depth: number of batches sampled in advance, 1 to 1,024.
        reuse: whether the tensors of a batch are overwritten once the next batch is taken.
        options: options of ``sample`` except ``out``.

    Raises:
        ValueError: ``depth`` is out of its bounds.
    """

    def __init__(
        self, replay: CudaReplay, batch_size: int, *, depth: int, reuse: bool, options: dict[str, Any]
    ) -> None:
        number = depth.__index__()
        if not 1 <= number <= 1024:
            raise ValueError(f"depth is {number}, expected 1 to 1024")
        self._replay, self._size, self._options = replay, batch_size, options
        self._free: deque[Batch] | None = None
        if reuse:
            # For the batches that are ready, and the one that the caller uses.
            self._free = deque(replay.empty_batch(batch_size) for _ in range(number + 1))
        self._finish: Batch | None = None
        self._is_closed = False
        self._ready: deque[Batch] = deque(self._draw() for _ in range(number))

    def _draw(self) -> Batch:
        out = None if self._free is None else self._free.popleft()
        return self._replay.sample(self._size, out=out, **self._options)

    def __next__(self) -> Batch:
        """Returns the next batch; with ``reuse`` the tensors of the previous one may be overwritten."""
        if not self._ready:
            raise StopIteration
        if self._free is not None and self._finish is not None:
            self._free.append(self._finish)
        batch = self._ready.popleft()
        self._finish = batch
        if not self._is_closed:
            self._ready.append(self._draw())
        return batch

    def set(self, **options: Any) -> None:
        """Changes options of ``replay.sample``, such as ``beta``, for batches that are not sampled yet."""
        self._options |= options

    def close(self) -> None:
        """Stops sampling. Batches that are ready can still be taken."""
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
