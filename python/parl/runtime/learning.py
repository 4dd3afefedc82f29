"""One learner's work: draw its part of the batch, compute, average with its peers, step, set priorities."""

from __future__ import annotations

from typing import cast

from parl.replay import PrioritizedReplay
from parl.runtime.peers import Peers
from parl.types import Algorithm, Batch, Learner


def draw(replay: PrioritizedReplay, size: int, beta: float, rank: int, learners: int) -> Batch:
    """Part ``rank`` of a stratified draw of ``size * learners`` transitions."""
    mode = "split" if learners > 1 else "stratified"
    batch = replay.sample(size, beta=beta, as_torch=True, mode=mode, rank=rank, learners=learners)
    return cast("Batch", batch)


class Part:
    """A learner and its part of every batch.

    Args:
        algorithm: gives the exponent of the importance weights.
        learner: computes gradients and steps.
        replay: drawn from.
        peers: the other learners.
        size: transitions in the part.
        rank: number of the learner.
        learners: number of learners.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        learner: Learner,
        replay: PrioritizedReplay,
        peers: Peers,
        size: int,
        rank: int = 0,
        learners: int = 1,
    ) -> None:
        self._algorithm = algorithm
        self._learner = learner
        self._replay = replay
        self._peers = peers
        self._size = size
        self._rank, self._learners = rank, learners
        self._prioritized = replay.settings["alpha"] > 0.0

    def update(self, env_steps: int) -> bool:
        """One update after ``env_steps`` collected transitions; False if a peer could not take part."""
        learner = self._learner
        beta = self._algorithm.replay_beta(env_steps)
        batch = draw(self._replay, self._size, beta, self._rank, self._learners)
        priorities = learner.compute(batch)
        if not self._peers.average(learner.gradients, True):
            return False
        learner.step()
        if self._prioritized:
            self._replay.update_priorities(batch.tickets, priorities)
        return True

    def skip(self) -> None:
        """Makes all learners leave out one update: they are then at the same border."""
        self._peers.average(self._learner.gradients, False)
