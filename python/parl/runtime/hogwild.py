"""The topology of A3C: workers with environments of their own change the shared weights without locks.

A worker, a process or thread, takes the newest weights, collects a rollout with them, computes its gradient
with them, and lets the optimizer change the weights that all share, whatever others did to them meanwhile::

    worker     look at the command | newest weights | collect | gradient | step on the shared weights
    driver     watches, evaluates, saves; it does not learn itself

How many steps of others came between taking the weights and changing them is the policy lag. It is measured
for every rollout and can be no more than what the other workers do in that time, so nothing bounds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import torch

from parl.runtime import board as b
from parl.runtime import checkpoint
from parl.runtime.board import Board
from parl.runtime.common import Common
from parl.runtime.loop import LoopBase, kept, state_or_reason
from parl.runtime.rollout import RolloutActor
from parl.runtime.setup import Saved
from parl.runtime.sync import RolloutSetup
from parl.runtime.workers import INTERRUPTED_END_S, Patience, Team, choose_context
from parl.types import CommonLearner

# How long a worker may take to finish its rollout and to pickle its environment.
_ANSWER_S = 120.0
_CHECK_EVERY_S = 0.05
_IDLE_S = 0.002
# Between two looks of a worker's figures by the driver.
_FIGURES_EVERY_S = 0.25


def share(learner: CommonLearner, common: Common, fill: bool) -> None:
    """Lets ``learner`` step on ``common``; ``fill`` writes its own state there first."""
    learner.share(common.weights, common.mean, common.square, common.count, fill)


def _lag(common: Common, row: b.Row, since: int) -> Callable[[torch.Tensor], None]:
    """Called before a step: counts the steps made ``since``, which the gradient knows nothing of."""

    def count(gradients: torch.Tensor) -> None:
        lag = int(common.count) - since
        row[b.LAG_SUM] += lag
        row[b.LAG_MAX] = max(lag, int(row[b.LAG_MAX]))

    return count


def _run_worker(
    connection: Connection,
    setup: RolloutSetup,
    index: int,
    board: Board,
    common: Common,
    generation: int,
    state: bytes | None,
) -> None:
    """A worker's loop: collects and learns until it is parked or told to stop."""
    torch.set_num_threads(1)
    actor = setup.make_actor(index, generation)
    if state is not None:
        actor.load(state)
    learner = cast("CommonLearner", setup.make_learner())
    share(learner, common, fill=False)
    buffer = setup.make_buffer(index)
    row = board.actor[index]
    reported = 0.0
    while board.command != b.STOP:
        env_steps = board.env_steps
        if board.command == b.PARK or env_steps >= setup.total_frames:
            _answer(connection, actor)
            continue
        learner.refresh()
        actor.policy.weights.copy_(learner.weights)
        since = int(common.count)
        transitions, finished = actor.collect(buffer, env_steps)
        progress = min(1.0, env_steps / setup.total_frames)
        row[b.ACTOR_UPDATES] += learner.learn(buffer.tensors(), progress, _lag(common, row, since))
        board.rewards[index] = actor.reward_sum
        row[b.STEPS] += transitions
        if finished:
            board.add_episodes(index, finished)
        now = time.monotonic()
        if index == 0 and now >= reported + _FIGURES_EVERY_S:
            reported = now
            connection.send(("part", ("figures", learner.metrics())))
    actor.close()


def _answer(connection: Connection, actor: RolloutActor) -> None:
    """Answers the driver's question for the actor's state, if one comes soon."""
    if connection.poll(_IDLE_S):
        connection.recv()
        connection.send(("part", ("state", state_or_reason(actor))))


class HogwildLoop(LoopBase[CommonLearner]):
    """See the module and :class:`parl.runtime.setup.Loop`.

    Args:
        setup: the run.
        saved: the checkpoint to go on from, or None.
    """

    def __init__(self, setup: RolloutSetup, saved: Saved | None = None) -> None:
        torch.set_num_threads(1)
        self._setup = setup
        super().__init__(cast("CommonLearner", setup.make_learner()), saved)
        context = choose_context(setup.processes, setup.device)
        self._common = Common(context, len(self._learner.weights))
        share(self._learner, self._common, fill=True)
        self._board = board = Board(context, setup.actors, 1)
        board.actor[0, b.STEPS] = self._env_steps
        board.actor[0, b.ACTOR_UPDATES] = self._updates
        self._latest: dict[str, float] = {}
        self._next_check = 0.0
        self._lag_mark = (0, self._updates)
        self._team: Team | None = Team(context)
        try:
            for index in range(setup.actors):
                state = checkpoint.actor_state(saved, index)
                args = (setup, index, board, self._common, self._resumes, state)
                self._team.start(f"worker {index}", _run_worker, args, process=setup.processes)
        except BaseException:
            self.close()
            raise

    def advance(self, until_env_steps: int, seconds: float) -> None:
        """Watches until ``until_env_steps`` were collected, ``seconds`` passed or an interrupt came.

        Raises:
            WorkerError: a worker failed.
        """
        assert self._team is not None
        board = self._board
        until_env_steps = min(until_env_steps, self._setup.total_frames)
        end = time.monotonic() + seconds
        while not self._interrupted:
            now = time.monotonic()
            if now >= self._next_check:
                self._next_check = now + _CHECK_EVERY_S
                for worker in self._team.workers:
                    while worker.connection.poll():
                        _, self._latest = worker.answer(_ANSWER_S)
                self._team.check()
            if board.env_steps >= until_env_steps or now >= end:
                break
            time.sleep(_IDLE_S)
        self._look()

    def _look(self) -> None:
        """Newest weights and counts."""
        self._learner.refresh()
        self._env_steps = self._board.env_steps
        self._updates = int(self._board.actor[:, b.ACTOR_UPDATES].sum())

    def take_episodes(self) -> list[tuple[float, int]]:
        """Return and length of the episodes finished since the last call."""
        return self._board.take_episodes()

    def rewards_and_episodes(self) -> tuple[float, int]:
        """Sum of all rewards, and number of all episodes ended, since this loop was made."""
        return float(self._board.rewards.sum()), self._board.episodes

    def report(self) -> dict[str, float]:
        """Figures of the time since the last call; ``policy_lag_max`` since the start."""
        rows = self._board.actor
        old, self._lag_mark = self._lag_mark, (int(rows[:, b.LAG_SUM].sum()), self._updates)
        lag, updates = self._lag_mark[0] - old[0], self._lag_mark[1] - old[1]
        return {
            **self.rates()[1],
            "policy_lag": lag / max(updates, 1),
            "policy_lag_max": float(rows[:, b.LAG_MAX].max()),
            **self._latest,
        }

    def save(self, folder: Path) -> None:
        """Writes the checkpoint's parts into ``folder``, between the workers' rollouts."""
        assert self._team is not None
        self._board.command = b.PARK
        try:
            for worker in self._team.workers:
                worker.send("state")
            patience = Patience(_ANSWER_S, lambda: self._interrupted)
            states = [kept(worker.name, worker.state(patience)) for worker in self._team.workers]
            self._look()
            self.write(folder, states)
        finally:
            self._board.command = b.RUN

    def rescue(self, folder: Path) -> None:
        """Writes the learner; environments start anew."""
        self._look()
        self.write(folder, [None] * self._setup.actors)

    def close(self) -> None:
        """Ends it; safe to call twice."""
        team, self._team = self._team, None
        if team is not None:
            self._board.command = b.STOP
            team.end(within_s=INTERRUPTED_END_S if self._interrupted else 5.0)
