"""Sampling ahead in a thread, so that a learner finds its next batch ready."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from parl.errors import NotSampleableError

if TYPE_CHECKING:
    from parl.replay.batch import Batch
    from parl.replay.prioritized import PrioritizedReplay


class _Work:
    """What the thread and its owner share; the thread must not keep the owner alive."""

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
            except BaseException as error:  # handed to who asks for the batch
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

    def settle(self) -> None:
        """Waits until as many batches lie ready as there shall be."""
        if threading.current_thread().name != _THREAD:
            with self.changed:
                self.changed.wait_for(self.is_idle)


_THREAD = "parl-prefetch"


class Prefetch(Iterator["Batch"]):
    """Batches of a replay, drawn up to ``depth`` ahead by a thread; made by ``replay.prefetch``.

    The first ``depth`` batches are drawn at once, each further one when a batch is taken. With ``lockstep``
    everything that changes the replay through the same object (``add``, ``update_priorities``,
    ``end_episodes``) first waits until the draws that are due are done, so the batches are exactly those of a
    loop that samples ``depth`` ahead by itself: same seed, same numbers, whatever the threads do.

    A batch has not seen the priorities that were given back while it lay ready: those of the ``depth``
    batches before it. Importance weights are right for the priorities that it was drawn with. Rows that are
    overwritten before their priorities come back are dropped and counted, as ever.
    """

    def __init__(
        self,
        replay: PrioritizedReplay,
        batch_size: int,
        *,
        depth: int,
        lockstep: bool,
        reuse: bool,
        pin_memory: bool,
        options: dict[str, Any],
    ) -> None:
        number = depth.__index__()
        if not 1 <= number <= 1024:
            raise ValueError(f"depth {number} is outside 1..=1024")
        work = _Work(replay, batch_size, number, options)
        self._work = work
        self._taken: Batch | None = None
        if reuse or pin_memory:
            as_torch = bool(options.get("as_torch"))
            # Those ready or being filled, and the one in the caller's hands.
            buffers = (
                replay.empty_batch(batch_size, as_torch=as_torch, pin_memory=pin_memory)
                for _ in range(number + 1)
            )
            work.free = deque(buffers)
        self._thread = threading.Thread(target=work.run, name=_THREAD, daemon=True)
        self._finalizer = weakref.finalize(self, work.stop)
        if lockstep:
            replay._follow(work)
        self._thread.start()

    def __next__(self) -> Batch:
        """The next batch; the arrays of the one before are used again if ``reuse`` was asked for.

        Raises:
            NotSampleableError: there is nothing to draw; asking again tries again.
        """
        work = self._work
        with work.changed:
            if work.free is not None and self._taken is not None:
                work.free.append(self._taken)
                self._taken = None
                work.changed.notify_all()
            if not work.ready and isinstance(work.error, NotSampleableError):
                work.error = None  # There may be rows by now.
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
        """Changes options of ``replay.sample``, say ``beta``, for the batches that are not drawn yet."""
        self._work.settle()
        with self._work.changed:
            self._work.options |= options

    def close(self) -> None:
        """Ends the thread. Batches that lie ready can still be taken."""
        self._finalizer()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
