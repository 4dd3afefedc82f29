"""Training from rollouts: collect, learn, count. Topologies differ in where and when rollouts are collected.

An iteration takes groups of rollouts from :meth:`RolloutLoop._collect` and makes one update from each group::

    sync         this thread collects a rollout with the newest weights, then learns from it
    async        workers collect with weights that may be some updates old, at most ``max_lag``
    predictor    as async; predictors in this process compute the workers' actions, several trainers learn
    CUDA         as sync, with environments, policy and learner on one device

In ``hogwild`` every worker does the same as sync, on shared weights.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from parl.errors import ConfigError
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
        actor: index of the actor.
        counts: its transitions, episodes and rewards.
        slot: which of the actor's buffers holds the rollout.
        version: version of the weights at the first step.
        final: ``final_obs`` and ``final_at`` of the rollout, see :class:`Rollout`, which are not in shared
            memory; None if the buffer is in this process.
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
        learner: newly made; the saved state is loaded into it.
        saved: the checkpoint to start from, or None.
        rest: further arguments of the next base class.
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
        """The rollouts of ``group`` to learn from; counts policy lag and discarded rollouts."""

    def _update(self, group: Sequence[Collected]) -> None:
        """Makes one update from rollouts of equal length, which are concatenated."""
        started = time.perf_counter()
        rollouts = self._rollouts(group)
        if rollouts:
            self._before_learning()
            self._updates += self._learn(rollouts)
            self._publish()
        self._finish(group)
        self._learn_s += time.perf_counter() - started

    def _before_learning(self) -> None:
        """Called before each call of :meth:`_learn`."""

    def _learn(self, rollouts: list[Rollout]) -> int:
        """Learns; returns the number of optimizer steps."""
        return checked_steps(self._learner.learn(concatenate(rollouts), self._progress, self._average))

    def _publish(self) -> None:
        """Publishes the newest weights, if actors in other threads or processes use them."""

    def _finish(self, group: Sequence[Collected]) -> None:
        """Adds the counts of the rollouts."""
        for one in group:
            self.count(one.counts, self._setup.scale)

    @property
    def _progress(self) -> float:
        """Fraction of the run that is done, 0..1, for schedules."""
        return min(1.0, self._env_steps / self._total_steps)


def checked_steps(steps: Any) -> int:
    """The number of optimizer steps that ``learn`` of a learner returned.

    Raises:
        ConfigError: it returned something else.
    """
    if not isinstance(steps, int | np.integer):
        raise ConfigError(f"learn of the learner returned {steps!r}, expected the number of optimizer steps")
    return int(steps)


def single_learner(gradients: Tensor) -> None:
    """Averages the gradients of one learner: does nothing."""
