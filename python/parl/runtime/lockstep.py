"""The schedule with one order: everything in one thread, same seed, same numbers.

A round steps the actors in order, then takes the updates that the replay ratio owes; in an update the
learners' parts are drawn and computed in order, and their gradients summed in that order. The numbers depend
on the settings and the seed alone (on one processor family and one version of torch), and a run stopped at a
checkpoint and resumed gives those of the uninterrupted run.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import torch

from parl.errors import RunDirectoryError
from parl.replay import PrioritizedReplay
from parl.runtime import checkpoint
from parl.runtime.learning import draw
from parl.runtime.setup import Saved, Setup


class LockstepLoop:
    """See the module and :class:`parl.runtime.setup.Loop`.

    Args:
        setup: the run.
        saved: the checkpoint to go on from, or None.
    """

    def __init__(self, setup: Setup, saved: Saved | None = None) -> None:
        torch.set_num_threads(1)
        self._setup = setup
        self.learner = setup.make_learner()
        self._replay = setup.make_replay(shared=None)
        self._env_steps = self._updates = 0
        if saved is not None:
            checkpoint.load_learner(saved, self.learner)
            self._replay = PrioritizedReplay.load(saved.folder / "replay.bin")
            self._env_steps = int(saved.counters["env_steps"])
            self._updates = int(saved.counters["updates"])
        self._actors = [setup.make_actor(index, self._replay, 0) for index in range(setup.actors)]
        for index, actor in enumerate(self._actors):
            state = checkpoint.actor_state(saved, index)
            if state is not None:
                actor.load(state)
            elif saved is not None:
                actor.end_episodes()
        self._episodes: list[tuple[float, int]] = []
        self._ended = 0
        self._interrupted = False
        self._total = torch.empty_like(self.learner.gradients)
        self._mark = (time.monotonic(), self._env_steps, self._updates)
        self.learner.use_threads(setup.threads)
        self._publish()

    @property
    def env_steps(self) -> int:
        """Transitions collected."""
        return self._env_steps

    @property
    def updates(self) -> int:
        """Optimizer steps taken."""
        return self._updates

    def _publish(self) -> None:
        for actor in self._actors:
            actor.policy.weights.copy_(self.learner.weights)

    def advance(self, until_env_steps: int, seconds: float) -> None:
        """Runs whole rounds until ``until_env_steps`` are collected; ``seconds`` plays no part."""
        pacer = self._setup.pacer
        until_env_steps = min(until_env_steps, pacer.total_frames)
        while self._env_steps < until_env_steps and not self._interrupted:
            for actor in self._actors:
                transitions, finished = actor.step(self._env_steps)
                self._env_steps += transitions
                self._episodes += finished
                self._ended += len(finished)
            if pacer.due(self._env_steps, self._updates):
                while pacer.due(self._env_steps, self._updates):
                    self._update()
                self._publish()

    def _update(self) -> None:
        setup, learner = self._setup, self.learner
        beta = setup.algorithm.replay_beta(self._env_steps)
        drawn: list[tuple[Any, Any]] = []
        self._total.zero_()
        for rank in range(setup.learners):
            batch = draw(self._replay, setup.part, beta, rank, setup.learners)
            drawn.append((batch.tickets, learner.compute(batch)))
            if setup.learners > 1:
                self._total.add_(learner.gradients)
        if setup.learners > 1:
            torch.div(self._total, setup.learners, out=learner.gradients)
        learner.step()
        for tickets, priorities in drawn:
            self._replay.update_priorities(tickets, priorities)
        self._updates += 1

    def interrupt(self) -> None:
        """Makes :meth:`advance` return soon."""
        self._interrupted = True

    def take_episodes(self) -> list[tuple[float, int]]:
        """Return and length of the episodes finished since the last call."""
        taken, self._episodes = self._episodes, []
        return taken

    def rewards_and_episodes(self) -> tuple[float, int]:
        """Sum of all rewards, and number of all episodes ended, since this loop was made."""
        return sum(actor.reward_sum for actor in self._actors), self._ended

    def report(self) -> dict[str, float]:
        """Figures of the time since the last call."""
        now = (time.monotonic(), self._env_steps, self._updates)
        elapsed = max(now[0] - self._mark[0], 1e-9)
        report = {
            "env_steps_per_s": (now[1] - self._mark[1]) / elapsed,
            "updates_per_s": (now[2] - self._mark[2]) / elapsed,
            "replay_ratio": self._setup.pacer.measured(self._env_steps, self._updates),
            "replay_size": len(self._replay),
            "policy_lag": 0.0,
            **self.learner.metrics(),
        }
        self._mark = now
        return report

    def rescue(self, folder: Path) -> None:
        """Refuses: half a round cannot be repeated, and what follows the last checkpoint can."""
        raise RunDirectoryError(
            f"nothing is written into {folder}: lockstep goes on from its last checkpoint"
        )

    def save(self, folder: Path) -> None:
        """Writes the checkpoint's parts into ``folder``."""
        states: list[bytes | None] = []
        for index, actor in enumerate(self._actors):
            try:
                states.append(actor.save())
            except Exception as error:  # what an environment raises when it cannot be pickled is its own
                warnings.warn(
                    f"actor {index}'s environment cannot be pickled ({error}): "
                    "a resumed run starts new episodes and will not repeat the same numbers",
                    stacklevel=2,
                )
                states.append(None)
        counters = {"env_steps": self._env_steps, "updates": self._updates, "resumes": 0}
        checkpoint.write(folder, self.learner, self._replay, states, counters)

    def close(self) -> None:
        """Ends it; safe to call twice."""
        for actor in self._actors:
            actor.close()
        self._actors = []
        self._replay.close()
