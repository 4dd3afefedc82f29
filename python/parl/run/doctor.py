"""Report of ``parl doctor``: versions, processor, ROM files, CUDA, shared memory, Atari presets."""

from __future__ import annotations

import contextlib
import os
import platform
import stat
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from parl import _native, cuda
from parl._system import usable_cores
from parl.atari.roms import rom_folder

_PACKAGES = {
    "numpy": "required",
    "torch": "training: pip install 'parl-rl[train]'",
    "gymnasium": "environments: pip install 'parl-rl[train]'",
    "safetensors": "checkpoints: pip install 'parl-rl[train]'",
    "ale-py": "Atari ROM files: pip install 'parl-rl[atari]'",
    "tensorboard": "parl train --logger tensorboard: pip install 'parl-rl[tensorboard]'",
    "optuna": "parl tune: pip install 'parl-rl[tune]'",
    "matplotlib": "parl plot: pip install 'parl-rl[plot]'",
    "nvidia-cuda-nvrtc": "CUDA kernels: pip install 'parl-rl[cuda]'",
    "ray": "several machines: pip install 'parl-rl[dist]'",
}
# Upper half of a segment's first word, 0x7061726c ("parl"), in the order of its bytes in memory.
_MAGIC = b"lrap"
_PROCESSES = Path("/proc")
_VECTOR_FLAGS = ("avx2", "avx512f", "asimd")


def _processor() -> str:
    name, flags = platform.machine(), ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() in ("flags", "Features"):
                flags = value
                break
    vectors = [flag for flag in _VECTOR_FLAGS if flag in flags.split()]
    cores = f"{usable_cores()} of {os.cpu_count()} cores usable"
    return f"{name}, {cores}, {' '.join(vectors) or 'no known vector units'}"


def _roms() -> str:
    folder, reason = rom_folder()
    if folder is None:
        return f"none: {reason} (pip install ale-py)"
    return f"{len(list(folder.glob('*.bin')))} files in {folder} ({reason})"


def _is_own(status: os.stat_result) -> bool:
    return sys.platform == "win32" or status.st_uid == os.getuid()  # the folder there belongs to one user


def _is_segment(place: Path) -> bool:
    """Whether a file of this user is shared memory of parl, by its first word or by its name."""
    try:
        status = place.lstat()
        if not stat.S_ISREG(status.st_mode) or not _is_own(status):
            return False
        if place.name.startswith("parl-"):
            return True
        with place.open("rb") as file:
            return file.read(8)[4:] == _MAGIC
    except OSError:
        return False  # Removed meanwhile, or not readable.


def stale_segments(folder: Path = Path("/dev/shm")) -> list[Path]:
    """Shared memory of parl that belongs to this user and that no running process has mapped.

    Empty where the system does not tell which files are mapped: without ``/proc``.
    """
    if not folder.is_dir() or not _PROCESSES.is_dir():
        return []
    ours = sorted(place for place in folder.iterdir() if _is_segment(place))
    if not ours:
        return []
    mapped: set[str] = set()
    for maps in _PROCESSES.glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            lines = maps.read_text(errors="replace").splitlines()
            mapped |= {line.split(maxsplit=5)[-1] for line in lines if str(folder) in line}
    return [place for place in ours if str(place) not in mapped]


def remove_stale_segments(folder: Path = Path("/dev/shm")) -> list[Path]:
    """Removes the files of :func:`stale_segments` and returns their paths."""
    stale = stale_segments(folder)
    for place in stale:
        place.unlink(missing_ok=True)
    return stale


def report() -> list[tuple[str, str]]:
    """Lines of ``parl doctor``, as (name, value) pairs."""
    lines = [
        ("parl", f"{metadata.version('parl-rl')}, Python {platform.python_version()}, {platform.platform()}")
    ]
    lines.append(("processor", _processor()))
    for package, purpose in _PACKAGES.items():
        try:
            lines.append((package, metadata.version(package)))
        except metadata.PackageNotFoundError:
            lines.append((package, f"not installed ({purpose})"))
    lines.append(("ROM files", _roms()))
    lines += _native.cuda_report(cuda.nvrtc_folders())
    if not _PROCESSES.is_dir():
        where = f"not examined: there is no {_PROCESSES}; segments are files in {tempfile.gettempdir()}"
        return [*lines, ("shared memory", where)]
    stale = stale_segments()
    found = f"stale: {', '.join(map(str, stale))} (parl doctor --sweep removes them)"
    lines.append(("shared memory", found if stale else "no stale segments"))
    return lines


def compile_kernels(device: str) -> list[tuple[str, str]]:
    """Compiles the CUDA kernels for a device into the kernel cache.

    Returns the lines of ``parl doctor --compile cuda:1``.

    Args:
        device: ``"cuda"`` or ``"cuda:<number>"``.

    Raises:
        CudaUnavailableError: there is no such device, or no compiler.
        ConfigError: ``device`` is not the name of a device.
    """
    target, seconds, files = cuda.prepare(device)
    kept = [(name, f"{size >> 10} KiB{', from the cache' if cached else ''}") for name, size, cached in files]
    return [*kept, (f"for {target}", f"{seconds:.1f} s")]


def presets() -> list[tuple[str, ...]]:
    """Table of the keywords in which the Atari presets differ; lines of ``parl doctor --env``."""
    from parl.envs.atari.presets import preset_table

    return preset_table()


def preset(name: str) -> list[tuple[str, ...]]:
    """Every keyword of one preset; lines of ``parl doctor --env gymnasium``.

    Raises:
        ConfigError: there is no such preset.
    """
    from parl.envs.atari.presets import preset_settings

    return [(key, str(value)) for key, value in preset_settings(name).items()]
