"""Sampling of batches in advance by a thread."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from parl.errors import NotSampleableError
from parl.replay.fields import unsigned

if TYPE_CHECKING:
    from parl.replay.batch import Batch
    from parl.replay.prioritized import PrioritizedReplay


class _Work:
    """State shared by the thread and its :class:`Prefetch`; the thread must not keep the latter alive."""

    def __init__(self, replay: PrioritizedReplay, size: int, depth: int, options: dict[str, Any]) -> None:
        self.replay, self.size, self.depth, self.options = replay, size, depth, options
        self.changed = threading.Condition()
        self.ready: deque[Batch] = deque()
        self.error: BaseException | None = None
        self.free: deque[Batch] | None = None
        self.stopped = False

    def is_idle(self) -> bool:
        return self.stopped or self.error is not None or len(self.ready) >= self.depth

    def run(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.stopped or not self.is_idle())
                if self.stopped:
                    return
                options = dict(self.options)
                if self.free is not None:
                    options["out"] = self.free.popleft()
            try:
                batch = self.replay.sample(self.size, **options)
            except BaseException as error:  # raised by the next call of __next__
                with self.changed:
                    if self.free is not None:
                        self.free.appendleft(options["out"])
                    self.error = error
                    self.changed.notify_all()
                continue
            with self.changed:
                self.ready.append(batch)
                self.changed.notify_all()

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    def wait_idle(self) -> None:
        """Waits until ``depth`` batches are ready, or the thread has stopped or failed."""
        if threading.current_thread().name != _THREAD:
            with self.changed:
                self.changed.wait_for(self.is_idle)


_THREAD = "parl-prefetch"


class Prefetch(Iterator["Batch"]):
    """Iterator over batches of a replay that a thread samples in advance; made by ``replay.prefetch``.

    The first ``depth`` batches are sampled at once, and another one each time a batch is taken. With
    ``ordered``, calls of the same replay object that change the replay or its random generator, or save it
    (``add``, ``update_priorities``, ``end_episodes``, ``evict``, ``sample``, ``save``, ``rng_state``), and
    :meth:`close` wait until these batches are sampled. The same seed then gives the same batches in every
    run, those of a loop that samples ``depth`` batches in advance without a thread.

    A batch is sampled with older priorities: updates for the ``depth`` batches before it come later. Its
    importance weights are correct for the priorities that it was sampled with. Priorities of rows that are
    overwritten meanwhile are dropped and counted, as always.
    """

    def __init__(
        self,
        replay: PrioritizedReplay,
        batch_size: int,
        *,
        depth: int,
        ordered: bool,
        reuse: bool,
        pin_memory: bool,
        options: dict[str, Any],
    ) -> None:
        number = unsigned("depth", depth)
        if not 1 <= number <= 1024:
            raise ValueError(f"depth is {number}, expected 1 to 1024")
        work = _Work(replay, batch_size, number, options)
        self._work = work
        self._taken: Batch | None = None
        self._is_ordered = ordered
        if reuse or pin_memory:
            as_torch = bool(options.get("as_torch"))
            # For the batches that are ready or being filled, and the one that the caller uses.
            buffers = (
                replay.empty_batch(batch_size, as_torch=as_torch, pin_memory=pin_memory)
                for _ in range(number + 1)
            )
            work.free = deque(buffers)
        self._thread = threading.Thread(target=work.run, name=_THREAD, daemon=True)
        self._finalizer = weakref.finalize(self, work.stop)
        if ordered:
            replay._wait_for_prefetchers()
            replay._add_prefetcher(work)
        self._thread.start()

    def __next__(self) -> Batch:
        """Returns the next batch; with ``reuse`` the arrays of the previous one may be overwritten.

        Raises:
            NotSampleableError: no row can be sampled yet; the next call tries again.
        """
        work = self._work
        if self._is_ordered:
            # This call has the thread sample another batch, after those that other iterators wait for.
            work.replay._wait_for_prefetchers(but=work)
        with work.changed:
            if work.free is not None and self._taken is not None:
                work.free.append(self._taken)
                self._taken = None
                work.changed.notify_all()
            if not work.ready and isinstance(work.error, NotSampleableError):
                work.error = None  # Rows may have been added since.
                work.changed.notify_all()
            work.changed.wait_for(lambda: work.ready or work.error is not None or work.stopped)
            if work.ready:
                batch = work.ready.popleft()
                self._taken = batch if work.free is not None else None
                work.changed.notify_all()
                return batch
            error, work.error = work.error, None
            work.changed.notify_all()
        if error is not None:
            raise error
        raise StopIteration

    def set(self, **options: Any) -> None:
        """Changes options of ``replay.sample``, such as ``beta``, for batches that are not sampled yet."""
        self._work.wait_idle()
        with self._work.changed:
            self._work.options |= options

    def close(self) -> None:
        """Stops the thread. Batches that are ready can still be taken."""
        if self._is_ordered:
            self._work.wait_idle()
        self._finalizer()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
