"""Finds the dense layers of a user's module, so that :class:`MLPWithHeads` can compute its passes.

A module is a chain of dense layers if its forward pass applies linear layers to a batch of vectors, or of
flattened observations: each one with a bias, optionally followed by a layer normalization, and after each
the same activation function, ReLU or tanh; all run with gradients and have parameters of their own. The
operations of one pass show it. torch runs any other module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from parl.nets.fused.layers import Activation, Head, Layer, MLPWithHeads, ParameterView, Stack, view_parameter
from parl.nets.fused.record import observe

_ACTIVATIONS: dict[str, Activation] = {
    "aten.relu.default": "relu",
    "aten.relu_.default": "relu",
    "aten.tanh.default": "tanh",
    "aten.tanh_.default": "tanh",
}
_RESHAPES = ("aten.view.default", "aten._unsafe_view.default")


class Linear(NamedTuple):
    """Parameters of a linear layer.

    Attributes:
        weight: (width, inputs).
        bias: (width,).
        scale: (width,), of the layer normalization after it, or None.
        shift: (width,), likewise.
    """

    weight: Tensor
    bias: Tensor
    scale: Tensor | None = None
    shift: Tensor | None = None


class Chain(NamedTuple):
    """The layers of a module.

    Attributes:
        hidden: linear layers that an activation function follows.
        activation: of all of them.
        last: a linear layer after them, without activation function, or None.
    """

    hidden: list[Linear]
    activation: Activation
    last: Linear | None

    @property
    def kind(self) -> Any:
        """What equal chains have in common."""
        return [tuple(one.weight.shape) for one in self.hidden], self.activation, self.last is None


def run_and_find_chain(module: nn.Module, observations: Tensor) -> tuple[Any, Chain | None]:
    """Returns ``module(observations)``, and its layers, or None if it is no chain."""
    operations: list[tuple[str, tuple[Any, ...], Any]] = []

    def run(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        found = func(*args, **kwargs)
        operations.append((str(func), args, found))
        return found

    with torch.enable_grad():  # shows which operations the module itself runs without gradients
        found = observe(lambda: module(observations), run)
    parts = list(module.modules())
    hooks = any(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks for part in parts)
    learns = all(parameter.requires_grad for parameter in module.parameters())
    return found, None if hooks or not learns else _chain_of(operations, observations, found)


def _chain_of(
    operations: Sequence[tuple[str, tuple[Any, ...], Any]], observations: Tensor, result: Any
) -> Chain | None:
    hidden: list[Linear] = []
    activations: set[Activation] = set()
    linear: Linear | None = None
    transposed: dict[int, Tensor] = {}
    now = observations
    for name, args, found in operations:
        if name == "aten.detach.default":  # what autograd saves; a detached input of a layer is not ``now``
            continue
        if name == "aten.t.default" and isinstance(args[0], nn.Parameter):
            transposed[id(found)] = args[0]
            continue
        if name == "aten.addmm.default":
            bias, x, weight = args
            if x is not now or linear is not None or id(weight) not in transposed:
                return None
            linear = Linear(transposed[id(weight)], bias)
            if not isinstance(bias, nn.Parameter) or bias.shape != linear.weight.shape[:1]:
                return None
        elif args[0] is not now:
            return None
        elif name == "aten.native_layer_norm.default" and linear is not None and linear.scale is None:
            _, shape, scale, shift, epsilon = args
            parameters = isinstance(scale, nn.Parameter) and isinstance(shift, nn.Parameter)
            if not parameters or list(shape) != [len(linear.bias)] or epsilon != 1e-5:
                return None
            linear, found = linear._replace(scale=scale, shift=shift), found[0]
        elif name in _ACTIVATIONS and linear is not None:
            hidden.append(linear)
            activations.add(_ACTIVATIONS[name])
            linear = None
        elif name not in _RESHAPES or now is not observations or found.shape != observations.flatten(1).shape:
            return None
        if (linear is not None or hidden) and not found.requires_grad:
            return None
        now = found
    if result is not now or len(activations) != 1 or (linear is not None and linear.scale is not None):
        return None
    layers = hidden if linear is None else [*hidden, linear]
    used = [id(one) for layer in layers for one in layer if one is not None]
    return None if len(set(used)) < len(used) else Chain(hidden, activations.pop(), linear)


def fuse(chains: Sequence[Chain], heads: Sequence[Head]) -> MLPWithHeads | None:
    """Returns the layers of one module, or of several of equal shape, with heads as one fused operation.

    Args:
        chains: of each module; the parameters must have been flattened, one module after the other.
        heads: on the features of the modules.

    Returns:
        None if the modules differ, or if there are several with layer normalization.
    """
    first = chains[0]
    normalized = any(one.scale is not None for one in first.hidden)
    if len(chains) > 1 and (normalized or any(chain.kind != first.kind for chain in chains)):
        return None
    layers: list[Layer] = []
    for number, one in enumerate(first.hidden):
        weight = _joined([chain.hidden[number].weight for chain in chains])
        bias = _joined([chain.hidden[number].bias for chain in chains])
        norm = [None if two is None else view_parameter(two, lambda w: w) for two in (one.scale, one.shift)]
        layers.append(Layer(weight, bias, *norm))
    return MLPWithHeads(Stack(layers, first.activation), heads, first.hidden[0].weight)


def last_head(chain: Chain) -> Head:
    """Returns the last layer of a chain that has one as a head."""
    assert chain.last is not None
    weight, bias, *_ = chain.last
    return Head(0, view_parameter(weight, lambda w: w), view_parameter(bias, lambda b: b))


def _joined(parameters: Sequence[Tensor]) -> ParameterView:
    """Views a parameter of E modules, which lie at equal distances in memory, as one, see :class:`Layer`."""
    first = parameters[0]
    distance = parameters[-1].storage_offset() - first.storage_offset()
    distance //= max(1, len(parameters) - 1)
    if first.dim() == 1:
        shape, steps = (1, len(first)), (len(first), 1)
    else:
        shape, steps = first.T.shape, first.T.stride()
    return view_parameter(
        first,
        lambda one: one.as_strided((len(parameters), *shape), (distance, *steps), one.storage_offset()),
    )
