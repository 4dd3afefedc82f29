"""What chooses the actions of a recording: random numbers, a function, or the policy of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parl.atari.catalogue import find_id
from parl.datasets.options import ALIASES, CHOSEN, FIXED
from parl.errors import ConfigError


class RandomActions:
    """Uniformly random actions; needs no observations."""

    needs_pictures = False

    def __init__(self, num_actions: int, rng: np.random.Generator) -> None:
        self._num_actions, self._rng = num_actions, rng

    def __call__(self, observation: NDArray[Any], starts: NDArray[np.bool_]) -> NDArray[Any]:
        """Actions (N,) for observations (N, ...); ``starts``: where an episode begins."""
        del starts
        return self._rng.integers(self._num_actions, size=len(observation))


class FunctionActions:
    """Actions of a function of observations."""

    needs_pictures = True

    def __init__(self, function: Any, num_actions: int) -> None:
        self._function, self._num_actions = function, num_actions

    def __call__(self, observation: NDArray[Any], starts: NDArray[np.bool_]) -> NDArray[Any]:
        """As :meth:`RandomActions.__call__`."""
        del starts
        return self._checked(self._function(observation), len(observation))

    def _checked(self, found: Any, count: int) -> NDArray[Any]:
        actions = np.asarray(found.detach().cpu() if hasattr(found, "detach") else found)
        if actions.shape != (count,) or actions.dtype.kind not in "iu":
            raise ConfigError(
                f"the policy returned {actions.dtype} of shape {actions.shape} for {count} observations, "
                f"expected integers of shape ({count},)"
            )
        if not 0 <= int(actions.min()) <= int(actions.max()) < self._num_actions:
            raise ConfigError(
                f"the policy returned the actions {int(actions.min())} to {int(actions.max())}, expected 0 "
                f"to {self._num_actions - 1}"
            )
        return actions


class PolicyActions(FunctionActions):
    """The actions of a :class:`parl.train.policy.Policy`, as in evaluations."""

    def __init__(self, policy: Any, num_actions: int) -> None:
        super().__init__(policy, num_actions)
        self._state: Any = None

    def __call__(self, observation: NDArray[Any], starts: NDArray[np.bool_]) -> NDArray[Any]:
        """As :meth:`RandomActions.__call__`."""
        actions, self._state = self._function.predict(
            observation, state=self._state, episode_start=starts if self._state is not None else None
        )
        return self._checked(actions, len(observation))


def load_policy(policy: Any) -> Any:
    """``policy``, or that of the run if it is a path."""
    if not isinstance(policy, str | Path):
        return policy
    # The name of the package: training is above datasets.
    import parl

    return parl.load(policy)


def options_of(policy: Any, game: str) -> dict[str, Any]:
    """Options of the environments that a policy of a run acts in; empty for others.

    Raises:
        ConfigError: the run's environment is another game, or not one of parl's Atari games.
    """
    maker = getattr(policy, "env_maker", None)
    if maker is None:
        return {}
    own = find_id(maker.name) if maker.is_atari and not maker.wrappers else None
    if own != game:
        raise ConfigError(
            f"policy is of {maker.name}{' with wrappers' if maker.wrappers else ''}, expected one of parl's "
            f"environments of {game}"
        )
    probe = maker(1)
    settings: dict[str, Any] = probe.unwrapped.settings
    probe.close()
    return {name: settings[name] for name in (*FIXED, *CHOSEN, *ALIASES, "continuous", "device")}


def acting(policy: Any, num_actions: int, rng: np.random.Generator) -> Any:
    """The object that chooses actions.

    Raises:
        ConfigError: ``policy`` is none of the kinds.
    """
    if policy is None:
        return RandomActions(num_actions, rng)
    if hasattr(policy, "predict"):
        return PolicyActions(policy, num_actions)
    if callable(policy):
        return FunctionActions(policy, num_actions)
    raise ConfigError(
        f"policy is {policy!r}, expected None, a function of observations, a policy of parl.load or the path "
        "of a run"
    )
