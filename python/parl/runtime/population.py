"""The topology of evolution: processes evaluate members of a population, and only seeds and returns travel.

A generation is cut into equal blocks, and whoever is free takes the next: episodes differ in length, and
blocks even that out. An actor computes its block's weights from their seeds, plays one episode of each
member, all at once in one vector environment, and sends back the returns; networks whose episodes have ended
compute no more. The weights that members may be relative to are in shared memory, and members' own, so that
the learner decodes nothing. Every block starts from fresh environment seeds, so nothing depends on who played
it, and a resumed run goes on exactly where it stopped.

The driver sleeps while actors play.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parl.envs import EnvMaker, FiniteCheck, games_over, points
from parl.runtime.loop import LoopBase
from parl.runtime.seeds import training_seed
from parl.runtime.setup import Saved
from parl.runtime.weights import Snapshot
from parl.runtime.workers import (
    INTERRUPTED_END_S,
    SLICE_S,
    NoAnswerError,
    Patience,
    Team,
    Worker,
    choose_context,
)
from parl.types import Array, EnvSpec, Member, PopulationAlgorithm, PopulationLearner, PopulationPolicy

# How long an actor may take over its part of a generation.
_ANSWER_S = 3600.0
# Networks of ended episodes are taken out when these are as large a share of all: it copies the others.
_ENDED = 0.25
# Bytes that rows of weights start at a multiple of, everywhere: sums may depend on it.
_ALIGNMENT = 64


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
        actors: how many play at a time.
        processes: each actor in a process of its own; else all is played here.
        blocks: parts that a generation is played in, at least one for each actor.
    """

    algorithm: PopulationAlgorithm
    maker: EnvMaker
    spec: EnvSpec
    seed: int
    num_envs: int
    total_frames: int
    actors: int
    processes: bool
    blocks: int

    def make_learner(self) -> PopulationLearner:
        """A learner with the run's first weights."""
        return self.algorithm.make_learner(self.seed, "cpu")

    def make_policy(self) -> PopulationPolicy:
        """A policy for evaluations."""
        return self.algorithm.make_policy(0, 1, 1, 0)

    def cut(self) -> list[slice]:
        """Members of each block; blocks differ in length by one at most."""
        edges = [number * self.num_envs // self.blocks for number in range(self.blocks + 1)]
        return [slice(start, stop) for start, stop in itertools.pairwise(edges)]

    def env_seed(self, generation: int) -> int:
        """Seed of the first member's environment; member i's is this plus i."""
        return training_seed(int(np.random.SeedSequence([self.seed, generation]).generate_state(1)[0]))


class Evaluation:
    """An actor's vector environment, with one environment per member of the largest block.

    Args:
        setup: the run.
        index: number of the actor.
    """

    def __init__(self, setup: PopulationSetup, index: int) -> None:
        self._count = max(block.stop - block.start for block in setup.cut())
        self._env = setup.maker.beside(setup.actors)(self._count)
        self._policy = setup.algorithm.make_policy(index, setup.actors, self._count, 0)
        self._decoder = setup.algorithm.make_decoder()
        self._spec = spec = setup.spec
        self._observation_dtype, self._action_dtype = (
            np.dtype(name) for name in (spec.observation_dtype, spec.action_dtype)
        )
        self._action_shape = () if spec.num_actions else spec.action_shape
        # One generator for all would start a block as it starts any other, if the block were all.
        self._total = setup.num_envs if getattr(self._env.unwrapped, "starts_parts", False) else None
        space: Any = self._env.single_action_space
        self._bounds = None if spec.num_actions else (space.low, space.high)

    def play(
        self, base: Tensor, members: Sequence[Member], weights: Tensor, first: int, env_seed: int
    ) -> tuple[Array, Array]:
        """One episode of each member, of an Atari game the whole game, for its points.

        Args:
            base: (P,), what members may be relative to.
            members: n of them, no more than the environments.
            weights: (n, P), is filled with theirs.
            first: number of the first among the generation's members.
            env_seed: of the generation.

        Returns:
            returns (n,) float64 and lengths (n,) int64.

        Raises:
            NonFiniteError: a reward or an observation of a member is NaN or infinite; environments are
                numbered by the members of the generation, steps within the episode.
        """
        check = FiniteCheck(self._spec, first)
        networks = self._policy.assemble(self._decoder.decode(base, members, weights))
        if self._total is None:
            obs, _ = self._env.reset(seed=env_seed + first)
        else:
            obs, _ = self._env.reset(seed=env_seed, options={"part": (first, self._total)})
        returns, lengths = np.zeros(self._count), np.zeros(self._count, np.int64)
        playing = np.arange(self._count) < len(members)
        # Those without a member or whose episode has ended repeat an action that nobody looks at.
        action = np.zeros((self._count, *self._action_shape), self._action_dtype)
        rows = np.arange(len(members))
        left, steps = len(rows), 0
        while left:
            seen = np.asarray(obs, self._observation_dtype)
            check.observations(seen, steps)
            if len(rows) == self._count:
                action = networks.act(seen)
            else:
                action[rows] = networks.act(seen[rows])
            if self._bounds is not None:
                action = np.clip(action, *self._bounds)
            obs, reward, terminated, truncated, info = self._env.step(action)
            steps += 1
            check.rewards(np.asarray(reward), steps)
            np.add(returns, points(reward, info), out=returns, where=playing)
            over = games_over(terminated, np.logical_or(terminated, truncated), info) & playing
            ended = np.count_nonzero(over)
            if not ended:
                continue
            lengths[over] = steps
            playing ^= over
            left -= ended
            if 0 < left <= (1 - _ENDED) * len(rows):
                kept = np.nonzero(playing[rows])[0]
                networks, rows = networks.only(kept), rows[kept]
        return returns[: len(members)], lengths[: len(members)]

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()


def _rows(memory: Any, count: int, size: int) -> Tensor:
    """(count, size) float32 in shared ``memory`` with a row's alignment to spare."""
    values = np.frombuffer(memory, np.float32)
    start = -values.ctypes.data % _ALIGNMENT // values.itemsize
    return torch.from_numpy(values[start : start + count * size]).view(count, size)


def _packed(members: Sequence[Member]) -> tuple[list[Member], list[tuple[int, int]]]:
    """What all but the last seed of members are, each once, and for each member which of these and the last.

    Members have few parents, and chains of seeds grow: the wire carries each parent once.
    """
    parents = {member[:-1]: 0 for member in members}
    for number, parent in enumerate(parents):
        parents[parent] = number
    return list(parents), [(parents[member[:-1]], member[-1]) for member in members]


def _unpacked(parents: list[Member], members: list[tuple[int, int]]) -> list[Member]:
    return [(*parents[parent], last) for parent, last in members]


def _run_actor(
    connection: Connection, setup: PopulationSetup, index: int, snapshot: Snapshot, memory: Any
) -> None:
    """An actor's loop: (first member, members, environment seed) in, (returns, lengths) out, None ends it."""
    evaluation = Evaluation(setup, index)
    base, version = torch.zeros(snapshot.size), -1
    weights = _rows(memory, setup.num_envs, snapshot.size)
    while (question := connection.recv()) is not None:
        first, packed, env_seed = question
        version = snapshot.read(base, version)
        members = _unpacked(*packed)
        found = evaluation.play(base, members, weights[first : first + len(members)], first, env_seed)
        connection.send(("block", found))
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
        self._blocks = setup.cut()
        self._here: Evaluation | None = None
        self._workers: list[Worker] = []
        self._team: Team | None = None
        shape = setup.num_envs, len(self._learner.weights)
        if setup.processes:
            context = choose_context(True, "cpu")
            self._snapshot = Snapshot(context, shape[1])
            memory = context.RawArray(ctypes.c_float, math.prod(shape) + _ALIGNMENT // 4)
            self._weights = _rows(memory, *shape)
            self._team = Team(context)
            self._workers = [
                self._team.start(f"actor {i}", _run_actor, (setup, i, self._snapshot, memory), process=True)
                for i in range(setup.actors)
            ]
        else:
            self._weights = torch.empty(shape)
            self._here = Evaluation(setup, 0)

    def advance(self, until_env_steps: int, seconds: float) -> None:
        """Runs whole generations until ``until_env_steps`` are collected; ``seconds`` plays no part.

        An interrupt leaves a generation out that does not end soon.

        Raises:
            WorkerError: an actor failed.
        """
        until_env_steps = min(until_env_steps, self._setup.total_frames)
        while self._env_steps < until_env_steps and not self._interrupted:
            before = self._learner.state_dict()
            members = self._learner.ask(self._setup.num_envs)
            try:
                returns, lengths = self._evaluate(members, self._setup.env_seed(self._updates))
            except NoAnswerError:
                # As it was after the last whole generation: that is what is saved.
                self._learner.load_state_dict(before)
                if self._interrupted:
                    return
                raise
            self._learner.tell(members, returns, self._weights)
            self._updates += 1
            finished = zip(returns.tolist(), lengths.tolist(), strict=True)
            self.count(int(lengths.sum()), finished, float(returns.sum()))

    def _evaluate(self, members: list[Member], env_seed: int) -> tuple[Array, Array]:
        returns, lengths = np.zeros(len(members)), np.zeros(len(members), np.int64)
        if self._here is not None:
            base = self._learner.weights
            for block in self._blocks:
                found = self._here.play(base, members[block], self._weights[block], block.start, env_seed)
                returns[block], lengths[block] = found
            return returns, lengths
        self._snapshot.publish(self._learner.weights)
        waiting = self._blocks[::-1]
        playing: dict[Any, tuple[Worker, slice]] = {}
        free = list(self._workers)
        generation = Patience(math.inf, lambda: self._interrupted)
        while waiting or playing:
            for worker in free[: len(waiting)]:
                block = waiting.pop()
                worker.send((block.start, _packed(members[block]), env_seed))
                playing[worker.connection] = worker, block
            free = []
            ready: list[Any] = []
            answer = Patience(_ANSWER_S, lambda: False)
            while not ready:
                for patience in (answer, generation):
                    if not patience.left():
                        names = ", ".join(worker.name for worker, _ in playing.values())
                        raise NoAnswerError(f"{names} did not answer within {patience}")
                ready = wait(list(playing), SLICE_S)
            for connection in ready:
                worker, block = playing.pop(connection)
                returns[block], lengths[block] = worker.answer(0.0)
                free.append(worker)
        return returns, lengths

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
        here, self._here = self._here, None
        if here is not None:
            here.close()
        team, self._team = self._team, None
        if team is not None:
            for worker in self._workers:
                worker.tell(None)
            team.end(within_s=INTERRUPTED_END_S if self._interrupted else 5.0)
