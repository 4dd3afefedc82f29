"""Rollouts from actors on other machines: each is a Ray actor; the driver's loop waits for their results.

::

    driver     put the weights, once per version | request rollouts | wait | copy a result into its buffer
    Ray actor  take the weights | step the environments T times | return rollout and counts

:class:`RaySyncRolloutLoop` (PPO, A2C, PQN) waits for one rollout of every actor, all with the same weights.
With its rollout an actor returns its state. If it fails, another one starts from that state and collects the
rollout again, so failures do not change the results. :class:`RayAsyncRolloutLoop` (IMPALA) has up to two open
requests per actor; an actor that fails is replaced by one with new episodes, while the others continue.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from parl.runtime.checkpoint import Checkpoint
from parl.runtime.distributed.ray_cluster import (
    RayHandle,
    RayProcess,
    SaveableRayProcess,
    WeightsRef,
    actor_failures,
    connection,
)
from parl.runtime.env_actor import Counts
from parl.runtime.loop import state_or_reason, state_or_warn
from parl.runtime.on_policy.asynchronous import AsyncRolloutLoop
from parl.runtime.on_policy.rollout import RolloutActor, RolloutBuffer
from parl.runtime.on_policy.rollout_loop import Collected
from parl.runtime.on_policy.setup import RolloutSetup
from parl.runtime.on_policy.sync import SyncRolloutLoop
from parl.runtime.weights import SharedWeights
from parl.runtime.worker_loop import ANSWER_S
from parl.runtime.workers import SLICE_S, Deadline, WorkerTimeoutError, choose_context
from parl.types import Array


@dataclass(frozen=True)
class RayRollout:
    """The result of one request.

    Attributes:
        content: memory of the rollout, see :meth:`RolloutBuffer.content`.
        final: ``final_obs`` and ``final_at``, see :class:`parl.types.Rollout`.
        counts: counts of the rollout.
        version: version of the weights that acted.
        state: the actor's state after it, or why there is none; None if it was not requested.
    """

    content: Array
    final: tuple[list[Array], list[tuple[int, int]]]
    counts: Counts
    version: int
    state: bytes | str | None


class RayRolloutActor(SaveableRayProcess):
    """An actor that collects rollouts in a Ray process, on any machine of the cluster."""

    _actor: RolloutActor

    def __init__(self, setup: RolloutSetup, index: int, resumes: int, state: bytes | None) -> None:
        super().__init__(setup, index, resumes)
        self._actor = setup.make_actor(index, resumes)
        self._buffer = setup.make_buffer(index)
        if state is not None:
            self._actor.load(state)

    def collect(self, weights: Any, version: int, env_steps: int, with_state: bool) -> RayRollout:
        """Collects a rollout with ``weights`` (P,) float32 of ``version``."""
        actor, buffer = self._actor, self._buffer
        actor.policy.weights.copy_(torch.from_numpy(np.array(weights)))
        counts = actor.collect(buffer, env_steps)
        state = state_or_reason(actor) if with_state else None
        return RayRollout(buffer.content, (buffer.final_obs, buffer.final_at), counts, version, state)


class RayRolloutHandle(RayHandle):
    """Handle of one :class:`RayRolloutActor`; a replaced actor gets the open requests of the one that failed.

    Args:
        setup: the run.
        index: index of the actor.
        resumes: number of resumes of the run so far.
        weights: the newest weights.
        repeats: whether every result has the actor's state, so that a replaced actor repeats the numbers of
            the one that failed.

    Attributes:
        state: the state that a replaced actor starts from, or why there is none.
    """

    def __init__(
        self, setup: RolloutSetup, index: int, resumes: int, weights: WeightsRef, repeats: bool
    ) -> None:
        super().__init__(index)
        self._setup, self._resumes, self._weights, self._repeats = setup, resumes, weights, repeats
        self._requests: deque[tuple[int, int, Any]] = deque()
        self.state: bytes | str | None = None
        self._has_result = False

    def load(self, state: bytes) -> None:
        """Sets the state that the actor starts from; called before :meth:`start`."""
        self.state = state

    def _make(self) -> tuple[type[RayProcess], tuple[Any, ...]]:
        if isinstance(self.state, bytes) or not self._has_result:
            return RayRolloutActor, (self._setup, self.index, self._resumes, self.state)
        return RayRolloutActor, (self._setup, self.index, self._resumes + self.seeds, None)

    def start(self, processors: int = 1) -> None:
        """See :class:`RayHandle`; sends the open requests again."""
        super().start(processors)
        requests, self._requests = self._requests, deque()
        for slot, env_steps, _ in requests:
            self.send_request(slot, env_steps)

    def send_request(self, slot: int, env_steps: int) -> None:
        """Requests a rollout with the newest weights for buffer ``slot``."""
        reference, version = self._weights.newest()
        request = self._ray_actor.collect.remote(reference, version, env_steps, self._repeats)
        self._requests.append((slot, env_steps, request))

    @property
    def oldest_request(self) -> Any:
        """Ray's reference to the result of the oldest open request."""
        return self._requests[0][2]

    def result(self, within_s: float) -> tuple[int, RayRollout] | None:
        """Slot and result of the oldest request; None if it has not arrived within ``within_s`` seconds."""
        found: RayRollout | None = self.get(self.oldest_request, within_s)
        if found is None:
            return None
        self._has_result, self._placement = True, None
        self.state = found.state
        return self._requests.popleft()[0], found

    def share_processor(self) -> None:
        """Places a replaced actor that waits for too long on a machine without a free processor.

        For an actor that did not fail a warning is logged: the cluster has as many processors as actors.
        """
        import ray

        if not self.failures or not self._processors:
            self.warn_if_late()
            return
        if self.is_late and not self.is_placed(0.0):
            ray.kill(self._ray_actor)
            self.start(processors=0)

    def request_state(self) -> Any:
        """Requests the actor's state; returns what :meth:`requested_state` takes."""
        return self._ray_actor.save.remote() if self.is_placed(0.0) else None

    def requested_state(self, request: Any, deadline: Deadline) -> bytes | str:
        """Waits for the state that was requested; returns it, or why there is none."""
        if request is None:
            return f"{self.name} waits for a free processor"
        failures = self.failures
        while self.failures == failures:
            left_s = deadline.remaining_s()
            found: bytes | str | None = self.get(request, min(SLICE_S, left_s))
            if found is not None:
                return found
            if not left_s:
                return f"{self.name} did not answer within {deadline}"
        return f"{self.name} failed"


