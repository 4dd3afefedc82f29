"""Networks of dense layers with ReLU, forward and backward in one call of the Rust extension each.

On layers of some tens to hundreds of units the operations of torch and Python cost as much as the arithmetic.
The extension makes a pass in one thread, so that numbers depend on nothing else, as fast as torch does in
one. Between two calls other threads run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from parl._native import Dense
from parl.types import Array

Layer = tuple[Array, Array, Array | None, Array | None]
"""Weight, bias and, of a network that learns, their gradients, as they lie in memory."""
# Weights times rows of a batch from which torch's threads gain more than they cost.
MANY_PRODUCTS = 2**24


class RustMLP:
    """One or several networks on the same input.

    Args:
        networks: of each its hidden layers and its heads; the arrays are read, and gradients added, where
            they lie.
        transposed: weights lie as (inputs, width), else as (width, inputs).
    """

    def __init__(self, networks: Sequence[tuple[list[Layer], list[Layer]]], transposed: bool) -> None:
        self._make: Callable[[], list[Dense]] = lambda: [Dense(*one, transposed) for one in networks]
        # One set for passes without a backward pass; of the others one for each that is under way.
        self._forward_only, self._free = self._make(), []
        self._products = sum(layer[0].size for network in networks for part in network for layer in part)

    def takes(self, rows: int) -> bool:
        """Whether so many rows are better made here than by torch, perhaps with several threads."""
        return rows * self._products < MANY_PRODUCTS

    def forward(self, x: Array, outputs: Sequence[list[Array]]) -> None:
        """Writes what the heads of each network give of ``x`` (B, inputs), C-contiguous float32."""
        for net, out in zip(self._forward_only, outputs, strict=False):
            net.forward(x, out, False)

    def record(self, x: Array, outputs: Sequence[list[Array]]) -> RustPass:
        """As :meth:`forward`, with the backward pass."""
        nets = self._free.pop() if self._free else self._make()
        for net, out in zip(nets, outputs, strict=False):
            net.forward(x, out, True)
        return RustPass(nets, self._free, x)


class RustPass:
    """What a pass of :class:`RustMLP` keeps; its memory is used again when this is gone."""

    def __init__(self, nets: list[Dense], free: list[list[Dense]], x: Array) -> None:
        self._nets, self._free, self._x = nets, free, x

    def __del__(self) -> None:
        self._free.append(self._nets)

    def to_weights(self, of_outputs: Sequence[list[Array]]) -> None:
        """Adds the gradients of all weights and biases, from those of each network's outputs."""
        for net, g in zip(self._nets, of_outputs, strict=False):
            net.backward(self._x, g)

    def to_inputs(self, first: int, of_outputs: Sequence[list[Array]]) -> Array:
        """Gradients of the inputs from number ``first`` on, (B, inputs - first); rows of 0 cost nothing."""
        total = np.empty((len(self._x), self._x.shape[1] - first), np.float32)
        self._nets[0].back_to_inputs(first, of_outputs[0], total)
        for net, g in zip(self._nets[1:], of_outputs[1:], strict=False):
            net.back_to_inputs(first, g, one := np.empty_like(total))
            total += one
        return total
