"""The sync topology with environments, policy, rollouts and learner on one CUDA device.

An iteration collects one rollout of T steps on the device and learns from it. The host only launches work and
reads nothing back; episode statistics are summed on the device and read for reports. Environments reset in
the step that ends an episode, so that every row is a step and all rollouts have equal shapes. With the
algorithm's setting ``cuda_graph`` the T steps are one CUDA graph and the updates from the rollout another.

Under ``torchrun`` every process has its own device, environments and learner, and gradients are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from parl.ops import execution
from parl.runtime.checkpoint import Checkpoint
from parl.runtime.cuda.actor import CudaEnvActor
from parl.runtime.cuda.envs import CudaVectorEnv
from parl.runtime.cuda.loop import CudaLoop, require_cuda_policy
from parl.runtime.env_actor import Counts
from parl.runtime.on_policy.rollout_loop import Collected, checked_steps
from parl.runtime.on_policy.setup import RolloutSetup
from parl.runtime.on_policy.sync import SyncRolloutLoop
from parl.runtime.seeds import actor_seeds
from parl.types import EnvSpec, Rollout, RolloutLearner

# Truncated episodes whose last observation is kept, per step and per rollout; others count as terminated.
MAX_FINALS_PER_STEP, MAX_FINALS_PER_ROLLOUT = 32, 64


class CudaRolloutBuffer:
    """Arrays of one rollout on a device, written step by step without synchronizing.

    Args:
        spec: description of the environment.
        steps: T.
        num_envs: N.
        device: torch device.
    """

    def __init__(self, spec: EnvSpec, steps: int, num_envs: int, device: Any) -> None:
        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self._steps, self._envs = steps, num_envs
        kind = getattr(torch, spec.observation_dtype)
        self.obs = empty(steps + 1, num_envs, *spec.observation_shape, dtype=kind)
        action = getattr(torch, spec.action_dtype)
        self.action = empty(steps, num_envs, *spec.action_shape, dtype=action)
        self.log_prob, self.reward = (empty(steps, num_envs) for _ in range(2))
        self._terminated, self._ended = (empty(steps, num_envs, dtype=torch.bool) for _ in range(2))
        self._capacity, self._max_per_step = (
            min(MAX_FINALS_PER_ROLLOUT, steps * num_envs),
            min(MAX_FINALS_PER_STEP, num_envs),
        )
        # The additional last place takes all values that are not kept.
        self._final_obs = empty(self._capacity + 1, *spec.observation_shape, dtype=kind)
        self._final_at = empty(self._capacity + 1, 2, dtype=torch.int64)
        self._count = empty(dtype=torch.int64)
        self._last = empty(*spec.observation_shape, dtype=kind)
        self._number = torch.arange(num_envs, device=device)
        self._place = torch.arange(self._capacity, device=device)

    def begin(self) -> None:
        """Begins a rollout: its first observations are the last ones of the previous rollout."""
        self.obs[0].copy_(self.obs[-1])
        self._count.zero_()

    def record_ends(self, t: int, terminated: Tensor, truncated: Tensor, final_obs: Tensor) -> None:
        """Stores where step t ended episodes, (N,) each, and the last observations (N, ...) of these."""
        max_per_step = self._max_per_step
        cut = truncated & ~terminated
        rank = torch.cumsum(cut, 0) - 1
        kept = cut & (rank < max_per_step) & (self._count + rank < self._capacity)
        torch.logical_or(terminated, cut & ~kept, out=self._terminated[t])
        torch.logical_or(terminated, truncated, out=self._ended[t])
        who = torch.zeros(max_per_step + 1, dtype=torch.int64, device=cut.device)
        who.scatter_(0, torch.where(kept, rank, max_per_step), self._number)
        who = who[:max_per_step]
        order = self._number[:max_per_step]
        stored = kept.sum()
        place = torch.where(order < stored, self._count + order, self._capacity)
        self._final_obs.index_copy_(0, place, final_obs.index_select(0, who))
        self._final_at.index_copy_(0, place, torch.stack((torch.full_like(who, t), who), dim=1))
        self._count += stored
        if t == self._steps - 1:
            self._last.copy_(torch.where(cut[0], final_obs[0], self.obs[-1, 0]))

    def tensors(self) -> Rollout:
        """The rollout on the same memory; valid until the next one begins.

        Unused rows of ``final_obs`` have the observation after the last step of environment 0.
        """
        used = self._place < self._count
        wide = used.view(-1, *[1] * (self._final_obs.dim() - 1))
        last = torch.zeros_like(self._final_at[0])
        last[0].fill_(self._steps - 1)
        return Rollout(
            obs=self.obs,
            action=self.action,
            log_prob=self.log_prob,
            reward=self.reward,
            terminated=self._terminated,
            ended=self._ended,
            valid=torch.ones((self._steps, self._envs), dtype=torch.bool),
            final_obs=torch.where(wide, self._final_obs[:-1], self._last),
            final_at=torch.where(used.unsqueeze(1), self._final_at[:-1], last),
        )


class CudaRolloutActor(CudaEnvActor):
    """Collects rollouts into one buffer.

    Args:
        envs: vector environment with same-step autoreset, owned by the actor from now on.
        spec: description of the environments.
        policy: chooses the actions.
        steps: T.
        seed: seed of the first reset.
        random_steps: see :class:`parl.runtime.on_policy.rollout.RolloutActor`.
    """

    def __init__(
        self, envs: CudaVectorEnv, spec: EnvSpec, policy: Any, steps: int, seed: int, random_steps: int = 0
    ) -> None:
        super().__init__(envs, policy, True, seed)
        self._spec, self._steps = spec, steps
        self.rollout = CudaRolloutBuffer(spec, steps, envs.num_envs, self._device)
        self._set_obs(self._first_obs)
        low, high = (
            torch.tensor(bound, device=self._device) for bound in (spec.action_low, spec.action_high)
        )
        self._bounds = None if spec.num_actions else (low, high)
        self._seed, self._random_steps = seed, random_steps

    def _newest_obs(self) -> Tensor:
        return self.rollout.obs[-1]

    def _set_obs(self, obs: Tensor) -> None:
        self.rollout.obs[-1].copy_(obs)

    @property
    def needs_random_steps(self) -> bool:
        """Whether :meth:`take_random_steps` must be called before the first rollout."""
        return self._random_steps > 0

    def collect(self) -> None:
        """Fills the rollout; does not synchronize."""
        rollout = self.rollout
        rollout.begin()
        for t in range(self._steps):
            action, rollout.log_prob[t] = self.policy.sample(rollout.obs[t])
            rollout.action[t] = action
            if self._bounds is not None:
                action = torch.minimum(torch.maximum(action, self._bounds[0]), self._bounds[1])
            _, reward, terminated, truncated, infos = self._envs.step(action, out=rollout.obs[t + 1])
            rollout.reward[t] = reward
            rollout.record_ends(t, terminated, truncated, infos["final_obs"])
            self._count(reward, terminated, truncated, infos)

    def take_random_steps(self) -> int:
        """Takes random steps, in which the environments are reset one by one; returns their transitions.

        See :meth:`parl.runtime.on_policy.rollout.RolloutActor`.
        """
        steps, self._random_steps = self._random_steps, 0
        device = self._device
        draws = torch.Generator().manual_seed(self._seed)
        due = torch.randint(steps + 1, (self.num_envs,), generator=draws)
        starts = set(due.tolist())
        here, obs = due.to(device), self.rollout.obs[-1]
        for step in range(1, steps + 1):
            obs, reward, terminated, truncated, infos = self._envs.step(
                self._random_actions(draws).to(device)
            )
            self._count(reward, terminated, truncated, infos)
            if step in starts:
                mask = here == step
                obs = self._envs.reset(options={"reset_mask": mask})[0]
                self.episodes.restart(mask)
        self._set_obs(obs)
        return steps * self.num_envs

    def _random_actions(self, draws: torch.Generator) -> Tensor:
        spec, count = self._spec, self.num_envs
        if spec.num_actions:
            return torch.randint(spec.num_actions, (count,), generator=draws)
        low, high = torch.tensor(spec.action_low), torch.tensor(spec.action_high)
        share = torch.rand((count, math.prod(spec.action_shape)), generator=draws)
        return (low + share * (high - low)).view(count, *spec.action_shape)

    def load(self, state: bytes) -> None:
        """Restores what :meth:`save` returned."""
        super().load(state)
        self._random_steps = 0


class CudaRolloutLoop(CudaLoop[RolloutLearner], SyncRolloutLoop):
    """See the module.

    Args:
        setup: the run.
        saved: the checkpoint to start from, or None.

    Raises:
        ConfigError: the algorithm cannot act on a device.
    """

    def __init__(self, setup: RolloutSetup, saved: Checkpoint | None = None) -> None:
        algorithm: Any = setup.algorithm
        require_cuda_policy(algorithm, "a2c, ppo and pqn")
        algorithm.check_device(grouped=setup.group is not None)
        super().__init__(setup, saved)
        actor, as_graph = self._actor, algorithm.records_updates
        self._graphed_collect = execution.GraphedCall(actor.collect, [actor.policy.generator], as_graph)
        self._graphed_learn = execution.GraphedCall(
            self._learn_from_actor, [self._learner.generator], as_graph
        )

    def _make_actors(self) -> Sequence[Any]:
        setup = self._setup
        algorithm: Any = setup.algorithm
        policy_seed, env_seed = actor_seeds(setup.own_seed(self._resumes), 0)
        policy = algorithm.make_device_policy(self._learner, policy_seed)
        steps = algorithm.rollout_steps
        return [CudaRolloutActor(self._make_envs(), setup.spec, policy, steps, env_seed, setup.random_steps)]

    def _make_envs(self) -> CudaVectorEnv:
        setup = self._setup
        options = {"autoreset_mode": "SameStep"}
        if setup.group is not None:
            options["device"] = setup.device
        envs: Any = setup.maker.with_options(setup.maker.options | options)(setup.num_envs)
        return envs.unwrapped

    def _make_buffers(self) -> list[Any]:
        return []  # the actor has its own

    def _collect(self, seconds: float) -> Iterator[list[Collected]]:
        """Collects one rollout; does not synchronize."""
        actor, setup = self._actor, self._setup
        if actor.needs_random_steps:
            self.count(Counts(actor.take_random_steps(), [], 0.0), setup.scale)
        actor.policy.schedule(self._env_steps)
        self._learner.schedule(self._progress)
        self._graphed_collect()
        yield [Collected(0, Counts(setup.algorithm.rollout_steps * setup.num_envs, [], 0.0))]

    def _rollouts(self, group: Sequence[Collected]) -> list[Any]:
        return [self._actor.rollout]  # its tensors are taken within the graph

    def _learn(self, rollouts: list[Any]) -> int:
        steps = self._graphed_learn()
        self._learner.count_updates(steps)
        return steps

    def _learn_from_actor(self) -> int:
        # Schedules have been set already: a replayed graph does not read the progress.
        return checked_steps(
            self._learner.learn(self._actor.rollout.tensors(), self._progress, self._average)
        )

    def _figures(self, elapsed: float) -> dict[str, Any]:
        return {}  # the host does not know when the device has collected and learned
