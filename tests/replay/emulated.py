"""Trees and replays of `device="cuda"` in the process's memory: their kernels as host C++."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

import parl
from parl.replay.device.kinds import DeviceSequenceReplay, DeviceUniformReplay
from parl.replay.device.place import Place
from parl.replay.device.replay import DeviceReplay
from parl.replay.device.tree import CudaSumTree

KERNELS = Path(__file__).parents[2] / "crates" / "sumtree" / "kernels"


@functools.cache
def library() -> ctypes.CDLL:
    """The kernels, compiled once for a run of tests."""
    folder = tempfile.mkdtemp(prefix="parl-kernels-")
    file = Path(folder) / "libkernels.so"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-ffp-contract=off"]
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, *flags, "-fPIC", "-shared", str(KERNELS / "host.cpp"), "-o", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = ctypes.CDLL(str(file))
    file.unlink()
    os.rmdir(folder)
    return found


class HostProgram:
    """Runs kernels at once, threads and blocks in order, or `backwards`."""

    def __init__(self) -> None:
        self.backwards = False
        self.launches: list[tuple[str, int, int]] = []

    def launch(self, kernel: str, shape: tuple[int, int], plan: bytes, call: bytes, stream: int) -> None:
        blocks, threads = shape
        assert stream == 0
        # As a device wants it.
        assert 1 <= blocks < 2**31
        assert 32 <= threads <= 1024
        assert threads % 32 == 0
        self.launches.append((kernel, blocks, threads))
        buffers = [ctypes.create_string_buffer(part, len(part)) for part in (plan, call)]
        arguments = (ctypes.c_void_p * 2)(*(ctypes.addressof(buffer) for buffer in buffers))
        library().parl_backwards(int(self.backwards))
        assert library().parl_launch(kernel.encode(), blocks, threads, arguments) == 0, kernel


class HostPlace(Place):
    """The process's own memory."""

    def __init__(self) -> None:
        self.program: Any = HostProgram()
        self.torch = torch
        self.device = torch.device("cpu")

    def stream(self) -> int:
        return 0


class InMemory:
    """Mixed into a class of `parl.replay.device`, it needs no device."""

    @classmethod
    def _place_at(cls, device: str) -> Place:
        assert device == "cuda"
        return HostPlace()


class HostSumTree(InMemory, CudaSumTree):
    """`CudaSumTree` without a device."""


class HostReplay(InMemory, DeviceReplay):
    """`DeviceReplay` without a device."""


class HostUniformReplay(InMemory, DeviceUniformReplay):
    """`DeviceUniformReplay` without a device."""


class HostSequenceReplay(InMemory, DeviceSequenceReplay):
    """`DeviceSequenceReplay` without a device."""


def in_memory(kind: type[parl.PrioritizedReplay]) -> Any:
    """The class of a device, without one, that stands for a class of the CPU."""
    kinds = {parl.UniformReplay: HostUniformReplay, parl.SequenceReplay: HostSequenceReplay}
    return kinds.get(kind, HostReplay)