class RaySyncRolloutLoop(SyncRolloutLoop):
    """See the module and :class:`SyncRolloutLoop`.

    Args:
        setup: the run.
        saved: the checkpoint to start from, or None.
    """

    _actors: list[RayRolloutHandle]

    def __init__(self, setup: RolloutSetup, saved: Checkpoint | None = None) -> None:
        assert setup.remote is not None
        with contextlib.ExitStack() as opened:
            opened.enter_context(connection(setup.remote, setup.actors, setup.scale))
            super().__init__(setup, saved)
            for handle in self._actors:
                handle.start()
            self._connection = opened.pop_all()

    def _make_actors(self) -> Sequence[Any]:
        self._shared_weights = SharedWeights(choose_context(False), len(self._learner.weights))
        weights = WeightsRef(self._shared_weights)
        return [
            RayRolloutHandle(self._setup, index, self._resumes, weights, repeats=True)
            for index in range(self._setup.actors)
        ]

    def _iterate(self, seconds: float) -> None:
        """See :class:`SyncRolloutLoop`; after an interrupt gives up rollouts that take too long."""
        before = [handle.state for handle in self._actors]
        try:
            super()._iterate(seconds)
        except WorkerTimeoutError:
            # Checkpoints have the states after the last update.
            for handle, state in zip(self._actors, before, strict=True):
                handle.state = state
            if self._setup.group is not None:  # the other processes wait for this one's gradients
                raise

    def _collect_rollouts(self, group: Sequence[int]) -> list[Counts]:
        self._shared_weights.publish(self._learner.weights)
        for index in group:
            self._actors[index].send_request(0, self._env_steps)
        return [self._await_rollout(self._actors[index], self._buffers[index]) for index in group]

    def _await_rollout(self, handle: RayRolloutHandle, buffer: RolloutBuffer) -> Counts:
        deadline = Deadline(math.inf, lambda: self._interrupted)
        while (found := handle.result(SLICE_S)) is None:
            handle.share_processor()
            if not deadline.remaining_s():
                raise WorkerTimeoutError(f"{handle.name} did not answer within {deadline}")
        rollout = found[1]
        buffer.fill(rollout.content)
        buffer.final_obs, buffer.final_at = rollout.final
        return rollout.counts

    def _figures(self, elapsed: float) -> dict[str, Any]:
        return super()._figures(elapsed) | actor_failures(self._actors)

    def _actor_states(self) -> list[bytes | None]:
        return [state_or_warn(handle.name, handle.state, exact=True) for handle in self._actors]

    def close(self) -> None:
        """Ends the Ray actors and closes the connection; safe to call twice."""
        super().close()
        self._connection.close()


