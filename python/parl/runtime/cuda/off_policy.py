"""Off-policy training with environments, network, replay and learner on one CUDA device, in one process.

An iteration acts, steps all environments, writes their rows and makes the updates that the replay ratio asks
for. The host only launches work and reads nothing back: observations stay on the device. Episode statistics
are summed there and read for reports.

With the algorithm's setting ``cuda_graph`` an update is one CUDA graph: sample, gradients, step, priorities.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from parl.errors import ConfigError
from parl.ops import execution
from parl.replay import PrioritizedReplay
from parl.runtime.checkpoint import Checkpoint
from parl.runtime.cuda.actor import CudaEnvActor
from parl.runtime.cuda.envs import CudaVectorEnv
from parl.runtime.cuda.loop import CudaLoop, require_cuda_policy
from parl.runtime.env_actor import Counts
from parl.runtime.off_policy.deterministic import LocalOffPolicyLoop
from parl.runtime.off_policy.setup import OffPolicySetup
from parl.runtime.seeds import actor_seeds
from parl.types import Learner


class CudaActor(CudaEnvActor):
    """Writes one row per environment and step into a replay on the device.

    Args:
        envs: vector environment, owned by the actor from now on.
        policy: chooses the actions.
        replay: destination of the rows.
        same_step: whether environments reset in the step that ends an episode; rows then have ``final_obs``.
        seed: seed of the first reset.
    """

    def __init__(
        self, envs: CudaVectorEnv, policy: Any, replay: PrioritizedReplay, same_step: bool, seed: int
    ) -> None:
        super().__init__(envs, policy, same_step, seed)
        self._replay, self._same_step = replay, same_step
        # Two buffers in turn: a row is written after the step, which may overwrite observations that slide.
        self._obs = self._first_obs.clone()
        self._next_obs = torch.empty_like(self._obs)

    def step(self, env_steps: int) -> Counts:
        """Takes one vector step; counts rows that only reset an environment too. Does not synchronize."""
        action = self.policy.act(self._obs, env_steps)
        obs, reward, terminated, truncated, infos = self._envs.step(action, out=self._next_obs)
        self._replay.add(
            obs=self._obs,
            action=action,
            reward=reward.to(torch.float32),
            terminated=terminated,
            truncated=truncated,
            **({"final_obs": infos["final_obs"]} if self._same_step else {}),
        )
        self._obs, self._next_obs = obs, self._obs
        self._count(reward, terminated, truncated, infos)
        return Counts(self.num_envs, [], 0.0)

    def _newest_obs(self) -> Tensor:
        return self._obs

    def _set_obs(self, obs: Tensor) -> None:
        self._obs = obs.to(self._device)

    def end_episodes(self) -> None:
        """Tells the replay that the next rows do not continue the episodes it holds."""
        self._replay.end_episodes(torch.arange(self.num_envs))


class CudaUpdate:
    """An update: sample, gradients, step, priorities; as calls or one CUDA graph. Does not synchronize.

    Args:
        learner: computes and applies the gradients.
        replay: replay on the learner's device.
        size: number of transitions in a batch.
        as_graph: whether to record the update as a CUDA graph and replay that.
    """

    def __init__(self, learner: Any, replay: PrioritizedReplay, size: int, as_graph: bool) -> None:
        self._learner, self._replay, self._size = learner, replay, size
        self._writes_priorities = replay.settings["alpha"] > 0.0
        self._beta = torch.zeros((), dtype=torch.float64, device=learner.weights.device)
        self._beta_value = float("nan")
        self._update = execution.GraphedCall(self._sample_and_learn, [learner.generator], as_graph)

    def __call__(self, beta: float) -> None:
        """Makes one update with exponent ``beta`` of the importance weights."""
        if beta != self._beta_value:
            self._beta.fill_(beta)
            self._beta_value = beta
        self._update()
        self._learner.after_step()

    def _sample_and_learn(self) -> None:
        batch = self._replay.sample(self._size, beta=cast("Any", self._beta))
        priorities = self._learner.compute_on_device(cast("Any", batch))
        self._learner.apply_gradients()
        if self._writes_priorities:
            self._replay.update_priorities(batch.tickets, priorities)


class CudaOffPolicyLoop(CudaLoop[Learner], LocalOffPolicyLoop):
    """See the module.

    Args:
        setup: the run.
        saved: the checkpoint to start from, or None.

    Raises:
        ConfigError: the algorithm cannot act on a device.
    """

    exact = True

    def __init__(self, setup: OffPolicySetup, saved: Checkpoint | None = None) -> None:
        algorithm: Any = setup.algorithm
        require_cuda_policy(algorithm, "dqn and rainbow")
        if algorithm.actor_priorities:
            raise ConfigError("initial_priority = 'td' needs environments on the CPU: leave it at 'max'")
        super().__init__(setup, setup.device, saved)
        policy_seed, env_seed = actor_seeds(setup.seed, 0)
        policy = algorithm.make_device_policy(self._learner, policy_seed)
        envs: Any = setup.maker(setup.num_envs)
        same_step = setup.spec.autoreset == "same_step"
        self._load_actors([CudaActor(envs.unwrapped, policy, self._replay, same_step, env_seed)], saved)
        self._run_update = CudaUpdate(
            self._learner, self._replay, setup.batch_size, algorithm.records_updates
        )

    def _update(self) -> None:
        self._run_update(self._setup.algorithm.replay_beta(self._env_steps))

    def _check(self) -> None:
        super()._check()
        self._replay.check()
