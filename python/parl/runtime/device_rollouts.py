"""The `sync` topology with environments, policy, rollouts and learner on one CUDA device.

A round acts and steps T times into one rollout, which stays where it is, and learns from it. Nothing of it is
read by the host, which only says what comes next: episodes are added up on the device and read when somebody
asks. Environments reset in the step that ends an episode, so that every row is a step and all shapes are the
same in every round. With ``cuda_graph`` of the algorithm the T steps are one graph, and so is all that is
learned from them.

Under ``torchrun`` every process has a device, environments and a learner of its own, and gradients are
averaged.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from parl.envs import EnvMaker, games_over, points
from parl.envs.snapshot import Snapshot
from parl.errors import ConfigError
from parl.ops import execution
from parl.ops.finite import check_state
from parl.runtime import states
from parl.runtime.on_device import Played, TalliedLoop, Tally
from parl.runtime.setup import Saved, actor_seeds
from parl.runtime.sync import RolloutSetup, SyncLoop
from parl.types import (
    DeviceRolloutAlgorithm,
    DeviceRolloutLearner,
    DeviceRolloutPolicy,
    EnvSpec,
    Rollout,
    RolloutLearner,
)

# Truncated episodes whose last observation is kept, in a step and in a rollout; others count as terminated.
AT_ONCE, ROOM = 32, 64


class DeviceRollout:
    """Arrays of one rollout on a device, written step by step without waiting.

    Args:
        spec: of the environment.
        steps: T.
        num_envs: N.
        device: torch's.
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
        self._room, self._at_once = min(ROOM, steps * num_envs), min(AT_ONCE, num_envs)
        # One place more, where all goes that has none.
        self._final_obs = empty(self._room + 1, *spec.observation_shape, dtype=kind)
        self._final_at = empty(self._room + 1, 2, dtype=torch.int64)
        self._count = empty(dtype=torch.int64)
        self._last = empty(*spec.observation_shape, dtype=kind)
        self._number = torch.arange(num_envs, device=device)
        self._place = torch.arange(self._room, device=device)

    def begin(self) -> None:
        """The next row follows on the last one."""
        self.obs[0].copy_(self.obs[-1])
        self._count.zero_()

    def ends(self, t: int, terminated: Tensor, truncated: Tensor, final_obs: Tensor) -> None:
        """How step t ended, (N,) each, and the last observations (N, ...) of those that did."""
        at_once = self._at_once
        cut = truncated & ~terminated
        rank = torch.cumsum(cut, 0) - 1
        kept = cut & (rank < at_once) & (self._count + rank < self._room)
        torch.logical_or(terminated, cut & ~kept, out=self._terminated[t])
        torch.logical_or(terminated, truncated, out=self._ended[t])
        who = torch.zeros(at_once + 1, dtype=torch.int64, device=cut.device)
        who.scatter_(0, torch.where(kept, rank, at_once), self._number)
        who = who[:at_once]
        order = self._number[:at_once]
        stored = kept.sum()
        place = torch.where(order < stored, self._count + order, self._room)
        self._final_obs.index_copy_(0, place, final_obs.index_select(0, who))
        self._final_at.index_copy_(0, place, torch.stack((torch.full_like(who, t), who), dim=1))
        self._count += stored
        if t == self._steps - 1:
            self._last.copy_(torch.where(cut[0], final_obs[0], self.obs[-1, 0]))

    def tensors(self) -> Rollout:
        """The rollout on the same memory; valid until the next one begins.

        Places of ``final_obs`` that no episode needs hold what the last step of environment 0 led to.
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


class DeviceRolloutActor:
    """Environments of a device, a policy beside them, and the rollout that they fill.

    Args:
        envs: reset in the step of an end; owned from now on.
        spec: their description.
        policy: chooses the actions.
        steps: T.
        seed: of the first reset.
        random_steps: see :class:`parl.runtime.rollout.RolloutActor`.
    """

    def __init__(
        self,
        envs: Played,
        spec: EnvSpec,
        policy: DeviceRolloutPolicy,
        steps: int,
        seed: int,
        random_steps: int = 0,
    ) -> None:
        self.policy, self.num_envs = policy, envs.num_envs
        self._envs, self._spec, self._steps = envs, spec, steps
        obs = envs.reset(seed=seed)[0]
        self._snapshot = Snapshot(envs)
        self.rollout = DeviceRollout(spec, steps, envs.num_envs, obs.device)
        self.rollout.obs[-1].copy_(obs)
        self.tally = Tally(envs.num_envs, False, obs.device)
        low, high = (torch.tensor(bound, device=obs.device) for bound in (spec.action_low, spec.action_high))
        self._bounds = None if spec.num_actions else (low, high)
        self._seed, self._random_steps = seed, random_steps

    @property
    def is_fresh(self) -> bool:
        """Whether random steps come first."""
        return self._random_steps > 0

    def collect(self) -> None:
        """Fills the rollout; does not wait."""
        rollout = self.rollout
        rollout.begin()
        for t in range(self._steps):
            action, rollout.log_prob[t] = self.policy.sample(rollout.obs[t])
            rollout.action[t] = action
            if self._bounds is not None:
                action = torch.minimum(torch.maximum(action, self._bounds[0]), self._bounds[1])
            _, reward, terminated, truncated, infos = self._envs.step(action, out=rollout.obs[t + 1])
            rollout.reward[t] = reward
            rollout.ends(t, terminated, truncated, infos["final_obs"])
            done = terminated | truncated
            self.tally.step(points(reward, infos), done, games_over(terminated, done, infos))

    def scatter(self) -> int:
        """Takes random steps, in which the environments start anew one by one; how many transitions.

        See :meth:`parl.runtime.rollout.RolloutActor.collect`.
        """
        steps, self._random_steps = self._random_steps, 0
        device = self.rollout.obs.device
        draws = torch.Generator().manual_seed(self._seed)
        due = torch.randint(steps + 1, (self.num_envs,), generator=draws)
        starts = set(due.tolist())
        here, obs = due.to(device), self.rollout.obs[-1]
        for step in range(1, steps + 1):
            obs, reward, terminated, truncated, infos = self._envs.step(self._random(draws).to(device))
            done = terminated | truncated
            self.tally.step(points(reward, infos), done, games_over(terminated, done, infos))
            if step in starts:
                mask = here == step
                obs = self._envs.reset(options={"reset_mask": mask})[0]
                self.tally.restart(mask)
        self.rollout.obs[-1].copy_(obs)
        return steps * self.num_envs

    def _random(self, draws: torch.Generator) -> Tensor:
        spec, count = self._spec, self.num_envs
        if spec.num_actions:
            return torch.randint(spec.num_actions, (count,), generator=draws)
        low, high = torch.tensor(spec.action_low), torch.tensor(spec.action_high)
        share = torch.rand((count, math.prod(spec.action_shape)), generator=draws)
        return (low + share * (high - low)).view(count, *spec.action_shape)

    def check(self) -> None:
        """Waits, and raises what went wrong in environments."""
        self._envs.check()

    def save(self) -> bytes:
        """The environments, the policy's generator and unfinished episodes."""
        rest = {
            "obs": self.rollout.obs[-1].cpu(),
            "policy": self.policy.state_dict(),
            "episodes": self.tally.state(),
        }
        return states.save(self._envs, self._snapshot, rest, pickles=False)

    def load(self, state: bytes) -> None:
        """Takes back what :meth:`save` gave."""
        _, saved = states.load(state, self._envs, self._snapshot)
        self._random_steps = 0
        self.rollout.obs[-1].copy_(saved["obs"])
        self.policy.load_state_dict(saved["policy"])
        self.tally.restore(saved["episodes"])

    def close(self) -> None:
        """Closes the environments."""
        self._envs.close()


