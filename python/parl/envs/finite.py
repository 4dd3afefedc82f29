"""Checks that rewards and observations are finite before anything is computed from them.

A single NaN in a reward makes the loss NaN, and one update with that loss makes all weights NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from parl._native import all_finite
from parl.errors import NonFiniteError
from parl.types import Array, EnvSpec, Observations


class FiniteCheck:
    """Checks the rewards and observations of one actor's vector environment.

    Checking the rewards and observations of 8 CartPoles takes 0.3 microseconds
    (``benches/python/finite.py``). Integer observations are not checked.

    Args:
        spec: description of the environments.
        first_env: number of the actor's first environment within the run, for messages.
    """

    def __init__(self, spec: EnvSpec, first_env: int = 0) -> None:
        self._first = first_env
        parts = spec.observation_parts or (("", (), spec.observation_dtype),)
        self._floats = [name for name, _, dtype in parts if np.dtype(dtype).kind == "f"]

    def rewards(self, rewards: Array, step: int | str) -> None:
        """Checks rewards (N,).

        Args:
            rewards: (N,) float, of one step.
            step: number of transitions that the run has collected, or a text, for the message.

        Raises:
            NonFiniteError: a reward is NaN or infinite; the message names environment, value and step.
        """
        if not all_finite(rewards):
            self._fail("reward", rewards, step)

    def observations(self, observations: Observations, step: int | str, what: str = "observation") -> None:
        """Checks observations.

        Args:
            observations: (N, ...) array or a dictionary of them, from :class:`parl.envs.Observer`.
            step: as in :meth:`rewards`.
            what: noun for the message.

        Raises:
            NonFiniteError: a value is NaN or infinite; the message names environment, part, index and step.
        """
        if self._floats:
            self._each(observations, step, what, 0)

    def final(self, env: int, observation: Observations, step: int | str) -> None:
        """Checks the final observation of an episode.

        Args:
            env: number of the environment within the actor.
            observation: (...) array or a dictionary of them.
            step: as in :meth:`rewards`.

        Raises:
            NonFiniteError: as :meth:`observations`.
        """
        if not self._floats:
            return
        parts = isinstance(observation, Mapping)
        rows = {name: part[None] for name, part in observation.items()} if parts else observation[None]
        self._each(rows, step, "final observation", env)

    def given(self, observations: Observations) -> None:
        """Checks observations that no environment of a run returned.

        Args:
            observations: (N, ...) array or a dictionary of them.

        Raises:
            NonFiniteError: a value is NaN or infinite; the message names row, part and index.
        """
        for name, rows in self._not_finite(observations):
            row, value, where = _first_of(rows)
            raise NonFiniteError(f"observation{f' {name!r}' if name else ''} is {value} in row {row}{where}")

    def _each(self, observations: Observations, step: int | str, what: str, offset: int) -> None:
        for name, rows in self._not_finite(observations):
            self._fail(f"{what} {name!r}" if name else what, rows, step, offset)

    def _not_finite(self, observations: Observations) -> Iterator[tuple[str, Array]]:
        """Names and arrays of the parts with numbers that are not finite."""
        for name in self._floats:
            rows = observations[name] if isinstance(observations, Mapping) else observations
            if not all_finite(rows):
                yield name, rows

    def _fail(self, what: str, rows: Array, step: int | str, offset: int = 0) -> None:
        row, value, where = _first_of(rows)
        at = f"at step {step}" if isinstance(step, int) else step
        raise NonFiniteError(f"environment {self._first + offset + row} returned {what} {value}{where} {at}")


def _first_of(rows: Array) -> tuple[int, float, str]:
    """Row, value and index within the row, as text, of the first number of ``rows`` that is not finite."""
    row, *index = np.argwhere(~np.isfinite(rows))[0].tolist()
    return row, float(rows[row, *index]), f" (index {tuple(index)})" if index else ""
