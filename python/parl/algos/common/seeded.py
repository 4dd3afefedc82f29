"""Base classes of policies that draw actions, with the random generator of the actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class SeededPolicy:
    """Holds the network and the random generator ``_rng`` of the actions; saves and restores its state."""

    _network: Any

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    @property
    def network(self) -> nn.Module:
        """See :class:`parl.types.NetworkPolicy`."""
        return self._network

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that :meth:`load_state_dict` restores."""
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self._rng.bit_generator.state = state["rng"]


class DevicePolicy:
    """Holds the random generator of actions on the learner's device; saves and restores its state."""

    def __init__(self, device: torch.device | str, seed: int) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)

    def epsilon_greedy(self, greedy: Tensor, epsilon: float | Tensor, num_actions: int) -> Tensor:
        """Returns actions (N,) int64: those of ``greedy``, or with probability ``epsilon`` a random one.

        Does not synchronize with the device.
        """
        size, own, device = greedy.shape, self.generator, greedy.device
        drawn = torch.randint(num_actions, size, generator=own, device=device)
        explores = torch.rand(size, generator=own, device=device) < epsilon
        return torch.where(explores, drawn, greedy)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that :meth:`load_state_dict` restores."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.generator.set_state(state["generator"])
