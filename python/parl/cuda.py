"""What CUDA needs beside the driver: where NVRTC may lie, torch's devices and streams."""

from __future__ import annotations

import contextlib
import importlib.util
import threading
from pathlib import Path
from typing import Any

from parl import _native
from parl.errors import ConfigError, CudaUnavailableError, ParlError

_MOST = 2**31 - 1


def nvrtc_folders() -> list[str]:
    """Folders of installed packages that may hold NVRTC: those of the NVIDIA wheels, then torch's own."""
    folders: list[Path] = []
    for package, pattern in (("nvidia", "*/lib"), ("torch", "lib")):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec else []:
            folders += sorted(Path(place).glob(pattern), reverse=True)
    return [str(folder) for folder in folders]


def prefetch(device: str = "cuda") -> threading.Thread:
    """Compiles the kernels for a device in the background and keeps them on the disk.

    Environments that are made meanwhile compile what is not there yet; those made later find it. A reason
    why that cannot be is left to them.

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
    """Compiles the kernels for a device and keeps them on the disk.

    Args:
        device: ``"cuda"`` or ``"cuda:1"``.

    Returns:
        What was compiled for, such as ``"sm_90"``; the seconds; and for each file its name, its bytes and
        whether it was on the disk.

    Raises:
        CudaUnavailableError: there is no such device, or no compiler.
        ConfigError: (a ValueError) ``device`` names none.
    """
    return _native.cuda_prepare(ordinal(device), nvrtc_folders())


def ordinal(device: str) -> int:
    """The number of a CUDA device: 0 of ``"cuda"``, 1 of ``"cuda:1"``.

    Raises:
        ConfigError: (a ValueError) it is not named so.
    """
    kind, colon, number = str(device).partition(":")
    if kind != "cuda" or (colon and not (number.isascii() and number.isdigit() and int(number) <= _MOST)):
        raise ConfigError(f'device is {device!r}, expected "cpu", "cuda" or "cuda:<number>"')
    return int(number or 0)


def torch_device(ordinal: int) -> Any:
    """Torch's device of a number.

    Raises:
        CudaUnavailableError: torch is not there, or was built without CUDA, or does not see the device.
    """
    try:
        import torch
    except ImportError as error:
        raise CudaUnavailableError('device="cuda" needs torch: pip install "parl-rl[train]"') from error
    if not torch.cuda.is_available():
        raise CudaUnavailableError(
            f"torch {torch.__version__} sees no CUDA device, though the driver has: was it built for CUDA?"
        )
    if ordinal >= torch.cuda.device_count():
        raise CudaUnavailableError(
            f"torch sees {torch.cuda.device_count()} CUDA devices, and number {ordinal} was asked for"
        )
    return torch.device("cuda", ordinal)


def free_memory(device: Any) -> tuple[int, int]:
    """Bytes of a device of torch that are free, what torch keeps for later included, and bytes in all."""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device), total


def out_of_memory(device: Any, size: int) -> CudaUnavailableError:
    """What to raise when torch has no ``size`` bytes left on its device."""
    free, total = free_memory(device)
    return CudaUnavailableError(
        f"out of memory on {device}: {size} bytes were asked for, {free} of {total} are free"
    )


def give_back_memory(ordinal: int) -> bool:
    """Lets torch give the memory back that it keeps for later; false where it keeps none."""
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
    """A stream beside torch's current one, for work that is waited for later and never by the host.

    Args:
        device: torch's device.
    """

    def __init__(self, device: Any) -> None:
        import torch

        self._device, self._cuda = device, torch.cuda
        self._stream = torch.cuda.Stream(device)
        self._done = torch.cuda.Event()

    @property
    def address(self) -> int:
        """The driver's handle."""
        return self._stream.cuda_stream

    def begin(self, *tensors: Any) -> None:
        """What comes now follows what the current stream has been given; it uses these tensors."""
        self._stream.wait_stream(self._cuda.current_stream(self._device))
        for tensor in tensors:
            tensor.record_stream(self._stream)

    def end(self) -> None:
        """Up to here :meth:`join` waits."""
        self._done.record(self._stream)

    def join(self) -> None:
        """The current stream waits for what was given before :meth:`end`; the host does not."""
        self._cuda.current_stream(self._device).wait_event(self._done)


def current_stream(device: Any) -> int:
    """Address of torch's current stream on a device."""
    import torch

    return torch.cuda.current_stream(device).cuda_stream
