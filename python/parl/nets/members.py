"""The networks of an ensemble forth and back, each in one call of the extension.

What :class:`parl.nets.Ensemble` computes, without torch's records: for learners that write their losses'
gradients out. Between two calls other threads run, so that two of them can have a network each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from parl._native import Dense
from parl.nets.ensemble import Ensemble
from parl.types import Array


class Members:
    """Networks of an ensemble, their weights and gradients as they lie after :func:`parl.nets.flatten`.

    Args:
        ensemble: that :meth:`suits`.
        count: its first so many; None: all.
        learn: gradients of weights are wanted, not those of inputs.
    """

    def __init__(self, ensemble: Ensemble, count: int | None = None, learn: bool = False) -> None:
        parameters = list(zip(ensemble.weights, ensemble.biases, strict=True))

        def arrays(member: int) -> list[tuple[Array, Array, Array | None, Array | None]]:
            given = []
            for weight, bias in parameters:
                gradients: tuple[Array | None, Array | None] = (None, None)
                if learn:
                    assert weight.grad is not None and bias.grad is not None
                    gradients = weight.grad[member].numpy(), bias.grad[member, 0].numpy()
                given.append((weight.detach()[member].numpy(), bias.detach()[member, 0].numpy(), *gradients))
            return given

        self._nets = []
        for member in range(ensemble.members if count is None else count):
            *hidden, head = arrays(member)
            self._nets.append(Dense(hidden, [head], turned=True))
        self._width = parameters[-1][1].shape[2]
        self._memory: dict[tuple[int, bool], Array] = {}

    @staticmethod
    def suits(ensemble: Ensemble) -> bool:
        """Whether its layers are ReLU's alone, in float32 and on the CPU, with one hidden layer at least."""
        return (
            len(ensemble.weights) > 1
            and not (ensemble.plain or ensemble.layer_norm)
            and ensemble.weights[0].device.type == "cpu"
        )

    def outputs(self, x: Array) -> Array:
        """Outputs (E, B, outputs) of ``x`` (B, inputs) float32; the next call writes there again."""
        return self._forth(np.ascontiguousarray(x), kept=False)

    def record(self, x: Array) -> Recorded:
        """As :meth:`outputs`, with the way back, which is to be gone before the next record."""
        x = np.ascontiguousarray(x)

        def back(of_outputs: Array) -> None:
            for net, g in zip(self._nets, of_outputs, strict=True):
                net.back(x, [g])

        def back_to_inputs(of_outputs: Array, first: int) -> Array:
            total = np.zeros((len(x), x.shape[1] - first), np.float32)
            one = np.empty_like(total)
            for net, g in zip(self._nets, of_outputs, strict=True):
                net.back_to_inputs(first, [g], one)
                total += one
            return total

        return Recorded(self._forth(x, kept=True), back, back_to_inputs)

    def _forth(self, x: Array, kept: bool) -> Array:
        outputs = self._memory.get((len(x), kept))
        if outputs is None:
            outputs = np.empty((len(self._nets), len(x), self._width), np.float32)
            self._memory[len(x), kept] = outputs
        for net, out in zip(self._nets, outputs, strict=True):
            net.forth(x, [out], kept)
        return outputs


class Recorded(NamedTuple):
    """One pass of :class:`Members`.

    Attributes:
        outputs: (E, B, outputs) float32.
        back: writes the gradients of weights and biases, from those of the outputs.
        back_to_inputs: the gradients of the inputs from number ``first`` on, (B, inputs - first), from those
            of the outputs, of all members together; rows that are 0 cost nothing.
    """

    outputs: Array
    back: Callable[[Array], None]
    back_to_inputs: Callable[[Array, int], Array]