class RayAsyncRolloutLoop(AsyncRolloutLoop):
    """See the module and :class:`AsyncRolloutLoop`.

    Args:
        setup: the run.
        saved: the checkpoint to start from, or None.
    """

    def __init__(self, setup: RolloutSetup, saved: Checkpoint | None = None) -> None:
        assert setup.remote is not None
        self._handles: list[RayRolloutHandle] = []
        self._weights: WeightsRef | None = None
        self._connection = contextlib.ExitStack()
        with contextlib.ExitStack() as opened:
            opened.enter_context(connection(setup.remote, setup.actors, setup.scale))
            super().__init__(setup, saved)
            self._connection = opened.pop_all()

    def _start_rollout_actor(self, index: int, state: bytes | None) -> None:
        if self._weights is None:
            self._weights = WeightsRef(self._shared_weights)
        handle = RayRolloutHandle(self._setup, index, self._resumes, self._weights, repeats=False)
        self._handles.append(handle)
        if state is not None:
            handle.load(state)
        handle.start()

    def _request(self, index: int, slot: int) -> None:
        self._handles[index].send_request(slot, self._env_steps)

    def _receive(self, seconds: float) -> None:
        import ray

        started = time.perf_counter()
        oldest = [handle.oldest_request for handle in self._handles]
        ray.wait(oldest, num_returns=1, timeout=seconds)
        ready = set(ray.wait(oldest, num_returns=len(oldest), timeout=0)[0])
        self._wait_s += time.perf_counter() - started
        for handle, request in zip(self._handles, oldest, strict=True):
            handle.warn_if_late()
            if request in ready and (found := handle.result(0.0)) is not None:
                slot, rollout = found
                self._buffers[handle.index][slot].fill(rollout.content)
                self._pending.append(
                    Collected(handle.index, rollout.counts, slot, rollout.version, rollout.final)
                )

    def _figures(self, elapsed: float) -> dict[str, Any]:
        return super()._figures(elapsed) | actor_failures(self._handles)

    def _actor_states(self) -> list[bytes | None]:
        """See :class:`Loop`; an actor that fails now has none."""
        requests = [handle.request_state() for handle in self._handles]
        deadline = Deadline(ANSWER_S, lambda: self._interrupted)
        return [
            state_or_warn(handle.name, handle.requested_state(request, deadline))
            for handle, request in zip(self._handles, requests, strict=True)
        ]

    def save_after_failure(self, folder: Path) -> None:
        """Writes learner and counters; a run resumed from them starts new episodes."""
        self._write(folder, [None] * len(self._handles))

    def close(self) -> None:
        """Ends the Ray actors and closes the connection; safe to call twice."""
        super().close()
        for handle in self._handles:
            handle.close()
        self._connection.close()
