"""Training from rollouts: collect, learn, count. Topologies differ in who collects, and when.

An iteration takes groups of rollouts from :meth:`RolloutLoop._collect` and makes one update from each group::

    sync         this thread collects a rollout with the newest weights, then learns from it
    async        workers collect with weights that may be some updates old; too old rollouts are left out
    predictor    as async; predictors in this process compute the workers' actions, several trainers learn
    CUDA         as sync, with environments, policy and learner on one device

In ``hogwild`` every worker does what sync does, on shared weights.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from parl.runtime.checkpoint import Checkpoint
from parl.runtime.env_actor import Counts
from parl.runtime.loop import Loop
from parl.runtime.on_policy.rollout import concatenate
from parl.runtime.on_policy.setup import RolloutSetup
from parl.types import Rollout, RolloutLearner


@dataclass(frozen=True)
class Collected:
    """One rollout that an actor has finished.

    Attributes:
        actor: its number.
        counts: what it collected.
        slot: which of the actor's buffers holds the rollout.
        version: of the weights that acted at the first step.
        final: successors that the buffer does not hold, and where they belong, see :class:`Rollout`; None
            where
            the buffer is in this process.
    """

    actor: int
    counts: Counts
    slot: int = 0
    version: int = 0
    final: tuple[Any, Any] | None = None


class RolloutLoop(Loop[RolloutLearner]):
    """See the module and :class:`Loop`.

    Args:
        setup: the run.
        learner: fresh; takes the saved state.
        saved: the checkpoint to start from, or None.
        rest: further arguments of the next class.
    """

    _setup: RolloutSetup
    _learner: Any

    def __init__(self, setup: RolloutSetup, learner: Any, saved: Checkpoint | None, *rest: Any) -> None:
        self._setup = setup
        self._average: Callable[[Tensor], object] = single_learner
        self._collect_s = self._learn_s = 0.0
        super().__init__(learner, setup.total_steps, saved, *rest)

    def _iterate(self, seconds: float) -> None:
        for group in self._collect(seconds):
            self._update(group)

    @abstractmethod
    def _collect(self, seconds: float) -> Iterable[Sequence[Collected]]:
        """Groups of rollouts, each for one update; waits for workers no longer than ``seconds``."""

    @abstractmethod
    def _rollouts(self, group: Sequence[Collected]) -> list[Rollout]:
        """The rollouts of ``group`` that are learned from; counts lag and what is left out."""

    def _update(self, group: Sequence[Collected]) -> None:
        """One update from rollouts of equal length, side by side."""
        started = time.perf_counter()
        rollouts = self._rollouts(group)
        if rollouts:
            self._updates += self._learn(rollouts)
            self._publish()
        self._finish(group)
        self._learn_s += time.perf_counter() - started

    def _learn(self, rollouts: list[Rollout]) -> int:
        """Learns; returns the number of optimizer steps."""
        return self._learner.learn(concatenate(rollouts), self._progress, self._average)

    def _publish(self) -> None:
        """Gives the newest weights to the actors, where these do not fetch them."""

    def _finish(self, group: Sequence[Collected]) -> None:
        """Counts what came with the rollouts."""
        for one in group:
            self.count(one.counts, self._setup.scale)

    @property
    def _progress(self) -> float:
        """Share of the run that is done, 0..1, for schedules."""
        return min(1.0, self._env_steps / self._total_steps)


def single_learner(gradients: Tensor) -> None:
    """Averages the gradients of one learner: nothing to do."""
