"""Description of a run with a replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parl.envs.goals import goal_functions
from parl.replay import Hindsight, PrioritizedReplay
from parl.runtime.gradient_allreduce import GradientAllReduce
from parl.runtime.off_policy.actor import Actor, make_actor
from parl.runtime.off_policy.double_buffer import DoubleBufferedActor
from parl.runtime.off_policy.learner_worker import LearnerWorker
from parl.runtime.off_policy.pacer import Pacer
from parl.runtime.setup import RunSetup
from parl.types import Algorithm, Learner


@dataclass(frozen=True, kw_only=True)
class OffPolicySetup(RunSetup):
    """Description of a run with a replay.

    Attributes:
        learners: number of learners.
        learner_threads: whether learners are threads of this process; else all but the first are processes.
        batch_size: transitions per update, of all learners together.
        replay_capacity: number of rows of the replay.
        pacer: holds the replay ratio.
        prefetch: number of batches drawn in advance.
        priority_delay: number of updates by which the replay receives new priorities late.
        park_actors: whether actors that the replay ratio does not need are parked.
        gradient_compression: form of gradients between processes of torchrun, see ``TorchrunAllReduce``.
        double_buffer: whether each actor has two groups of environments, which step alternately.
    """

    algorithm: Algorithm
    learners: int
    batch_size: int
    replay_capacity: int
    pacer: Pacer
    prefetch: int = 0
    priority_delay: int = 0
    park_actors: bool = False
    double_buffer: bool = False
    learner_threads: bool = False
    gradient_compression: str = "none"

    @property
    def learner_batch_size(self) -> int:
        """Transitions of one learner in an update."""
        return self.batch_size // self.learners

    @property
    def freeze_after(self) -> int:
        """Transitions after which convolutions are frozen and the replay stores embeddings; 0: never."""
        return getattr(self.algorithm, "freeze_after", 0)

    def make_hindsight(self) -> Hindsight | None:
        """Makes what replaces the goals of sampled rows, with an environment of its own; None: off."""
        goals = getattr(self.algorithm, "goals", None)
        if goals is None:
            return None
        strategy, per_transition = goals
        reward_fn, terminated_fn = goal_functions(self.maker)
        return Hindsight(reward_fn, strategy, per_transition, terminated_fn=terminated_fn)

    def make_replay(self, shared: str | None, device: str = "cpu") -> PrioritizedReplay:
        """Makes an empty replay on ``device``, in shared memory with the name ``shared`` if one is given.

        Each frame of stacked observations is stored once. Importance weights are divided by the largest of
        the batch or, if each learner has only a part of the batch, by a bound for all rows, which is the same
        for all parts: the learners' mean gradient is that of the whole batch up to this factor.
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
            seed=self.own_seed(),
            frame_stack=stack,
            stack_padding=spec.stack_padding,
            weight_norm="batch" if self.learners == 1 and self.group is None else "global",
            hindsight=self.make_hindsight(),
            **self.algorithm.replay_options(),
        )

    def make_actor(self, index: int, replay: Any, resumes: int) -> Actor | DoubleBufferedActor:
        """Makes actor ``index``, which writes into ``replay``; the run was resumed ``resumes`` times."""
        seed, envs = self.own_seed(resumes), self.num_envs
        return make_actor(
            self.maker, self.spec, self.algorithm, replay, index, self.actors, envs, seed, self.double_buffer
        )

    def make_learner_worker(
        self, learner: Learner, replay: PrioritizedReplay, peers: GradientAllReduce, rank: int
    ) -> LearnerWorker:
        """Makes the object that runs the updates of learner ``rank``."""
        return LearnerWorker(
            self.algorithm,
            learner,
            replay,
            peers,
            self.learner_batch_size,
            rank,
            self.learners,
            self.prefetch,
            self.priority_delay,
        )
