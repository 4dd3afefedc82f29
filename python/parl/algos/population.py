"""What ``es`` and ``ga`` share: networks evaluated side by side, and noise from seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parl.ops.bounds import check_hidden
from parl.types import Array, EnvSpec


@dataclass(frozen=True)
class PopulationNetConfig:
    """Settings that these algorithms share."""

    hidden: tuple[int, ...] = (32, 32)
    """Widths of the dense layers, with tanh."""

    def __post_init__(self) -> None:
        check_hidden(self)


class Shape:
    """Where each layer's matrix and bias lie in a flat vector of weights.

    Attributes:
        size: P, weights in all.
        widths: inputs, hidden widths, outputs.
    """

    def __init__(self, config: PopulationNetConfig, spec: EnvSpec) -> None:
        outputs = spec.num_actions or int(np.prod(spec.action_shape))
        self.widths = (math.prod(spec.observation_shape), *config.hidden, outputs)
        pairs = list(zip(self.widths[:-1], self.widths[1:], strict=True))
        self.size = sum(above * below + below for above, below in pairs)
        self._pairs = pairs

    def layers(self, weights: Tensor) -> list[tuple[Tensor, Tensor]]:
        """(N, inputs, outputs) and (N, 1, outputs) of each layer, views of ``weights`` (N, P)."""
        found: list[tuple[Tensor, Tensor]] = []
        start = 0
        for above, below in self._pairs:
            middle, end = start + above * below, start + above * below + below
            matrix = weights[:, start:middle].view(-1, above, below)
            found.append((matrix, weights[:, middle:end].unsqueeze(1)))
            start = end
        return found

    def first(self, seed: int) -> Tensor:
        """(P,): matrices of deviation ``1 / sqrt(inputs)``, the last one a tenth of that; biases 0."""
        generator = torch.Generator().manual_seed(seed)
        weights = torch.zeros(1, self.size)
        layers = self.layers(weights)
        for index, (matrix, _) in enumerate(layers):
            scale = (0.1 if index == len(layers) - 1 else 1.0) / math.sqrt(matrix.shape[1])
            matrix.copy_(torch.randn(matrix.shape, generator=generator) * scale)
        return weights[0]


def noise(seed: int, size: int) -> Tensor:
    """(size,) float32 of the standard normal distribution: what a seed on the wire stands for."""
    drawn = np.random.Generator(np.random.SFC64(seed)).standard_normal(size, np.float32)
    return torch.from_numpy(drawn)


class DeterministicPolicy:
    """The most preferred action, or the network's output where actions are continuous.

    Attributes:
        weights: (P,) float32, see :class:`parl.types.Policy`.
    """

    def __init__(self, config: PopulationNetConfig, spec: EnvSpec) -> None:
        self._shape = Shape(config, spec)
        self._spec = spec
        self._scale = 1 / 255 if spec.observation_dtype == "uint8" else None
        self.weights = torch.zeros(self._shape.size)

    def act_each(self, weights: Tensor, observations: Array) -> Array:
        """See :class:`parl.types.PopulationPolicy`."""
        with torch.inference_mode():
            x = torch.from_numpy(observations).flatten(1).to(torch.float32)
            if self._scale is not None:
                x = x * self._scale
            x = x.unsqueeze(1)
            layers = self._shape.layers(weights)
            for matrix, bias in layers[:-1]:
                x = torch.baddbmm(bias, x, matrix).tanh_()
            x = torch.baddbmm(layers[-1][1], x, layers[-1][0]).squeeze(1)
            if self._spec.num_actions:
                return x.argmax(dim=1).numpy()
            return x.numpy().reshape(-1, *self._spec.action_shape)

    def act_greedily(self, observations: Array) -> Array:
        """Actions (N, ...) by ``weights``."""
        return self.act_each(self.weights.expand(len(observations), -1), observations)

    def act(self, observations: Array, env_steps: int) -> Array:
        """The same: exploration is in the weights."""
        return self.act_greedily(observations)

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
