"""One network of dense layers and its way back in two calls, for products that are small.

Products of a tenth of a millisecond each leave Python and torch as much to do as the arithmetic: a pass and
its way back are some forty operations. The extension makes them in one thread, so that numbers depend on
nothing else; it multiplies as fast as torch does in one. See :mod:`parl.nets.dense`, which says what is
computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from parl._native import Dense
from parl.nets.dense import Headed, Slot
from parl.types import Array

# Weights times rows of a batch from which torch's threads gain more than they cost.
MANY_PRODUCTS = 2**24


class Single:
    """A network with ReLU and without normalisation, its weights and gradients as they lie after ``flatten``.

    Args:
        net: layers and heads of one network that :meth:`suits`.
    """

    def __init__(self, net: Headed) -> None:
        hidden = [_arrays(one.weight, one.bias, turned=True) for one in net.stack.layers]
        heads = [_arrays(one.weight, one.bias, turned=False) for one in net.heads]
        self._dense = Dense(hidden, heads)
        self._widths = [bias.size for _, bias, *_ in heads]
        self._products = sum(weight.size for weight, *_ in hidden + heads)
        self._outputs: dict[tuple[int, bool], list[Array]] = {}

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

    def takes(self, rows: int) -> bool:
        """Whether so many rows are better made here than by torch, perhaps with several threads."""
        return rows * self._products < MANY_PRODUCTS

    def outputs(self, x: Tensor) -> list[Array]:
        """What each head gives of (B, inputs) float32, (B, outputs); the next call writes there again."""
        return self._forth(x.contiguous().numpy(), kept=False)

    def record(self, x: Tensor) -> SingleRecorded:
        """As :meth:`outputs`, with the way back, which is to be gone before the next record."""
        seen = x.contiguous().numpy()
        outputs = self._forth(seen, kept=True)

        def back(*gradients: Array) -> None:
            self._dense.back(seen, [np.ascontiguousarray(one) for one in gradients])

        return SingleRecorded(outputs, back)

    def _forth(self, x: Array, kept: bool) -> list[Array]:
        outputs = self._outputs.get((len(x), kept))
        if outputs is None:
            outputs = [np.empty((len(x), width), np.float32) for width in self._widths]
            self._outputs[len(x), kept] = outputs
        self._dense.forth(x, outputs, kept)
        return outputs


class SingleRecorded(NamedTuple):
    """One pass of :class:`Single`.

    Attributes:
        outputs: what each head gives, (B, outputs) float32.
        back: writes the weights' gradients, from those of the outputs.
    """

    outputs: list[Array]
    back: Callable[..., None]


def _arrays(weight: Slot, bias: Slot, turned: bool) -> tuple[Array, Array, Array | None, Array | None]:
    """Weight, bias and their gradients as they lie in memory, (width, inputs) and (width,)."""
    width = bias.value.numel()

    def matrix(view: Tensor) -> Array:
        return view[0].T.numpy() if turned else view.view(width, -1).numpy()

    of_weight, of_bias = weight.grad, bias.grad
    return (
        matrix(weight.value),
        bias.value.view(width).numpy(),
        None if of_weight is None else matrix(of_weight),
        None if of_bias is None else of_bias.view(width).numpy(),
    )
