"""Runs kernels of these scripts: compiles with NVRTC, launches with the CUDA driver, on torch's memory."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

from parl import _native, cuda

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "crates" / "cule" / "kernels"


def check(status: int, what: str) -> None:
    if status:
        raise RuntimeError(f"{what} failed: error {status}")


def _nvrtc() -> ctypes.CDLL:
    """Loads the NVRTC that parl found, from the path in its report."""
    finding = dict(_native.cuda_report(cuda.nvrtc_folders()))["NVRTC"]
    return ctypes.CDLL(finding.split(" in ", 1)[1].split(", for ", 1)[0])


def compiled(source: Path, folders: list[Path], architecture: int) -> bytes:
    """Compiles a file to machine code, with headers from `folders`."""
    nvrtc = _nvrtc()
    headers = {path.name: path.read_bytes() for folder in folders for path in sorted(folder.glob("*.cu*"))}
    names = (ctypes.c_char_p * len(headers))(*(name.encode() for name in headers))
    texts = (ctypes.c_char_p * len(headers))(*headers.values())
    program = ctypes.c_void_p()
    check(
        nvrtc.nvrtcCreateProgram(
            ctypes.byref(program), source.read_bytes(), source.name.encode(), len(headers), texts, names
        ),
        "nvrtcCreateProgram",
    )
    options = [b"--std=c++17", f"--gpu-architecture=sm_{architecture}".encode()]
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    check(status, f"compiling {source.name}: {log.value.decode()}")
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    image = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, image)
    return image.raw


class Kernels:
    """Loaded machine code. Its kernels run on torch's current stream.

    Args:
        image: machine code.
        device: torch's device. torch must have used it before, so that its context is the current one.
    """

    def __init__(self, image: bytes, device: Any) -> None:
        self.driver, self.device = ctypes.CDLL("libcuda.so.1"), device
        self.image = ctypes.create_string_buffer(image, len(image) + 1)
        self.module = ctypes.c_void_p()
        check(self.driver.cuModuleLoadData(ctypes.byref(self.module), self.image), "cuModuleLoadData")

    def launch(self, name: str, blocks: int, threads: int, *values: Any) -> None:
        """Launches a kernel. Arguments are tensors (passed as addresses) and 32-bit integers."""
        function = ctypes.c_void_p()
        found = self.driver.cuModuleGetFunction(ctypes.byref(function), self.module, name.encode())
        check(found, f"cuModuleGetFunction({name})")
        words = [
            ctypes.c_uint64(value.data_ptr()) if isinstance(value, torch.Tensor) else ctypes.c_uint32(value)
            for value in values
        ]
        places = (ctypes.c_void_p * len(words))(*(ctypes.addressof(word) for word in words))
        stream = ctypes.c_void_p(cuda.current_stream(self.device))
        grid = (blocks, 1, 1, threads, 1, 1)
        check(self.driver.cuLaunchKernel(function, *grid, 0, stream, places, None), f"launching {name}")

    def milliseconds(self, name: str, blocks: int, threads: int, *values: Any) -> float:
        """Time of the second of two launches in milliseconds, by CUDA events."""
        self.launch(name, blocks, threads, *values)
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        self.launch(name, blocks, threads, *values)
        after.record()
        torch.cuda.synchronize(self.device)
        return before.elapsed_time(after)
