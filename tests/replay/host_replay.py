"""Trees and replays of `device="cuda"` that run without a device: their kernels are compiled as host C++."""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path
from typing import Any

import torch

import parl
from parl.replay.cuda.classes import CudaSequenceReplay, CudaUniformReplay
from parl.replay.cuda.device import CudaDevice
from parl.replay.cuda.replay import CudaReplay
from parl.replay.cuda.tree import CudaSumTree

sys.path.append(str(Path(__file__).parents[1]))
from compiled import compiled

KERNELS = Path(__file__).parents[2] / "crates" / "sumtree" / "kernels"


@functools.cache
def library() -> ctypes.CDLL:
    """The kernels, compiled as a shared library."""
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-ffp-contract=off"]
    arguments = [*flags, "-fPIC", "-shared", str(KERNELS / "host.cpp")]
    return ctypes.CDLL(str(compiled("libreplay.so", arguments, list(KERNELS.iterdir()))))


class HostProgram:
    """Runs each kernel when it is launched, its threads and blocks in order, or in reverse if `backwards`."""

    def __init__(self) -> None:
        self.backwards = False
        self.launches: list[tuple[str, int, int]] = []

    def launch(self, kernel: str, shape: tuple[int, int], plan: bytes, call: bytes, stream: int) -> None:
        blocks, threads = shape
        assert stream == 0
        # The limits of a device.
        assert 1 <= blocks < 2**31
        assert 32 <= threads <= 1024
        assert threads % 32 == 0
        self.launches.append((kernel, blocks, threads))
        buffers = [ctypes.create_string_buffer(part, len(part)) for part in (plan, call)]
        arguments = (ctypes.c_void_p * 2)(*(ctypes.addressof(buffer) for buffer in buffers))
        library().parl_backwards(int(self.backwards))
        assert library().parl_launch(kernel.encode(), blocks, threads, arguments) == 0, kernel


class HostDevice(CudaDevice):
    """A device whose memory is that of the process."""

    def __init__(self) -> None:
        self.program: Any = HostProgram()
        self.torch = torch
        self.device = torch.device("cpu")

    def stream(self) -> int:
        return 0


class InMemory:
    """Mixin that lets a class of `parl.replay.cuda` run without a device."""

    @classmethod
    def _device_of(cls, device: str) -> CudaDevice:
        assert device == "cuda"
        return HostDevice()


class HostSumTree(InMemory, CudaSumTree):
    """`CudaSumTree` without a device."""


class HostReplay(InMemory, CudaReplay):
    """`CudaReplay` without a device."""


class HostUniformReplay(InMemory, CudaUniformReplay):
    """`CudaUniformReplay` without a device."""


class HostSequenceReplay(InMemory, CudaSequenceReplay):
    """`CudaSequenceReplay` without a device."""


def in_memory(kind: type[parl.PrioritizedReplay]) -> Any:
    """The class of this module that corresponds to a class of the CPU."""
    kinds = {parl.UniformReplay: HostUniformReplay, parl.SequenceReplay: HostSequenceReplay}
    return kinds.get(kind, HostReplay)