class DeviceRolloutLoop(TalliedLoop[RolloutLearner], SyncLoop):
    """See the module and :class:`parl.runtime.setup.Loop`.

    Args:
        setup: the run.
        saved: the checkpoint to go on from, or None.

    Raises:
        ConfigError: the algorithm cannot act on a device.
    """

    _actors: Any
    _learner: Any

    def __init__(self, setup: RolloutSetup, saved: Saved | None = None) -> None:
        if not isinstance(setup.algorithm, DeviceRolloutAlgorithm):
            raise ConfigError(
                f"{type(setup.algorithm).__name__.lower()} cannot act on a device, as a2c, ppo and pqn can: "
                "leave device out of env_options"
            )
        setup.algorithm.check_device(grouped=setup.group is not None)
        super().__init__(setup, saved)
        learner: DeviceRolloutLearner = self._learner
        actor, as_graph = self._actors[0], setup.algorithm.records_updates
        self._collect = execution.Recorded(actor.collect, [actor.policy.generator], as_graph)
        self._learn = execution.Recorded(self._learn_once, [learner.generator], as_graph)

    def _make_actors(self) -> list[Any]:
        setup, algorithm = self._setup, self._setup.algorithm
        assert isinstance(algorithm, DeviceRolloutAlgorithm)
        own = 2_000_029 * setup.group.rank if setup.group is not None else 0
        policy_seed, env_seed = actor_seeds(setup.seed + 1_000_003 * self._resumes + own, 0)
        policy = algorithm.make_device_policy(self._learner, policy_seed)
        return [
            DeviceRolloutActor(
                self._make_envs(), setup.spec, policy, algorithm.rollout_steps, env_seed, setup.random_steps
            )
        ]

    def _make_envs(self) -> Played:
        setup = self._setup
        options = {"autoreset_mode": "SameStep"}
        if setup.group is not None:
            options["device"] = setup.device
        envs: Any = EnvMaker(setup.maker.env, setup.maker.options | options)(setup.num_envs)
        return envs.unwrapped

    def _make_buffers(self) -> list[Any]:
        return []

    def _learn_once(self) -> int:
        # Schedules have been set: what progress there is plays no part in what is recorded.
        return self._learner.learn(self._actors[0].rollout.tensors(), self._progress, self._average)

    def _round(self) -> None:
        """A rollout, and what is learned from it; does not wait."""
        actor, learner, setup = self._actors[0], self._learner, self._setup
        if actor.is_fresh:
            self.count(actor.scatter() * self._scale, [], 0.0)
        self._progress = min(1.0, self._env_steps / setup.total_frames)
        actor.policy.schedule(self._env_steps)
        learner.schedule(self._progress)
        self._collect()
        self.count(setup.algorithm.rollout_steps * setup.num_envs * self._scale, [], 0.0)
        steps = self._learn()
        learner.took(steps)
        self._updates += steps

    @property
    def _tally(self) -> Tally:
        return self._actors[0].tally

    def report(self) -> dict[str, float]:
        """Figures of the time since the last call; waits, and raises what went wrong on the device."""
        self._actors[0].check()
        check_state({"weights": self._learner.weights}, "the learner")
        return {**self.rates()[1], "policy_lag": 0.0, **self._learner.metrics()}
