"""Base classes of ``es`` and ``ga``: networks of many members that act together, and noise from seeds.

Images pass the three convolutions of the Nature DQN before the dense layers, as in Such et al. (2017), "Deep
Neuroevolution", section 4.1; the dense layers are narrower here, so that thousands of members fit in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parl.nets.torsos import is_channels_last
from parl.ops.bounds import NO_IMAGES, check_choices, check_hidden
from parl.types import Array, EnvSpec, is_image

# Elements of a matrix up to which numpy's BLAS multiplies it with a vector in one thread.
_NUMPY_MAX_SIZE = 2304 * 4 - 1
# Output channels, kernel size and stride of the convolutions. Source: Mnih et al. (2015), Methods.
_NATURE_CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))


@dataclass(frozen=True)
class PopulationNetConfig:
    """Settings that ES and GA share."""

    algorithm_name: ClassVar[str] = "algorithm"
    """Name of the algorithm, with which error messages begin; each algorithm sets its own."""

    hidden: tuple[int, ...] = (32, 32)
    """Widths of the dense layers, which use tanh."""
    images: Literal["nature", "mlp"] = "nature"
    """Layers before the dense ones for images: the Nature DQN's convolutions with ReLU, or none (mlp)."""

    def unused(self, spec: EnvSpec) -> dict[str, str]:
        """Returns the settings that have no effect with the others or in this environment, with reasons."""
        return {} if spec.has_images else {"images": NO_IMAGES}

    def __post_init__(self) -> None:
        check_hidden(self)
        check_choices(self, ("images", ("nature", "mlp")))


