"""The topology of A2C, PPO and PQN: the learner steps the environments itself, then learns from the rollout.

Collection and learning alternate, so actors always use the newest weights and policy lag is 0. With
``schedule = "deterministic"`` torch uses one thread and the results depend only on settings and seed; with
``"async"`` it uses ``threads``. Environments may use further threads in both.

An update learns from a rollout of every actor, side by side. There is one actor unless ``actors`` is set; the
results depend on that number. Actors run one after the other in this process, or at the same time over Ray
(``distributed/ray_rollouts.py``) with the same results.

Under ``torchrun`` every process has its share of the environments, and gradients are averaged. Before each
rollout rank 0 broadcasts what comes next: a rollout, a checkpoint or the end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from parl.errors import WorkerError
from parl.runtime.checkpoint import Checkpoint
from parl.runtime.distributed.torchrun import END, ROLLOUT, SAVE, Group, RolloutCoordinator
from parl.runtime.env_actor import Counts
from parl.runtime.loop import LocalLoop
from parl.runtime.on_policy.rollout import RolloutBuffer
from parl.runtime.on_policy.rollout_loop import Collected, RolloutLoop
from parl.runtime.on_policy.setup import RolloutSetup
from parl.types import Rollout, RolloutLearner


class SyncRolloutLoop(RolloutLoop, LocalLoop[RolloutLearner]):
    """See the module. An iteration is one rollout of every actor.

    Args:
        setup: the run.
        saved: the checkpoint to start from, or None.
    """

    obeys_clock = False

    def __init__(self, setup: RolloutSetup, saved: Checkpoint | None = None) -> None:
        torch.set_num_threads(setup.threads)
        super().__init__(setup, setup.make_learner(), saved)
        self._coordinator: RolloutCoordinator | None = None
        if setup.group is not None:
            self._coordinator = RolloutCoordinator(setup.group, setup.device)
            self._average = self._coordinator.average
            self._learner.learners = setup.group.size
            self._load_from_rank_zero(setup.group)
        self._load_actors(self._make_actors(), saved)
        self._buffers = self._make_buffers()

    def _make_actors(self) -> Sequence[Any]:
        return [self._setup.make_actor(index, self._resumes) for index in range(self._setup.actors)]

    def _make_buffers(self) -> list[RolloutBuffer]:
        return [self._setup.make_buffer(index) for index in range(self._setup.actors)]

    def _iterate(self, seconds: float) -> None:
        self._broadcast(ROLLOUT)
        super()._iterate(seconds)

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

    def _broadcast(self, request: float) -> None:
        """Tells the other processes of torchrun what comes next, if there are any."""
        if self._coordinator is not None:
            self._coordinator.send(request, self._env_steps)

    def run_follower_rank(self, save: Callable[[Callable[[Path], None]], None]) -> None:
        """Collects and learns together with rank 0 until rank 0 ends.

        Args:
            save: called when rank 0 saves, with a function that writes this process's part into a folder.

        Raises:
            WorkerError: the connection to the other processes broke.
        """
        assert self._coordinator is not None
        while True:
            try:
                request, self._env_steps = self._coordinator.receive()
                if request == END:
                    return
                if request == ROLLOUT:
                    super()._iterate(0.0)
            except RuntimeError as error:
                raise WorkerError("a process of torchrun failed or was killed") from error
            if request == SAVE:
                save(super().save)

    def _load_from_rank_zero(self, group: Group) -> None:
        """Takes learner and counters of rank 0: a process that was killed may have saved older ones."""
        counts = (self._env_steps, self._updates, self._resumes)
        state, first = group.from_rank_zero((self._learner.state_dict(), counts))
        if counts != first:
            self._learner.load_state_dict(state)
            self._env_steps, self._updates, self._resumes = first

    def _figures(self, elapsed: float) -> dict[str, Any]:
        seconds = self._since_report(collecting=self._collect_s, learning=self._learn_s)
        return {name: min(1.0, value / elapsed) for name, value in seconds.items()}

    def save(self, folder: Path) -> None:
        """Writes a checkpoint into ``folder``; other ranks of torchrun write theirs into other folders."""
        self._broadcast(SAVE)
        super().save(folder)

    def close(self) -> None:
        """Closes the environments, and ends the other processes of torchrun; safe to call twice."""
        if self._actors and self._setup.group is not None and self._setup.group.rank == 0:
            # If a process has failed, the others have ended already.
            with contextlib.suppress(RuntimeError):
                self._broadcast(END)
        super().close()
