"""Loops of rollouts under ``torchrun``: every process has its share of the environments.

Gradients are averaged, so all learners make the same updates. Before each of them rank 0 broadcasts what is
next: an update, a checkpoint or the end. The other ranks collect and learn when rank 0 does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from parl.runtime import checkpoint
from parl.runtime.distributed.group import Group
from parl.runtime.distributed.torchrun import END, ROLLOUT, SAVE, RolloutCoordinator
from parl.runtime.on_policy.rollout_loop import RolloutLoop


class GroupedRolloutLoop(RolloutLoop):
    """See the module and :class:`RolloutLoop`."""

    _coordinator: RolloutCoordinator | None = None
    # Number of times that this process has learned.
    _learned = 0
    # Transitions of the run at the latest request of rank 0.
    _requested_at = 0
    # Whether rank 0 has asked for updates that it has not made: the other ranks do not wait for a request.
    _is_updating = False

    def _join_group(self) -> None:
        """Averages gradients with the other processes of torchrun, if there are any; takes rank 0's state."""
        setup = self._setup
        if setup.group is None:
            return
        self._coordinator = RolloutCoordinator(setup.group, setup.device)
        self._average = self._coordinator.average
        self._learner.learners = setup.group.size
        self._load_from_rank_zero(setup.group)

    def _load_from_rank_zero(self, group: Group) -> None:
        """Takes learner and counters of rank 0: a process that was killed may have saved older ones."""
        counts = (self._env_steps, self._updates, self._resumes)
        own = checkpoint.on_cpu(self._learner.state_dict())
        state, first = group.from_rank_zero((own, counts))
        if counts != first:
            self._learner.load_state_dict(state)
            self._env_steps, self._updates, self._resumes = first

    def _before_learning(self) -> None:
        self._learned += 1

    @property
    def _progress(self) -> float:
        """See :class:`RolloutLoop`; the same in all processes, whose own transitions differ."""
        if self._coordinator is None:
            return super()._progress
        return min(1.0, self._requested_at / self._total_steps)

    def _broadcast(self, request: float) -> None:
        """Rank 0 tells the other processes of torchrun what comes next, if there are any."""
        if self._coordinator is not None and self._setup.group is not None and self._setup.group.rank == 0:
            self._requested_at = self._env_steps
            self._coordinator.send(request, self._env_steps)
            self._is_updating = request == ROLLOUT

    def run_follower_rank(self, save: Callable[[Callable[[Path], None]], None]) -> None:
        """Collects and learns together with rank 0 until rank 0 ends.

        Args:
            save: called when rank 0 saves, with a function that writes this process's part into a folder.

        Raises:
            WorkerError: an actor, or another process, failed.
        """
        assert self._coordinator is not None
        while True:
            request, self._env_steps = self._coordinator.receive()
            self._requested_at = self._env_steps
            if request == END:
                return
            if request == ROLLOUT:
                learned = self._learned
                while self._learned == learned:
                    self._iterate(1.0)
            if request == SAVE:
                save(super().save)

    def save(self, folder: Path) -> None:
        """Writes a checkpoint into ``folder``; other ranks of torchrun write theirs into other folders.

        After a failure within an update only rank 0 writes one: the others do not wait for a request.
        """
        if not self._is_updating:
            self._broadcast(SAVE)
        super().save(folder)

    def close(self) -> None:
        """Ends the workers, and on rank 0 the other processes of torchrun; safe to call twice."""
        coordinator, self._coordinator = self._coordinator, None
        group = self._setup.group
        if coordinator is not None and group is not None and group.rank == 0:
            # After a failure within an update the others do not wait for a request: they fail, too, when this
            # process ends. If another process has failed, the others have ended already.
            with contextlib.suppress(RuntimeError):
                if not self._is_updating:
                    coordinator.send(END, self._env_steps)
        super().close()
