"""Refuses, during the capture of a CUDA graph, what a real capture refuses; works without a device.

Tensors that stand for a device's may be in host memory. Therefore tensors are told apart by their origin:
made during the capture without naming a device, or from such tensors alone, they are the host's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_FROM_HOST = {torch.tensor, torch.as_tensor, torch.asarray}
_TO_HOST = {Tensor.cpu, Tensor.numpy, Tensor.__array__, Tensor.tolist}
# Operations whose result depends on values that the host reads: it waits for the device.
_READS = {
    "aten::_local_scalar_dense",
    "aten::_unique2",
    "aten::bincount",
    "aten::equal",
    "aten::masked_select",
    "aten::nonzero",
    "aten::repeat_interleave",
    "aten::unique_consecutive",
    "aten::unique_dim",
}
_INDEX = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}


class CaptureError(RuntimeError):
    """The work cannot be captured in a CUDA graph."""


def _is_of_host(tensor: Tensor) -> bool:
    return getattr(tensor, "_parl_of_host", False)


def _tensors(*parts: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(parts) if isinstance(leaf, Tensor)]


class _Calls(TorchFunctionMode):
    """Refuses calls that copy between host and device, and marks the host's tensors.

    Args:
        generators: random generators that are registered with the graph; None: any.
    """

    def __init__(self, generators: Collection[torch.Generator] | None) -> None:
        super().__init__()
        self._generators = generators

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = _tensors(args, kwargs)
        of_host = all(map(_is_of_host, given)) and kwargs.get("device") is None
        name = getattr(func, "__name__", str(func))
        if func in _FROM_HOST and kwargs.get("device") is not None and (of_host or not given):
            raise CaptureError(f"torch.{name}(device=...) copies from the host")
        if func in _TO_HOST and not of_host:
            raise CaptureError(f"Tensor.{name} copies to the host")
        if func is Tensor.to and _names_device(args[1:], kwargs):
            if _is_of_host(args[0]):
                raise CaptureError("Tensor.to copies from the host")
            if "cpu" in (*args[1:], kwargs.get("device")):
                raise CaptureError("Tensor.to copies to the host")
        elif func is Tensor.cuda and _is_of_host(args[0]):
            raise CaptureError("Tensor.cuda copies from the host")
        elif func is Tensor.copy_ and _is_of_host(args[0]) != _is_of_host(args[1]):
            raise CaptureError("Tensor.copy_ copies between host and device")
        elif any(_is_of_host(one) and one.dim() for one in given) and not all(map(_is_of_host, given)):
            raise CaptureError(f"{name} mixes tensors of host and device")
        generator = kwargs.get("generator")
        if self._generators is not None and generator is not None and generator not in self._generators:
            raise CaptureError(f"the generator of {name} is not registered with the graph")
        made = func(*args, **kwargs)
        if of_host:
            for tensor in _tensors(made):
                tensor._parl_of_host = True  # pyright: ignore[reportAttributeAccessIssue]
        return made


def _names_device(args: Any, kwargs: Any) -> bool:
    return "device" in kwargs or any(isinstance(one, torch.device | str) for one in args)


class _Operations(TorchDispatchMode):
    """Refuses operations that wait for the device, also those inside of others or of a backward pass."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        given = _tensors(args, kwargs)
        if not (given and all(map(_is_of_host, given))):
            if name in _READS:
                raise CaptureError(f"{name} waits for the device")
            if name in _INDEX and any(_is_mask(one) for one in args[1]) and not _fills(name, args):
                raise CaptureError(f"{name} with a mask waits for the device")
        return func(*args, **kwargs)


def _is_mask(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)


def _fills(name: str, args: Any) -> bool:
    """Whether one value is written where a mask is true, which needs no index."""
    return name != "aten::index" and args[2].numel() == 1


@contextlib.contextmanager
def refusing(generators: Collection[torch.Generator] | None = None) -> Iterator[None]:
    """A context in which work that a capture refuses raises :class:`CaptureError`.

    Args:
        generators: random generators that are registered with the graph; None: any may be used.
    """

    def refused(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            raise CaptureError(f"{name} is not allowed")

        return call

    places = [(torch, "manual_seed"), (torch.cuda, "manual_seed"), (torch.cuda, "manual_seed_all")]
    places += [(torch.cuda, "synchronize")]
    before = [getattr(place, name) for place, name in places]
    for place, name in places:
        setattr(place, name, refused(f"{place.__name__}.{name}"))
    try:
        with _Calls(generators), _Operations():
            yield
    finally:
        for (place, name), value in zip(places, before, strict=True):
            setattr(place, name, value)
