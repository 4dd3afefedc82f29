"""Observations as environments give them, brought into the form that a run's description promises."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np

from parl.types import Array, EnvSpec, Observations


class Observer:
    """Arrays of the described dtype, by part where there are parts.

    Args:
        spec: of the environment.
    """

    def __init__(self, spec: EnvSpec) -> None:
        self._dtype = np.dtype(spec.observation_dtype)
        self._parts = [(name, name.split("."), np.dtype(dtype)) for name, _, dtype in spec.observation_parts]

    def __call__(self, observations: Any) -> Observations:
        """What a vector environment's ``reset`` or ``step`` gave; not copied where it fits already."""
        if not self._parts:
            return np.asarray(observations, self._dtype)
        return {
            name: np.asarray(reduce(_inner, path, observations), dtype) for name, path, dtype in self._parts
        }

    def final(self, observations: Observations, info: Mapping[str, Any]) -> Observations:
        """``observations`` with, where an episode ended in this step, its last one (same-step reset)."""
        copy: Any = (
            {name: part.copy() for name, part in observations.items()}
            if isinstance(observations, Mapping)
            else observations.copy()
        )
        if "final_obs" in info:
            for index in np.nonzero(info["_final_obs"])[0]:
                last = self(info["final_obs"][index])
                if isinstance(last, Mapping):
                    for name, part in last.items():
                        copy[name][index] = part
                else:
                    copy[index] = last
        return copy


class Rows(Observer):
    """Observations as rollouts hold them: as :class:`Observer` gives them, of dictionaries a row of bytes.

    The bytes are those of the parts in the order of the description, each part in C order.

    Args:
        spec: of the environment.
    """

    def __call__(self, observations: Any) -> Array:
        """(N, ...); of dictionaries (N, bytes) uint8, a copy."""
        return rows_of(super().__call__(observations))

    def parts(self, observations: Any) -> Observations:
        """As :class:`Observer` gives them."""
        return super().__call__(observations)

    def one(self, observation: Any) -> Array:
        """The row (...) of a single observation, a copy."""
        found = super().__call__(observation)
        if isinstance(found, Mapping):
            return rows_of({name: np.asarray(part)[None] for name, part in found.items()})[0]
        return np.array(found)


def rows_of(observations: Observations) -> Array:
    """Observations as :class:`Rows` gives them, from what :class:`Observer` gives."""
    if not isinstance(observations, Mapping):
        return observations
    parts = (np.ascontiguousarray(part).reshape(len(part), -1) for part in observations.values())
    return np.concatenate([part.view(np.uint8) for part in parts], axis=1)


def _inner(observations: Any, name: str) -> Any:
    return observations[name]
