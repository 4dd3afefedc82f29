"""Dense networks with ReLU; the forward and the backward pass are one call of the Rust extension each.

For layers of tens to hundreds of units, starting operations of torch from Python costs as much as the
arithmetic. The extension computes a pass in one thread, so that results do not depend on the number of
threads, and as fast as torch does in one. It releases the GIL during a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from parl._native import Dense
from parl.types import Array

Layer = tuple[Array, Array, Array | None, Array | None]
"""Weight, bias and, in a network that learns, their gradients; they share the parameters' memory."""
# Weights times rows of a batch from which torch's threads save more time than they cost.
RUST_MAX_PRODUCTS = 2**24


class RustMLP:
    """One or several networks on the same input.

    Args:
        networks: hidden layers and heads of each; the arrays are read, and gradients added, in place.
        transposed: whether weights are (inputs, width); else (width, inputs).
    """

    def __init__(self, networks: Sequence[tuple[list[Layer], list[Layer]]], transposed: bool) -> None:
        self._make: Callable[[], list[Dense]] = lambda: [Dense(*one, transposed) for one in networks]
        # One set for passes without a backward pass; otherwise one set for each pass in progress.
        self._forward_only, self._free = self._make(), []
        self._products = sum(layer[0].size for network in networks for part in network for layer in part)

    def accepts(self, rows: int) -> bool:
        """Returns whether a batch of ``rows`` rows is computed faster here than by torch."""
        return rows * self._products < RUST_MAX_PRODUCTS

    def forward(self, x: Array, outputs: Sequence[list[Array]]) -> None:
        """Writes the outputs of each network's heads for ``x`` (B, inputs), C-contiguous float32."""
        for net, out in zip(self._forward_only, outputs, strict=False):
            net.forward(x, out, False)

    def record(self, x: Array, outputs: Sequence[list[Array]]) -> RustPass:
        """As :meth:`forward`; returns the object that computes the backward pass."""
        nets = self._free.pop() if self._free else self._make()
        for net, out in zip(nets, outputs, strict=False):
            net.forward(x, out, True)
        return RustPass(nets, self._free, x)


class RustPass:
    """A forward pass of :class:`RustMLP`; its memory is reused when this object is deleted."""

    def __init__(self, nets: list[Dense], free: list[list[Dense]], x: Array) -> None:
        self._nets, self._free, self._x = nets, free, x

    def __del__(self) -> None:
        self._free.append(self._nets)

    def to_weights(self, of_outputs: Sequence[list[Array]]) -> None:
        """Adds the gradients of all weights and biases, given those of each network's outputs."""
        for net, g in zip(self._nets, of_outputs, strict=False):
            net.backward(self._x, g)

    def to_inputs(self, first: int, of_outputs: Sequence[list[Array]]) -> Array:
        """Returns gradients of the inputs from index ``first`` on, (B, inputs - first); skips rows of 0."""
        total = np.empty((len(self._x), self._x.shape[1] - first), np.float32)
        self._nets[0].backward_to_inputs(first, of_outputs[0], total)
        for net, g in zip(self._nets[1:], of_outputs[1:], strict=False):
            net.backward_to_inputs(first, g, one := np.empty_like(total))
            total += one
        return total
