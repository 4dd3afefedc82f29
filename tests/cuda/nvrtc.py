"""NVRTC through ctypes: compiles kernels on a machine without a GPU."""

import ctypes
import functools
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from parl import _native

KERNELS = Path(__file__).parents[2] / "crates" / "cule" / "kernels"
# Runs the whole front end and emits PTX, but does not optimize.
UNOPTIMIZED = ["--device-debug"]


def find_library() -> Path | None:
    """The newest `libnvrtc` of the installed NVIDIA wheels, or None."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    found = [path for folder in folders for path in folder.glob("*/lib/libnvrtc.so.*")]
    return max((path for path in found if "alt" not in path.name), default=None)


has_nvrtc = find_library() is not None
needs_nvrtc = pytest.mark.skipif(not has_nvrtc, reason="no NVRTC: `pip install nvidia-cuda-nvrtc` brings it")
has_driver = dict(_native.cuda_report([]))["CUDA driver"].startswith("for CUDA")
needs_no_driver = pytest.mark.skipif(has_driver, reason="this machine has a CUDA driver")


@functools.cache
def library() -> ctypes.CDLL:
    """Loads NVRTC."""
    path = find_library()
    assert path is not None
    return ctypes.CDLL(str(path))


def architectures() -> list[int]:
    """Compute capabilities that this NVRTC compiles for, such as 75 and 90; none without NVRTC."""
    if not has_nvrtc:
        return []
    count = ctypes.c_int()
    assert library().nvrtcGetNumSupportedArchs(ctypes.byref(count)) == 0
    values = (ctypes.c_int * count.value)()
    assert library().nvrtcGetSupportedArchs(values) == 0
    return list(values)


def oldest_of_each_family() -> list[int]:
    """The first architecture of each family: 75, 80, 90, ..."""
    first: dict[int, int] = {}
    for architecture in sorted(architectures()):
        first.setdefault(architecture // 10, architecture)
    return list(first.values())


def families(always: tuple[int, ...] = (0, -1), minutes: float = 1) -> list[Any]:
    """The first architecture of each family, as parameters. Those not at the indices ``always`` are slow.

    The kernels differ only below and from 8.0 on, so the oldest and the newest family cover every line.
    """
    found = oldest_of_each_family()
    quick = {found[place] for place in always if found}
    return [a if a in quick else pytest.param(a, marks=pytest.mark.slow(minutes=minutes)) for a in found]


def compile_kernel(
    source: Path, options: list[str], headers: list[str], folder: Path = KERNELS
) -> tuple[bytes, bytes, str]:
    """Compiles one file. ``headers`` are names in ``folder``, or absolute paths.

    Returns:
        PTX, machine code (empty for a virtual architecture) and the compiler's log.

    Raises:
        AssertionError: the file does not compile; the message is the compiler's log.
    """
    nvrtc = library()
    texts = [(folder / name).read_bytes() for name in headers]
    names = [Path(name).name.encode() for name in headers]
    array = ctypes.c_char_p * len(names)
    program = ctypes.c_void_p()
    main = (source.read_bytes(), source.name.encode())
    included = (len(names), array(*texts), array(*names))
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), *main, *included) == 0
    flags = [option.encode() for option in options]
    status = nvrtc.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
    log = _text(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").rstrip(b"\0").decode()
    assert status == 0, log
    ptx = _text(program, "nvrtcGetPTXSize", "nvrtcGetPTX")
    real = any(option.startswith("--gpu-architecture=sm_") for option in options)
    code = _text(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN") if real else b""
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return ptx, code, log


def _text(program: ctypes.c_void_p, size_of: str, get: str) -> bytes:
    size = ctypes.c_size_t()
    assert getattr(library(), size_of)(program, ctypes.byref(size)) == 0
    buffer = ctypes.create_string_buffer(size.value)
    assert getattr(library(), get)(program, buffer) == 0
    return buffer.raw
