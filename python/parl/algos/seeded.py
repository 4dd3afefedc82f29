"""What all policies that draw actions share: a generator that a resumed run goes on with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class SeededPolicy:
    """Keeps and saves the generator ``_rng`` that actions are drawn from."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def state_dict(self) -> dict[str, Any]:
        """What :meth:`load_state_dict` takes back."""
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        self._rng.bit_generator.state = state["rng"]
