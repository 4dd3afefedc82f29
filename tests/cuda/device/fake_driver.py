"""The fake driver (`../fake_driver/`) for tests: a `libcuda` and an NVRTC whose device is the CPU.

Kernels, host code and driver calls are the real ones; only the device behind the driver is not a GPU. torch's
tensors are in host memory instead of device memory. On a machine with a CUDA device the same tests use that
device.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.append(str(Path(__file__).parents[2]))
from captures import refusing
from compiled import compiled

SOURCES = Path(__file__).parents[1] / "fake_driver"
FLAGS = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]


def build() -> dict[str, str]:
    """Compiles both libraries once. Returns the environment variables for processes that use them."""
    files = [*SOURCES.iterdir(), SOURCES.parents[2] / "crates" / "cule" / "kernels" / "ptx.h"]
    cuda, nvrtc = (
        compiled(name, [*FLAGS, *options, str(SOURCES / source)], files)
        for source, name, options in (
            ("cuda.cpp", "libcuda.so.1", ["-Wl,-soname,libcuda.so.1"]),
            ("nvrtc.cpp", "libnvrtc.so.13", [f'-DPARL_FAKE_DRIVER_FOLDER="{SOURCES}"']),
        )
    )
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(cuda.parent),
        "PARL_NVRTC": str(nvrtc),
        "PARL_CACHE_DIR": str(nvrtc.parent / "cache"),
    }


@functools.cache
def library() -> ctypes.CDLL | None:
    """The fake driver, or None if the driver is a real one or there is none."""
    try:
        found = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    if not hasattr(found, "parl_fake_driver_get"):
        return None
    found.parl_fake_driver_get.restype = ctypes.c_long
    found.parl_fake_driver_set.argtypes = [ctypes.c_char_p, ctypes.c_long]
    return found


def figure(name: str) -> int:
    """Returns a figure of the fake driver, such as `launches`, `synchronizations` or `allocations`."""
    driver = library()
    assert driver is not None
    value = driver.parl_fake_driver_get(name.encode())
    assert value >= 0, name
    return value


def set_figure(name: str, value: int) -> None:
    """Sets a figure of the fake driver, such as `lazy`, `memory` or `devices`."""
    driver = library()
    assert driver is not None
    assert driver.parl_fake_driver_set(name.encode(), value) == 0, name


@contextlib.contextmanager
def current_context() -> Iterator[None]:
    """Makes the context of device 0 the current one. On a real device torch does this."""
    driver, context = library(), ctypes.c_void_p()
    if driver is None:
        yield
        return
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    try:
        yield
    finally:
        assert driver.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
        assert driver.cuDevicePrimaryCtxRelease_v2(0) == 0


class Stream:
    """Handle of torch's current stream on the fake driver."""

    handle = 0


def patch_torch() -> None:
    """With the fake driver, replaces the device of torch's tensors, and torch's streams, by the CPU."""
    if library() is None:
        return
    from parl import cuda

    def place(ordinal: int) -> torch.device:
        del ordinal
        return torch.device("cpu")

    def current_stream(device: Any = None) -> Any:
        del device
        return types.SimpleNamespace(cuda_stream=Stream.handle)

    class Side:
        """Replaces `parl.cuda.SideStream`: the fake driver runs work of streams at once, in call order."""

        made = 0

        def __init__(self, device: Any) -> None:
            del device
            Side.made += 1
            self.address = 0x51DE0 + Side.made

        def begin(self, *tensors: Any) -> None:
            assert all(isinstance(tensor, torch.Tensor) for tensor in tensors)

        def end(self) -> None: ...

        def join(self) -> None: ...

    def release_cached_memory(ordinal: int) -> bool:
        del ordinal
        return False

    cuda.torch_device = place
    cuda.release_cached_memory = release_cached_memory
    cuda.SideStream = Side  # pyright: ignore[reportAttributeAccessIssue]
    torch.cuda.current_stream = current_stream


class KeepTensorsAlive(TorchDispatchMode):
    """Keeps all tensors alive that are made within, as torch does for a graph: replays write to them.

    New tensors are zeroed, because torch's own work runs at once, before the captured launches write to them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.empty.memory_format:
            made.zero_()
        self.kept.append(made)
        return made


class Graph:
    """A CUDA graph: torch's own on a device, otherwise one of the fake driver."""

    HANDLE = 0x600D

    def __init__(self) -> None:
        self.driver = library()
        self.graph: Any = ctypes.c_void_p() if self.driver else torch.cuda.CUDAGraph()

    def capture(self, work: Any) -> Any:
        """Captures the launches of `work` without running them. Returns the result of `work`."""
        if self.driver is None:
            with torch.cuda.graph(self.graph):
                return work()
        stream = ctypes.c_void_p(self.HANDLE)
        assert self.driver.cuStreamBeginCapture_v2(stream, 0) == 0
        Stream.handle = self.HANDLE
        self.keeping = KeepTensorsAlive()
        try:
            with refusing(), self.keeping:
                result = work()
        finally:
            Stream.handle = 0
            status = self.driver.cuStreamEndCapture(stream, ctypes.byref(self.graph))
        assert status == 0, f"the capture ended with error {status}"
        return result

    def replay(self) -> None:
        """Runs the graph and waits for it."""
        if self.driver is None:
            self.graph.replay()
            torch.cuda.synchronize()
            return
        assert self.driver.cuGraphLaunch(self.graph, ctypes.c_void_p(0)) == 0
