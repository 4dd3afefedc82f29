"""Batches of a device's replay that are drawn before they are wanted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from parl.replay.batch import Batch
    from parl.replay.device.replay import DeviceReplay


class DevicePrefetch(Iterator["Batch"]):
    """Batches drawn ``depth`` ahead, as :class:`parl.replay.Prefetch` draws them with ``lockstep``.

    The first ``depth`` are drawn at once, each further one when a batch is taken: the same draws, at the same
    places among the other calls. No thread is needed, because a draw only goes to torch's current stream.

    Args:
        replay: drawn from.
        batch_size: B.
        depth: batches that lie ready, 1 to 1,024.
        reuse: the tensors of a batch are filled again once the next one is taken.
        options: of ``sample``, but ``out``.
    """

    def __init__(
        self, replay: DeviceReplay, batch_size: int, *, depth: int, reuse: bool, options: dict[str, Any]
    ) -> None:
        number = depth.__index__()
        if not 1 <= number <= 1024:
            raise ValueError(f"depth {number} is outside 1..=1024")
        self._replay, self._size, self._options = replay, batch_size, options
        self._free: deque[Batch] | None = None
        if reuse:
            # Those ready, and the one in the caller's hands.
            self._free = deque(replay.empty_batch(batch_size) for _ in range(number + 1))
        self._taken: Batch | None = None
        self._is_closed = False
        self._ready: deque[Batch] = deque(self._draw() for _ in range(number))

    def _draw(self) -> Batch:
        out = None if self._free is None else self._free.popleft()
        return self._replay.sample(self._size, out=out, **self._options)

    def __next__(self) -> Batch:
        """The next batch; the tensors of the one before are used again if ``reuse`` was asked for."""
        if not self._ready:
            raise StopIteration
        if self._free is not None and self._taken is not None:
            self._free.append(self._taken)
        batch = self._ready.popleft()
        self._taken = batch
        if not self._is_closed:
            self._ready.append(self._draw())
        return batch

    def set(self, **options: Any) -> None:
        """Changes options of ``replay.sample``, say ``beta``, for the batches that are not drawn yet."""
        self._options |= options

    def close(self) -> None:
        """Draws no more. Batches that lie ready can still be taken."""
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
