"""Compiles C++ for tests, again only when a source, an option or the compiler changes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "target" / "tests"
COMPILER = os.environ.get("CXX", "c++")


def compiled(name: str, arguments: Sequence[str], files: Sequence[Path]) -> Path:
    """Compiles C++ unless a result is cached, and returns the path of the result.

    If several processes ask at the same time, one compiles and the others wait.

    Args:
        name: file name of the result, as the linker sees it.
        arguments: compiler options and sources.
        files: the sources and all files that they include.
    """
    version = subprocess.run([COMPILER, "--version"], capture_output=True, check=True).stdout
    parts = [COMPILER.encode(), version, *(argument.encode() for argument in arguments)]
    parts += [part for path in sorted(files) for part in (str(path).encode(), path.read_bytes())]
    digest = hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    place = FOLDER / digest[:16] / name
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            own = place.with_suffix(f".{os.getpid()}")
            command = [COMPILER, *arguments, "-o", str(own), "-ldl"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            own.rename(place)
    return place
