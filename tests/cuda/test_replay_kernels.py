"""The kernels of trees and replays compile with NVRTC for every family of GPUs that it knows, without one."""

import re
from pathlib import Path

import nvrtc
import pytest

import parl
from parl import _native
from parl.cuda import nvrtc_folders
from parl.errors import CudaUnavailableError

KERNELS = Path(__file__).parents[2] / "crates" / "sumtree" / "kernels"
HEADERS = sorted(path.name for path in KERNELS.glob("*.cuh"))
NAMED = (KERNELS.parent / "src" / "kernels.rs").read_text()
FIELDS = {"obs": ((4,), "float32")}
STEPS = {**FIELDS, "reward": ((), "float32"), "terminated": ((), "bool")}
FILES = ["tree.cu", "replay.cu", "select.cu", "episode.cu"]


@nvrtc.needs_nvrtc
@pytest.mark.parametrize("architecture", nvrtc.families())
@pytest.mark.parametrize("file", FILES)
def test_kernels_compile_for_every_family(file: str, architecture: int) -> None:
    options = [f"--gpu-architecture=compute_{architecture}", "--std=c++17"]
    ptx, _, log = nvrtc.compile_kernel(KERNELS / file, options, HEADERS, KERNELS)
    assert log == ""
    text = ptx.decode()
    assert f".target sm_{architecture}" in text
    entries = re.findall(r"\.visible \.entry (\w+)\(", text)
    assert sorted(entries) == sorted(re.findall(rf'\("(parl_\w+)", "{file}"\)', NAMED))
    assert ".extern .func" not in text


@nvrtc.needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_machine_code_is_generated(file: str) -> None:
    options = ["--gpu-architecture=sm_90", "--std=c++17"]
    _, code, log = nvrtc.compile_kernel(KERNELS / file, options, HEADERS, KERNELS)
    assert log == ""
    assert code[:4] == b"\x7fELF"


@nvrtc.needs_nvrtc
def test_the_native_compiler_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARL_CACHE_DIR", str(tmp_path))
    for cached in (False, True):
        _, _, files = _native.cuda_compile(75, nvrtc_folders(), True, ["tree.cu"])
        assert [(name, found) for name, _, found in files] == [("tree.cu", cached)]


@nvrtc.needs_no_driver
@pytest.mark.parametrize(
    "make",
    [
        lambda device: parl.SumTree(10, device=device),
        lambda device: parl.PrioritizedReplay(10, FIELDS, device=device),
        lambda device: parl.UniformReplay(10, FIELDS, device=device),
        lambda device: parl.SequenceReplay(10, STEPS, length=2, device=device),
    ],
)
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_missing_driver_raises_an_error_and_the_process_continues(make, device: str) -> None:
    with pytest.raises(CudaUnavailableError, match="no CUDA driver on this machine: libcuda"):
        make(device)
    with pytest.raises(ValueError, match=r'device is .*, expected "cpu", "cuda" or "cuda:<number>"'):
        make("gpu")
    assert make("cpu") is not None


class Own(parl.PrioritizedReplay):
    """A user's subclass."""


def test_classes_of_users_are_not_on_a_device() -> None:
    with pytest.raises(
        ValueError, match='Own does not support device="cuda", expected one of PrioritizedReplay'
    ):
        Own(10, FIELDS, device="cuda")
