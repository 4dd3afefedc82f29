"""Where the parts that CUDA needs may lie; imports nothing of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def nvrtc_folders() -> list[str]:
    """Folders of installed packages that may hold NVRTC: those of the NVIDIA wheels, then torch's own."""
    folders: list[Path] = []
    for package, pattern in (("nvidia", "*/lib"), ("torch", "lib")):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec else []:
            folders += sorted(Path(place).glob(pattern), reverse=True)
    return [str(folder) for folder in folders]
