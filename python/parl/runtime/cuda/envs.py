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
    """What a step of a vector environment on a device gives."""

    num_envs: int

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """Observations (N, ...)."""
        ...

    def step(
        self, actions: Tensor, *, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Observations, rewards, terminated, truncated, (N, ...) each, and figures."""
        ...

    def check(self) -> None:
        """Raises what went wrong."""
        ...

    def close(self) -> None:
        """Frees all."""
        ...
