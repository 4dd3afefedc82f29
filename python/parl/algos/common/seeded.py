"""Base class of policies that draw actions: a random generator that a resumed run continues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class SeededPolicy:
    """Holds the random generator ``_rng`` of the actions, and saves and restores its state."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that :meth:`load_state_dict` restores."""
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self._rng.bit_generator.state = state["rng"]
