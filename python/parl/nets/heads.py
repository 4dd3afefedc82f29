"""Heads: networks from features to values of actions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from parl.ops.execution import in_float32

MakeLinear = Callable[[int, int], nn.Module]
"""Creates a layer from its input and output width, such as ``nn.Linear``."""


def select_actions(values: Tensor, action: Tensor) -> Tensor:
    """Selects the values (B, M) of the actions (B,) int64 from values (B, A, M)."""
    if values.shape[2] == 1:
        return values.squeeze(2).gather(1, action.unsqueeze(1))
    return values[torch.arange(len(action), device=action.device), action]


class ActionHead(nn.Module):
    """One linear layer with one or more outputs per action.

    Input (B, features) float32, output (B, actions, outputs).

    Args:
        features: width of the input.
        actions: number of actions.
        outputs: numbers per action, such as atoms or quantiles.
        make_linear: makes the layer.
    """

    def __init__(
        self, features: int, actions: int, outputs: int = 1, make_linear: MakeLinear = nn.Linear
    ) -> None:
        super().__init__()
        self._shape = (actions, outputs)
        self.values = make_linear(features, actions * outputs)

    def add_to_bias(self, values: Tensor) -> None:
        """Adds (outputs,) to the layer's bias, for each action."""
        with torch.no_grad():
            cast("Tensor", self.values.bias).add_(values.repeat(self._shape[0]))

    def forward(self, features: Tensor) -> Tensor:
        """See the class."""
        return in_float32(self.values, features).view(-1, *self._shape)

    def of_actions(self, features: Tensor, action: Tensor) -> Tensor:
        """Returns the outputs (B, outputs) of one action per row, (B,) int64."""
        return select_actions(self(features), action)


class DuelingHead(nn.Module):
    """State value plus centered advantages: ``q = v + a - mean(a)``, for each of ``outputs`` numbers.

    Input (B, features) float32, output (B, actions, outputs).

    Args:
        features: width of the input.
        actions: number of actions.
        outputs: numbers per action, such as atoms or quantiles.
        hidden: width of a hidden layer in each of the two streams; 0: none.
        make_linear: makes the layers.

    Source: Wang et al. (2016), "Dueling Network Architectures", equation 9; for distributions Hessel et al.
    (2018), "Rainbow", section "The Integrated Agent".
    """

    def __init__(
        self,
        features: int,
        actions: int,
        outputs: int = 1,
        hidden: int = 0,
        make_linear: MakeLinear = nn.Linear,
    ) -> None:
        super().__init__()
        self._outputs = outputs

        def stream(width: int) -> nn.Module:
            if not hidden:
                return make_linear(features, width)
            return nn.Sequential(make_linear(features, hidden), nn.ReLU(), make_linear(hidden, width))

        self.value = stream(outputs)
        self.advantage = stream(actions * outputs)

    def add_to_bias(self, values: Tensor) -> None:
        """Adds (outputs,) to the bias of the state value."""
        last = self.value[-1] if isinstance(self.value, nn.Sequential) else self.value
        with torch.no_grad():
            cast("Tensor", last.bias).add_(values)

    def forward(self, features: Tensor) -> Tensor:
        """See the class."""
        advantage = self._advantage(features)
        return advantage + (self._value(features) - advantage.mean(dim=1)).unsqueeze(1)

    def of_actions(self, features: Tensor, action: Tensor) -> Tensor:
        """Returns the outputs (B, outputs) of one action per row, (B,) int64, without those of the others."""
        advantage = self._advantage(features)
        return select_actions(advantage, action) + (self._value(features) - advantage.mean(dim=1))

    def _value(self, features: Tensor) -> Tensor:
        return _stream(self.value, features)

    def _advantage(self, features: Tensor) -> Tensor:
        return _stream(self.advantage, features).view(features.shape[0], -1, self._outputs)


def _stream(layers: nn.Module, x: Tensor) -> Tensor:
    """Returns the outputs of a linear layer, or of several layers of which the last one is linear."""
    *hidden, last = layers if isinstance(layers, nn.Sequential) else (layers,)
    for layer in hidden:
        x = layer(x)
    return in_float32(last, x)


class FractionEmbedding(nn.Module):
    """Features for quantile fractions: ``relu(W cos(pi i tau) + b)``, ``i = 0..cosines``.

    Input (B, N) float32 in 0..1, output (B, N, features).

    Source: Dabney et al. (2018), "Implicit Quantile Networks", equation 4.
    """

    multiples: Tensor

    def __init__(self, cosines: int, features: int) -> None:
        super().__init__()
        self.dense = nn.Linear(cosines, features)
        self.register_buffer("multiples", math.pi * torch.arange(cosines), persistent=False)

    def forward(self, fractions: Tensor) -> Tensor:
        """See the class."""
        return torch.relu(self.dense(torch.cos(fractions.unsqueeze(2) * self.multiples)))
