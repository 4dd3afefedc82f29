"""CUDA without a device: messages of errors, the search for NVRTC, the cache, and compiling the kernels."""

import os
import subprocess
import sys
from pathlib import Path

import nvrtc
import pytest

sys.path.append(str(Path(__file__).parents[1]))
import compiled
import parl
from parl import _native, cuda
from parl.cuda import nvrtc_folders
from parl.errors import AtariError, CudaUnavailableError
from parl.run import doctor

FILES = {"step.cu", "reset.cu", "states.cu"}
# Compiles in a second; the others take several seconds, and a minute to machine code.
SMALL = "states.cu"


@nvrtc.needs_no_driver
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_missing_driver_raises_an_error_and_the_process_continues(device: str) -> None:
    with pytest.raises(CudaUnavailableError, match="no CUDA driver on this machine: libcuda"):
        parl.AtariVectorEnv("breakout", 2, device=device)
    envs = parl.AtariVectorEnv("breakout", 2)
    envs.reset(seed=0)
    envs.close()


@nvrtc.needs_no_driver
def test_compiling_says_the_same() -> None:
    for attempt in (cuda.prepare, lambda: doctor.compile_kernels("cuda:1")):
        with pytest.raises(CudaUnavailableError, match="no CUDA driver on this machine: libcuda"):
            attempt()
    # Compiling ahead in the background does not raise: the error is raised where the kernels are needed.
    thread = cuda.prefetch()
    thread.join(timeout=60)
    assert not thread.is_alive()


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99999999999", "cudax"])
def test_an_unknown_device_is_refused(device: str) -> None:
    with pytest.raises(AtariError, match=r'device is .*, expected "cpu", "cuda" or "cuda:<number>"'):
        parl.AtariVectorEnv("breakout", device=device)


def test_the_report_names_driver_compiler_and_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARL_CACHE_DIR", str(tmp_path))
    lines = dict(_native.cuda_report(nvrtc_folders()))
    assert {"CUDA driver", "NVRTC", "kernel cache"} <= set(lines)
    assert lines["kernel cache"] == f"0 kernels, 0 KiB in {tmp_path / 'kernels'}"
    if nvrtc.has_nvrtc:
        assert str(nvrtc.find_library().parent) in lines["NVRTC"]


def test_the_search_says_what_it_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARL_NVRTC", "/nowhere/libnvrtc.so.13")
    reason = r"run `pip install nvidia-cuda-nvrtc` or set PARL_NVRTC .*; tried /nowhere/libnvrtc\.so\.13: "
    with pytest.raises(CudaUnavailableError, match=reason):
        _native.cuda_compile(90, nvrtc_folders(), True)


@nvrtc.needs_nvrtc
def test_compiled_kernels_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARL_CACHE_DIR", str(tmp_path))
    newest = nvrtc.architectures()[-1]
    target, _, files = _native.cuda_compile(newest, nvrtc_folders(), True, [SMALL])
    assert target == f"compute_{newest}"
    [(name, size, cached)] = files
    assert (name, cached) == (SMALL, False)
    assert _native.cuda_compile(newest, nvrtc_folders(), True, [SMALL])[2] == [(SMALL, size, True)]
    # Another architecture has another file; a damaged file is compiled again.
    assert not _native.cuda_compile(75, nvrtc_folders(), True, [SMALL])[2][0][2]
    for kept in (tmp_path / "kernels").iterdir():
        kept.write_bytes(kept.read_bytes()[:-1])
    assert _native.cuda_compile(newest, nvrtc_folders(), True, [SMALL])[2] == [(SMALL, size, False)]


@nvrtc.needs_nvrtc
def test_processes_share_the_cache(tmp_path: Path) -> None:
    """Two processes compile at the same time; a third one finds the kernel in the cache."""
    code = (
        "from parl import _native; from parl.cuda import nvrtc_folders;"
        f"print(_native.cuda_compile(75, nvrtc_folders(), True, [{SMALL!r}]))"
    )
    environment = {**os.environ, "PARL_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert all(process.wait(timeout=300) == 0 for process in both)
    third = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert third.stdout.count("True") == 1
    assert [file.suffix for file in (tmp_path / "kernels").iterdir()] == [".kernel"]


@nvrtc.needs_nvrtc
@pytest.mark.parametrize("architecture", nvrtc.families())
@pytest.mark.parametrize("file", sorted(FILES))
def test_kernels_compile_for_every_family_without_optimization(file: str, architecture: int) -> None:
    options = [f"--gpu-architecture=compute_{architecture}", "--std=c++17", *nvrtc.UNOPTIMIZED]
    headers = sorted(path.name for path in nvrtc.KERNELS.glob("*.cuh"))
    ptx, _, log = nvrtc.compile_kernel(nvrtc.KERNELS / file, options, headers)
    assert log == ""
    assert f".target sm_{architecture}".encode() in ptx
    assert b".extern .func" not in ptx
    assert ptx.count(b"brx.idx") == 2 * (file == "step.cu")


@nvrtc.needs_nvrtc
@pytest.mark.parametrize("architecture", nvrtc.families((-1,), minutes=4))
def test_kernels_compile_for_every_family(architecture: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles the kernels as for a device. The oldest family takes minutes; the results are cached.

    NVRTC decides by the size of a program which functions it inlines; compile time grows with the code.
    """
    monkeypatch.setenv("PARL_CACHE_DIR", str(compiled.FOLDER / "kernels"))
    target, _, files = _native.cuda_compile(architecture, nvrtc_folders(), True)
    assert target == f"compute_{architecture}"
    assert {name for name, _, _ in files} == FILES
    # The kernels that run frames contain the jump table and all forms.
    assert all((size > 1_000_000) == (name != SMALL) and size < 1_700_000 for name, size, _ in files)


@nvrtc.needs_nvrtc
def test_machine_code_of_observations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the file that compiles in a second; machine code of all files is `-m slow`."""
    monkeypatch.setenv("PARL_CACHE_DIR", str(tmp_path))
    options = ["--gpu-architecture=sm_90", "--std=c++17"]
    headers = ["prelude.cuh", "machine.cuh", "layout.cuh"]
    _, code, log = nvrtc.compile_kernel(nvrtc.KERNELS / "states.cu", options, headers)
    assert log == ""
    assert code[:4] == b"\x7fELF"


@nvrtc.needs_nvrtc
@pytest.mark.slow
def test_machine_code_of_every_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARL_CACHE_DIR", str(tmp_path))
    target, _, files = _native.cuda_compile(90, nvrtc_folders(), False)
    assert target == "sm_90"
    assert {name for name, _, _ in files} == FILES
