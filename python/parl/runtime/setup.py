"""What a loop needs to know of a run, and the parts that every schedule makes in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from parl.envs import EnvMaker
from parl.replay import PrioritizedReplay
from parl.runtime.actor import Actor, make_actor
from parl.runtime.halves import HalvesActor
from parl.runtime.learning import Part
from parl.runtime.pacer import Pacer
from parl.runtime.peers import Peers
from parl.runtime.remote import Remote
from parl.runtime.seeds import training_seed
from parl.runtime.torchrun import Group
from parl.types import Algorithm, EnvSpec, Learned, Learner, Policy


def actor_seeds(seed: int, index: int) -> tuple[int, int]:
    """Seeds of the policy and of the first environment of actor ``index``, from the run's seed alone."""
    policy_seed, env_seed = np.random.SeedSequence([seed, index]).generate_state(2)
    return int(policy_seed), training_seed(int(env_seed))


@dataclass(frozen=True)
class Setup:
    """One run. Travels to worker processes.

    Attributes:
        algorithm: makes policies and learners.
        maker: makes environments.
        spec: describes them.
        seed: everything random follows from it.
        actors: number of actors.
        processes: actors are processes; else threads.
        learners: number of learners.
        learner_threads: learners are threads of this process; else all but the first are processes.
        num_envs: environments of all actors together.
        batch_size: transitions of all learners together in one update.
        replay_capacity: rows kept.
        pacer: holds the replay ratio.
        device: torch device of the learners.
        threads: of torch in each learner.
        remote: actors run over Ray; None: on this machine.
        prefetch: batches that lie ready.
        priority_delay: updates by which priorities go back late.
        park_actors: actors that the ratio does not need may be parked.
        halves: each actor's environments take turns in two halves.
        group: the processes that torchrun started; None: none.
    """

    algorithm: Algorithm
    maker: EnvMaker
    spec: EnvSpec
    seed: int
    actors: int
    processes: bool
    learners: int
    num_envs: int
    batch_size: int
    replay_capacity: int
    pacer: Pacer
    device: str
    threads: int = 1
    remote: Remote | None = None
    prefetch: int = 0
    priority_delay: int = 0
    park_actors: bool = False
    halves: bool = False
    learner_threads: bool = False
    group: Group | None = None

    @property
    def _own_seed(self) -> int:
        """Of what the processes of a group shall not have alike."""
        return self.seed + (2_000_029 * self.group.rank if self.group is not None else 0)

    @property
    def part(self) -> int:
        """Transitions of one learner in an update."""
        return self.batch_size // self.learners

    def make_replay(self, shared: str | None, device: str = "cpu") -> PrioritizedReplay:
        """An empty replay, on ``device``; named shared memory if ``shared``. Stacks' pictures are kept once.

        Importance weights are divided by the largest of the batch or, where learners each see a part of it
        only, of all rows: either way the learners' mean gradient is that of the whole batch.
        """
        spec = self.spec
        parts = {name: (shape, dtype) for name, shape, dtype in spec.observation_parts}
        stack = spec.frame_stack
        shape = spec.observation_shape[1:] if stack > 1 else spec.observation_shape
        columns = {
            "obs": parts or (shape, spec.observation_dtype),
            "action": (spec.action_shape, spec.action_dtype),
            "reward": ((), "float32"),
            "terminated": ((), "bool"),
            "truncated": ((), "bool"),
        }
        return PrioritizedReplay(
            self.replay_capacity,
            columns,
            autoreset=spec.autoreset,
            num_envs=self.num_envs,
            shared=shared,
            device=device,
            seed=self._own_seed,
            frame_stack=stack,
            stack_padding=spec.stack_padding,
            weight_norm="batch" if self.learners == 1 and self.group is None else "global",
            **self.algorithm.replay_options(),
        )

    def make_actor(self, index: int, replay: Any, generation: int) -> Actor | HalvesActor:
        """Actor ``index``; ``generation`` counts resumes, so that a resumed run draws fresh seeds."""
        return make_actor(
            self.maker,
            self.spec,
            self.algorithm,
            replay,
            index,
            self.actors,
            self.num_envs,
            self._own_seed + 1_000_003 * generation,
            self.halves,
        )

    def make_learner(self) -> Learner:
        """A learner with the run's first weights."""
        return self.algorithm.make_learner(self.seed, self.device)

    def make_part(self, learner: Learner, replay: PrioritizedReplay, peers: Peers, rank: int) -> Part:
        """What learner ``rank`` does in an update."""
        return Part(
            self.algorithm,
            learner,
            replay,
            peers,
            self.part,
            rank,
            self.learners,
            self.prefetch,
            self.priority_delay,
        )

    def make_policy(self) -> Policy:
        """A policy for evaluations."""
        return self.algorithm.make_policy(0, 1, 1, 0)


@dataclass(frozen=True)
class Saved:
    """A checkpoint as loops read it.

    Attributes:
        folder: where it lies.
        counters: ``env_steps``, ``updates`` and so on.
        trusted: pickles in it may be loaded.
    """

    folder: Path
    counters: Mapping[str, Any]
    trusted: bool = False


class Loop(Protocol):
    """A running topology, driven by ``parl.train``."""

    @property
    def learner(self) -> Learned:
        """Holds the newest weights."""
        ...

    @property
    def env_steps(self) -> int:
        """Transitions collected."""
        ...

    @property
    def updates(self) -> int:
        """Optimizer steps taken."""
        ...

    def advance(self, until_env_steps: int, seconds: float) -> None:
        """Runs until ``until_env_steps`` are collected or :meth:`interrupt` was called.

        Where the schedule may depend on time it also returns when ``seconds`` have passed.

        Raises:
            WorkerError: an actor or learner failed.
        """
        ...

    def interrupt(self) -> None:
        """Makes :meth:`advance` return at the next border of an update; safe in a signal handler."""
        ...

    def take_episodes(self) -> list[tuple[float, int]]:
        """Return and length of the episodes finished since the last call."""
        ...

    def rewards_and_episodes(self) -> tuple[float, int]:
        """Sum of all rewards, and number of all episodes ended, since the loop was made."""
        ...

    def report(self) -> dict[str, Any]:
        """Figures of the time since the last call; lists are histograms."""
        ...

    def save(self, folder: Path) -> None:
        """Writes everything a resumed run needs into ``folder``; goes on afterwards."""
        ...

    def rescue(self, folder: Path) -> None:
        """Writes what can be saved after a worker failed, as :meth:`save` does; environments start anew.

        Raises:
            ParlError, OSError: nothing can.
        """
        ...

    def close(self) -> None:
        """Ends all workers and frees all memory; safe to call twice."""
        ...
