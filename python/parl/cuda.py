"""CUDA outside the driver: folders of NVRTC, kernel compilation, and torch's devices, memory and streams."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from pathlib import Path
from typing import Any

from parl import _native
from parl.errors import ConfigError, CudaUnavailableError, ParlError

_MAX_ORDINAL = 2**31 - 1


def nvrtc_folders() -> list[str]:
    """Folders of installed packages that may contain NVRTC: first the NVIDIA wheels, then torch."""
    folders: list[Path] = []
    of_nvidia = ("*/bin/x86_64", "*/bin") if sys.platform == "win32" else ("*/lib",)
    for package, pattern in (*(("nvidia", pattern) for pattern in of_nvidia), ("torch", "lib")):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec else []:
            folders += sorted(Path(place).glob(pattern), reverse=True)
    return [str(folder) for folder in folders]


def prefetch(device: str = "cuda") -> threading.Thread:
    """Compiles the kernels for a device in a background thread and stores them in the kernel cache.

    Environments made in the meantime compile kernels that are not in the cache yet; later ones load them
    from it. Errors are ignored here, since making an environment raises them.

    Args:
        device: ``"cuda"`` or ``"cuda:1"``.

    Returns:
        The thread, already started; ``join()`` waits for it.
    """

    def work() -> None:
        with contextlib.suppress(ParlError, RuntimeError):
            prepare(device)

    thread = threading.Thread(target=work, name="parl-prefetch", daemon=True)
    thread.start()
    return thread


def prepare(device: str = "cuda") -> tuple[str, float, list[tuple[str, int, bool]]]:
    """Compiles the kernels for a device and stores them in the kernel cache.

    Args:
        device: ``"cuda"`` or ``"cuda:1"``.

    Returns:
        The architecture, such as ``"sm_90"``; the time in seconds; and for each file its name, its size in
        bytes and whether it was in the cache.

    Raises:
        CudaUnavailableError: the device or the compiler (NVRTC) is missing.
        ConfigError: (a ValueError) ``device`` is not the name of a CUDA device.
    """
    return _native.cuda_prepare(ordinal(device), nvrtc_folders())


def ordinal(device: str) -> int:
    """The number of a CUDA device: 0 for ``"cuda"``, 1 for ``"cuda:1"``.

    Raises:
        ConfigError: (a ValueError) ``device`` is not such a name.
    """
    kind, colon, number = str(device).partition(":")
    if kind != "cuda" or (
        colon and not (number.isascii() and number.isdigit() and int(number) <= _MAX_ORDINAL)
    ):
        raise ConfigError(f'device is {device!r}, expected "cpu", "cuda" or "cuda:<number>"')
    return int(number or 0)


def torch_device(ordinal: int) -> Any:
    """The torch device with a number.

    Raises:
        CudaUnavailableError: torch is not installed, was built without CUDA, or does not see the device.
    """
    try:
        import torch
    except ImportError as error:
        raise CudaUnavailableError('device="cuda" needs torch: pip install "parl-rl[train]"') from error
    if not torch.cuda.is_available():
        raise CudaUnavailableError(
            f"torch {torch.__version__} sees no CUDA device, although the driver does: was it built for CUDA?"
        )
    if ordinal >= torch.cuda.device_count():
        raise CudaUnavailableError(
            f"torch sees {torch.cuda.device_count()} CUDA devices, but device number {ordinal} was requested"
        )
    return torch.device("cuda", ordinal)


def free_memory(device: Any) -> tuple[int, int]:
    """Free and total bytes of a torch device; bytes that torch has reserved but not allocated are free."""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device), total


def out_of_memory(device: Any, size: int) -> CudaUnavailableError:
    """The error to raise when torch cannot allocate ``size`` bytes on ``device``."""
    free, total = free_memory(device)
    return CudaUnavailableError(
        f"out of memory on {device}: {size} bytes were asked for, {free} of {total} are free"
    )


def release_cached_memory(ordinal: int) -> bool:
    """Frees memory that torch has reserved but not allocated; returns whether there was any."""
    try:
        import torch
    except ImportError:
        return False
    if not torch.cuda.is_available() or ordinal >= torch.cuda.device_count():
        return False
    kept = torch.cuda.memory_reserved(ordinal) - torch.cuda.memory_allocated(ordinal)
    if kept > 0:
        torch.cuda.empty_cache()
    return kept > 0


class SideStream:
    """A CUDA stream that runs beside torch's current one. The current stream joins it later; the host never.

    Args:
        device: torch device.
    """

    def __init__(self, device: Any) -> None:
        import torch

        self._device, self._cuda = device, torch.cuda
        self._stream = torch.cuda.Stream(device)
        self._done = torch.cuda.Event()

    @property
    def address(self) -> int:
        """The driver's handle of the stream."""
        return self._stream.cuda_stream

    def begin(self, *tensors: Any) -> None:
        """Makes this stream wait for the work queued on the current stream; it will use these tensors."""
        self._stream.wait_stream(self._cuda.current_stream(self._device))
        for tensor in tensors:
            tensor.record_stream(self._stream)

    def end(self) -> None:
        """Marks the point of this stream that :meth:`join` waits for."""
        self._done.record(self._stream)

    def join(self) -> None:
        """Makes the current stream wait for the work before :meth:`end`; does not block the host."""
        self._cuda.current_stream(self._device).wait_event(self._done)


def current_stream(device: Any) -> int:
    """The driver's handle of torch's current stream on a device."""
    import torch

    return torch.cuda.current_stream(device).cuda_stream
