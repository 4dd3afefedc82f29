"""Folders that are searched for ROM files. parl contains none; ``pip install ale-py`` installs 108."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

ROM_VARIABLES = ("PARL_ROMS_DIR", "ALE_ROMS_DIR", "ALE_ROM_DIR")
"""Environment variables that name a folder of ROM files, in the order of the search."""


def ale_py_folder() -> Path | None:
    """The ROM folder of an installed ale-py, which is not imported; None if it is not installed."""
    try:
        spec = importlib.util.find_spec("ale_py")
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "roms"
    return folder if folder.is_dir() else None


def rom_folders() -> list[tuple[Path, str]]:
    """The folders that are searched, in order, each with its origin: a variable, or an installed ale-py."""
    folders = [(Path(os.environ[name]), name) for name in ROM_VARIABLES if os.environ.get(name)]
    ale_py = ale_py_folder()
    if ale_py is not None:
        folders.append((ale_py, "the installed ale-py"))
    return folders


def rom_folder() -> tuple[Path | None, str]:
    """The folder that is searched first and its origin; None and the reason if there is no folder."""
    folders: list[tuple[Path | None, str]] = [*rom_folders()]
    if folders:
        return folders[0]
    return None, f"none of {', '.join(ROM_VARIABLES)} is set and ale-py is not installed"
