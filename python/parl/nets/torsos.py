"""Torsos: observation in, features out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """Fully connected layers with ReLU, each optionally with layer normalisation before the ReLU.

    Input (B, *shape) of any dtype, flattened; output (B, hidden[-1]) float32.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], layer_norm: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in hidden:
            layers.append(nn.Linear(inputs, width))
            if layer_norm:
                layers.append(nn.LayerNorm(width))
            layers.append(nn.ReLU(inplace=True))
            inputs = width
        self.layers = nn.Sequential(*layers)
        self.features = inputs

    def forward(self, observations: Tensor) -> Tensor:
        """Features (B, features)."""
        if observations.dim() != 2:
            observations = observations.flatten(1)
        if observations.dtype != torch.float32:
            observations = observations.to(torch.float32)
        return self.layers(observations)


class NatureCNN(nn.Module):
    """Three convolutions and one dense layer over stacked 8-bit frames.

    Input (B, C, H, W) uint8, H and W of at least 36; output (B, hidden) float32.

    Source: Mnih et al. (2015), "Human-level control through deep reinforcement learning", Methods.
    """

    def __init__(self, shape: Sequence[int], hidden: int, layer_norm: bool) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(shape[0], 32, 8, stride=4),
            nn.ReLU(inplace=True),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(inplace=True),
            nn.Conv2d(64, 64, 3, stride=1),
            nn.ReLU(inplace=True),
            nn.Flatten(),
        )
        with torch.no_grad():
            flat = self.convolutions(torch.zeros(1, *shape)).shape[1]
        norm = [nn.LayerNorm(hidden)] if layer_norm else []
        self.dense = nn.Sequential(nn.Linear(flat, hidden), *norm, nn.ReLU(inplace=True))
        self.features = hidden

    def forward(self, observations: Tensor) -> Tensor:
        """Features (B, features)."""
        return self.dense(self.convolutions(observations.to(torch.float32).mul_(1 / 255)))


def make_torso(shape: Sequence[int], dtype: str, hidden: Sequence[int], layer_norm: bool) -> MLP | NatureCNN:
    """The torso that suits an observation: :class:`NatureCNN` for (C, H, W) uint8, else :class:`MLP`.

    Args:
        shape: of one observation.
        dtype: numpy name.
        hidden: widths of the dense layers, ``>= 1`` of them; a CNN uses the last alone.
        layer_norm: normalise before each ReLU of a dense layer.

    Raises:
        ValueError: ``hidden`` is empty or a width is below 1.
    """
    if not hidden or min(hidden) < 1:
        raise ValueError(f"hidden = {list(hidden)}: at least one width of at least 1 is needed")
    if len(shape) == 3 and dtype == "uint8":
        return NatureCNN(shape, hidden[-1], layer_norm)
    return MLP(math.prod(shape), hidden, layer_norm)
