"""Greedy evaluation: plays whole games in separate environments with separate seeds."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from parl.envs import EnvMaker, FiniteCheck, Observer, games_over, points, successes, usable_cores
from parl.types import EnvSpec, Policy, RecurrentPolicy

# Largest number of environments; more episodes are played in rounds.
_ENVS_MAX = 128
# The same where each environment is an object or a process, which may need much memory.
_SEPARATE_ENVS_MAX = 16
# Number of episodes by which an evaluation first decides whether it can reach a goal, and how many standard
# errors their mean may be below it.
_FIRST_EPISODES = 10
_STANDARD_ERRORS = 3.0


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


def _can_move_games(env: Any) -> bool:
    """Whether games can go on in a vector environment of the same maker with fewer environments."""
    from parl.envs.atari.vector import AtariVectorEnv

    # Not a subclass, whose environments may have states of their own.
    if type(env) is not AtariVectorEnv or env.is_async:
        return False
    return len(set(env.variations)) == 1


def _number_of_makers(env: Any) -> int | None:
    """Number of functions that make the environments of ``env`` one after another, again from the first on.

    None if ``env`` is not one of Gymnasium's vector environments, in which each environment is an object or a
    process. Also None if it has a function for each environment: then the environments may differ.
    """
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    own = env.unwrapped
    if not isinstance(own, SyncVectorEnv | AsyncVectorEnv):
        return None
    functions = [id(one) for one in own.env_fns]
    if not functions and own.spec is not None and own.num_envs > 1:
        return 1  # Gymnasium 1.1 and 1.2 pass the function of an id by a generator, which is used up
    count = len(set(functions))
    repeated = all(one == functions[index % count] for index, one in enumerate(functions))
    return count if repeated and count < len(functions) else None


def _has_processes(env: Any) -> bool:
    """Whether each environment is a process."""
    from gymnasium.vector import AsyncVectorEnv

    return isinstance(env.unwrapped, AsyncVectorEnv)


def _steps_in_turn(env: Any) -> bool:
    """Whether the time of a step grows with the number of environments."""
    from gymnasium.vector import SyncVectorEnv

    from parl.envs.atari.vector import AtariVectorEnv

    return isinstance(env.unwrapped, SyncVectorEnv | AtariVectorEnv)


def _is_out_of_reach(goal: float, returns: np.ndarray[Any, Any]) -> bool:
    """Whether the mean of a sample of ``returns`` (n,) is significantly below ``goal``.

    False if all returns are equal: a reward may be so rare that no episode of the sample had it.
    """
    error = returns.std(ddof=1) / np.sqrt(len(returns))
    return bool(error > 0 and returns.mean() + _STANDARD_ERRORS * error < goal)


class Evaluator:
    """Plays greedy episodes, each in a freshly seeded environment, so that short ones are not favored.

    If a lost life ends an episode of an Atari game, the evaluation still plays the whole game. If rewards are
    clipped, it counts the game's points.

    At most 16 environments exist at a time if each is an object or a process of its own and the same function
    makes all, or as many as there are cores if these are more and each is a process. The returns do not
    depend on that number.

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
        self._round_sizes: dict[int, int | None] = {}
        self._in_turn: bool | None = None
        self.success_rate: float | None = None
        self._succeeded: list[bool] = []

    def play(
        self, episodes: int, seed: int, goal: float | None = None
    ) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Plays episodes with seeds ``seed + i`` and returns their returns.

        Args:
            episodes: number of episodes.
            seed: seed of the first one.
            goal: a mean return. After 10, 20, 40 and so on episodes, no others are played if their mean is
                more than three standard errors below it. Vector environments that compute all episodes
                together ignore it: few take them as long as many.

        Returns:
            Returns of the episodes played, float64: (episodes,), or with ``goal`` perhaps fewer.
        """
        returns: list[np.ndarray[Any, Any]] = []
        self._succeeded = []
        done = 0
        if goal is None or episodes <= _FIRST_EPISODES or not self._steps_in_turn():
            goal = None
        size = self._round_size(episodes, goal)
        while done < episodes:
            most = _ENVS_MAX if goal is None else max(_FIRST_EPISODES, min(done, _ENVS_MAX))
            end = min(done + most, episodes)
            while done < end:
                count = min(size or _ENVS_MAX, end - done)
                returns.append(self._round(self._env(size or count), count, seed + done))
                done += count
            if goal is not None and _is_out_of_reach(goal, np.concatenate(returns)):
                break
        self.success_rate = float(np.mean(self._succeeded)) if self._succeeded else None
        return np.concatenate(returns) if returns else np.zeros(0)

    def _steps_in_turn(self) -> bool:
        if self._in_turn is None:
            self._in_turn = _steps_in_turn(self._env(_FIRST_EPISODES))
        return self._in_turn

    def _round_size(self, episodes: int, goal: float | None) -> int | None:
        """Number of environments of each round; None: as many as it has episodes."""
        most = _SEPARATE_ENVS_MAX if goal is None else _FIRST_EPISODES
        if episodes <= most:
            return None
        if most not in self._round_sizes:
            env = self._env(most)
            makers = _number_of_makers(env)
            limit = max(most, usable_cores()) if _has_processes(env) else most
            # A multiple, so that each function makes the environments of the same episodes as without rounds.
            self._round_sizes[most] = size = limit // makers * makers if makers else None
            if size != most and goal is None:
                self._envs.pop(most).close()
        size = self._round_sizes[most]
        return size if size is not None and episodes > size else None

    def _round(self, env: Any, count: int, seed: int) -> np.ndarray[Any, Any]:
        """Plays ``count`` episodes in the first of the environments; returns their returns."""
        size = env.num_envs
        seeds = seed if count == size else [*range(seed, seed + count), *[None] * (size - count)]
        obs, _ = env.reset(seed=seeds)
        reset_memory(self.policy, size)
        returns = np.zeros(count)
        game = np.arange(size)  # which one each environment plays
        playing, resetting = np.arange(size) < count, np.zeros(size, bool)
        movable = isinstance(obs, np.ndarray) and not isinstance(self.policy, RecurrentPolicy)
        movable = movable and _can_move_games(env)
        while playing.any():
            if movable and 2 * playing.sum() <= len(playing) and not resetting[playing].any():
                env, obs = self._move(env, obs, playing)
                left = int(playing.sum())
                game[:left] = game[playing]
                game, playing = game[: len(obs)], np.arange(len(obs)) < left
                resetting = np.zeros(len(obs), bool)
            seen = self.observe(obs)
            self._check.observations(seen, "in an evaluation")
            obs, reward, terminated, truncated, info = env.step(self.policy.act_greedily(seen))
            self._check.rewards(np.asarray(reward), "in an evaluation")
            returns[game[playing]] += np.asarray(points(reward, info))[playing]
            ended = np.logical_or(terminated, truncated)
            over = playing & games_over(terminated, ended, info)
            if over.any() and (succeeded := successes(info)) is not None:
                self._succeeded += succeeded[over].tolist()
            playing &= ~over
            starting, resetting = (ended if self._same_step else resetting), ended
            if isinstance(self.policy, RecurrentPolicy) and starting.any():
                self.policy.restart(starting)
        return returns

    def _env(self, count: int) -> Any:
        if count not in self._envs:
            for other in [other for other, env in self._envs.items() if _number_of_makers(env)]:
                self._envs.pop(other).close()
            self._envs[count] = _stop_after_episode(self._maker(count))
        return self._envs[count]

    def _move(
        self, env: Any, obs: np.ndarray[Any, Any], playing: np.ndarray[Any, np.dtype[np.bool_]]
    ) -> tuple[Any, np.ndarray[Any, Any]]:
        """Continues the games of ``playing`` in the first of half as many environments.

        An environment whose game is over would play others, which do not count, until the longest game ends.

        Returns:
            The smaller vector environment and its observations.
        """
        smaller = self._env(len(playing) // 2)
        first = np.arange(smaller.num_envs) < playing.sum()
        moved, _ = smaller.reset(seed=0)
        smaller.set_state(env.get_state(playing), first)
        moved = np.array(moved)
        moved[first] = obs[playing]
        return smaller, moved

    def close(self) -> None:
        """Closes the environments."""
        for env in self._envs.values():
            env.close()
        self._envs.clear()
