"""Conversion of an environment's observations to the dtypes and layout that its ``EnvSpec`` describes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np

from parl.errors import ConfigError
from parl.types import Array, EnvSpec, Observations, rows_of


class Observer:
    """Converts observations to arrays of the described dtype, or to a dictionary of them for Dict spaces.

    Args:
        spec: description of the environment.
    """

    def __init__(self, spec: EnvSpec) -> None:
        self._dtype = np.dtype(spec.observation_dtype)
        self._parts = [(name, name.split("."), np.dtype(dtype)) for name, _, dtype in spec.observation_parts]

    def __call__(self, observations: Any) -> Observations:
        """Converts observations of ``reset`` or ``step``; arrays that have the dtype are not copied.

        Args:
            observations: (N, ...) array, or nested dictionaries of them.

        Returns:
            (N, ...) array, or a dictionary with one array per part, named ``"outer.inner"``.

        Raises:
            ConfigError: the described dtype is an integer, and values are fractions or out of its bounds.
        """
        if not self._parts:
            return _array("observations", observations, self._dtype)
        return {
            name: _array(name, reduce(_inner, path, observations), dtype) for name, path, dtype in self._parts
        }

    def final(self, observations: Observations, info: Mapping[str, Any], needed: Array) -> Observations:
        """A copy of ``observations`` in which ended episodes have their final observation.

        For environments that reset in the same step, whose observation is the first of the next episode.

        Args:
            observations: converted observations of a step.
            info: infos of the same step.
            needed: (N,) bool, whose final observations are needed.

        Raises:
            ConfigError: one of these is missing.
        """
        check_final(info, needed)
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


def _array(name: str, values: Any, dtype: np.dtype[Any]) -> Array:
    """``values`` in another dtype, which must hold them if it is an integer; floats are rounded.

    Raises:
        ConfigError: names the values that it does not hold.
    """
    if dtype.kind not in "iu":
        return np.asarray(values, dtype)
    given = np.asarray(values)
    converted, changed = as_dtype(given, dtype)
    if changed is not None:
        raise ConfigError(f"{name} have the value {given[changed]}, which {dtype} does not hold")
    return converted


def as_dtype(values: Array, dtype: np.dtype[Any]) -> tuple[Array, tuple[int, ...] | None]:
    """``values`` in another dtype, not copied if they have it, and the index of the first that changes."""
    if values.dtype == dtype:
        return values, None
    with np.errstate(invalid="ignore"):
        converted = values.astype(dtype)
    changed = np.argwhere(converted != values)
    return converted, tuple(changed[0].tolist()) if len(changed) else None


def check_final(info: Mapping[str, Any], needed: Array) -> None:
    """Checks that infos of environments that reset in the same step have final observations.

    Args:
        info: infos of a step.
        needed: (N,) bool, whose final observations are needed.

    Raises:
        ConfigError: one of these is missing.
    """
    if not needed.any():
        return
    given = np.asarray(info.get("_final_obs", True), bool) if "final_obs" in info else False
    missing = np.flatnonzero(needed & ~np.broadcast_to(given, needed.shape))
    if len(missing):
        raise ConfigError(
            f"infos have no final_obs for environment {missing[0]}, whose episode ended: with autoreset_mode "
            "SAME_STEP expected the last observation of each episode in final_obs, with its mask _final_obs"
        )


class Rows(Observer):
    """Converts observations for rollouts, in which a dictionary is one row of bytes.

    Array observations are converted as by :class:`Observer`. The row of a dictionary holds the bytes of its
    parts in the order of the description, each part in C order.

    Args:
        spec: description of the environment.
    """

    def __call__(self, observations: Any) -> Array:
        """Converts observations of ``reset`` or ``step``.

        Returns:
            (N, ...) array; for dictionaries (N, bytes) uint8, a copy.
        """
        return rows_of(super().__call__(observations))

    def parts(self, observations: Any) -> Observations:
        """Converts observations as :class:`Observer` does, dictionaries by part."""
        return super().__call__(observations)

    def one(self, observation: Any) -> Array:
        """The row (...) of a single observation, as a copy."""
        found = super().__call__(observation)
        if isinstance(found, Mapping):
            return rows_of({name: np.asarray(part)[None] for name, part in found.items()})[0]
        return np.array(found)


def _inner(observations: Any, name: str) -> Any:
    return observations[name]
