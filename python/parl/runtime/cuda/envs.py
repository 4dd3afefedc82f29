"""Vector environments on a CUDA device, as the loops of this package use them."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from parl.envs import EnvMaker


def is_on_device(maker: EnvMaker) -> bool:
    """Whether a maker's environments are parl's own on a CUDA device."""
    is_own = isinstance(maker.env, str) and maker.env.startswith("parl/")
    return is_own and str(maker.options.get("device", "cpu")) != "cpu"


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
