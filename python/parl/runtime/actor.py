"""An actor: steps a vector environment with the newest weights it has, writes what it sees into a replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from parl.envs import EnvMaker, EpisodeTracker
from parl.types import Algorithm, EnvSpec, Policy, Sink


class Actor:
    """One vector environment, its policy and the rows it writes.

    Args:
        env: a vector environment of ``num_envs``, owned by the actor from now on.
        spec: its description.
        policy: chooses the actions.
        replay: takes one row per environment and step.
        first_env: number of the first environment within the run.
        seed: of the first reset.
    """

    def __init__(
        self, env: Any, spec: EnvSpec, policy: Policy, replay: Sink, first_env: int, seed: int
    ) -> None:
        self.policy = policy
        self.num_envs = int(env.num_envs)
        self._env = env
        self._replay = replay
        self._env_id = np.arange(first_env, first_env + self.num_envs)
        self._dtype = np.dtype(spec.observation_dtype)
        self._action_dtype = np.dtype(spec.action_dtype)
        self._same_step = spec.autoreset == "same_step"
        self._episodes = EpisodeTracker(self.num_envs, spec.autoreset)
        self.reward_sum = 0.0
        """Of all rewards received since the actor was made."""
        self._obs = np.asarray(env.reset(seed=seed)[0], self._dtype)

    def step(self, env_steps: int) -> tuple[int, list[tuple[float, int]]]:
        """One vector step.

        Args:
            env_steps: transitions that the run has collected, for the policy's schedules.

        Returns:
            the transitions collected, and return and length of each episode that ended.
        """
        action = np.asarray(self.policy.act(self._obs, env_steps), self._action_dtype)
        obs, reward, terminated, truncated, info = self._env.step(action)
        extra = self._final_obs(obs, info) if self._same_step else {}
        reward = np.asarray(reward, np.float32)
        self._replay.add(
            obs=self._obs,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            env_id=self._env_id,
            **extra,
        )
        self._obs = np.asarray(obs, self._dtype)
        self.reward_sum += float(reward.sum())
        return self._episodes.step(reward, terminated, truncated)

    def _final_obs(self, obs: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        final = np.array(obs, self._dtype)
        if "final_obs" in info:
            for index in np.nonzero(info["_final_obs"])[0]:
                final[index] = info["final_obs"][index]
        return {"final_obs": final}

    def save(self) -> bytes:
        """The actor as bytes: environments, generators, unfinished episodes.

        Raises:
            TypeError, pickle.PicklingError: the environment cannot be pickled.
        """
        import cloudpickle

        return cloudpickle.dumps(
            {
                "env": self._env,
                "obs": self._obs,
                "episodes": self._episodes.state_dict(),
                "policy": self.policy.state_dict(),
            }
        )

    def load(self, state: bytes) -> None:
        """Takes back what :meth:`save` gave; the environment the actor had is closed."""
        import cloudpickle

        saved = cloudpickle.loads(state)
        self._env.close()
        self._env = saved["env"]
        self._obs = saved["obs"]
        self._episodes.load_state_dict(saved["episodes"])
        self.policy.load_state_dict(saved["policy"])

    def end_episodes(self) -> None:
        """Tells the replay that the rows to come do not follow on those it has."""
        self._replay.end_episodes(self._env_id)

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()


def make_actor(
    maker: EnvMaker,
    spec: EnvSpec,
    algorithm: Algorithm,
    replay: Sink,
    index: int,
    actors: int,
    num_envs: int,
    seed: int,
) -> Actor:
    """Actor ``index`` of ``actors``, which share ``num_envs`` environments as evenly as can be.

    Each environment's first seed and each policy's generator follow from ``seed`` and their number alone.
    """
    first, end = index * num_envs // actors, (index + 1) * num_envs // actors
    policy_seed, env_seed = np.random.SeedSequence([seed, index]).generate_state(2)
    policy = algorithm.make_policy(index, actors, end - first, int(policy_seed))
    # Gymnasium seeds environment i of a vector with seed + i; half the range leaves room for that.
    return Actor(maker(end - first), spec, policy, replay, first, int(env_seed) >> 1)
