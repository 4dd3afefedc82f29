"""Where the parts that CUDA needs may lie; imports nothing of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from parl.errors import ConfigError


def nvrtc_folders() -> list[str]:
    """Folders of installed packages that may hold NVRTC: those of the NVIDIA wheels, then torch's own."""
    folders: list[Path] = []
    for package, pattern in (("nvidia", "*/lib"), ("torch", "lib")):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec else []:
            folders += sorted(Path(place).glob(pattern), reverse=True)
    return [str(folder) for folder in folders]


def ordinal(device: str) -> int:
    """The number of a CUDA device: 0 of ``"cuda"``, 1 of ``"cuda:1"``.

    Raises:
        ConfigError: it is no CUDA device.
    """
    kind, colon, number = str(device).partition(":")
    if kind != "cuda" or (colon and not (number.isascii() and number.isdigit() and int(number) < 2**31)):
        raise ConfigError(f'device is {device!r}, expected "cpu", "cuda" or "cuda:<number>"')
    return int(number or 0)
