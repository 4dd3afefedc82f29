"""The generated header compiles with NVRTC for every family of GPUs that NVRTC knows; no GPU needed.

The quick tests use the oldest and the newest family, and compile large files without optimization, in a
second instead of a minute.
"""

from pathlib import Path

import nvrtc
import pytest

if nvrtc.find_library() is None:
    pytest.skip("no NVRTC: `pip install nvidia-cuda-nvrtc` brings it", allow_module_level=True)

FRAME = Path(__file__).with_name("frame.cu")
BLOCK = Path(__file__).with_name("block.cu")
BRX = Path(__file__).with_name("brx.cu")
HEADERS = ["prelude.cuh", "machine.cuh", "runner.cuh"]
BRX_HEADERS = [*HEADERS, "cpu_brx.cuh", "forms.cuh"]
MICRO = Path(__file__).parents[2] / "benches" / "gpu" / "micro.cu"
LANES = MICRO.with_name("lanes.cu")
KERNELS = ["frame", "power_on", "observe"]


unoptimized_first = pytest.mark.parametrize(
    "options",
    [
        pytest.param(nvrtc.UNOPTIMIZED, id="unoptimized"),
        pytest.param([], id="optimized", marks=pytest.mark.slow(minutes=3)),
    ],
)


@pytest.mark.parametrize("architecture", nvrtc.families())
@unoptimized_first
def test_the_console_compiles_for_every_family(options: list[str], architecture: int) -> None:
    options = [f"--gpu-architecture=compute_{architecture}", "--std=c++17", *options]
    ptx, _, log = nvrtc.compile_kernel(FRAME, options, HEADERS)
    assert log == ""
    text = ptx.decode()
    assert f".target sm_{architecture}" in text
    for name in KERNELS:
        assert f".visible .entry {name}(" in text
    assert ".extern .func" not in text


@unoptimized_first
def test_machine_code_is_generated(options: list[str]) -> None:
    architecture = next(a for a in nvrtc.architectures() if a >= 80)
    options = [f"--gpu-architecture=sm_{architecture}", "--std=c++17", *options]
    _, code, log = nvrtc.compile_kernel(FRAME, options, HEADERS)
    assert log == ""
    assert code[:4] == b"\x7fELF"


@pytest.mark.parametrize("architecture", nvrtc.families())
def test_the_jump_table_compiles_to_machine_code(architecture: int) -> None:
    """NVRTC does not check inline PTX: only compiling to machine code shows that every handler is valid."""
    options = [f"--gpu-architecture=sm_{architecture}", "--std=c++17"]
    ptx, code, log = nvrtc.compile_kernel(BLOCK, options, BRX_HEADERS)
    assert log == ""
    assert ptx.count(b"brx.idx") == 2
    assert code[:4] == b"\x7fELF"


def test_a_frame_around_the_jump_table() -> None:
    """Without optimization; `micro.cu` below compiles it with optimization."""
    options = ["--gpu-architecture=compute_80", "--std=c++17", *nvrtc.UNOPTIMIZED]
    ptx, _, log = nvrtc.compile_kernel(BRX, options, BRX_HEADERS)
    assert log == ""
    assert ptx.count(b"brx.idx") == 2
    assert b".visible .entry frame(" in ptx


@pytest.mark.slow
def test_kernels_of_the_microbenchmark_compile() -> None:
    """`benches/gpu/micro.cu`: the frames of `brx.cu`, and straight-line code of up to 270 KB."""
    options = ["--gpu-architecture=compute_80", "--std=c++17"]
    ptx, _, log = nvrtc.compile_kernel(MICRO, options, [*BRX_HEADERS, str(BRX)])
    assert log == ""
    for name in ("decode", "frame", "redux", "sizes", *(f"straight_{size}" for size in range(4))):
        assert f".visible .entry {name}(".encode() in ptx


def test_the_counters_of_lanes_compile() -> None:
    options = ["--gpu-architecture=compute_90", "--std=c++17", *nvrtc.UNOPTIMIZED]
    ptx, _, log = nvrtc.compile_kernel(LANES, options, [*BRX_HEADERS, str(BRX)])
    assert log == ""
    for name in ("counts", "decode", "frame"):
        assert f".visible .entry {name}(".encode() in ptx


def test_a_wrong_layout_is_refused(tmp_path: Path) -> None:
    """NVRTC evaluates the static assertions of the header."""
    wrong = tmp_path / "wrong.cu"
    lines = [
        '#include "machine.cuh"',
        "static_assert(PARL_OFFSET(cule::env::State, env) == 0);",
        'extern "C" __global__ void k() {}',
    ]
    wrong.write_text("\n".join(lines) + "\n")
    with pytest.raises(AssertionError, match="static assertion failed"):
        nvrtc.compile_kernel(wrong, ["--gpu-architecture=compute_80", "--std=c++17"], HEADERS)
