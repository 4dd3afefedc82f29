"""A CUDA device with the kernels of trees and replays, and memory on it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol

from parl import _native, cuda
from parl.errors import CudaUnavailableError

if TYPE_CHECKING:
    import ctypes

    from torch import Tensor


class Program(Protocol):
    """Kernels that can be launched by name."""

    def launch(self, kernel: str, shape: tuple[int, int], plan: bytes, call: bytes, stream: int) -> None:
        """Launches a kernel of ``crates/sumtree/kernels``; does not synchronize.

        Args:
            kernel: name of the kernel.
            shape: number of blocks and of threads per block.
            plan: bytes of the first argument, a structure of ``structs``.
            call: bytes of the second argument.
            stream: handle of the CUDA stream.
        """
        ...


@functools.cache
def _program(number: int) -> Program:
    """The kernels of a device, loaded once per process."""
    return _native.CudaProgram(number, cuda.nvrtc_folders())


class CudaDevice:
    """A CUDA device, its kernels and torch's functions for it.

    Args:
        device: ``"cuda"`` or ``"cuda:<number>"``.

    Raises:
        CudaUnavailableError: there is no such device; the message says why.
    """

    def __init__(self, device: str) -> None:
        number = cuda.ordinal(device)
        # Opens the device before torch does, because torch's errors give less detail.
        self.program = _program(number)
        self.device: Any = cuda.torch_device(number)
        self.torch: Any = _torch()

    def stream(self) -> int:
        """Handle of torch's current stream."""
        return cuda.current_stream(self.device)

    def launch(
        self, kernel: str, blocks: int, threads: int, plan: ctypes.Structure, call: ctypes.Structure
    ) -> None:
        """Enqueues a kernel on torch's current stream."""
        self.program.launch(kernel, (blocks, threads), bytes(plan), bytes(call), self.stream())

    def empty(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        """A tensor with arbitrary values on the device."""
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype), device=self.device)

    def zeros(self, size: int) -> Tensor:
        """A (size,) uint8 tensor of zeros on the device.

        Raises:
            CudaUnavailableError: the device does not have that much free memory.
        """
        torch = self.torch
        try:
            return torch.zeros(size, dtype=torch.uint8, device=self.device)
        except torch.OutOfMemoryError as error:
            free, total = self.memory()
            raise CudaUnavailableError(
                f"out of memory on {self.device}: {size} bytes were asked for, {free} of {total} are free"
            ) from error

    def memory(self) -> tuple[int, int]:
        """Free bytes, including those that torch has cached, and total bytes of the device."""
        return cuda.free_memory(self.device)

    def to_device(self, value: Any, dtype: str) -> Tensor:
        """``value`` as a contiguous tensor of ``dtype`` on the device."""
        return self.numbers(value).to(getattr(self.torch, dtype)).contiguous()

    def numbers(self, value: Any) -> Tensor:
        """``value`` as a tensor on the device; Python's floats as float64, which torch would round."""
        torch = self.torch
        if not hasattr(value, "dtype"):
            on_host = torch.as_tensor(value)
            dtype = torch.float64 if on_host.is_floating_point() else None
            return torch.as_tensor(value, dtype=dtype, device=self.device)
        return torch.as_tensor(value, device=self.device)


class Arena:
    """Named arrays in a single allocation, each aligned to 256 bytes."""

    ALIGNMENT = 256

    def __init__(self) -> None:
        self._ranges: dict[str, tuple[int, int]] = {}
        self.bytes = 0

    def add(self, name: str, count: int, width: int) -> None:
        """Reserves memory for an array of ``count`` elements of ``width`` bytes."""
        self._ranges[name] = (self.bytes, count * width)
        self.bytes += -(-count * width // self.ALIGNMENT) * self.ALIGNMENT

    def allocate(self, cuda: CudaDevice) -> None:
        """Allocates all arrays, filled with zeros."""
        self._memory = cuda.zeros(max(self.bytes, 1))

    def address(self, name: str) -> int:
        """Address of an array; 0 if there is none of this name."""
        return self._memory.data_ptr() + self._ranges[name][0] if name in self._ranges else 0

    def view(self, name: str, dtype: str) -> Tensor:
        """An array as a one-dimensional tensor of ``dtype``."""
        start, size = self._ranges[name]
        return self._memory[start : start + size].view(getattr(_torch(), dtype))


def _torch() -> Any:
    import torch

    return torch
