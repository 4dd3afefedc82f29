"""The small protocols that hold parl together: what algorithms, replays and runtimes need of each other.

An algorithm sees batches and tensors; a runtime sees these protocols and nothing of the algorithm. torch and
gymnasium are named here for type checkers only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

Array = np.ndarray[Any, Any]
Autoreset = Literal["next_step", "same_step"]


@dataclass(frozen=True)
class EnvSpec:
    """What an algorithm must know of an environment.

    Attributes:
        observation_shape: shape of one observation, without the environment dimension.
        observation_dtype: numpy name, ``"float32"``, ``"uint8"``, ...
        action_shape: ``()`` for discrete actions.
        action_dtype: numpy name.
        num_actions: number of discrete actions, None for continuous ones.
        autoreset: ``"next_step"`` or ``"same_step"``, as gymnasium's ``AutoresetMode``.
    """

    observation_shape: tuple[int, ...]
    observation_dtype: str
    action_shape: tuple[int, ...]
    action_dtype: str
    num_actions: int | None
    autoreset: Autoreset


class Batch(Protocol):
    """B sampled transitions, n-step sums already taken (torch tensors, except where noted)."""

    @property
    def obs(self) -> Tensor:
        """(B, *observation_shape)."""
        ...

    @property
    def action(self) -> Tensor:
        """(B, *action_shape)."""
        ...

    @property
    def reward(self) -> Tensor:
        """(B,) float32, sum of gamma^i r_i over the k <= n steps taken."""
        ...

    @property
    def discount(self) -> Tensor:
        """(B,) float32, gamma^k, or 0 where the episode terminated."""
        ...

    @property
    def next_obs(self) -> Tensor:
        """(B, *observation_shape), k steps later."""
        ...

    @property
    def weights(self) -> Tensor:
        """(B,) float32 importance weights, the largest 1."""
        ...

    @property
    def tickets(self) -> Any:
        """Name the rows when their priorities are updated."""
        ...


class Policy(Protocol):
    """Chooses actions; owned by one actor.

    Attributes:
        weights: (P,) float32 on the CPU; every parameter in one buffer. A newer snapshot is copied into it.
    """

    weights: Tensor

    def act(self, observations: Array, env_steps: int) -> Array:
        """Exploring actions (N, ...) for observations (N, ...); ``env_steps`` were collected in the run."""
        ...

    def act_greedily(self, observations: Array) -> Array:
        """Actions (N, ...) without exploration."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Generators and whatever else a resumed run needs, without the weights."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        ...


class Learner(Protocol):
    """Turns batches into gradients and gradients into new weights.

    Attributes:
        weights: (P,) float32; every parameter in one buffer.
        gradients: (P,) float32; what :meth:`compute` wrote, possibly averaged with peers since.
    """

    weights: Tensor
    gradients: Tensor

    def compute(self, batch: Batch) -> NDArray[np.float32]:
        """Writes the mean gradient over ``batch`` into ``gradients``; returns new priorities (B,)."""
        ...

    def step(self) -> None:
        """One optimizer step with ``gradients``."""
        ...

    def metrics(self) -> dict[str, float]:
        """Figures of the latest update."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs: weights, targets, optimizer, counters."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        ...


class Sink(Protocol):
    """Where actors write."""

    def add(self, **columns: Any) -> Any:
        """Adds one row per environment: the schema's columns and ``env_id``."""
        ...

    def end_episodes(self, env_id: Any) -> None:
        """Ends the episodes of these environments where they stand; their next rows start new ones."""
        ...


class Algorithm(Protocol):
    """Makes the parts of one algorithm for one environment; cheap to pickle, holds no tensors."""

    def replay_options(self) -> dict[str, Any]:
        """Keywords of the replay: ``alpha`` (0 draws uniformly), ``n_step``, ``gamma``."""
        ...

    def replay_beta(self, env_steps: int) -> float:
        """Exponent of the importance weights after ``env_steps``."""
        ...

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> Policy:
        """The policy of actor ``actor`` of ``actors``, which steps ``num_envs`` environments."""
        ...

    def make_learner(self, seed: int, device: str) -> Learner:
        """A learner; equal seeds give equal weights."""
        ...
