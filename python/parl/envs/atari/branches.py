"""Results of :meth:`parl.AtariVectorEnv.branch`, and the checks of its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parl.errors import AtariError


@dataclass(frozen=True)
class BranchResult:
    """What :meth:`parl.AtariVectorEnv.branch` returns: row (n, k) belongs to sequence k of state n.

    Attributes:
        observations: (N, K, *shape) uint8, after the last step of each sequence; None with ``observe=False``.
        rewards: (N, K), with two players (N, K, 2), the sum of the rewards of the steps, in the environments'
            ``reward_dtype``; int32 or float32 where that has fewer bits, which do not hold every sum.
        raw_rewards: int64 of the same shape, the same sum before clipping.
        terminated: (N, K) bool, whether the last step terminated the episode.
        truncated: (N, K) bool, whether it truncated the episode.
        lengths: (N, K) int64, the number of steps that have run.
        lives: (N, K) int64, the lives left.
        states: (N, K, S) uint8, the states after the last steps, as rows of
            :meth:`parl.AtariVectorEnv.get_state`; None with ``observe=False`` where observations are images.
        ram: (N, K, 128) uint8, the memory of the consoles, with ``ram_info=True``; otherwise None.
    """

    observations: Any
    rewards: Any
    raw_rewards: Any
    terminated: Any
    truncated: Any
    lengths: Any
    lives: Any
    states: NDArray[np.uint8] | None
    ram: NDArray[np.uint8] | None


def check_states(states: NDArray[np.uint8]) -> None:
    """Checks that states are an array (N, S)."""
    if states.ndim != 2:
        raise AtariError(f"states have shape {states.shape}, expected (N, S): rows of get_state")


def check_actions(
    actions: NDArray[Any], states: int, num_actions: int | None, rest: tuple[int, ...]
) -> tuple[int, int]:
    """Checks the shape and the values of actions, and returns K and L.

    Args:
        actions: (N, K, L, *rest).
        states: N.
        num_actions: number of discrete actions; None for continuous ones.
        rest: shape of an environment's action.

    Raises:
        AtariError: another shape, or an action that is outside the action space.
    """
    shape = actions.shape
    if len(shape) != 3 + len(rest) or shape[0] != states or shape[3:] != rest or 0 in shape[1:3]:
        wanted = f"({', '.join(map(str, (states, 'K', 'L', *rest)))})"
        raise AtariError(f"actions have shape {shape}, expected {wanted} with K and L of at least 1")
    if num_actions is not None and actions.size:
        wrong = (actions < 0) | (actions >= num_actions)
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise AtariError(f"action {actions[place]} at {place} is outside 0 to {num_actions - 1}")
    return shape[1], shape[2]


def sum_dtype(reward_dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of sums of rewards: of the same kind, with at least 32 bits."""
    return np.dtype(f"{reward_dtype.kind}{max(reward_dtype.itemsize, 4)}")


def seed_list(seeds: Any, shape: tuple[int, int], largest: int) -> list[int] | None:
    """Checks the seeds, (N, K) integers, and returns them in one list; None if there are none.

    Raises:
        TypeError: they are not integers.
        AtariError: they have another shape, or one is too large.
    """
    if seeds is None:
        return None
    array = np.asarray(seeds)
    if array.dtype.kind not in "iu":
        raise TypeError(f"seeds have dtype {array.dtype}, expected integers")
    if array.shape != shape:
        raise AtariError(f"seeds have shape {array.shape}, expected {shape}")
    if array.size and array.max() > largest:
        raise AtariError(f"the largest seed is {array.max()}, expected at most {largest}")
    return [int(seed) for seed in array.ravel()]
