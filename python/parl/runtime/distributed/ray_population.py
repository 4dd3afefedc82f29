"""Evaluation of populations by actors on other machines, each of which is a Ray actor.

The learner's weights are put into the object store once per generation; members are sent as seeds. A batch
whose actor failed is evaluated again by the next idle actor. Results do not depend on which actor evaluates a
batch.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from parl.runtime.checkpoint import Checkpoint
from parl.runtime.distributed.ray_cluster import (
    RayHandle,
    RayProcess,
    WeightsRef,
    actor_failures,
    connection,
)
from parl.runtime.population import (
    PackedMembers,
    PopulationEvaluator,
    PopulationLoop,
    PopulationSetup,
    aligned_rows,
    unpack_members,
)
from parl.types import Array


class RayEvaluator(RayProcess):
    """A :class:`PopulationEvaluator` in a Ray process, on any machine of the cluster."""

    def __init__(self, setup: PopulationSetup, index: int) -> None:
        super().__init__(setup, index)
        self._evaluator = PopulationEvaluator(setup, index)

    def evaluate(self, base: Array, first: int, packed: PackedMembers, env_seed: int) -> tuple[Array, Array]:
        """Returns and lengths of one episode of each member, see :meth:`PopulationEvaluator.play`."""
        members = unpack_members(*packed)
        weights = aligned_rows(first, len(members), len(base))
        return self._evaluator.play(torch.from_numpy(np.array(base)), members, weights, first, env_seed)


class RayEvaluatorHandle(RayHandle):
    """Handle of one :class:`RayEvaluator`.

    Args:
        setup: the run.
        index: index of the actor.
        weights: the learner's weights.
    """

    def __init__(self, setup: PopulationSetup, index: int, weights: WeightsRef) -> None:
        super().__init__(index)
        self._setup, self._weights = setup, weights
        self.start()

    def _make(self) -> tuple[type[RayProcess], tuple[Any, ...]]:
        return RayEvaluator, (self._setup, self.index)

    def send_request(self, first: int, packed: PackedMembers, env_seed: int) -> Any:
        """Requests the evaluation of members; returns Ray's reference to the result."""
        base, _ = self._weights.newest()
        return self._ray_actor.evaluate.remote(base, first, packed, env_seed)


class RayPopulationLoop(PopulationLoop):
    """See the module and :class:`PopulationLoop`.

    Args:
        setup: the run.
        saved: the checkpoint to start from, or None.
    """

    def __init__(self, setup: PopulationSetup, saved: Checkpoint | None = None) -> None:
        assert setup.remote is not None
        self._handles: list[RayEvaluatorHandle] = []
        self._unplaced: list[RayEvaluatorHandle] = []
        self._connection = contextlib.ExitStack()
        with contextlib.ExitStack() as opened:
            opened.enter_context(connection(setup.remote, setup.actors))
            super().__init__(setup, saved)
            self._connection = opened.pop_all()

    def _start_evaluators(self, context: Any) -> None:
        weights = WeightsRef(self._shared_weights)
        self._handles = [
            RayEvaluatorHandle(self._setup, index, weights) for index in range(self._setup.actors)
        ]
        self._unplaced = list(self._handles)

    def _send(self, actor: RayEvaluatorHandle, first: int, packed: PackedMembers, env_seed: int) -> Any:
        return actor.send_request(first, packed, env_seed)

    def _wait(self, requests: Sequence[Any], seconds: float) -> Sequence[Any]:
        import ray

        placed = [handle for handle in self._unplaced if handle.is_placed(0.0)]
        self._unplaced = [handle for handle in self._unplaced if handle not in placed]
        self._idle += placed
        if not requests:
            time.sleep(0.0 if placed else 0.01)
            return []
        return ray.wait(list(requests), num_returns=1, timeout=0.0 if placed else seconds)[0]

    def _answer(self, actor: RayEvaluatorHandle, request: Any) -> tuple[Array, Array] | None:
        found: tuple[Array, Array] | None = actor.get(request, 0.0)
        if found is None:
            self._unplaced.append(actor)
        else:
            self._idle.append(actor)
        return found

    def _figures(self, elapsed: float) -> dict[str, Any]:
        return super()._figures(elapsed) | actor_failures(self._handles)

    def close(self) -> None:
        """Ends the Ray actors and closes the connection; safe to call twice."""
        super().close()
        for handle in self._handles:
            handle.close()
        self._connection.close()
