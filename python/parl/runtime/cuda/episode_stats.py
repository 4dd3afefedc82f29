"""Returns and lengths of episodes, summed on a CUDA device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class EpisodeStats:
    """Returns and lengths of games (see :func:`parl.envs.games_over`), summed on a device.

    Args:
        num_envs: N.
        next_step: whether the step after the end of an episode only resets.
        device: torch device.
        capacity: finished episodes kept between two calls of :meth:`take`; further ones are only counted.
    """

    def __init__(self, num_envs: int, next_step: bool, device: Any, capacity: int = 65_536) -> None:
        self._next_step, self._capacity = next_step, capacity
        self._running = torch.zeros((2, num_envs), dtype=torch.float64, device=device)
        self._resets = torch.zeros(num_envs, dtype=torch.bool, device=device)
        # Resets that begin a new game, and not only a new episode.
        self._game_resets = self._resets
        # The additional last place takes all values that are not kept.
        self._finished = torch.zeros((2, capacity + 1), dtype=torch.float64, device=device)
        self._count = torch.zeros((), dtype=torch.int64, device=device)
        self._reward = torch.zeros((), dtype=torch.float64, device=device)

    def step(self, reward: Tensor, done: Tensor, over: Tensor | None = None) -> None:
        """Adds one step of every environment; does not synchronize.

        Args:
            reward: (N,), of any number type.
            done: (N,) bool, whether an episode has ended.
            over: (N,) bool, whether a game has ended; by default ``done``.
        """
        over = done if over is None else over
        reward = reward.double()
        self._reward += reward.sum()
        self._running[0] += reward
        self._running[1] += 1
        if self._next_step:
            self._running[0].masked_fill_(self._game_resets, 0.0)
            self._running[1] -= self._resets.double()
            self._resets, self._game_resets = done.clone(), over.clone()
        place = self._count + torch.cumsum(over, 0) - 1
        place = torch.where(over, place, self._capacity).clamp_(max=self._capacity)
        self._finished.scatter_(1, place.expand(2, -1), self._running)
        self._count += over.sum()
        self._running.masked_fill_(over, 0.0)

    def take(self) -> tuple[list[tuple[float, int]], int, float]:
        """Counts since the last call; synchronizes.

        Returns:
            Return and length of the episodes that ended, at most the capacity; the number of all that ended;
            and the sum of rewards.
        """
        count, reward = int(self._count), float(self._reward)
        returns, lengths = self._finished[:, : min(count, self._capacity)].tolist()
        self._count.zero_()
        self._reward.zero_()
        return [(value, int(length)) for value, length in zip(returns, lengths, strict=True)], count, reward

    def restart(self, mask: Tensor) -> None:
        """Restarts the episodes of the environments in ``mask`` (N,) bool, which the caller has reset."""
        self._running.masked_fill_(mask, 0.0)
        self._resets = self._resets & ~mask
        self._game_resets = self._game_resets & ~mask

    def state(self) -> list[Tensor]:
        """State for :meth:`restore`."""
        return [part.cpu() for part in (self._running, self._resets, self._game_resets)]

    def restore(self, state: list[Tensor]) -> None:
        """Restores what :meth:`state` returned."""
        self._running.copy_(state[0])
        self._resets, self._game_resets = (part.to(self._running.device) for part in state[1:])
