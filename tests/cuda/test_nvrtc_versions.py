"""Every supported version of NVRTC compiles a kernel, in a process that has not loaded torch's libraries."""

import contextlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import nvrtc
import pytest

# 13.0 does not find its built-in functions by itself if it is opened by its path.
WHEELS = {"12.8": "nvidia-cuda-nvrtc-cu12==12.8.*", "13.0": "nvidia-cuda-nvrtc==13.0.*", "installed": None}
FOLDER = Path(__file__).parents[2] / "target" / "tests" / "nvrtc"
COMPILE = """
import sys
from parl import _native
target, _, [(name, size, cached)] = _native.cuda_compile(90, [], False, ["states.cu"])
assert "torch" not in sys.modules and not cached and size > 1000
print(target, dict(_native.cuda_report([]))["NVRTC"])
"""


def download(requirement: str, folder: Path) -> Path:
    """Downloads a wheel; skips the test if that fails outside of CI."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), requirement]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode and not os.environ.get("CI"):
        pytest.skip(f"cannot download {requirement}: {ended.stderr[-300:]}")
    assert ended.returncode == 0, ended.stderr
    [wheel] = folder.glob("*.whl")
    return wheel


def library(version: str) -> Path:
    """The file of a version of NVRTC; its wheel is downloaded once."""
    requirement = WHEELS[version]
    if requirement is None:
        found = nvrtc.find_library()
        assert found is not None
        return found
    folder = FOLDER / version
    if not folder.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as name:
            made = Path(name) / version
            wheel = download(requirement, Path(name))
            with zipfile.ZipFile(wheel) as archive:
                names = [one for one in archive.namelist() if ".so" in one and "alt" not in one]
                archive.extractall(made, names)
            with contextlib.suppress(OSError):  # another process was faster
                made.rename(folder)
    [found] = folder.rglob("libnvrtc.so.*")
    return found


@pytest.mark.parametrize(
    "version", [pytest.param(one, marks=nvrtc.needs_nvrtc if one == "installed" else ()) for one in WHEELS]
)
def test_a_kernel_compiles(version: str, tmp_path: Path) -> None:
    file = library(version)
    environment = os.environ | {"PARL_NVRTC": str(file), "PARL_CACHE_DIR": str(tmp_path)}
    environment.pop("LD_LIBRARY_PATH", None)
    command = [sys.executable, "-c", COMPILE]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("sm_90 ") and str(file) in ended.stdout
    if version != "installed":
        assert f" {version}" in ended.stdout
