"""Base class of policies that draw actions: their network, and a random generator of the actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn


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
