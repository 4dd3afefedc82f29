"""Base class of actors on a CUDA device: environments, policy and episode statistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor

from parl.envs import games_over, points
from parl.envs.snapshot import Snapshot
from parl.runtime import states
from parl.runtime.cuda.envs import CudaVectorEnv
from parl.runtime.cuda.episode_stats import EpisodeStats


class CudaEnvActor(ABC):
    """Environments and a policy on one device. Methods synchronize with the device only where documented.

    Args:
        envs: vector environment, owned by the actor from now on.
        policy: chooses the actions.
        same_step: whether environments reset in the step that ends an episode.
        seed: seed of the first reset.
    """

    def __init__(self, envs: CudaVectorEnv, policy: Any, same_step: bool, seed: int) -> None:
        self.policy, self.num_envs = policy, envs.num_envs
        self._envs = envs
        self._first_obs = envs.reset(seed=seed)[0]
        self._device = self._first_obs.device
        self._snapshot = Snapshot(envs)
        self.episodes = EpisodeStats(envs.num_envs, not same_step, self._device)

    @abstractmethod
    def _newest_obs(self) -> Tensor:
        """The newest observations (N, ...), for which the next actions are chosen."""

    @abstractmethod
    def _set_obs(self, obs: Tensor) -> None:
        """Replaces the newest observations by ``obs`` (N, ...), which may be on another device."""

    def _count(self, reward: Tensor, terminated: Tensor, truncated: Tensor, infos: dict[str, Any]) -> None:
        """Adds one step of every environment to the episode statistics."""
        done = terminated | truncated
        self.episodes.step(points(reward, infos), done, games_over(terminated, done, infos))

    def check(self) -> None:
        """Synchronizes, and raises errors of the environments."""
        self._envs.check()

    def save(self) -> bytes:
        """Returns environments, the policy's generator and unfinished episodes as bytes; synchronizes."""
        rest = {
            "obs": self._newest_obs().cpu(),
            "policy": self.policy.state_dict(),
            "episodes": self.episodes.state(),
        }
        return states.save(self._envs, self._snapshot, rest, pickles=False)

    def load(self, state: bytes) -> None:
        """Restores what :meth:`save` returned."""
        _, saved = states.load(state, self._envs, self._snapshot)
        self._set_obs(saved["obs"])
        self.policy.load_state_dict(saved["policy"])
        self.episodes.restore(saved["episodes"])

    def close(self) -> None:
        """Closes the environments."""
        self._envs.close()
