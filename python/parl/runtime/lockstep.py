"""The schedule with one order: everything in one thread, same seed, same numbers.

A round steps the actors in order, then takes the updates that the replay ratio owes; in an update the
learners' parts are drawn and computed in order, and their gradients summed in that order. The numbers depend
on the settings and the seed alone (on one processor family and one version of torch), and a run stopped at a
checkpoint and resumed gives those of the uninterrupted run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from parl.errors import RunDirectoryError
from parl.replay import PrioritizedReplay
from parl.replay.batch import Batch as NamedArrays
from parl.runtime import checkpoint, states
from parl.runtime.learning import Ahead, Draws, Late, computed, stepped
from parl.runtime.loop import LoopBase, kept, state_or_reason
from parl.runtime.setup import Saved, Setup
from parl.types import Batch, Learner

# Batches drawn ahead and priorities not yet set.
_UNDER_WAY = "under-way.npz"


def _batch(saved: dict[str, Any]) -> Any:
    """A batch of what was saved of it; nested where it was."""
    return NamedArrays({key: _batch(part) if isinstance(part, dict) else part for key, part in saved.items()})


class LockstepLoop(LoopBase[Learner]):
    """See the module and :class:`parl.runtime.setup.Loop`.

    Args:
        setup: the run.
        saved: the checkpoint to go on from, or None.
    """

    def __init__(self, setup: Setup, saved: Saved | None = None) -> None:
        torch.set_num_threads(1)
        self._setup = setup
        super().__init__(setup.make_learner(), saved)
        if saved is None:
            self._replay = setup.make_replay(shared=None)
        else:
            self._replay = PrioritizedReplay.load(saved.folder / "replay.bin")
        self._actors = [setup.make_actor(index, self._replay, 0) for index in range(setup.actors)]
        for index, actor in enumerate(self._actors):
            state = checkpoint.actor_state(saved, index)
            if state is not None:
                actor.load(state)
            elif saved is not None:
                actor.end_episodes()
        self._ahead: Ahead[list[Batch]] = Ahead(setup.prefetch)
        self._draws = [
            Draws(self._replay, setup.part, setup.prefetch + 2, rank, setup.learners)
            for rank in range(setup.learners)
        ]
        self._late = Late(self._replay, setup.priority_delay)
        if saved is not None and (saved.folder / _UNDER_WAY).exists():
            ready, waiting = states.from_bytes((saved.folder / _UNDER_WAY).read_bytes())
            self._ahead.ready.extend([_batch(part) for part in parts] for parts in ready)
            self._late.waiting.extend(waiting)
        self._total = torch.empty_like(self.learner.gradients)
        self.learner.use_threads(setup.threads)
        self._publish()

    def _publish(self) -> None:
        for actor in self._actors:
            actor.policy.weights.copy_(self.learner.weights)

    def advance(self, until_env_steps: int, seconds: float) -> None:
        """Runs whole rounds until ``until_env_steps`` are collected; ``seconds`` plays no part."""
        pacer = self._setup.pacer
        until_env_steps = min(until_env_steps, pacer.total_frames)
        while self._env_steps < until_env_steps and not self._interrupted:
            for actor in self._actors:
                before = actor.reward_sum
                transitions, finished = actor.step(self._env_steps)
                self.count(transitions, finished, actor.reward_sum - before)
            if pacer.due(self._env_steps, self._updates):
                while pacer.due(self._env_steps, self._updates):
                    self._update()
                self._publish()

    def _draw(self) -> list[Batch]:
        """Every learner's part of a batch."""
        beta = self._setup.algorithm.replay_beta(self._env_steps)
        return [draws.draw(beta) for draws in self._draws]

    def _update(self) -> None:
        learners, learner = self._setup.learners, self.learner
        parts = self._ahead.take(self._draw)
        self._ahead.fill(self._draw)
        drawn: list[tuple[Any, Any]] = []
        self._total.zero_()
        for batch in parts:
            drawn.append((batch.tickets, computed(learner, batch, self._env_steps)))
            if learners > 1:
                self._total.add_(learner.gradients)
        if learners > 1:
            torch.div(self._total, learners, out=learner.gradients)
        stepped(learner, self._env_steps)
        self._late.give(drawn)
        self._updates += 1

    def report(self) -> dict[str, float]:
        """Figures of the time since the last call."""
        return {
            **self.rates()[1],
            "replay_ratio": self._setup.pacer.measured(self._env_steps, self._updates),
            "replay_size": len(self._replay),
            "policy_lag": 0.0,
            **self.learner.metrics(),
        }

    def rescue(self, folder: Path) -> None:
        """Refuses: half a round cannot be repeated, and what follows the last checkpoint can."""
        raise RunDirectoryError(
            f"nothing is written into {folder}: lockstep goes on from its last checkpoint"
        )

    def save(self, folder: Path) -> None:
        """Writes the checkpoint's parts into ``folder``."""
        actors = [
            kept(f"actor {i}", state_or_reason(actor), exact=True) for i, actor in enumerate(self._actors)
        ]
        self.write(folder, actors, self._replay)
        if self._ahead.ready or self._late.waiting:
            under_way = (list(self._ahead.ready), list(self._late.waiting))
            (folder / _UNDER_WAY).write_bytes(states.to_bytes(under_way))

    def close(self) -> None:
        """Ends it; safe to call twice."""
        for actor in self._actors:
            actor.close()
        self._actors = []
        self._replay.close()
