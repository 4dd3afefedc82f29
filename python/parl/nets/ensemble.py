"""Several equal networks side by side, each layer of all of them one batched product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from parl.nets.dense import Pool
from parl.ops.execution import Executed, in_half


class Ensemble(Executed):
    """``members`` multilayer perceptrons with ReLU, alike in shape and drawn independently.

    Input (B, inputs) float32, seen by all; output (members, B, outputs) float32. Weights and biases are drawn
    as ``nn.Linear`` draws them.

    Args:
        members: E.
        inputs: width of the input.
        hidden: widths of the hidden layers.
        outputs: width of the output.
        layer_norm: normalise each hidden layer before its ReLU, without scale and shift.
    """

    def __init__(
        self, members: int, inputs: int, hidden: Sequence[int], outputs: int, layer_norm: bool = False
    ) -> None:
        super().__init__()
        self.members = members
        self.layer_norm = layer_norm
        self._pool = Pool()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for width in (*hidden, outputs):
            bound = 1 / math.sqrt(inputs)
            self.weights.append(nn.Parameter(torch.empty(members, inputs, width).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(members, 1, width).uniform_(-bound, bound)))
            inputs = width

    def forward(self, x: Tensor, frozen: bool = False, members: int | None = None) -> Tensor:
        """Outputs (members, B, outputs).

        Args:
            x: (B, inputs) float32.
            frozen: no gradient flows into the weights, only into ``x``, which saves their products.
            members: use the first so many only.
        """
        if not self.reduced:
            return self._outputs(x, frozen, members)
        with in_half(x.device):
            return self._outputs(x, frozen, members).to(torch.float32)

    def _outputs(self, x: Tensor, frozen: bool, members: int | None) -> Tensor:
        weights, biases = list(self.weights), list(self.biases)
        if not (self.plain or self.layer_norm or torch.is_grad_enabled()):
            count = self.members if members is None else members
            result, seen = _forward(self._pool, x, [w[:count] for w in weights], [b[:count] for b in biases])
            self._pool.give(*seen[1:])
            return result
        if members is not None and members != self.members:
            weights, biases = [w[:members] for w in weights], [b[:members] for b in biases]
        if frozen:
            weights, biases = [w.detach() for w in weights], [b.detach() for b in biases]
        if not (self.plain or self.layer_norm):
            grads = None if frozen else [w.grad for w in (*weights, *biases)]
            return cast("Tensor", _Dense.apply(self._pool, grads, x, *weights, *biases))
        x = x.expand(len(weights[0]), *x.shape)
        for number, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            if number + 1 < len(weights):
                x = torch.relu_(torch.layer_norm(x, (x.shape[2],)) if self.layer_norm else x)
        return x


def _forward(
    pool: Pool, x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Outputs (E, B, outputs) of x (B, inputs), and what each layer saw: x, then tensors of ``pool``."""
    h = x.expand(len(weights[0]), *x.shape)
    seen = [h]
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        out = pool.take(x, len(weight), len(x), weight.shape[2])
        h = torch.bmm(h, weight, out=out).add_(bias).clamp_min_(0)
        seen.append(h)
    if weights[-1].shape[2] == 1:  # matrix times vector, which batched products do slowly
        columns = [torch.mv(one, weight[:, 0]) for one, weight in zip(h, weights[-1], strict=True)]
        return torch.stack(columns).unsqueeze(2).add_(biases[-1]), seen
    return torch.bmm(h, weights[-1]).add_(biases[-1]), seen


class _Dense(torch.autograd.Function):
    """Dense layers with ReLU between them, differentiated by hand, once.

    It makes the products that are wanted and no other pass over the activations than bias, ReLU and its mask,
    in memory that is used again. Where weights have a ``grad`` (see :func:`parl.nets.flatten`), their
    gradients are added there by the products themselves.
    """

    @staticmethod
    def forward(
        ctx: Any, pool: Pool, grads: list[Tensor | None] | None, x: Tensor, *parameters: Tensor
    ) -> Tensor:
        """Outputs (E, B, outputs) of x (B, inputs); ``parameters`` are all weights, then all biases."""
        layers = len(parameters) // 2
        weights = parameters[:layers]
        result, seen = _forward(pool, x, weights, parameters[layers:])
        if any(ctx.needs_input_grad):
            ctx.pool, ctx.grads, ctx.seen = pool, grads, seen
            ctx.save_for_backward(*weights)
        else:
            pool.give(*seen[1:])
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Gradients of x, of the weights and of the biases, where they are wanted and not yet added."""
        weights: tuple[Tensor, ...] = ctx.saved_tensors
        pool: Pool = ctx.pool
        seen: list[Tensor] = ctx.seen
        ctx.seen = None  # the memory is given back: a second time is an error
        layers = len(seen)
        wants: tuple[bool, ...] = ctx.needs_input_grad[2:]
        grads: list[Tensor | None] = ctx.grads or [None] * (2 * layers)
        returned: list[Tensor | None] = [None] * (2 * layers)
        g: Tensor = gradients[0]
        for number in reversed(range(layers)):
            if wants[1 + number]:
                inputs, weight_grad, bias_grad = seen[number].mT, grads[number], grads[layers + number]
                if weight_grad is None or bias_grad is None:
                    returned[number] = torch.bmm(inputs, g)
                    returned[layers + number] = g.sum(dim=1, keepdim=True)
                else:
                    if g.shape[2] == 1:
                        for to, left, right in zip(weight_grad, inputs, g, strict=True):
                            to[:, 0].addmv_(left, right[:, 0])
                    else:
                        weight_grad.baddbmm_(inputs, g)
                    bias_grad.add_(g.sum(dim=1, keepdim=True))
            if number == 0:
                break
            back = pool.take(g, *seen[number].shape)
            if g.shape[2] == 1:
                torch.mul(g, weights[number].mT, out=back)
            else:
                torch.bmm(g, weights[number].mT, out=back)
            torch.ops.aten.threshold_backward.grad_input(back, seen[number], 0, grad_input=back)
            pool.give(seen[number])
            if number + 1 < layers:
                pool.give(g)
            g = back
        of_x = torch.bmm(g, weights[0].mT).sum(dim=0) if wants[0] else None
        if layers > 1:
            pool.give(g)
        return (None, None, of_x, *returned)
