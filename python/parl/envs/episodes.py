"""Returns and lengths of episodes and whole games, computed from the steps of a vector environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from parl.types import Array

Rewards = TypeVar("Rewards")
Flags = TypeVar("Flags", bound=Any)


def points(reward: Rewards, info: Mapping[str, Any]) -> Rewards:
    """Unclipped rewards of a step, (N,), which episode returns are summed from.

    Args:
        reward: (N,) array or tensor, the rewards of the step, which may be clipped.
        info: infos of the step. parl's Atari environments have ``raw_reward`` if they clip rewards.
    """
    return _entry(info, "raw_reward", reward)


def games_over(terminated: Flags, ended: Flags, info: Mapping[str, Any]) -> Flags:
    """Where a whole game has ended, (N,) bool; returns are reported per game.

    With ``life_loss`` of ``"reports"`` or ``"continues"``, parl's Atari environments end an episode at a lost
    life and continue the game in the next one. In all other environments an episode is a game.

    Args:
        terminated: (N,) bool, of a step, an array or a tensor.
        ended: (N,) bool, terminated or truncated.
        info: infos of the same step, with ``game_over`` where episodes and games differ.
    """
    over = _entry(info, "game_over", ended)
    return ended if over is ended else ended & (over | ~terminated)


def _entry(info: Mapping[str, Any], name: str, missing: Any) -> Any:
    """An entry of the infos of parl's Atari environments, (N,); ``missing`` where it is not there.

    Where Gymnasium's vector environments reset in the step that ends an episode, the entries of that step are
    in ``final_info``, the others are of the reset.
    """
    # Other environments may use the same names, but have no `episode_frame_number`.
    entry = info.get(name, missing) if "episode_frame_number" in info else missing
    final = info.get("final_info", {})
    if name not in final or "episode_frame_number" not in final:
        return entry
    return np.where(final[f"_{name}"], final[name], entry)


def successes(info: Mapping[str, Any]) -> Array | None:
    """Where an episode that ends with this step is a success, (N,) bool; None if that is not reported.

    Environments with goals, such as those of Gymnasium-Robotics, report it as ``info["is_success"]``.

    Args:
        info: infos of the step. Where environments reset in the step that ends an episode, the episode's own
            are in ``final_info``.
    """
    info = info.get("final_info", info)
    return np.asarray(info["is_success"], bool) if "is_success" in info else None


class EpisodeTracker:
    """Sums the rewards of each environment and returns return and length of finished games.

    Args:
        num_envs: number of environments N.
        autoreset: ``"next_step"`` (the step after an end only resets) or ``"same_step"``.
    """

    def __init__(self, num_envs: int, autoreset: str) -> None:
        self._next_step = autoreset == "next_step"
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self._resetting = np.zeros(num_envs, bool)
        self._any_resetting = False
        # Of the resetting environments, those whose whole game has ended.
        self._new_game = np.zeros(num_envs, bool)

    def step(
        self, reward: Array, terminated: Array, truncated: Array, over: Array | None = None
    ) -> tuple[int, list[tuple[float, int]]]:
        """Adds one step of every environment.

        Args:
            reward: (N,) float, unclipped.
            terminated: (N,) bool.
            truncated: (N,) bool.
            over: (N,) bool, the result of :func:`games_over`; None for ``terminated | truncated``.

        Returns:
            The number of transitions in the step, where steps that only reset do not count, and a list with
            the return and the length in steps of each game that ended.
        """
        self._returns += reward
        self._lengths += 1
        transitions = len(self._returns)
        if self._any_resetting:
            # The step that resets for a new game belongs to no episode; its reward is dropped.
            self._returns[self._new_game] = 0.0
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
            # A copy: the next step may reuse the caller's array.
            self._resetting, self._new_game = done, over.copy()
            self._any_resetting = True
        return transitions, finished

    def restart(self, mask: Array) -> None:
        """Clears the sums of the environments that ``mask`` (N,) bool selects, after an explicit reset."""
        self._returns[mask] = 0.0
        self._lengths[mask] = 0
        self._resetting = self._resetting & ~mask
        self._new_game = self._new_game & ~mask
        self._any_resetting = bool(self._any_resetting and self._resetting.any())

    def proceed(self, mask: Array, returns: Array, lengths: Array) -> None:
        """Begins games of the environments of ``mask``, (N,) bool, that are in progress.

        Args:
            mask: the n environments; their games have just begun.
            returns: (n,), points of the games so far.
            lengths: (n,), their steps.
        """
        self._returns[mask] = returns
        self._lengths[mask] = lengths

    @property
    def in_progress(self) -> tuple[Array, Array]:
        """Points and steps, (N,), of the games in progress."""
        return self._returns, self._lengths

    def state_dict(self) -> dict[str, Any]:
        """The state as a dictionary, for :meth:`load_state_dict`."""
        return {
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "resetting": self._resetting.copy(),
            "new_game": self._new_game.copy(),
            "any_resetting": self._any_resetting,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state of :meth:`state_dict`."""
        self._returns[:] = state["returns"]
        self._lengths[:] = state["lengths"]
        self._resetting = np.array(state["resetting"])
        self._new_game = np.array(state["new_game"])
        self._any_resetting = state["any_resetting"]
