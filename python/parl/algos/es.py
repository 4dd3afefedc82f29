"""Evolution strategy (ES): steps along the mean of random directions, weighted by their returns.

A generation has N / 2 directions ``e_i`` of standard normal noise, each evaluated with both signs: members
``theta + sigma e_i`` and ``theta - sigma e_i`` with returns ``F_i+`` and ``F_i-``. With u the centered ranks
of all N returns, in -0.5..0.5::

    g = 1 / (N sigma) sum_i (u_i+ - u_i-) e_i          Salimans et al. (2017), algorithm 1, sections 2.1, 2.2
    theta <- Adam(theta, -g + weight_decay theta)

Processes exchange a member as (seed of e_i, sign).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from parl.algos.common.population import (
    DeterministicPolicy,
    PopulationNetConfig,
    PopulationNetwork,
    WeightLayout,
    noise,
)
from parl.errors import NonFiniteError
from parl.nets import check_actions, check_observations, copy_named, named_weights
from parl.ops.adam import adam_step
from parl.ops.bounds import check_above_zero, check_bounds
from parl.types import Array, EnvSpec, Member, Preset


@dataclass(frozen=True)
class Config(PopulationNetConfig):
    """Settings of the evolution strategy."""

    algorithm_name: ClassVar[str] = "es"

    sigma: float = 0.1
    """Standard deviation of the noise on weights."""
    learning_rate: float = 0.05
    """Learning rate of Adam."""
    weight_decay: float = 0.0
    """L2 penalty: this times the weights is added to the gradient."""
    adam_epsilon: float = 1e-8
    """Epsilon of Adam, added to the denominator."""

    def __post_init__(self) -> None:
        super().__post_init__()
        infinite = float("inf")
        check_bounds(
            self,
            ("sigma", 1e-9, infinite),
            ("learning_rate", 0, infinite),
            ("weight_decay", 0, infinite),
            ("adam_epsilon", 0, infinite),
        )
        check_above_zero(self, "adam_epsilon")


def default_config(spec: EnvSpec) -> Config:
    """Returns the defaults."""
    return Config()


PRESETS: dict[str, Preset] = {}


def centered_ranks(returns: Array) -> Array:
    """Returns the ranks of ``returns`` (N,), from -0.5 to 0.5, float32; equal returns get their mean rank."""
    _, inverse, counts = np.unique(returns, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean = last - (counts + 1) / 2  # mean of the ranks last - counts .. last - 1
    ranks = mean[inverse] / max(1, len(returns) - 1) - 0.5
    return ranks.astype(np.float32)


class ESDecoder:
    """Computes the weights of members (seed, sign) from those of ``base``."""

    def __init__(self, config: Config) -> None:
        self._sigma = config.sigma

    def decode(self, base: Tensor, members: Sequence[Member], out: Tensor | None = None) -> Tensor:
        """See :class:`parl.types.Decoder`."""
        weights = torch.empty(len(members), len(base)) if out is None else out
        drawn, latest = torch.empty_like(base), None
        for row, (seed, sign) in zip(weights, members, strict=True):
            if seed != latest:  # the two signs of a seed are adjacent
                latest = seed
                noise(seed, len(base), drawn)
            torch.add(base, drawn, alpha=self._sigma * sign, out=row)
        return weights


class ESLearner:
    """See :class:`parl.types.PopulationLearner`.

    Attributes:
        weights: (P,) float32, the center of the population.
    """

    def __init__(self, config: Config, spec: EnvSpec, seed: int) -> None:
        self._config = config
        self._decoder = ESDecoder(config)
        shape = WeightLayout(config, spec)
        self.weights = shape.initial_weights(seed)
        self.network = PopulationNetwork(shape, self.weights, spec.observation_dtype)
        self._mean = torch.zeros_like(self.weights)
        self._square = torch.zeros_like(self.weights)
        self._generation = 0
        self._rng = np.random.default_rng(seed)
        self._latest: dict[str, float] = {}

    def ask(self, size: int) -> list[Member]:
        """Returns both signs of ``size // 2`` new seeds; if ``size`` is odd, also sign 1 of another."""
        seeds = self._rng.integers(2**62, size=(size + 1) // 2).tolist()
        return [(seed, sign) for seed in seeds for sign in (1, -1)][:size]

    def gradient(self, members: Sequence[Member], returns: Array, weights: Tensor | None = None) -> Tensor:
        """Returns ``-g`` of the module's equations (P,), for a minimizer; arguments as in :meth:`tell`.

        A member's ``sign sigma e`` is computed as its weights minus ``self.weights``, without drawing again.
        """
        ranks = torch.from_numpy(centered_ranks(returns))
        weights = self._decoder.decode(self.weights, members) if weights is None else weights
        away = torch.mv(weights.T, ranks).sub_(self.weights, alpha=float(ranks.sum()))
        return away.mul_(-1 / (len(members) * self._config.sigma**2))

    def tell(self, members: Sequence[Member], returns: Array, weights: Tensor | None = None) -> None:
        """Makes one Adam step.

        Raises:
            NonFiniteError: the gradient is NaN or infinite; the weights stay as they are.
        """
        config = self._config
        gradient = self.gradient(members, returns, weights)
        self._generation += 1
        self._latest = {
            "return_mean": float(np.mean(returns)),
            "return_best": float(np.max(returns)),
            "gradient_norm": float(gradient.norm()),
        }
        norm = self._latest["gradient_norm"]
        if not math.isfinite(norm):
            raise NonFiniteError(f"generation {self._generation}: the gradient has norm {norm}")
        gradient.add_(self.weights, alpha=config.weight_decay)
        adam_step(
            self.weights,
            gradient,
            self._mean,
            self._square,
            self._generation,
            config.learning_rate,
            config.adam_epsilon,
        )

    def metrics(self) -> dict[str, float]:
        """Returns mean and best return of the latest generation."""
        return self._latest

    def start_from(self, other: ESLearner) -> None:
        """See :class:`parl.types.Learned`."""
        copy_named(named_weights(other.network), self.network)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that :meth:`load_state_dict` restores."""
        return {
            "weights": self.weights.clone(),
            "mean": self._mean.clone(),
            "square": self._square.clone(),
            "generation": self._generation,
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.weights.copy_(state["weights"])
        self._mean.copy_(state["mean"])
        self._square.copy_(state["square"])
        self._generation = state["generation"]
        self._rng.bit_generator.state = state["rng"]


class ES:
    """Creates policies, learners and decoders. See :class:`parl.types.PopulationAlgorithm`."""

    first_deviation = 1.0
    """Estimated standard deviation of the first networks' continuous actions around 0."""

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        check_observations(config.algorithm_name, spec, ("vector", "image"), config.images)
        check_actions(config.algorithm_name, spec, "discrete", "continuous")
        self.config = config
        self.spec = spec

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> DeterministicPolicy:
        """A policy."""
        return DeterministicPolicy(self.config, self.spec)

    def make_learner(self, seed: int, device: str) -> ESLearner:
        """A learner on the CPU; ``device`` is ignored, since the weights are few."""
        return ESLearner(self.config, self.spec, seed)

    def make_decoder(self) -> ESDecoder:
        """A decoder."""
        return ESDecoder(self.config)
