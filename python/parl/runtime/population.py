"""The topology of evolutionary algorithms: processes evaluate the members of a population.

Only seeds and returns are sent between processes, or to other machines (``distributed/ray_population.py``). A
generation is divided into ``member_batches`` of equal size. An idle actor takes the next batch, computes the
weights of its members from their seeds, plays one episode of each member, all in one vector environment, and
returns the episodes' returns. Networks whose episodes have ended are removed from the computation. The
learner's weights and the members' weights are in shared memory. The seeds of a batch, those of ``random`` and
``numpy.random`` included, depend on the generation alone, not on the actor, so a resumed run repeats the
numbers of an uninterrupted one.
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

from parl.envs import FiniteCheck, games_over, points
from parl.runtime.checkpoint import Checkpoint
from parl.runtime.env_actor import Counts
from parl.runtime.seeds import seed_modules, training_seed
from parl.runtime.setup import RunSetup
from parl.runtime.weights import SharedWeights
from parl.runtime.worker_loop import ANSWER_S, WorkerLoop
from parl.runtime.workers import (
    SLICE_S,
    Deadline,
    WorkerGroup,
    WorkerTimeoutError,
    choose_context,
)
from parl.types import Array, Member, PopulationAlgorithm, PopulationLearner

# Networks whose episodes have ended are removed when they are this fraction of all: removal copies the
# others.
_REMOVAL_FRACTION = 0.25
# Alignment of the array of weights in bytes, the same in all processes, because sums may depend on it.
_ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True)
class PopulationSetup(RunSetup):
    """Description of a run of an evolutionary algorithm; ``num_envs`` is the size of the population.

    Attributes:
        total_steps: transitions in the whole run.
        member_batches: number of batches that a generation is divided into, at least one per actor.
    """

    algorithm: PopulationAlgorithm
    total_steps: int
    member_batches: int

    def batch_slices(self) -> list[slice]:
        """The members of each batch, as slices; batch sizes differ by at most one."""
        edges = [number * self.num_envs // self.member_batches for number in range(self.member_batches + 1)]
        return [slice(start, stop) for start, stop in itertools.pairwise(edges)]

    def env_seed(self, generation: int) -> int:
        """Seed of the first member's environment; member i uses this plus i."""
        return training_seed(int(np.random.SeedSequence([self.seed, generation]).generate_state(1)[0]))


class PopulationEvaluator:
    """An actor's vector environment, with one environment per member of the largest batch.

    Args:
        setup: the run.
        index: index of the actor.
    """

    def __init__(self, setup: PopulationSetup, index: int) -> None:
        self._count = max(batch.stop - batch.start for batch in setup.batch_slices())
        self._env = setup.maker.for_actors(setup.actors)(self._count)
        self._policy = setup.algorithm.make_policy(index, setup.actors, self._count, 0)
        self._decoder = setup.algorithm.make_decoder()
        self._spec = spec = setup.spec
        self._observation_dtype, self._action_dtype = (
            np.dtype(name) for name in (spec.observation_dtype, spec.action_dtype)
        )
        self._action_shape = () if spec.num_actions else spec.action_shape
        # A vector environment with one generator for all must know which part of the generation a batch is.
        self._total = setup.num_envs if getattr(self._env.unwrapped, "starts_parts", False) else None
        space: Any = self._env.single_action_space
        self._bounds = None if spec.num_actions else (space.low, space.high)

    def play(
        self, base: Tensor, members: Sequence[Member], weights: Tensor, first: int, env_seed: int
    ) -> tuple[Array, Array]:
        """Plays one episode of each member; of an Atari game the whole game, counted in the game's points.

        Seeds ``random`` and ``numpy.random`` too, from which environments may draw.

        Args:
            base: (P,) weights that the members' weights may be relative to.
            members: n members, at most one per environment.
            weights: (n, P), filled with the members' weights.
            first: number of the first member within the generation.
            env_seed: seed of the generation.

        Returns:
            Returns (n,) float64 and lengths (n,) int64 of the episodes.

        Raises:
            NonFiniteError: a reward or an observation is NaN or infinite; the message has the number of the
                member within the generation and of the step within the episode.
        """
        seed_modules(env_seed + first)
        check = FiniteCheck(self._spec, first)
        networks = self._policy.assemble(self._decoder.decode(base, members, weights))
        if self._total is None:
            obs, _ = self._env.reset(seed=env_seed + first)
        else:
            obs, _ = self._env.reset(seed=env_seed, options={"part": (first, self._total)})
        returns, lengths = np.zeros(self._count), np.zeros(self._count, np.int64)
        playing = np.arange(self._count) < len(members)
        # Environments without a member, or whose episode has ended, repeat an action; results are ignored.
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
            if 0 < left <= (1 - _REMOVAL_FRACTION) * len(rows):
                kept = np.nonzero(playing[rows])[0]
                networks, rows = networks.select(kept), rows[kept]
        return returns[: len(members)], lengths[: len(members)]

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()


