"""All parameters of a module as views of one buffer.

One buffer needs one optimizer kernel, one all-reduce, and one copy to publish weights or to update a target
network: for small networks the number of calls determines the cost, not the arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from parl.errors import ConfigError


@dataclass
class FlatModule:
    """A module and its buffers.

    Attributes:
        weights: (P,) float32; the parameters of the module are views of it.
        gradients: (P,) float32; the ``grad`` of the parameters are views of it. None if they have none.
    """

    weights: Tensor
    gradients: Tensor | None


def flatten(module: nn.Module, gradients: bool = True) -> FlatModule:
    """Moves the parameters of ``module`` into one buffer, in the order of ``module.parameters()``.

    Then calls the method ``bind`` of each submodule that has one, so that it can use the new memory.

    Args:
        module: every parameter float32, all on one device.
        gradients: also make each ``grad`` a view of one buffer, to which ``backward()`` adds and which the
            caller zeroes. False: the parameters are frozen.

    Raises:
        ValueError: there are no parameters, or one is not float32.
    """
    parameters = list(module.parameters())
    if not parameters:
        raise ValueError(f"{type(module).__name__} has no parameters")
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32:
            raise ValueError(f"parameter {name} is {parameter.dtype}, not float32")
    size = sum(parameter.numel() for parameter in parameters)
    weights = torch.empty(size, device=parameters[0].device)
    grads = torch.zeros_like(weights) if gradients else None
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        weights[start:end] = parameter.detach().reshape(-1)
        parameter.data = weights[start:end].view(parameter.shape)
        if grads is not None:
            parameter.grad = grads[start:end].view(parameter.shape)
        else:
            parameter.requires_grad_(False)
        start = end
    for part in module.modules():
        bind = getattr(part, "bind", None)
        if bind is not None:
            bind()
    return FlatModule(weights, grads)


def named_weights(module: nn.Module) -> dict[str, Tensor]:
    """Returns the parameters of ``module`` by name, without gradients; changes in place change the module."""
    return {name: parameter.detach() for name, parameter in module.named_parameters()}


def copy_named(tensors: Mapping[str, Tensor], to: nn.Module) -> None:
    """Copies tensors into the parameters of the same names.

    Raises:
        ConfigError: names or shapes differ; names the first parameter that differs. Nothing is copied.
    """
    expected = named_weights(to)
    for name in [*expected, *tensors]:
        shapes = [tuple(one[name].shape) if name in one else None for one in (tensors, expected)]
        if shapes[0] != shapes[1]:
            has, needs = ("missing" if shape is None else f"of shape {shape}" for shape in shapes)
            raise ConfigError(f"parameter {name} is {has}, expected to be {needs}")
    for name, tensor in tensors.items():
        expected[name].copy_(tensor)
