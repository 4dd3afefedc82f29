"""Several networks of the same shape, with one batched product per layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from parl.nets.fused.ensemble import MLPEnsemble, suits_ensemble
from parl.ops.execution import ExecutionModule, autocast_bf16
from parl.types import Array


class Ensemble(ExecutionModule):
    """``members`` multilayer perceptrons with ReLU, of the same shape and initialized independently.

    Input (B, inputs) float32, shared by all; output (members, B, outputs) float32. Weights and biases are
    initialized as in ``nn.Linear``.

    Args:
        members: E.
        inputs: width of the input.
        hidden: widths of the hidden layers.
        outputs: width of the output.
        layer_norm: normalize each hidden layer before its ReLU, without scale and shift.
    """

    def __init__(
        self, members: int, inputs: int, hidden: Sequence[int], outputs: int, layer_norm: bool = False
    ) -> None:
        super().__init__()
        self.members = members
        self.layer_norm = layer_norm
        self._fused: MLPEnsemble | None = None
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for width in (*hidden, outputs):
            bound = 1 / math.sqrt(inputs)
            self.weights.append(nn.Parameter(torch.empty(members, inputs, width).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(members, 1, width).uniform_(-bound, bound)))
            inputs = width

    def bind(self) -> None:
        """See :func:`parl.nets.flatten`."""
        weights, biases = list(self.weights), list(self.biases)
        self._fused = None if self.layer_norm or not suits_ensemble(weights) else MLPEnsemble(weights, biases)

    def forward(self, *parts: Tensor, frozen: bool = False, members: int | None = None) -> Tensor:
        """Returns outputs (members, B, outputs).

        Args:
            parts: (B, inputs) float32, or several tensors, which are concatenated.
            frozen: only ``parts`` get gradients, which saves the products for gradients of the weights.
            members: number of members to use, the first ones; None: all.
        """
        if self.use_bf16:
            with autocast_bf16(parts[0].device):
                return self._outputs(parts, frozen, members)
        if self._fused is not None and self.fused and not torch.compiler.is_compiling():
            return self._fused(*parts, frozen=frozen, members=members)
        return self._outputs(parts, frozen, members)

    @property
    def fused(self) -> bool:
        """Whether :mod:`parl.nets.fused` computes the passes."""
        return self._fused is not None and not self.torch_only

    def act(self, x: Array) -> Array:
        """Returns outputs (B, outputs) of the first member for x (B, inputs), both numpy; no gradient."""
        if self._fused is not None:
            return self._fused.act(x)
        with torch.inference_mode():
            return self(torch.from_numpy(x), members=1)[0].numpy()

    def _outputs(self, parts: Sequence[Tensor], frozen: bool, members: int | None) -> Tensor:
        weights, biases = list(self.weights), list(self.biases)
        if members is not None and members != self.members:
            weights, biases = [w[:members] for w in weights], [b[:members] for b in biases]
        if frozen:
            weights, biases = [w.detach() for w in weights], [b.detach() for b in biases]
        x = parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=1)
        x = x.expand(len(weights[0]), *x.shape)
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            x = torch.baddbmm(bias, x, weight)
            x = torch.relu_(torch.layer_norm(x, (x.shape[2],)) if self.layer_norm else x)
        if not self.use_bf16:
            return torch.baddbmm(biases[-1], x, weights[-1])
        # As `in_float32`.
        with torch.autocast(x.device.type, enabled=False):
            return torch.baddbmm(biases[-1], x.to(torch.float32), weights[-1])
