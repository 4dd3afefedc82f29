"""Description of a run that learns from rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parl.runtime.on_policy.rollout import RolloutActor, RolloutBuffer
from parl.runtime.on_policy.start_states import SavedStates, StartStates
from parl.runtime.seeds import actor_seeds
from parl.runtime.setup import RunSetup
from parl.types import RolloutAlgorithm, RolloutPolicy


@dataclass(frozen=True, kw_only=True)
class RolloutSetup(RunSetup):
    """Description of a run that learns from rollouts.

    Attributes:
        total_steps: transitions in the whole run, for schedules.
        max_lag: largest policy lag of a rollout, in updates; async only.
        joins_rollouts: whether an update learns from a rollout of every actor; else of one actor. For loops
            in which actors and learner alternate.
        predictors: initial number of threads that compute actions; predictor only, as the next three.
        trainers: initial number of threads that learn.
        rollouts_per_update: initial number of rollouts per update.
        tune_every_s: seconds between changes of these sizes; 0: they do not change.
        random_steps: vector steps of random actions before the first rollout, see :class:`RolloutActor`.
        start_share: probability with which a new game continues from a saved state.
        start_states: these states; None for those of each actor's first environment.
    """

    algorithm: RolloutAlgorithm
    total_steps: int
    max_lag: int = 0
    joins_rollouts: bool = False
    predictors: int = 1
    trainers: int = 1
    rollouts_per_update: int = 1
    tune_every_s: float = 0.0
    random_steps: int = 0
    start_share: float = 0.0
    start_states: SavedStates | None = None

    def num_envs_of(self, index: int) -> int:
        """Number of environments of actor ``index``."""
        first, end = self.env_range(index)
        return end - first

    def make_actor(self, index: int, resumes: int, policy: RolloutPolicy | None = None) -> RolloutActor:
        """Makes actor ``index`` after ``resumes`` resumes; ``policy`` replaces the algorithm's policy."""
        policy_seed, env_seed = actor_seeds(self.own_seed(resumes), index)
        envs = self.num_envs_of(index)
        if policy is None:
            policy = self.algorithm.make_policy(index, self.actors, envs, policy_seed)
        first = self.env_range(index)[0] + (0 if self.group is None else self.group.rank * self.num_envs)
        env = self.maker.for_actors(self.actors)(envs)
        starts = (
            StartStates(envs, self.start_share, self.start_states, env_seed) if self.start_share else None
        )
        return RolloutActor(env, self.spec, policy, env_seed, self.random_steps, first, self.pickles, starts)

    def make_buffer(self, index: int, context: Any = None) -> RolloutBuffer:
        """Makes a buffer for rollouts of actor ``index``, in shared memory of ``context`` if one is given."""
        algorithm, envs = self.algorithm, self.num_envs_of(index)
        return RolloutBuffer(self.spec, algorithm.rollout_steps, envs, context, algorithm.memory)
