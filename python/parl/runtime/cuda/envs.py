"""Vector environments on a CUDA device, as the loops of this package use them."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class CudaVectorEnv(Protocol):
    """Protocol of a vector environment on a CUDA device."""

    num_envs: int

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """Resets all environments; returns observations (N, ...) and infos."""
        ...

    def step(
        self, actions: Tensor, *, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Steps all environments; returns observations, rewards, terminated, truncated and infos."""
        ...

    def check(self) -> None:
        """Synchronizes, and raises errors of the environments."""
        ...

    def close(self) -> None:
        """Frees all memory."""
        ...
