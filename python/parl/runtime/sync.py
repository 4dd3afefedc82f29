"""The topology of A2C, PPO and PQN: the learner steps the environments itself, then learns from what it saw.

Collection and learning alternate, so the policy that acts is the one that learns: no lag. In ``lockstep``
torch uses one thread, and the numbers depend on the settings and the seed alone; in ``free`` it uses
``threads``. Environments may have threads of their own either way.

Under ``torchrun`` every process does this with its share of the environments, and gradients are averaged; the
first says before each rollout whether one comes, or whether all save or end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from parl.envs import EnvMaker
from parl.errors import WorkerError
from parl.runtime import checkpoint
from parl.runtime.loop import LoopBase, kept, state_or_reason
from parl.runtime.rollout import RolloutActor, RolloutBuffer
from parl.runtime.setup import Saved, actor_seeds
from parl.runtime.torchrun import END, ROLLOUT, SAVE, Group, InStep
from parl.types import EnvSpec, RolloutAlgorithm, RolloutLearner, RolloutPolicy


@dataclass(frozen=True)
class RolloutSetup:
    """One run that learns from rollouts.

    Attributes:
        algorithm: makes policies and learners.
        maker: makes environments.
        spec: describes them.
        seed: everything random follows from it.
        num_envs: N.
        total_frames: transitions in the whole run, for schedules.
        threads: of torch while it learns.
        device: torch device of the learner.
        actors: vector environments that the N environments are split into.
        processes: actors are processes, where they run at the same time; else threads.
        max_lag: updates by which a rollout's weights may be behind, where they can be.
        predictors: threads that answer actors, where those have no network.
        trainers: threads that learn there.
        rollouts: rollouts that make an update there.
        random_steps: vector steps of random actions before the first rollout, see :class:`RolloutActor`.
        tune_every_s: seconds between changes of these sizes there; 0 keeps them.
        group: the processes that torchrun started, each with so many environments; None: none.
    """

    algorithm: RolloutAlgorithm
    maker: EnvMaker
    spec: EnvSpec
    seed: int
    num_envs: int
    total_frames: int
    threads: int
    device: str
    actors: int = 1
    processes: bool = False
    max_lag: int = 0
    predictors: int = 1
    trainers: int = 1
    rollouts: int = 1
    random_steps: int = 0
    tune_every_s: float = 0.0
    group: Group | None = None

    def make_learner(self) -> RolloutLearner:
        """A learner with the run's first weights."""
        return self.algorithm.make_learner(self.seed, self.device)

    def make_policy(self) -> RolloutPolicy:
        """A policy for evaluations."""
        return self.algorithm.make_policy(0, 1, 1, 0)

    def envs_of(self, index: int) -> int:
        """Environments of actor ``index``."""
        return (index + 1) * self.num_envs // self.actors - index * self.num_envs // self.actors

    def make_actor(self, index: int, generation: int, policy: RolloutPolicy | None = None) -> RolloutActor:
        """Actor ``index``; ``generation`` counts resumes, so that they draw fresh seeds.

        ``policy`` takes the place of the algorithm's.
        """
        own = 2_000_029 * self.group.rank if self.group is not None else 0
        policy_seed, env_seed = actor_seeds(self.seed + 1_000_003 * generation + own, index)
        envs = self.envs_of(index)
        if policy is None:
            policy = self.algorithm.make_policy(index, self.actors, envs, policy_seed)
        first = index * self.num_envs // self.actors
        if self.group is not None:
            first += self.group.rank * self.num_envs
        env, pickles = self.maker.beside(self.actors)(envs), not isinstance(self.maker.env, str)
        return RolloutActor(env, self.spec, policy, env_seed, self.random_steps, first, pickles)

    def make_buffer(self, index: int, context: Any = None) -> RolloutBuffer:
        """A rollout of actor ``index``, in memory shared by processes of ``context`` if one is given."""
        algorithm = self.algorithm
        envs = self.envs_of(index)
        return RolloutBuffer(self.spec, algorithm.rollout_steps, envs, context, algorithm.memory)


