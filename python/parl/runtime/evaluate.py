"""Greedy evaluation: plays whole games in separate environments with separate seeds."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from parl.envs import EnvMaker, FiniteCheck, Observer, games_over, points, successes
from parl.types import EnvSpec, Policy, RecurrentPolicy

# Largest number of environments; more episodes are played in rounds.
_ENVS_MAX = 128


def reset_memory(policy: Policy, num_envs: int) -> None:
    """Resets the policy's recurrent state and other memory for ``num_envs`` new episodes."""
    if isinstance(policy, RecurrentPolicy):
        policy.restart(np.ones(num_envs, bool))


class _SingleEpisode:
    """An environment of a ``SyncVectorEnv`` that plays one episode per seed and then ignores steps.

    Episodes end at different times. Without this wrapper, environments whose episode is over would play
    further episodes, which are not counted, until the longest has ended.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._obs: Any = None
        self._over = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode if there is a seed; the automatic resets of the vector environment pass none."""
        if seed is None and self._over:
            return self._obs, {}
        self._obs, info = self._env.reset(seed=seed, options=options)
        self._over = False
        return self._obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Steps the environment, unless its episode is over."""
        if self._over:
            return self._obs, 0.0, False, False, {}
        self._obs, reward, terminated, truncated, info = self._env.step(action)
        self._over = bool(games_over(np.bool_(terminated), np.bool_(terminated or truncated), info))
        return self._obs, reward, terminated, truncated, info


def _stop_after_episode(env: Any) -> Any:
    """Wraps each environment of a ``SyncVectorEnv`` in :class:`_SingleEpisode`; leaves others as they are."""
    from gymnasium.vector import SyncVectorEnv

    own = env.unwrapped
    if isinstance(own, SyncVectorEnv):
        own.envs = [cast("Any", _SingleEpisode(one)) for one in own.envs]
    return env


class Evaluator:
    """Plays greedy episodes, each in a freshly seeded environment, so that short ones are not favored.

    If a lost life ends an episode of an Atari game, the evaluation still plays the whole game. If rewards are
    clipped, it counts the game's points.

    Args:
        maker: makes the environments.
        policy: chooses actions with the weights in ``policy.weights``.
        spec: describes the observations that the policy takes.

    Attributes:
        success_rate: share of the episodes of the last :meth:`play` whose last step had
            ``info["is_success"]``; None if the environment does not report it.
    """

    def __init__(self, maker: EnvMaker, policy: Policy, spec: EnvSpec) -> None:
        self._maker = maker
        self.policy = policy
        self.observe = Observer(spec)
        self._check = FiniteCheck(spec)
        self._same_step = spec.autoreset == "same_step"
        self._envs: dict[int, Any] = {}
        self.success_rate: float | None = None
        self._succeeded: list[bool] = []

    def play(self, episodes: int, seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Plays ``episodes`` episodes, with seeds ``seed + i``; returns their returns (episodes,) float64."""
        returns: list[np.ndarray[Any, Any]] = []
        self._succeeded = []
        done = 0
        while done < episodes:
            count = min(_ENVS_MAX, episodes - done)
            returns.append(self._round(count, seed + done))
            done += count
        self.success_rate = float(np.mean(self._succeeded)) if self._succeeded else None
        return np.concatenate(returns) if returns else np.zeros(0)

    def _round(self, count: int, seed: int) -> np.ndarray[Any, Any]:
        if count not in self._envs:
            self._envs[count] = _stop_after_episode(self._maker(count))
        env = self._envs[count]
        obs, _ = env.reset(seed=seed)
        reset_memory(self.policy, count)
        returns = np.zeros(count)
        playing, resetting = np.ones(count, bool), np.zeros(count, bool)
        while playing.any():
            seen = self.observe(obs)
            self._check.observations(seen, "in an evaluation")
            obs, reward, terminated, truncated, info = env.step(self.policy.act_greedily(seen))
            self._check.rewards(np.asarray(reward), "in an evaluation")
            returns += np.where(playing, points(reward, info), 0.0)
            ended = np.logical_or(terminated, truncated)
            over = playing & games_over(terminated, ended, info)
            if over.any() and (succeeded := successes(info)) is not None:
                self._succeeded += succeeded[over].tolist()
            playing &= ~over
            starting, resetting = (ended if self._same_step else resetting), ended
            if isinstance(self.policy, RecurrentPolicy) and starting.any():
                self.policy.restart(starting)
        return returns

    def close(self) -> None:
        """Closes the environments."""
        for env in self._envs.values():
            env.close()
        self._envs.clear()
