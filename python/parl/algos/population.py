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

# Products of a member's layer up to which numpy's BLAS takes one thread for a vector and a matrix.
_FEW_PRODUCTS = 2304 * 4 - 1


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


def noise(seed: int, size: int, out: Tensor | None = None) -> Tensor:
    """(size,) float32 of the standard normal distribution: what a seed on the wire stands for.

    Args:
        seed: of the member.
        size: how many.
        out: contiguous, to be filled and returned.
    """
    found = torch.empty(size) if out is None else out
    np.random.Generator(np.random.SFC64(seed)).standard_normal(size, np.float32, found.numpy())
    return found


class SideBySide:
    """Networks of N members, each to act for itself. See :class:`parl.types.Networks`.

    Where a layer is small its products go by numpy, a vector and a matrix for each member: torch takes twice
    to four times as long to start that many. Each layer's matrices lie in one piece.

    Args:
        layers: matrices (N, inputs, outputs) and biases (N, 1, outputs) of each layer, see :class:`Shape`.
        scale: of observations, or None for 1.
        action_shape: of a continuous action; None: the number of the largest output is the action.
    """

    def __init__(
        self, layers: list[tuple[Tensor, Tensor]], scale: float | None, action_shape: tuple[int, ...] | None
    ) -> None:
        self._layers = [(matrix.contiguous(), bias.contiguous()) for matrix, bias in layers]
        self._arrays = [(matrix.numpy(), bias.numpy()) for matrix, bias in self._layers]
        self._scale = scale
        self._action_shape = action_shape

    def _product(self, x: Array, number: int) -> Array:
        """(N, 1, outputs) of layer ``number`` on x (N, 1, inputs)."""
        matrix, bias = self._arrays[number]
        if matrix[0].size > _FEW_PRODUCTS:
            tensors = self._layers[number]
            return torch.baddbmm(tensors[1], torch.from_numpy(x), tensors[0]).numpy()
        product = np.matmul(x, matrix)
        product += bias
        return product

    def act(self, observations: Array) -> Array:
        """See :class:`parl.types.Networks`."""
        x = observations.reshape(len(observations), 1, -1).astype(np.float32, copy=False)
        if self._scale is not None:
            x = x * np.float32(self._scale)
        for number in range(len(self._layers) - 1):
            x = self._product(x, number)
            np.tanh(x, out=x)
        x = self._product(x, len(self._layers) - 1)[:, 0]
        return x.argmax(axis=1) if self._action_shape is None else x.reshape(-1, *self._action_shape)

    def only(self, rows: Array) -> SideBySide:
        """See :class:`parl.types.Networks`."""
        chosen = torch.from_numpy(rows)
        layers = [(matrix[chosen], bias[chosen]) for matrix, bias in self._layers]
        return SideBySide(layers, self._scale, self._action_shape)


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

    def assemble(self, weights: Tensor) -> SideBySide:
        """See :class:`parl.types.PopulationPolicy`."""
        shape = None if self._spec.num_actions else self._spec.action_shape
        return SideBySide(self._shape.layers(weights), self._scale, shape)

    def act_greedily(self, observations: Array) -> Array:
        """Actions (N, ...) by ``weights``."""
        with torch.inference_mode():
            x = torch.from_numpy(observations).flatten(1).to(torch.float32)
            if self._scale is not None:
                x = x * self._scale
            layers = self._shape.layers(self.weights.unsqueeze(0))
            for matrix, bias in layers[:-1]:
                x = torch.addmm(bias[0], x, matrix[0]).tanh_()
            x = torch.addmm(layers[-1][1][0], x, layers[-1][0][0])
            if self._spec.num_actions:
                return x.argmax(dim=1).numpy()
            return x.numpy().reshape(-1, *self._spec.action_shape)

    def act(self, observations: Array, env_steps: int) -> Array:
        """The same: exploration is in the weights."""
        return self.act_greedily(observations)

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
