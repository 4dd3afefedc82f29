"""The generated header compiles with NVRTC for every family of GPUs that it knows; no GPU needed.

The whole console takes seconds a family: all but oldest and newest with `-m slow`.
"""

from pathlib import Path

import nvrtc
import pytest

if nvrtc.find_library() is None:
    pytest.skip("no NVRTC: `pip install nvidia-cuda-nvrtc` brings it", allow_module_level=True)

FRAME = Path(__file__).with_name("frame.cu")
BLOCK = Path(__file__).with_name("block.cu")
BRX = Path(__file__).with_name("brx.cu")
HEADERS = ["prelude.cuh", "machine.cuh"]
BRX_HEADERS = [*HEADERS, "cpu_brx.cuh", "forms.cuh"]
MICRO = Path(__file__).parents[2] / "benches" / "gpu" / "micro.cu"
KERNELS = ["frame", "power_on", "observe"]


def families() -> list[object]:
    """The first architecture of each family: 75, 80, 90, ..."""
    first: dict[int, int] = {}
    for architecture in sorted(nvrtc.architectures()):
        first.setdefault(architecture // 10, architecture)
    return list(first.values())


def some_always() -> list[object]:
    oldest, *between, newest = families()
    return [oldest, *(pytest.param(a, marks=pytest.mark.slow) for a in between), newest]


@pytest.mark.parametrize("architecture", some_always())
def test_every_family_takes_the_console(architecture: int) -> None:
    options = [f"--gpu-architecture=compute_{architecture}", "--std=c++17"]
    ptx, _, log = nvrtc.compile_kernel(FRAME, options, HEADERS)
    assert log == ""
    text = ptx.decode()
    assert f".target sm_{architecture}" in text
    for name in KERNELS:
        assert f".visible .entry {name}(" in text
    assert ".extern .func" not in text


def test_machine_code_is_made() -> None:
    architecture = next(a for a in nvrtc.architectures() if a >= 80)
    options = [f"--gpu-architecture=sm_{architecture}", "--std=c++17"]
    _, code, log = nvrtc.compile_kernel(FRAME, options, HEADERS)
    assert log == ""
    assert code[:4] == b"\x7fELF"


@pytest.mark.parametrize("architecture", families())
def test_the_jump_table_becomes_machine_code(architecture: int) -> None:
    """NVRTC passes inline PTX on unread: only machine code shows that every handler is right PTX."""
    options = [f"--gpu-architecture=sm_{architecture}", "--std=c++17"]
    ptx, code, log = nvrtc.compile_kernel(BLOCK, options, BRX_HEADERS)
    assert log == ""
    assert ptx.count(b"brx.idx") == 1
    assert code[:4] == b"\x7fELF"


def test_a_frame_around_the_jump_table() -> None:
    ptx, _, log = nvrtc.compile_kernel(BRX, ["--gpu-architecture=compute_80", "--std=c++17"], BRX_HEADERS)
    assert log == ""
    assert ptx.count(b"brx.idx") == 1
    assert b".visible .entry frame(" in ptx


@pytest.mark.slow
def test_what_is_measured_of_the_kernels() -> None:
    """`benches/gpu/micro.cu`: the frames of `brx.cu`, and straight code, up to 200 KB."""
    options = ["--gpu-architecture=compute_80", "--std=c++17"]
    ptx, _, log = nvrtc.compile_kernel(MICRO, options, [*BRX_HEADERS, str(BRX)])
    assert log == ""
    for name in ("decode", "frame", "redux", "sizes", *(f"straight_{size}" for size in range(4))):
        assert f".visible .entry {name}(".encode() in ptx


def test_a_wrong_layout_is_refused(tmp_path: Path) -> None:
    """The static assertions of the header are alive under NVRTC."""
    wrong = tmp_path / "wrong.cu"
    lines = [
        '#include "machine.cuh"',
        "static_assert(PARL_OFFSET(cule::env::State, env) == 0);",
        'extern "C" __global__ void k() {}',
    ]
    wrong.write_text("\n".join(lines) + "\n")
    with pytest.raises(AssertionError, match="static assertion failed"):
        nvrtc.compile_kernel(wrong, ["--gpu-architecture=compute_80", "--std=c++17"], HEADERS)