class SyncLoop(LoopBase[RolloutLearner]):
    """See the module and :class:`parl.runtime.setup.Loop`.

    Args:
        setup: the run.
        saved: the checkpoint to go on from, or None.
    """

    def __init__(self, setup: RolloutSetup, saved: Saved | None = None) -> None:
        torch.set_num_threads(setup.threads)
        self._setup = setup
        super().__init__(setup.make_learner(), saved)
        self._average: Callable[[torch.Tensor], object] = alone
        self._in_step: InStep | None = None
        self._scale = 1
        if setup.group is not None:
            self._in_step = InStep(setup.group, setup.device)
            self._average, self._scale = self._in_step.average, setup.group.size
            self._learner.learners = setup.group.size
            self._catch_up(setup.group)
        self._actors = self._make_actors()
        for index, actor in enumerate(self._actors):
            state = checkpoint.actor_state(saved, index)
            if state is not None:
                actor.load(state)
        self._buffers = self._make_buffers()
        self._collect_s = self._learn_s = 0.0
        self._mark = self._figures()

    def _make_actors(self) -> list[RolloutActor]:
        return [self._setup.make_actor(index, self._resumes) for index in range(self._setup.actors)]

    def _make_buffers(self) -> list[RolloutBuffer]:
        return [self._setup.make_buffer(index) for index in range(self._setup.actors)]

    def advance(self, until_env_steps: int, seconds: float) -> None:
        """Runs whole rollouts until ``until_env_steps`` are collected; ``seconds`` plays no part."""
        until_env_steps = min(until_env_steps, self._setup.total_frames)
        while self._env_steps < until_env_steps and not self._interrupted:
            self._say(ROLLOUT)
            self._round()

    def _round(self) -> None:
        """A rollout of every actor, and what is learned from it."""
        for actor, buffer in zip(self._actors, self._buffers, strict=True):
            started = time.perf_counter()
            progress = min(1.0, self._env_steps / self._setup.total_frames)
            actor.policy.weights.copy_(self._learner.weights)
            before = actor.reward_sum
            transitions, finished = actor.collect(buffer, self._env_steps)
            self.count(transitions * self._scale, finished, actor.reward_sum - before)
            collected = time.perf_counter()
            self._updates += self._learner.learn(buffer.tensors(), progress, self._average)
            self._collect_s += collected - started
            self._learn_s += time.perf_counter() - collected

    def _say(self, what: float) -> None:
        """What all processes of the group do next; nothing where there is none."""
        if self._in_step is not None:
            self._in_step.say(what, self._env_steps)

    def follow(self, save: Callable[[Callable[[Path], None]], None]) -> None:
        """Collects and learns with the other processes of the group for as long as rank 0 does.

        Args:
            save: called when rank 0 saves, with what writes this process's part into a folder.

        Raises:
            WorkerError: the connection to the others broke.
        """
        assert self._in_step is not None
        while True:
            try:
                what, self._env_steps = self._in_step.hear()
                if what == END:
                    return
                if what == ROLLOUT:
                    self._round()
            except RuntimeError as error:
                raise WorkerError("a process of torchrun is gone") from error
            if what == SAVE:
                save(self._save_own)

    def _catch_up(self, group: Group) -> None:
        """Goes on from where rank 0 is: a killed process may have saved less, or nothing."""
        counts = (self._env_steps, self._updates, self._resumes)
        state, first = group.from_first((self._learner.state_dict(), counts))
        if counts != first:
            self._learner.load_state_dict(state)
            self._env_steps, self._updates, self._resumes = first

    def _figures(self) -> tuple[float, ...]:
        return self._collect_s, self._learn_s

    def report(self) -> dict[str, float]:
        """Figures of the time since the last call."""
        old, self._mark = self._mark, self._figures()
        collect_s, learn_s = (new - before for new, before in zip(self._mark, old, strict=True))
        elapsed, rates = self.rates()
        return {
            **rates,
            "policy_lag": 0.0,
            "collecting": min(1.0, collect_s / elapsed),
            "learning": min(1.0, learn_s / elapsed),
            **self._learner.metrics(),
        }

    def rescue(self, folder: Path) -> None:
        """Saves as :meth:`save` does: nobody but this process can have failed."""
        self.save(folder)

    def save(self, folder: Path) -> None:
        """Writes the checkpoint's parts into ``folder``; the others of a group write theirs elsewhere."""
        self._say(SAVE)
        self._save_own(folder)

    def _save_own(self, folder: Path) -> None:
        states = [kept(f"actor {i}", state_or_reason(actor)) for i, actor in enumerate(self._actors)]
        self.write(folder, states)

    def close(self) -> None:
        """Ends it, and with it the others of a group; safe to call twice."""
        if self._actors and self._setup.group is not None and self._setup.group.rank == 0:
            # A process that is gone ended the others already.
            with contextlib.suppress(RuntimeError):
                self._say(END)
        for actor in self._actors:
            actor.close()
        self._actors = []


def alone(gradients: torch.Tensor) -> None:
    """The mean over one learner."""
