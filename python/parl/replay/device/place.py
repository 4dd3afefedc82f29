"""Where kernels run: a device, its program of kernels, and torch's stream."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol

from parl import _native, cuda
from parl.errors import CudaUnavailableError

if TYPE_CHECKING:
    import ctypes

    from torch import Tensor


class Program(Protocol):
    """Kernels that can be started by name."""

    def launch(self, kernel: str, shape: tuple[int, int], plan: bytes, call: bytes, stream: int) -> None:
        """Starts a kernel of ``crates/sumtree/kernels`` in blocks of threads; does not wait."""
        ...


@functools.cache
def _program(number: int) -> Program:
    """The kernels of a device: loaded once in a process."""
    return _native.CudaProgram(number, cuda.nvrtc_folders())


class Place:
    """A CUDA device.

    Args:
        device: ``"cuda"`` or ``"cuda:<number>"``.

    Raises:
        CudaUnavailableError: it cannot be had; the message says why.
    """

    def __init__(self, device: str) -> None:
        number = cuda.ordinal(device)
        # What is missing is said before torch starts anything.
        self.program = _program(number)
        self.device: Any = cuda.torch_device(number)
        self.torch: Any = _torch()

    def stream(self) -> int:
        """Address of torch's current stream."""
        return cuda.current_stream(self.device)

    def launch(
        self, kernel: str, blocks: int, threads: int, plan: ctypes.Structure, call: ctypes.Structure
    ) -> None:
        """Starts a kernel behind what the stream has."""
        self.program.launch(kernel, (blocks, threads), bytes(plan), bytes(call), self.stream())

    def empty(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        """A tensor of arbitrary numbers."""
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype), device=self.device)

    def zeros(self, size: int) -> Tensor:
        """Bytes of 0.

        Raises:
            CudaUnavailableError: there are not so many.
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
        """Bytes that are free, what torch keeps for later included, and bytes in all."""
        return cuda.free_memory(self.device)

    def given(self, value: Any, dtype: str) -> Tensor:
        """Whatever the caller has, here and contiguous."""
        tensor = self.torch.as_tensor(value, device=self.device)
        return tensor.to(getattr(self.torch, dtype)).contiguous()


class Parts:
    """Parts of one piece of memory, each at a multiple of 256 bytes."""

    ALIGNMENT = 256

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, int]] = {}
        self.bytes = 0

    def add(self, name: str, count: int, width: int) -> None:
        """Makes room for ``count`` numbers of ``width`` bytes."""
        self._places[name] = (self.bytes, count * width)
        self.bytes += -(-count * width // self.ALIGNMENT) * self.ALIGNMENT

    def allocate(self, place: Place) -> None:
        """Allocates all parts, of zeros."""
        self._memory = place.zeros(max(self.bytes, 1))

    def address(self, name: str) -> int:
        """Where a part begins, 0 if there is none."""
        return self._memory.data_ptr() + self._places[name][0] if name in self._places else 0

    def view(self, name: str, dtype: str) -> Tensor:
        """A part as numbers."""
        start, size = self._places[name]
        return self._memory[start : start + size].view(getattr(_torch(), dtype))


def _torch() -> Any:
    import torch

    return torch
