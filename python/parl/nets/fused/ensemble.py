"""Several dense networks of the same shape; the forward or backward pass of all of them is one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from parl.nets.fused.record import BackwardPass, run_network
from parl.nets.fused.rust_mlp import Layer, RustMLP
from parl.types import Array


class MLPEnsemble:
    """Dense networks with ReLU, whose parameters :func:`parl.nets.flatten` has moved to one buffer.

    Args:
        weights: (E, inputs, width) of each layer, on the CPU.
        biases: (E, 1, width) of each layer.
    """

    def __init__(self, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> None:
        def layers(member: int) -> list[Layer]:
            return [
                (
                    w.detach()[member].numpy(),
                    b.detach()[member, 0].numpy(),
                    None if w.grad is None else w.grad[member].numpy(),
                    None if b.grad is None else b.grad[member, 0].numpy(),
                )
                for w, b in zip(weights, biases, strict=True)
            ]

        self._members, self._width = len(weights[0]), weights[-1].shape[2]
        every = [layers(member) for member in range(self._members)]
        self._rust = RustMLP([(one[:-1], one[-1:]) for one in every], transposed=True)
        self._weight = weights[0]
        self._frozen = self._weight.detach()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copied network has other weights: its attribute is None until they are flattened.
        return type(None), ()

    def __call__(self, *parts: Tensor, frozen: bool = False, members: int | None = None) -> Tensor:
        """Returns outputs (E, B, outputs); ``parts`` are concatenated. See :class:`parl.nets.Ensemble`."""
        run = self.run if members is None else lambda given, keep: self.run(given, keep, members)
        return run_network(run, self._frozen if frozen else self._weight, *parts)[0]

    def run(
        self, parts: Sequence[Array], keep: bool, members: int | None = None
    ) -> tuple[list[Array], BackwardPass | None]:
        """See :data:`parl.nets.fused.record.ForwardPass`."""
        x = np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), np.float32)
        outputs = np.empty((members or self._members, len(x), self._width), np.float32)
        each = [[one] for one in outputs]
        if not keep:
            self._rust.forward(x, each)
            return [outputs], None
        record = self._rust.record(x, each)

        def backward(gradients: Sequence[Array | None], wants: Sequence[bool]) -> Sequence[Array | None]:
            (g,) = gradients
            assert g is not None  # there is only one output
            of_outputs = [[np.ascontiguousarray(one)] for one in g]
            if wants[0]:
                record.to_weights(of_outputs)
            found: list[Array | None] = [None] * len(parts)
            if any(wants[1:]):
                first_wanted = wants.index(True, 1) - 1
                skipped = sum(one.shape[1] for one in parts[:first_wanted])
                total, begin = record.to_inputs(skipped, of_outputs), 0
                for number, one in enumerate(parts[first_wanted:], first_wanted):
                    found[number] = total[:, begin : begin + one.shape[1]]
                    begin += one.shape[1]
            return found

        return [outputs], backward

    def act(self, x: Array) -> Array:
        """Returns outputs (B, outputs) of the first network; no gradient."""
        return self.run([x], False, 1)[0][0][0]


def suits_ensemble(weights: Sequence[Tensor]) -> bool:
    """Returns whether :class:`MLPEnsemble` supports them: on the CPU, with at least one hidden layer."""
    return len(weights) > 1 and weights[0].device.type == "cpu"
