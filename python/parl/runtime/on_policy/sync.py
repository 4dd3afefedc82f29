"""The topology of A2C, PPO and PQN: the learner steps the environments itself, then learns from the rollout.

Collection and learning alternate, so actors always use the newest weights and policy lag is 0. With
``schedule = "deterministic"`` torch uses one thread and the results depend only on settings and seed; with
``"async"`` it uses ``threads``. Environments may use further threads in both.

An update learns from a rollout of every actor, side by side. There is one actor unless ``actors`` is set; the
results depend on that number. Actors run one after the other in this process, or at the same time over Ray
(``distributed/ray_rollouts.py``) with the same results.

Under ``torchrun`` see :class:`parl.runtime.on_policy.grouped.GroupedRolloutLoop`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from parl.runtime.checkpoint import Checkpoint
from parl.runtime.distributed.torchrun import ROLLOUT
from parl.runtime.env_actor import Counts
from parl.runtime.loop import LocalLoop
from parl.runtime.on_policy.grouped import GroupedRolloutLoop
from parl.runtime.on_policy.rollout import RolloutBuffer
from parl.runtime.on_policy.rollout_loop import Collected
from parl.runtime.on_policy.setup import RolloutSetup
from parl.types import Rollout, RolloutLearner


class SyncRolloutLoop(GroupedRolloutLoop, LocalLoop[RolloutLearner]):
    """See the module. An iteration is one rollout of every actor.

    Args:
        setup: the run.
        saved: the checkpoint to start from, or None.
    """

    obeys_clock = False

    def __init__(self, setup: RolloutSetup, saved: Checkpoint | None = None) -> None:
        torch.set_num_threads(setup.threads)
        super().__init__(setup, setup.make_learner(), saved)
        self._join_group()
        self._load_actors(self._make_actors(), saved)
        self._buffers = self._make_buffers()

    def _make_actors(self) -> Sequence[Any]:
        return [self._setup.make_actor(index, self._resumes) for index in range(self._setup.actors)]

    def _make_buffers(self) -> list[RolloutBuffer]:
        return [self._setup.make_buffer(index) for index in range(self._setup.actors)]

    def _iterate(self, seconds: float) -> None:
        self._broadcast(ROLLOUT)  # before collection, which all processes do at the same time
        super()._iterate(seconds)
        self._is_updating = False

    def _collect(self, seconds: float) -> Iterator[list[Collected]]:
        actors = range(self._setup.actors)
        for group in [actors] if self._setup.joins_rollouts else [[index] for index in actors]:
            started = time.perf_counter()
            counts = self._collect_rollouts(group)
            self._collect_s += time.perf_counter() - started
            yield [Collected(index, each) for index, each in zip(group, counts, strict=True)]

    def _collect_rollouts(self, group: Sequence[int]) -> list[Counts]:
        """Fills the buffers of these actors, all with the newest weights."""
        for index in group:
            self._actors[index].policy.weights.copy_(self._learner.weights)
        return [self._actors[index].collect(self._buffers[index], self._env_steps) for index in group]

    def _rollouts(self, group: Sequence[Collected]) -> list[Rollout]:
        return [self._buffers[one.actor].tensors() for one in group]

    def _figures(self, elapsed: float) -> dict[str, Any]:
        seconds = self._since_report(collecting=self._collect_s, learning=self._learn_s)
        return {name: min(1.0, value / elapsed) for name, value in seconds.items()}