class WeightLayout:
    """Positions of each layer's matrix and bias in a flat vector of weights, convolutions first.

    Attributes:
        size: P, number of weights.
        widths: of the dense layers: inputs, hidden widths, outputs.
        image_shape: (C, H, W) of the images if there are convolutions, else None.
    """

    def __init__(self, config: PopulationNetConfig, spec: EnvSpec) -> None:
        shape = spec.observation_shape
        self.image_shape: tuple[int, int, int] | None = None
        inputs = math.prod(shape)
        self.kernels: list[tuple[int, int, int]] = []
        """Inputs per output pixel, output channels and stride of each convolution."""
        if config.images == "nature" and is_image(shape, spec.observation_dtype):
            rows, columns, channels = shape if is_channels_last(shape) else (*shape[1:], shape[0])
            self.image_shape = channels, rows, columns
            for outputs, side, stride in _NATURE_CONVOLUTIONS:
                self.kernels.append((channels * side * side, outputs, stride))
                rows, columns = ((length - side) // stride + 1 for length in (rows, columns))
                channels = outputs
            inputs = channels * rows * columns
        outputs = spec.num_actions or int(np.prod(spec.action_shape))
        self.widths = (inputs, *config.hidden, outputs)
        pairs = [(seen, made) for seen, made, _ in self.kernels]
        self._pairs = pairs + list(zip(self.widths[:-1], self.widths[1:], strict=True))
        self.size = sum(above * below + below for above, below in self._pairs)

    def layers(self, weights: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Returns (N, inputs, outputs) and (N, 1, outputs) of each layer, views of ``weights`` (N, P)."""
        found: list[tuple[Tensor, Tensor]] = []
        start = 0
        for above, below in self._pairs:
            middle, end = start + above * below, start + above * below + below
            matrix = weights[:, start:middle].view(-1, above, below)
            found.append((matrix, weights[:, middle:end].unsqueeze(1)))
            start = end
        return found

    def initial_weights(self, seed: int) -> Tensor:
        """Draws weights (P,) of deviation ``1 / sqrt(inputs)``, a tenth in the last layer; biases are 0."""
        generator = torch.Generator().manual_seed(seed)
        weights = torch.zeros(1, self.size)
        layers = self.layers(weights)
        for index, (matrix, _) in enumerate(layers):
            scale = (0.1 if index == len(layers) - 1 else 1.0) / math.sqrt(matrix.shape[1])
            matrix.copy_(torch.randn(matrix.shape, generator=generator) * scale)
        return weights[0]

    def to_images(self, observations: Tensor) -> Tensor:
        """Converts observations (N, ...) uint8 to (N, C, H, W) float32 in 0..1."""
        assert self.image_shape is not None
        if observations.shape[1:] != self.image_shape:
            observations = observations.permute(0, 3, 1, 2)
        return observations.to(torch.float32).mul_(1 / 255)

    def apply_convolutions(
        self, pictures: Tensor, layers: list[tuple[Tensor, Tensor]], member: int
    ) -> Tensor:
        """Applies a member's convolutions to images (N, C, H, W): (N, inputs of the first dense layer)."""
        for (seen, made, stride), (matrix, bias) in zip(self.kernels, layers, strict=False):
            side = math.isqrt(seen // pictures.shape[1])
            kernel = matrix[member].T.reshape(made, pictures.shape[1], side, side)
            pictures = F.conv2d(pictures, kernel, bias[member, 0], stride).relu_()
        return pictures.flatten(1)


class PopulationNetwork(nn.Module):
    """One network as a module: observations (N, ...) to outputs (N, outputs) float32.

    Args:
        shape: layout of the network's weights.
        weights: (P,) float32, of which the parameters are views.
        dtype: numpy name of the observations; bytes are scaled to 0..1.
    """

    def __init__(self, shape: WeightLayout, weights: Tensor, dtype: str) -> None:
        super().__init__()
        self._shape = shape
        self._scale = 1 / 255 if dtype == "uint8" else None
        parts: list[nn.Module] = []
        channels = shape.image_shape[0] if shape.image_shape else 0
        layers = shape.layers(weights.unsqueeze(0))
        for number, (matrix, bias) in enumerate(layers):
            inputs, width = matrix.shape[1:]
            weight = matrix[0].T
            if number < len(shape.kernels):
                side, stride = math.isqrt(inputs // channels), shape.kernels[number][2]
                part: nn.Module = nn.Conv2d(channels, width, side, stride, device="meta")
                weight, channels = weight.view(width, channels, side, side), width
            else:
                part = nn.Linear(inputs, width, device="meta")
            part.weight = nn.Parameter(weight, requires_grad=False)
            part.bias = nn.Parameter(bias[0, 0], requires_grad=False)
            parts.append(part)
            if number < len(shape.kernels):
                parts += [nn.ReLU(), *([nn.Flatten()] if number + 1 == len(shape.kernels) else [])]
            elif number + 1 < len(layers):
                parts.append(nn.Tanh())
        self.layers = nn.Sequential(*parts)

    def forward(self, observations: Tensor) -> Tensor:
        """See the class."""
        if self._shape.image_shape is not None:
            return self.layers(self._shape.to_images(observations))
        x = observations.flatten(1).to(torch.float32)
        return self.layers(x if self._scale is None else x * self._scale)


def noise(seed: int, size: int, out: Tensor | None = None) -> Tensor:
    """Draws (size,) float32 standard normal numbers; processes exchange the seed instead of the numbers.

    Args:
        seed: of the member.
        size: number of values.
        out: contiguous, is filled and returned; None: a new tensor.
    """
    found = torch.empty(size) if out is None else out
    np.random.Generator(np.random.SFC64(seed)).standard_normal(size, np.float32, found.numpy())
    return found


class PopulationNetworks:
    """Networks of N members, each for its own observation. See :class:`parl.types.MemberNetworks`.

    For small layers numpy multiplies a vector and a matrix for each member: torch takes two to four times as
    long to start so many products. The matrices of a layer are contiguous in memory.

    Args:
        shape: layout of the weights of each network.
        layers: matrices (N, inputs, outputs) and biases (N, 1, outputs) of each layer, see
            :class:`WeightLayout`.
        scale: factor of observations, None for 1.
        action_shape: of a continuous action; None: the action is the index of the largest output.
    """

    def __init__(
        self,
        shape: WeightLayout,
        layers: list[tuple[Tensor, Tensor]],
        scale: float | None,
        action_shape: tuple[int, ...] | None,
    ) -> None:
        self._shape = shape
        self._all_layers = [(matrix.contiguous(), bias.contiguous()) for matrix, bias in layers]
        self._layers = self._all_layers[len(shape.kernels) :]
        self._arrays = [(matrix.numpy(), bias.numpy()) for matrix, bias in self._layers]
        self._scale = scale
        self._action_shape = action_shape

    def _product(self, x: Array, number: int) -> Array:
        """Applies dense layer ``number`` to x (N, 1, inputs): (N, 1, outputs)."""
        matrix, bias = self._arrays[number]
        if matrix[0].size > _NUMPY_MAX_SIZE:
            tensors = self._layers[number]
            return torch.baddbmm(tensors[1], torch.from_numpy(x), tensors[0]).numpy()
        product = np.matmul(x, matrix)
        product += bias
        return product

    def _to_inputs(self, observations: Array) -> Array:
        """Converts observations (N, ...) to inputs (N, 1, inputs) float32 of the first dense layer."""
        if self._shape.image_shape is not None:
            pictures = self._shape.to_images(torch.from_numpy(observations))
            each = [
                self._shape.apply_convolutions(picture, self._all_layers, member)
                for member, picture in enumerate(pictures.split(1))
            ]
            return torch.stack(each).numpy()
        x = observations.reshape(len(observations), 1, -1).astype(np.float32, copy=False)
        return x if self._scale is None else x * np.float32(self._scale)

    def act(self, observations: Array) -> Array:
        """See :class:`parl.types.MemberNetworks`."""
        x = self._to_inputs(observations)
        for number in range(len(self._layers) - 1):
            x = self._product(x, number)
            np.tanh(x, out=x)
        x = self._product(x, len(self._layers) - 1)[:, 0]
        return x.argmax(axis=1) if self._action_shape is None else x.reshape(-1, *self._action_shape)

    def select(self, rows: Array) -> PopulationNetworks:
        """See :class:`parl.types.MemberNetworks`."""
        chosen = torch.from_numpy(rows)
        layers = [(matrix[chosen], bias[chosen]) for matrix, bias in self._all_layers]
        return PopulationNetworks(self._shape, layers, self._scale, self._action_shape)


class DeterministicPolicy:
    """Chooses the action with the largest output; continuous actions are the outputs, clipped to the bounds.

    Attributes:
        weights: (P,) float32, see :class:`parl.types.Policy`.
    """

    def __init__(self, config: PopulationNetConfig, spec: EnvSpec) -> None:
        self._shape = WeightLayout(config, spec)
        self._spec = spec
        self._scale = 1 / 255 if spec.observation_dtype == "uint8" else None
        self._low, self._high = torch.tensor(spec.action_low), torch.tensor(spec.action_high)
        self.weights = torch.zeros(self._shape.size)

    @property
    def network(self) -> PopulationNetwork:
        """See :class:`parl.types.NetworkPolicy`."""
        return PopulationNetwork(self._shape, self.weights, self._spec.observation_dtype)

    def greedy(self, network: PopulationNetwork, observations: Any, *memory: Tensor) -> tuple[Tensor, ...]:
        """See :class:`parl.types.NetworkPolicy`."""
        return (self._actions(network(observations)),)

    def _actions(self, outputs: Tensor) -> Tensor:
        """Returns the actions (N, ...) for outputs (N, outputs) of the network."""
        if self._spec.num_actions:
            return outputs.argmax(dim=1)
        if len(self._low):
            outputs = torch.clamp(outputs, self._low, self._high)
        return outputs.view(-1, *self._spec.action_shape)

    def assemble(self, weights: Tensor) -> PopulationNetworks:
        """See :class:`parl.types.PopulationPolicy`."""
        shape = None if self._spec.num_actions else self._spec.action_shape
        return PopulationNetworks(self._shape, self._shape.layers(weights), self._scale, shape)

    def act_greedily(self, observations: Array) -> Array:
        """Returns actions (N, ...) of the network with ``weights``."""
        with torch.inference_mode():
            x = torch.from_numpy(observations)
            layers = self._shape.layers(self.weights.unsqueeze(0))
            if self._shape.image_shape is not None:
                x = self._shape.apply_convolutions(self._shape.to_images(x), layers, 0)
                layers = layers[len(self._shape.kernels) :]
            else:
                x = x.flatten(1).to(torch.float32)
                if self._scale is not None:
                    x = x * self._scale
            for matrix, bias in layers[:-1]:
                x = torch.addmm(bias[0], x, matrix[0]).tanh_()
            return self._actions(torch.addmm(layers[-1][1][0], x, layers[-1][0][0])).numpy()

    def act(self, observations: Array, env_steps: int) -> Array:
        """As :meth:`act_greedily`: exploration is noise on the weights."""
        return self.act_greedily(observations)

    def state_dict(self) -> dict[str, Any]:
        """Returns nothing: there is no state but the weights."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
