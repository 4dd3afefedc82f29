"""Returns and lengths of episodes and of whole games, from the arrays of a vector environment's steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from parl.types import Array

Rewards = TypeVar("Rewards")
Flags = TypeVar("Flags", bound=Any)


def points(reward: Rewards, info: Mapping[str, Any]) -> Rewards:
    """What a step adds to the return, (N,): the game's own points where ``reward`` is clipped.

    Args:
        reward: (N,), what is learned from, an array or a tensor.
        info: of the same step; parl's Atari games tell the points in ``raw_reward`` where they clip.
    """
    return info.get("raw_reward", reward)


def games_over(terminated: Flags, ended: Flags, info: Mapping[str, Any]) -> Flags:
    """Where a whole game has ended, (N,) bool: its return is what is reported.

    Args:
        terminated: (N,) bool, of a step, an array or a tensor.
        ended: (N,) bool, terminated or truncated.
        info: of the same step. Where a lost life ends an episode and the next one goes on with the same game,
            parl's Atari games say in ``game_over`` which ends are those of games; elsewhere all are.
    """
    # Other environments may mean something else by that name, and have no count of frames.
    if "game_over" not in info or "episode_frame_number" not in info:
        return ended
    return ended & (info["game_over"] | ~terminated)


class EpisodeTracker:
    """Sums rewards per environment and hands out finished games: episodes, unless several make a game.

    Args:
        num_envs: N.
        autoreset: ``"next_step"`` (the step after an end only resets) or ``"same_step"``.
    """

    def __init__(self, num_envs: int, autoreset: str) -> None:
        self._next_step = autoreset == "next_step"
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self._resetting = np.zeros(num_envs, bool)
        self._any_resetting = False
        # Those of them that begin another game.
        self._fresh = np.zeros(num_envs, bool)

    def step(
        self, reward: Array, terminated: Array, truncated: Array, over: Array | None = None
    ) -> tuple[int, list[tuple[float, int]]]:
        """Takes one step of every environment, arrays (N,).

        Args:
            reward: float.
            terminated: bool.
            truncated: bool.
            over: bool, of :func:`games_over`; by default where an episode has ended.

        Returns:
            the number of transitions in it (steps that only reset are none), and return and length of each
            game that ended.
        """
        self._returns += reward
        self._lengths += 1
        transitions = len(self._returns)
        if self._any_resetting:
            # A step that resets for another game carries no reward and belongs to no episode.
            self._returns[self._fresh] = 0.0
            self._lengths[self._resetting] -= 1
            transitions -= int(np.count_nonzero(self._resetting))
            self._any_resetting = False
        done = terminated | truncated
        if not done.any():
            return transitions, []
        over = done if over is None else over
        ended = np.nonzero(over)[0]
        finished = list(zip(self._returns[ended].tolist(), self._lengths[ended].tolist(), strict=True))
        self._returns[ended] = 0.0
        self._lengths[ended] = 0
        if self._next_step:
            self._resetting, self._fresh = done, over
            self._any_resetting = True
        return transitions, finished

    def restart(self, mask: Array) -> None:
        """The environments that ``mask`` (N,) bool names were reset by hand."""
        self._returns[mask] = 0.0
        self._lengths[mask] = 0
        self._resetting = self._resetting & ~mask
        self._fresh = self._fresh & ~mask
        self._any_resetting = bool(self._any_resetting and self._resetting.any())

    def state_dict(self) -> dict[str, Any]:
        """What :meth:`load_state_dict` takes back."""
        return {
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "resetting": self._resetting.copy(),
            "fresh": self._fresh.copy(),
            "any_resetting": self._any_resetting,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        self._returns[:] = state["returns"]
        self._lengths[:] = state["lengths"]
        self._resetting = np.array(state["resetting"])
        self._fresh = np.array(state["fresh"])
        self._any_resetting = state["any_resetting"]
