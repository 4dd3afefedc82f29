"""Genetic algorithm (GA): copies of the best networks are mutated, without gradients and without crossover.

A member is sent and stored as the chain of seeds from which its weights are computed::

    theta(s_0)           = first weights drawn from s_0
    theta(s_0 .. s_k)    = theta(s_0 .. s_{k-1}) + sigma noise(s_k)

The best ``parents`` members of a generation are the parents of the next (truncation selection). The best
``elites`` of them are members of the next generation unchanged, and are evaluated again.

Source: Such et al. (2017), "Deep Neuroevolution", algorithm 1 and section 3.
"""

from __future__ import annotations

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
from parl.errors import ConfigError
from parl.nets import check_actions, check_observations, copy_named, named_weights
from parl.ops.bounds import check_bounds
from parl.types import Array, EnvSpec, Member, Preset

# Least number of decoded members that a decoder keeps: parents are needed in several generations.
_MIN_CACHE_SIZE = 64


@dataclass(frozen=True)
class Config(PopulationNetConfig):
    """Settings of the genetic algorithm."""

    algorithm_name: ClassVar[str] = "ga"

    sigma: float = 0.05
    """Standard deviation of the noise that a mutation adds to the weights."""
    parents: int = 10
    """Number of members of a generation that have offspring."""
    elites: int = 2
    """Number of parents that stay in the population unchanged."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(self, ("sigma", 0, float("inf")), ("parents", 1, 2**20), ("elites", 0, 2**20))
        if self.elites > self.parents:
            raise ConfigError(
                f"{self.algorithm_name}: elites = {self.elites} is above parents = {self.parents}"
            )


def default_config(spec: EnvSpec) -> Config:
    """Returns the defaults."""
    return Config()


PRESETS: dict[str, Preset] = {}


class GADecoder:
    """Computes weights from chains of seeds; keeps those of parents, so that offspring cost one mutation."""

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        self._shape = WeightLayout(config, spec)
        self._sigma = config.sigma
        self._cache: dict[Member, Tensor] = {}
        # Room for a generation's parents and for their parents: another process may have decoded a parent,
        # whose weights are then one mutation away from those of its own parent.
        self._cache_size = max(_MIN_CACHE_SIZE, 2 * config.parents)

    def decode(self, base: Tensor, members: Sequence[Member], out: Tensor | None = None) -> Tensor:
        """See :class:`parl.types.Decoder`; ``base`` is ignored."""
        weights = torch.empty(len(members), self._shape.size) if out is None else out
        for row, member in zip(weights, members, strict=True):
            self._decode(member, row)
        return weights

    def weights(self, member: Member) -> Tensor:
        """Returns the weights (P,) of one member."""
        return self._decode(member, torch.empty(self._shape.size))

    def _decode(self, member: Member, out: Tensor) -> Tensor:
        if len(member) == 1:
            return out.copy_(self._shape.initial_weights(member[0]))
        noise(member[-1], self._shape.size, out)
        return torch.add(self._parent(member[:-1]), out.mul_(self._sigma), out=out)

    def _parent(self, member: Member) -> Tensor:
        """Returns the weights (P,) of a parent, and keeps them for further offspring."""
        weights = self._cache.pop(member, None)
        if weights is None:
            length = len(member) - 1
            while length and member[:length] not in self._cache:
                length -= 1
            weights = self._cache[member[:length]] if length else self._shape.initial_weights(member[0])
            for seed in member[max(1, length) :]:
                weights = weights + self._sigma * noise(seed, self._shape.size)
        self._cache[member] = weights
        while len(self._cache) > self._cache_size:
            self._cache.pop(next(iter(self._cache)))
        return weights


class GALearner:
    """See :class:`parl.types.PopulationLearner`.

    Attributes:
        weights: (P,) float32, those of the latest generation's best member.
    """

    def __init__(self, config: Config, spec: EnvSpec, seed: int) -> None:
        self._config = config
        self._decoder = GADecoder(config, spec)
        shape = WeightLayout(config, spec)
        self.weights = shape.initial_weights(seed)
        self.network = PopulationNetwork(shape, self.weights, spec.observation_dtype)
        self._parents: list[Member] = []
        self._rng = np.random.default_rng(seed)
        self._latest: dict[str, float] = {}

    def _seeds(self, count: int) -> list[int]:
        return self._rng.integers(2**62, size=count).tolist()

    def ask(self, size: int) -> list[Member]:
        """Returns elites and offspring of random parents; in the first generation, members of one seed."""
        if not self._parents:
            return [(seed,) for seed in self._seeds(size)]
        stay = self._parents[: min(self._config.elites, size)]
        chosen = self._rng.integers(len(self._parents), size=size - len(stay)).tolist()
        seeds = self._seeds(len(chosen))
        return stay + [(*self._parents[i], seed) for i, seed in zip(chosen, seeds, strict=True)]

    def tell(self, members: Sequence[Member], returns: Array, weights: Tensor | None = None) -> None:
        """Selects the parents (truncation selection); among equal returns, the earlier member wins."""
        order = np.argsort(-np.asarray(returns), kind="stable")[: self._config.parents]
        self._parents = [members[i] for i in order.tolist()]
        best = self._decoder.weights(self._parents[0]) if weights is None else weights[int(order[0])]
        self.weights.copy_(best)
        self._latest = {
            "return_mean": float(np.mean(returns)),
            "return_best": float(np.max(returns)),
            "chain_length": float(len(self._parents[0])),
        }

    def metrics(self) -> dict[str, float]:
        """Returns mean and best return of the latest generation, and its best member's number of seeds."""
        return self._latest

    def start_from(self, other: GALearner) -> None:
        """See :class:`parl.types.Learned`; takes the parents, which are seeds, so that sigma must be equal.

        Raises:
            ConfigError: sigma or the shape of a parameter differs.
        """
        copy_named(named_weights(other.network), self.network)
        if self._config.sigma != other._config.sigma:
            raise ConfigError(f"sigma = {self._config.sigma} is not {other._config.sigma}, as in that run")
        self._parents = list(other._parents)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that :meth:`load_state_dict` restores."""
        return {
            "weights": self.weights.clone(),
            "parents": [list(member) for member in self._parents],
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.weights.copy_(state["weights"])
        self._parents = [tuple(member) for member in state["parents"]]
        self._rng.bit_generator.state = state["rng"]


class GA:
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

    def make_learner(self, seed: int, device: str) -> GALearner:
        """A learner on the CPU; ``device`` is ignored, since the weights are few."""
        return GALearner(self.config, self.spec, seed)

    def make_decoder(self) -> GADecoder:
        """A decoder."""
        return GADecoder(self.config, self.spec)
