"""Base class of actors: a vector environment, its policy, episode statistics, saving and loading."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from parl.envs import EpisodeTracker, FiniteCheck
from parl.envs.snapshot import Snapshot
from parl.errors import ConfigError
from parl.runtime import states
from parl.runtime.seeds import restore_modules, state_of_modules
from parl.types import EnvSpec, Policy


class Counts(NamedTuple):
    """Counts of an actor: transitions collected, episodes finished and rewards received.

    Attributes:
        transitions: number of transitions.
        finished: return and length of each episode that ended; of Atari games, of each whole game.
        reward: sum of the rewards, before any clipping.
    """

    transitions: int
    finished: list[tuple[float, int]]
    reward: float


def total(parts: Iterable[Counts]) -> Counts:
    """The sum of the counts of several steps or actors."""
    transitions, finished, reward = 0, [], 0.0
    for part in parts:
        transitions += part.transitions
        finished += part.finished
        reward += part.reward
    return Counts(transitions, finished, reward)


def check_dtype(method: str, actions: np.dtype[Any], expected: np.dtype[Any]) -> None:
    """Checks the dtype of actions that ``method`` of a policy returned: numpy would round them.

    Raises:
        ConfigError: they are floats and the environment takes integers.
    """
    if actions.kind == "f" and expected.kind != "f":
        raise ConfigError(f"{method} of the policy returned actions of dtype {actions}, expected integers")


class EnvActor(ABC):
    """A vector environment and the policy that acts in it.

    Args:
        env: a vector environment of ``num_envs``, owned by the actor from now on.
        spec: description of the environment.
        policy: chooses the actions.
        seed: seed of the first reset.
        first_env: number of the first environment within the run.
        pickles: whether :meth:`save` may pickle an environment whose state is not plain data.
    """

    def __init__(
        self, env: Any, spec: EnvSpec, policy: Policy, seed: int, first_env: int, pickles: bool
    ) -> None:
        self.policy = policy
        self.num_envs = int(env.num_envs)
        self._env, self._spec, self._pickles = env, spec, pickles
        self._action_dtype = np.dtype(spec.action_dtype)
        self._same_step = spec.autoreset == "same_step"
        self._episodes = EpisodeTracker(self.num_envs, spec.autoreset)
        self._check = FiniteCheck(spec, first_env)
        self._obs = self._observed(env.reset(seed=seed)[0], "at its first reset")
        self._snapshot = Snapshot(env)

    @abstractmethod
    def _observed(self, observations: Any, step: int | str) -> Any:
        """Checks observations (N, ...) and converts them to the form that the policy takes.

        Raises:
            NonFiniteError: one is NaN or infinite.
        """

    @abstractmethod
    def _extra_state(self) -> dict[str, Any]:
        """State of a subclass that :meth:`save` adds to the checkpoint, as plain data."""

    @abstractmethod
    def _load_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`_extra_state` returned. The environment may be a new object."""

    def save(self) -> bytes:
        """Returns the actor's state as bytes: environments, random generators, unfinished episodes.

        Raises:
            TypeError, pickle.PicklingError: the state of the environment is not plain data.
        """
        rest = {
            "obs": self._obs,
            "episodes": self._episodes.state_dict(),
            "policy": self.policy.state_dict(),
            "modules": state_of_modules(),
            **self._extra_state(),
        }
        return states.save(self._env, self._snapshot, rest, self._pickles)

    def load(self, state: bytes) -> None:
        """Restores what :meth:`save` returned.

        Raises:
            RunDirectoryError: it is damaged or of another environment.
        """
        self._env, saved = states.load(state, self._env, self._snapshot)
        self._snapshot = Snapshot(self._env)
        self._obs = saved["obs"]
        self._episodes.load_state_dict(saved["episodes"])
        self.policy.load_state_dict(saved["policy"])
        self._load_extra_state(saved)
        if "modules" in saved:  # not in checkpoints of older versions
            restore_modules(saved["modules"])

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()