def _rows(memory: Any, count: int, size: int) -> Tensor:
    """A (count, size) float32 view of shared ``memory``, aligned; ``memory`` is larger by the alignment."""
    values = np.frombuffer(memory, np.float32)
    start = -values.ctypes.data % _ALIGNMENT // values.itemsize
    return torch.from_numpy(values[start : start + count * size]).view(count, size)


def aligned_rows(first: int, count: int, size: int) -> Tensor:
    """Memory (count, size) float32 aligned as rows ``first`` to ``first + count`` of a whole generation's."""
    offset = first * size % (_ALIGNMENT // 4)
    values = np.empty(offset + count * size + _ALIGNMENT // 4, np.float32)
    return _rows(values, 1, offset + count * size)[0, offset:].view(count, size)


PackedMembers = tuple[list[Member], list[tuple[int, int]]]
"""What :func:`pack_members` returns."""


def pack_members(members: Sequence[Member]) -> PackedMembers:
    """Returns the distinct parents (seeds but the last), and each member as (number of parent, last seed).

    Members have few parents, and the lists of seeds grow, so each parent is sent only once.
    """
    parents = {member[:-1]: 0 for member in members}
    for number, parent in enumerate(parents):
        parents[parent] = number
    return list(parents), [(parents[member[:-1]], member[-1]) for member in members]


def unpack_members(parents: list[Member], members: list[tuple[int, int]]) -> list[Member]:
    """Inverse of :func:`pack_members`."""
    return [(*parents[parent], last) for parent, last in members]


def _run_actor(
    connection: Connection, setup: PopulationSetup, index: int, snapshot: SharedWeights, memory: Any
) -> None:
    """An actor's loop: receives (first member, members, seed), sends (returns, lengths), ends on None."""
    evaluation = PopulationEvaluator(setup, index)
    base, version = torch.zeros(snapshot.size), -1
    weights = _rows(memory, setup.num_envs, snapshot.size)
    while (question := connection.recv()) is not None:
        first, packed, env_seed = question
        version = snapshot.read(base, version)
        members = unpack_members(*packed)
        found = evaluation.play(base, members, weights[first : first + len(members)], first, env_seed)
        connection.send(("batch", found))
    evaluation.close()


class PopulationLoop(WorkerLoop[PopulationLearner]):
    """See the module. An iteration is one generation.

    Args:
        setup: the run.
        saved: the checkpoint to start from, or None.
    """

    obeys_clock = False

    def __init__(self, setup: PopulationSetup, saved: Checkpoint | None = None) -> None:
        torch.set_num_threads(1)
        self._setup = setup
        context = choose_context(setup.processes, "cpu")
        super().__init__(setup.make_learner(), setup.total_steps, saved, context)
        self._batches = setup.batch_slices()
        self._evaluator: PopulationEvaluator | None = None
        self._weights: Tensor | None = None
        self._idle: list[Any] = []
        if not setup.processes and setup.remote is None:
            self._weights = torch.empty(setup.num_envs, len(self._learner.weights))
            self._evaluator = PopulationEvaluator(setup, 0)
            return
        self._shared_weights = SharedWeights(context, len(self._learner.weights))
        try:
            self._start_evaluators(context)
        except BaseException:
            self.close()
            raise

    def _start_evaluators(self, context: Any) -> None:
        """Starts the actors."""
        setup, shape = self._setup, (self._setup.num_envs, self._shared_weights.size)
        memory = context.RawArray(ctypes.c_float, math.prod(shape) + _ALIGNMENT // 4)
        self._weights = _rows(memory, *shape)
        for index in range(setup.actors):
            args = (setup, index, self._shared_weights, memory)
            self._start_actor(f"actor {index}", _run_actor, args, process=True)
        self._idle = list(self._actors)

    def _iterate(self, seconds: float) -> None:
        before = self._learner.state_dict()
        members = self._learner.ask(self._setup.num_envs)
        try:
            returns, lengths = self._evaluate(members, self._setup.env_seed(self._updates))
        except BaseException as error:  # also SystemExit, of an environment in this process
            # Checkpoints have the state after the last complete generation.
            self._learner.load_state_dict(before)
            if self._interrupted and isinstance(error, WorkerTimeoutError):
                return
            raise
        self._learner.tell(members, returns, self._weights)
        self._updates += 1
        finished = list(zip(returns.tolist(), lengths.tolist(), strict=True))
        self.count(Counts(int(lengths.sum()), finished, float(returns.sum())))

    def _evaluate(self, members: list[Member], env_seed: int) -> tuple[Array, Array]:
        """Returns and lengths of one episode of each member."""
        if self._evaluator is None:
            return self._evaluate_by_actors(members, env_seed)
        returns, lengths = np.zeros(len(members)), np.zeros(len(members), np.int64)
        assert self._weights is not None
        base = self._learner.weights
        for batch in self._batches:
            returns[batch], lengths[batch] = self._evaluator.play(
                base, members[batch], self._weights[batch], batch.start, env_seed
            )
        return returns, lengths

    def _evaluate_by_actors(self, members: list[Member], env_seed: int) -> tuple[Array, Array]:
        returns, lengths = np.zeros(len(members)), np.zeros(len(members), np.int64)
        self._shared_weights.publish(self._learner.weights)
        waiting = self._batches[::-1]
        playing: dict[Any, tuple[Any, slice]] = {}
        generation = Deadline(math.inf, lambda: self._interrupted)
        answer = Deadline(ANSWER_S, lambda: False)
        while waiting or playing:
            while self._idle and waiting:
                actor, batch = self._idle.pop(0), waiting.pop()
                request = self._send(actor, batch.start, pack_members(members[batch]), env_seed)
                playing[request] = actor, batch
            for deadline in (answer, generation):
                if not deadline.remaining_s():
                    if not playing:
                        raise WorkerTimeoutError(f"no actor was placed within {deadline}")
                    names = ", ".join(actor.name for actor, _ in playing.values())
                    raise WorkerTimeoutError(f"{names} did not answer within {deadline}")
            ready = self._wait(list(playing), SLICE_S)
            if ready:
                answer = Deadline(ANSWER_S, lambda: False)
            for request in ready:
                actor, batch = playing.pop(request)
                found = self._answer(actor, request)
                if found is None:
                    waiting.append(batch)
                else:
                    returns[batch], lengths[batch] = found
        return returns, lengths

    def _send(self, actor: Any, first: int, packed: PackedMembers, env_seed: int) -> Any:
        """Lets ``actor`` evaluate members; returns what :meth:`_wait` takes."""
        actor.send((first, packed, env_seed))
        return actor.connection

    def _wait(self, requests: Sequence[Any], seconds: float) -> Sequence[Any]:
        """Waits for the first of ``requests``; returns those that have been answered."""
        return wait(requests, seconds)

    def _answer(self, actor: Any, request: Any) -> tuple[Array, Array] | None:
        """Returns and lengths of a batch; None if its actor failed and was replaced."""
        self._idle.append(actor)
        return actor.answer(0.0)

    def _actor_states(self) -> list[bytes | None]:
        return []  # generations depend only on their seeds

    def save_after_failure(self, folder: Path) -> None:
        """Saves the learner in its state after the last complete generation."""
        self.save(folder)

    def _stop_workers(self, workers: WorkerGroup) -> None:
        for worker in self._actors:
            worker.send_if_running(None)

    def close(self) -> None:
        """Ends the processes and closes the environments; safe to call twice."""
        evaluator, self._evaluator = self._evaluator, None
        if evaluator is not None:
            evaluator.close()
        super().close()
