"""One network of dense layers and its way back: small products by numpy, large ones by torch, no records.

numpy starts a product in a third of torch's time, and its BLAS takes half the time for thin matrices, such as
those of an observation of four numbers; torch's uses the threads that it is told to. Activations lie in
memory that is used again. See :mod:`parl.nets.dense`, which says what is computed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parl.nets.dense import Headed
from parl.nets.small import ONE_THREAD
from parl.types import Array

_relu_back = torch.ops.aten.threshold_backward.grad_input


class _Both(NamedTuple):
    """The same memory as an array and as a tensor."""

    array: Array
    tensor: Tensor


class _Matrix:
    """A matrix and its transpose, on the same memory."""

    def __init__(self, tensor: Tensor) -> None:
        self.plain = _Both(tensor.numpy(), tensor)
        self.turned = _Both(tensor.T.numpy(), tensor.T)


def _multiply(one: _Both, two: _Both, out: _Both) -> None:
    rows, inner = one.array.shape
    width = two.array.shape[1]
    # Vectors go by another operation of BLAS, which uses threads earlier.
    if min(rows, inner, width) > 1 and rows * inner * width <= ONE_THREAD:
        np.matmul(one.array, two.array, out=out.array)
    else:
        torch.mm(one.tensor, two.tensor, out=out.tensor)


class _Linear:
    """``x W^T + b``, W (width, inputs)."""

    def __init__(
        self, weight: Tensor, bias: Tensor, of_weight: Tensor | None, of_bias: Tensor | None
    ) -> None:
        self.weight = _Matrix(weight)
        self.width = len(weight)
        self._bias = bias.numpy()
        self._of_weight = None if of_weight is None else _Both(of_weight.numpy(), of_weight)
        self._of_bias = None if of_bias is None else of_bias.numpy()

    def forward(self, x: _Both, out: _Both) -> None:
        """Writes (B, width)."""
        _multiply(x, self.weight.turned, out)
        np.add(out.array, self._bias, out=out.array)

    def gradients(self, x: _Both, g: _Matrix) -> None:
        """Writes those of weight and bias."""
        assert self._of_weight is not None and self._of_bias is not None
        _multiply(g.turned, x, self._of_weight)
        np.add.reduce(g.plain.array, axis=0, out=self._of_bias)


class Single:
    """A network with ReLU and without normalisation, its weights and gradients as they lie after ``flatten``.

    Args:
        net: layers and heads of one network that :meth:`suits`.
    """

    def __init__(self, net: Headed) -> None:
        self.learns = net.stack.learns
        self._layers: list[_Linear] = []
        for one in net.stack.layers:
            grads = [None if slot.grad is None else slot.grad[0] for slot in (one.weight, one.bias)]
            of_weight = None if grads[0] is None else grads[0].T
            of_bias = None if grads[1] is None else grads[1][0]
            self._layers.append(_Linear(one.weight.value[0].T, one.bias.value[0, 0], of_weight, of_bias))
        self._heads: list[_Linear] = []
        for head in net.heads:
            weight, grad = head.weight.value, head.weight.grad
            shape = (-1, weight.shape[-1])
            of_weight = None if grad is None else grad.view(shape)
            self._heads.append(_Linear(weight.view(shape), head.bias.value, of_weight, head.bias.grad))
        self._memory: dict[tuple[int, bool], list[_Matrix]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # As of Headed: a copy of the network has weights of its own.
        return type(None), ()

    @staticmethod
    def suits(net: Headed) -> bool:
        """Whether it is one network with heads, on the CPU, with ReLU and without normalisation."""
        layers = net.stack.layers
        return (
            bool(net.heads)
            and net.stack.activation == "relu"
            and all(one.scale is None and len(one.weight.value) == 1 for one in layers)
            and all(one.weight.value[0].T.is_contiguous() for one in layers)
            and layers[0].weight.value.device.type == "cpu"
        )

    def outputs(self, x: Tensor) -> list[Array]:
        """What each head gives of (B, inputs) float32, (B, outputs)."""
        return self._forward(_Both(x.numpy(), x), self._take(len(x), kept=False))

    def record(self, x: Tensor) -> SingleRecorded:
        """As :meth:`outputs`, with the way back, which is to be gone before the next record."""
        seen = _Both(x.numpy(), x)
        return SingleRecorded(self, seen, self._forward(seen, self._take(len(x), kept=True)))

    def _take(self, rows: int, kept: bool) -> list[_Matrix]:
        """Memory for what the layers give, (B, width) each; ``kept``: for a way back, and its gradients."""
        memory = self._memory.get((rows, kept))
        if memory is None:
            widths = [one.width for one in self._layers]
            memory = [_Matrix(torch.empty(rows, width)) for width in widths * (2 if kept else 1)]
            self._memory[rows, kept] = memory
        return memory

    def _forward(self, x: _Both, memory: list[_Matrix]) -> list[Array]:
        for one, block in zip(self._layers, memory, strict=False):
            out = block.plain
            one.forward(x, out)
            torch.relu_(out.tensor)
            x = out
        found: list[Array] = []
        for one in self._heads:
            tensor = torch.empty(len(x.array), one.width)
            out = _Both(tensor.numpy(), tensor)
            one.forward(x, out)
            found.append(out.array)
        return found

    def back(self, x: _Both, gradients: tuple[Array, ...]) -> None:
        """Writes the weights' gradients."""
        count = len(self._layers)
        memory = self._take(len(x.array), kept=True)
        seen, backs = memory[:count], memory[count:]
        for number, (one, of_output) in enumerate(zip(self._heads, gradients, strict=True)):
            g = _Matrix(torch.from_numpy(np.ascontiguousarray(of_output)))
            one.gradients(seen[-1].plain, g)
            if number == 0:
                _multiply(g.plain, one.weight.plain, backs[-1].plain)
            else:
                backs[-1].plain.tensor.addmm_(g.plain.tensor, one.weight.plain.tensor)
        for number in reversed(range(count)):
            g, h = backs[number], seen[number].plain.tensor
            _relu_back(g.plain.tensor, h, 0, grad_input=g.plain.tensor)
            self._layers[number].gradients(seen[number - 1].plain if number else x, g)
            if number:
                _multiply(g.plain, self._layers[number].weight.plain, backs[number - 1].plain)


class SingleRecorded:
    """One pass of :class:`Single`.

    Attributes:
        outputs: what each head gives, (B, outputs) float32.
    """

    def __init__(self, net: Single, x: _Both, outputs: list[Array]) -> None:
        self._net, self._x = net, x
        self.outputs = outputs

    def back(self, *gradients: Array) -> None:
        """Writes the weights' gradients, from those of the outputs."""
        self._net.back(self._x, gradients)
