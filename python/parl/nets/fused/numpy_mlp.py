"""Forward and backward pass of dense layers in numpy, for up to a few hundred rows.

For so few rows, starting an operation of torch costs several times the arithmetic in it, and one of numpy a
third of that. numpy's BLAS uses several threads for larger products, and results would depend on their
number: rows are therefore split into equal parts below that size, in layers and in heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from parl.nets.fused.record import BackwardPass
from parl.types import Array

if TYPE_CHECKING:
    from parl.nets.fused.layers import MLPWithHeads

# Multiplications in a product of matrices up to which OpenBLAS uses one thread.
_ONE_THREAD_MAX_PRODUCTS = 2**18
# Least number of rows in a part: with fewer, starting the products costs more than computing them.
_MIN_ROWS = 16


class NumpyMLP:
    """A dense network without normalization, with weights and gradients as numpy arrays.

    Args:
        net: layers and heads, for which :meth:`suits` returns true.
    """

    def __init__(self, net: MLPWithHeads) -> None:
        self._relu = net.stack.activation == "relu"
        self._layers: list[tuple[Array, Array, Array, Array, bool]] = []
        for one in net.stack.layers:
            weight, bias = one.weight, one.bias
            assert weight.grad is not None and bias.grad is not None
            # BLAS writes row-major results: for a transposed gradient, the transposed product is computed.
            turned = weight.grad.stride(2) != 1
            grad = weight.grad.mT if turned else weight.grad
            # (E, 1, ., .): broadcast over the parts.
            w, b = (one.numpy()[:, None] for one in (weight.value, bias.value))
            self._layers.append((w, b, grad.numpy(), bias.grad.numpy()[:, 0], turned))
        self._heads: list[tuple[int, Array, Array, Array, Array]] = []
        for head in net.heads:
            weight, bias = head.weight, head.bias
            assert weight.grad is not None and bias.grad is not None
            values = (weight.value.numpy(), bias.value.numpy())
            self._heads.append((head.member, *values, weight.grad.numpy(), bias.grad.numpy()))
        self.members = len(self._layers[0][0])
        self._products = max(net.stack.products, *(head.weight.value.numel() for head in net.heads))

    @staticmethod
    def suits(net: MLPWithHeads) -> bool:
        """Returns whether ``net`` learns, has heads on every network, and no normalization."""
        members = len(net.stack.layers[0].weight.value)
        plain = all(one.scale is None for one in net.stack.layers)
        return net.stack.learns and plain and {head.member for head in net.heads} == set(range(members))

    def num_parts(self, rows: int) -> int:
        """Returns the number of equal parts into which ``rows`` rows are split; 0 if there is none."""
        least = -(-rows * self._products // _ONE_THREAD_MAX_PRODUCTS)
        most = max(1, min(2 * least, rows // _MIN_ROWS))
        return next((parts for parts in range(least, most + 1) if rows % parts == 0), 0)

    def run(self, x: Array, parts: int) -> tuple[list[Array], BackwardPass]:
        """Returns the outputs for x (B, inputs) float32, computed in ``parts``, and the backward pass."""
        x = x.reshape(1, parts, len(x) // parts, -1)
        seen = [x]
        for weight, bias, *_ in self._layers:
            x = x @ weight
            x += bias
            x = np.maximum(x, 0, out=x) if self._relu else np.tanh(x, out=x)
            seen.append(x)
        outputs: list[Array] = []
        for member, weight, bias, *_ in self._heads:
            output = x[member] @ weight.T
            output += bias
            outputs.append(output.reshape(-1, *output.shape[2:]))
        return outputs, lambda gradients, wants: [self._backward(seen, gradients, *wants)]

    def _backward(
        self, seen: list[Array], gradients: Sequence[Array | None], weights: bool, inputs: bool
    ) -> Array | None:
        features = seen[-1]
        _, parts, rows, width = features.shape
        g: Any = np.zeros_like(features)
        for (member, weight, _, grad, bias_grad), of_output in zip(self._heads, gradients, strict=True):
            if of_output is None:
                continue
            split = of_output.reshape(parts, rows, -1)
            if weights:
                product = split.swapaxes(1, 2) @ features[member]
                total = product[0] if parts == 1 else np.add.reduce(product, axis=0)
                grad += total.reshape(grad.shape)
                bias_grad += np.add.reduce(of_output, axis=0)
            g[member] += split @ weight.reshape(-1, width)
        for number in reversed(range(len(self._layers))):
            weight, _, grad, bias_grad, turned = self._layers[number]
            h, below = seen[number + 1], seen[number]
            if self._relu:
                g *= h > 0
            else:
                slope = h * h
                np.subtract(1, slope, out=slope)
                g *= slope
            if weights:
                one, two = (g, below) if turned else (below, g)
                product = one.swapaxes(2, 3) @ two
                grad += product[:, 0] if len(product[0]) == 1 else np.add.reduce(product, axis=1)
                bias_grad += np.add.reduce(g, axis=(1, 2))
            if number or inputs:
                g = g @ weight.swapaxes(2, 3)
        return np.add.reduce(g.reshape(len(g), parts * rows, -1), axis=0) if inputs else None
