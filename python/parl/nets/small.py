"""The pass of :mod:`parl.nets.dense` and its way back with numpy alone, for up to some hundred rows.

There an operation of torch costs several times the arithmetic in it, and one of numpy a third of that.
numpy's BLAS starts threads for larger products, so that results would depend on their number: rows are cut
into equal parts that stay below.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from parl.nets.dense import Headed
from parl.types import Array

# Products of matrices up to which OpenBLAS uses one thread.
_ONE_THREAD = 2**18
# Rows of a part, below which starting its products costs more than they do.
_LEAST_ROWS = 16


class Small:
    """A network of dense layers without normalisation, its weights and gradients as numpy arrays.

    Args:
        net: layers and heads; it learns, and :meth:`suits` it.
    """

    def __init__(self, net: Headed) -> None:
        self._products = net.stack.products
        self._relu = net.stack.activation == "relu"
        self._layers: list[tuple[Array, Array, Array, Array, bool]] = []
        for one in net.stack.layers:
            weight, bias = one.weight, one.bias
            assert weight.grad is not None and bias.grad is not None
            # BLAS writes rows: a matrix that lies the other way round takes the product the other way round.
            turned = weight.grad.stride(2) != 1
            grad = weight.grad.mT if turned else weight.grad
            # (E, 1, ., .): the same for every part.
            w, b, of_w, of_b = (one.numpy()[:, None] for one in (weight.value, bias.value, grad, bias.grad))
            self._layers.append((w, b, of_w, of_b, turned))
        self._heads: list[tuple[int, Array, Array, Array, Array]] = []
        for head in net.heads:
            weight, bias = head.weight, head.bias
            assert weight.grad is not None and bias.grad is not None
            values = (weight.value.numpy(), bias.value.numpy())
            self._heads.append((head.member, *values, weight.grad.numpy(), bias.grad.numpy()))
        self.members = len(self._layers[0][0])

    def __reduce__(self) -> tuple[Any, ...]:
        # As of Headed: a copy of the network has weights of its own.
        return type(None), ()

    @staticmethod
    def suits(net: Headed) -> bool:
        """Whether there are heads for every network, and no normalisation."""
        members = len(net.stack.layers[0].weight.value)
        plain = all(one.scale is None for one in net.stack.layers)
        return net.stack.learns and plain and {head.member for head in net.heads} == set(range(members))

    def parts(self, rows: int) -> int:
        """Equal parts that a batch of so many rows is cut into; 0 where there is no such cut."""
        least = -(-rows * self._products // _ONE_THREAD)
        most = max(1, min(2 * least, rows // _LEAST_ROWS))
        return next((parts for parts in range(least, most + 1) if rows % parts == 0), 0)

    def record(self, x: Array) -> SmallRecorded:
        """Outputs from (B, inputs) float32, for which there is a cut, and the way back."""
        parts = self.parts(len(x))
        x = x.reshape(1, parts, len(x) // parts, -1)
        seen = [x]
        for weight, bias, *_ in self._layers:
            x = x @ weight
            x += bias
            x = np.maximum(x, 0, out=x) if self._relu else np.tanh(x, out=x)
            seen.append(x)
        outputs: list[Array] = []
        features = x.reshape(len(x), -1, x.shape[-1])
        for member, weight, bias, *_ in self._heads:
            output = features[member] @ weight.T
            output += bias
            outputs.append(output)
        return SmallRecorded(self, seen, tuple(outputs))

    def back(self, seen: list[Array], gradients: tuple[Array, ...]) -> None:
        """Writes the weights' gradients."""
        last = seen[-1]
        features = last.reshape(len(last), -1, last.shape[-1])
        g: Any = np.empty_like(features)
        written = [False] * self.members
        for (member, weight, _, grad, bias_grad), of_output in zip(self._heads, gradients, strict=True):
            np.matmul(of_output.T, features[member], out=grad)
            np.add.reduce(of_output, axis=0, out=bias_grad.reshape(of_output.shape[1:]))
            flat = of_output.reshape(len(of_output), -1)
            part = flat @ weight.reshape(flat.shape[1], -1)
            if written[member]:
                g[member] += part
            else:
                g[member] = part
                written[member] = True
        g = g.reshape(last.shape)
        for number in reversed(range(len(self._layers))):
            weight, _, grad, bias_grad, turned = self._layers[number]
            h, inputs = seen[number + 1], seen[number]
            if self._relu:
                g *= h > 0
            else:
                slope = h * h
                np.subtract(1, slope, out=slope)
                g *= slope
            one, two = (g, inputs) if turned else (inputs, g)
            if g.shape[1] == 1:
                np.matmul(one.swapaxes(2, 3), two, out=grad)
            else:
                np.add.reduce(one.swapaxes(2, 3) @ two, axis=1, out=grad, keepdims=True)
            np.add.reduce(g, axis=(1, 2), out=bias_grad, keepdims=True)
            if number:
                g = g @ weight.swapaxes(2, 3)


class SmallRecorded:
    """One pass of :class:`Small`; as :class:`parl.nets.dense.Recorded`."""

    def __init__(self, net: Small, seen: list[Array], outputs: tuple[Array, ...]) -> None:
        self._net, self._seen = net, seen
        self.outputs = outputs

    def back(self, *gradients: Array) -> None:
        """The weights' gradients, from those of the outputs."""
        self._net.back(self._seen, gradients)

    def drop(self) -> None:
        """Nothing is to be learned from this pass."""
