"""The topology of evolution: processes evaluate members of a population, and only seeds and returns travel.

A generation is cut into as many parts as there are actors. Each actor computes its members' weights from
their seeds, plays one episode of each, all at once in one vector environment, and sends back the returns. The
weights that members may be relative to are in shared memory. Every generation starts from fresh environment
seeds, so a resumed run goes on exactly where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parl.envs import EnvMaker
from parl.runtime.loop import LoopBase
from parl.runtime.setup import Saved
from parl.runtime.weights import Snapshot
from parl.runtime.workers import Team, Worker, choose_context
from parl.types import Array, EnvSpec, Member, PopulationAlgorithm, PopulationLearner, PopulationPolicy

# How long an actor may take over its part of a generation.
_ANSWER_S = 3600.0


@dataclass(frozen=True)
class PopulationSetup:
    """One run of an algorithm that searches among whole networks. Travels to worker processes.

    Attributes:
        algorithm: makes policies, learners and decoders.
        maker: makes environments.
        spec: describes them.
        seed: everything random follows from it.
        num_envs: members of a generation.
        total_frames: transitions in the whole run.
        actors: parts that a generation is evaluated in.
        processes: each part in a process of its own; else one after the other here.
        device: torch device of the learner.
    """

    algorithm: PopulationAlgorithm
    maker: EnvMaker
    spec: EnvSpec
    seed: int
    num_envs: int
    total_frames: int
    actors: int
    processes: bool
    device: str

    def make_learner(self) -> PopulationLearner:
        """A learner with the run's first weights."""
        return self.algorithm.make_learner(self.seed, self.device)

    def make_policy(self) -> PopulationPolicy:
        """A policy for evaluations."""
        return self.algorithm.make_policy(0, 1, 1, 0)

    def part(self, index: int) -> slice:
        """The members of actor ``index``."""
        return slice(index * self.num_envs // self.actors, (index + 1) * self.num_envs // self.actors)

    def env_seed(self, generation: int) -> int:
        """Seed of the first member's environment; member i's is this plus i."""
        return int(np.random.SeedSequence([self.seed, generation]).generate_state(1)[0]) >> 1


class Evaluation:
    """An actor's vector environment, with one environment per member of its part.

    Args:
        setup: the run.
        index: number of the actor.
    """

    def __init__(self, setup: PopulationSetup, index: int) -> None:
        part = setup.part(index)
        self._first, count = part.start, part.stop - part.start
        self._env = setup.maker(count)
        self._policy = setup.algorithm.make_policy(index, setup.actors, count, 0)
        self._decoder = setup.algorithm.make_decoder()
        self._dtype = np.dtype(setup.spec.observation_dtype)
        space: Any = self._env.single_action_space
        self._bounds = None if setup.spec.num_actions else (space.low, space.high)

    def play(self, base: Tensor, members: Sequence[Member], env_seed: int) -> tuple[Array, Array]:
        """One episode of each member.

        Returns:
            returns (n,) float64 and lengths (n,) int64.
        """
        weights = self._decoder.decode(base, members)
        obs, _ = self._env.reset(seed=env_seed + self._first)
        returns, lengths = np.zeros(len(members)), np.zeros(len(members), np.int64)
        playing = np.ones(len(members), bool)
        while playing.any():
            action = self._policy.act_each(weights, np.asarray(obs, self._dtype))
            if self._bounds is not None:
                action = np.clip(action, *self._bounds)
            obs, reward, terminated, truncated, _ = self._env.step(action)
            returns += np.where(playing, reward, 0.0)
            lengths += playing
            playing &= ~(np.asarray(terminated) | np.asarray(truncated))
        return returns, lengths

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()


def _run_actor(connection: Connection, setup: PopulationSetup, index: int, snapshot: Snapshot) -> None:
    """An actor's loop: (members, environment seed) in, (returns, lengths) out, None ends it."""
    evaluation = Evaluation(setup, index)
    base, version = torch.zeros(snapshot.size), -1
    while (question := connection.recv()) is not None:
        version = snapshot.read(base, version)
        connection.send(("part", evaluation.play(base, *question)))
    evaluation.close()


class PopulationLoop(LoopBase[PopulationLearner]):
    """See the module and :class:`parl.runtime.setup.Loop`.

    Args:
        setup: the run.
        saved: the checkpoint to go on from, or None.
    """

    def __init__(self, setup: PopulationSetup, saved: Saved | None = None) -> None:
        torch.set_num_threads(1)
        self._setup = setup
        super().__init__(setup.make_learner(), saved)
        self._here: list[Evaluation] = []
        self._workers: list[Worker] = []
        self._team: Team | None = None
        if setup.processes:
            context = choose_context(True, setup.device)
            self._snapshot = Snapshot(context, len(self._learner.weights))
            self._team = Team(context)
            self._workers = [
                self._team.start(f"actor {i}", _run_actor, (setup, i, self._snapshot), process=True)
                for i in range(setup.actors)
            ]
        else:
            self._here = [Evaluation(setup, i) for i in range(setup.actors)]

    def advance(self, until_env_steps: int, seconds: float) -> None:
        """Runs whole generations until ``until_env_steps`` are collected; ``seconds`` plays no part.

        Raises:
            WorkerError: an actor failed.
        """
        until_env_steps = min(until_env_steps, self._setup.total_frames)
        while self._env_steps < until_env_steps and not self._interrupted:
            members = self._learner.ask(self._setup.num_envs)
            returns, lengths = self._evaluate(members, self._setup.env_seed(self._updates))
            self._learner.tell(members, returns)
            self._updates += 1
            finished = zip(returns.tolist(), lengths.tolist(), strict=True)
            self.count(int(lengths.sum()), finished, float(returns.sum()))

    def _evaluate(self, members: list[Member], env_seed: int) -> tuple[Array, Array]:
        parts = [members[self._setup.part(index)] for index in range(self._setup.actors)]
        if self._team is None:
            weights = self._learner.weights
            found = [
                actor.play(weights, part, env_seed) for actor, part in zip(self._here, parts, strict=True)
            ]
        else:
            self._snapshot.publish(self._learner.weights)
            for worker, part in zip(self._workers, parts, strict=True):
                worker.send((part, env_seed))
            found = [worker.answer(_ANSWER_S) for worker in self._workers]
        return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])

    def report(self) -> dict[str, float]:
        """Figures of the time since the last call."""
        return {**self.rates()[1], "policy_lag": 0.0, **self._learner.metrics()}

    def rescue(self, folder: Path) -> None:
        """Saves the learner as it was after the last whole generation."""
        self.save(folder)

    def save(self, folder: Path) -> None:
        """Writes the checkpoint's parts into ``folder``."""
        self.write(folder, [])

    def close(self) -> None:
        """Ends it; safe to call twice."""
        for actor in self._here:
            actor.close()
        self._here = []
        team, self._team = self._team, None
        if team is not None:
            for worker in self._workers:
                worker.tell(None)
            team.end(within_s=5.0)
