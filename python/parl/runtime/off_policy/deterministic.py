"""The deterministic schedule of off-policy algorithms: one thread, equal results for equal seeds.

An iteration steps the actors in a fixed order, then makes the updates that the replay ratio asks for. In an
update the learners' parts are drawn and computed in order, and their gradients added in that order. The
results depend only on settings and seed (on one processor family and one version of torch). A run that is
stopped at a checkpoint and resumed gives the same results as an uninterrupted one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from parl.replay import PrioritizedReplay
from parl.replay.batch import Batch as NamedArrays
from parl.runtime import states
from parl.runtime.checkpoint import Checkpoint
from parl.runtime.loop import LocalLoop
from parl.runtime.off_policy.freezing import Freezing, SwitchableReplay
from parl.runtime.off_policy.learner_worker import (
    BatchSampler,
    DelayedPriorities,
    PrefetchQueue,
    apply_step,
    compute_gradients,
)
from parl.runtime.off_policy.setup import OffPolicySetup
from parl.types import Batch, Learner

# File of batches drawn in advance and priorities not yet set.
_PENDING = "pending.npz"


def _batch(saved: dict[str, Any]) -> Any:
    """Restores a batch, which may be nested, from its saved arrays."""
    return NamedArrays({key: _batch(part) if isinstance(part, dict) else part for key, part in saved.items()})


class LocalOffPolicyLoop(LocalLoop[Learner]):
    """Steps the actors, then makes the updates that the replay ratio asks for, all in this thread.

    Args:
        setup: the run.
        device: device of the replay.
        saved: the checkpoint to start from, or None.
    """

    def __init__(self, setup: OffPolicySetup, device: str, saved: Checkpoint | None) -> None:
        self._setup = setup
        super().__init__(setup.make_learner(), setup.pacer.total_steps, saved)
        if saved is None:
            self._replay = setup.make_replay(shared=None, device=device)
        else:
            file, hindsight = saved.folder / "replay.bin", setup.make_hindsight()
            self._replay = PrioritizedReplay.load(file, device=device, hindsight=hindsight)

    def _iterate(self, seconds: float) -> None:
        pacer = self._setup.pacer
        for actor in self._actors:
            self.count(actor.step(self._env_steps))
        if pacer.due(self._env_steps, self._updates):
            while pacer.due(self._env_steps, self._updates):
                self._update()
                self._updates += 1
            self._publish()

    @abstractmethod
    def _update(self) -> None:
        """Makes one update."""

    def _publish(self) -> None:
        """Copies the newest weights to the actors, unless they act with the learner's networks."""

    def _figures(self, elapsed: float) -> dict[str, Any]:
        return {
            "replay_ratio": self._setup.pacer.measured(self._env_steps, self._updates),
            "replay_size": len(self._replay),
        }


class DeterministicOffPolicyLoop(LocalOffPolicyLoop):
    """See the module.

    Args:
        setup: the run.
        saved: the checkpoint to start from, or None.
    """

    obeys_clock = False
    exact = True

    def __init__(self, setup: OffPolicySetup, saved: Checkpoint | None = None) -> None:
        torch.set_num_threads(1)
        super().__init__(setup, "cpu", saved)
        self._freezing = Freezing(setup.freeze_after, self._learner, self._replay)
        self._actors_replay = SwitchableReplay(self._replay)
        actors = [
            setup.make_actor(index, self._actors_replay, self._resumes) for index in range(setup.actors)
        ]
        if setup.freeze_after and self._actors_replay.stores_embeddings:
            self._store_embeddings(actors)
        self._load_actors(actors, saved)
        self._prefetch_queue: PrefetchQueue[list[Batch]] = PrefetchQueue(setup.prefetch)
        self._samplers = self._make_samplers()
        self._delayed_priorities = DelayedPriorities(self._replay, setup.priority_delay)
        if saved is not None and (saved.folder / _PENDING).exists():
            ready, waiting = states.from_bytes((saved.folder / _PENDING).read_bytes())
            self._prefetch_queue.ready.extend([_batch(part) for part in parts] for parts in ready)
            self._delayed_priorities.waiting.extend(waiting)
        self._sum = torch.empty_like(self._learner.gradients)
        self._learner.use_threads(setup.threads)
        self._publish()

    def _make_samplers(self) -> list[BatchSampler]:
        setup = self._setup
        size, live = setup.learner_batch_size, setup.prefetch + 2
        return [BatchSampler(self._replay, size, live, r, setup.learners) for r in range(setup.learners)]

    def _publish(self) -> None:
        for actor in self._actors:
            actor.policy.weights.copy_(self._learner.weights)

    def _iterate(self, seconds: float) -> None:
        super()._iterate(seconds)
        if self._freezing.is_due(self._env_steps):
            self._freezing.start()
            self._replace_replay(self._freezing.finish())

    def _replace_replay(self, replay: PrioritizedReplay) -> None:
        """Continues with a replay of the same rows that stores embeddings; sampled batches keep images."""
        old, self._replay = self._replay, replay
        self._actors_replay.replay = replay
        self._samplers = self._make_samplers()
        waiting = self._delayed_priorities.waiting
        self._delayed_priorities = DelayedPriorities(replay, self._setup.priority_delay)
        self._delayed_priorities.waiting.extend(waiting)
        self._store_embeddings(self._actors)
        old.close()

    def _store_embeddings(self, actors: Sequence[Any]) -> None:
        for actor in actors:
            actor.policy.weights.copy_(self._learner.weights)
            actor.store_embeddings()

    def _figures(self, elapsed: float) -> dict[str, Any]:
        return super()._figures(elapsed) | self._freezing.figures()

    def _draw(self) -> list[Batch]:
        """Draws every learner's part of a batch."""
        beta = self._setup.algorithm.replay_beta(self._env_steps)
        return [sampler.draw(beta) for sampler in self._samplers]

    def _update(self) -> None:
        learners, learner = self._setup.learners, self._learner
        parts = self._prefetch_queue.take(self._draw)
        self._prefetch_queue.fill(self._draw)
        drawn: list[tuple[Any, Any]] = []
        self._sum.zero_()
        for batch in parts:
            drawn.append((batch.tickets, compute_gradients(learner, batch, self._env_steps)))
            if learners > 1:
                self._sum.add_(learner.gradients)
        if learners > 1:
            torch.div(self._sum, learners, out=learner.gradients)
        apply_step(learner, self._env_steps)
        self._delayed_priorities.add(drawn)

    def save(self, folder: Path) -> None:
        """Writes a checkpoint into ``folder``, with batches drawn in advance and delayed priorities."""
        super().save(folder)
        if self._prefetch_queue.ready or self._delayed_priorities.waiting:
            pending = (list(self._prefetch_queue.ready), list(self._delayed_priorities.waiting))
            (folder / _PENDING).write_bytes(states.to_bytes(pending))
