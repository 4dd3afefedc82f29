"""Checksums of the files of a run, which are verified before the files are read.

JSON files written here contain their own checksum. ``run.json`` lists size and SHA-256 of the other files of
a run, ``manifest.json`` those of a checkpoint. A saved replay has its own checksum, which is verified on
loading; here only its first and last 64 KiB are hashed, so that a large file is not read twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parl.errors import RunDirectoryError

FORMAT = 2
"""Version of the layout of run directories and checkpoints."""
REPLAY = "replay.bin"
"""Name of the saved replay in a checkpoint, which has its own checksum."""

_CHECKSUM = "sha256"
_END_BYTES = 1 << 16


def digest(data: bytes) -> str:
    """SHA-256 of ``data`` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def with_checksum(content: Mapping[str, Any]) -> str:
    """``content`` as JSON text that contains its own checksum."""
    plain = {key: value for key, value in content.items() if key != _CHECKSUM}
    checksum = digest(json.dumps(plain, sort_keys=True).encode())
    return json.dumps({**plain, _CHECKSUM: checksum}, indent=2) + "\n"


def read_checked(path: Path) -> dict[str, Any]:
    """Reads a JSON file that :func:`with_checksum` made, and verifies its checksum.

    Raises:
        FileNotFoundError: there is no such file.
        RunDirectoryError: it is damaged, was edited, or was written by another version of parl.
    """
    data = path.read_bytes()
    try:
        found = json.loads(data.decode())
        if not isinstance(found, dict):
            raise ValueError("it does not hold a JSON object")
        again = with_checksum(found).encode()
    except (ValueError, RecursionError) as error:
        raise RunDirectoryError(f"{path} is damaged: {error}") from error
    if _CHECKSUM not in found:
        raise RunDirectoryError(
            f"{path} has format {found.get('format', 1)!r}; this version of parl reads format {FORMAT}. "
            "Open the run with the version that wrote it, or train again"
        )
    if again != data:
        raise RunDirectoryError(f"{path} is damaged or was edited: its checksum does not match its content")
    if found.get("format") != FORMAT:
        raise RunDirectoryError(
            f"{path} has format {found.get('format')!r}; this version of parl reads format {FORMAT}"
        )
    return found


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if path.name != REPLAY or size <= 2 * _END_BYTES:
            return hashlib.file_digest(file, "sha256").hexdigest()
        found = hashlib.sha256(file.read(_END_BYTES))
        file.seek(-_END_BYTES, os.SEEK_END)
        found.update(file.read(_END_BYTES))
        return found.hexdigest()


def describe(folder: Path) -> dict[str, dict[str, Any]]:
    """Name, size in bytes and hash of each file in ``folder``, see :func:`describe_file`."""
    return {path.name: describe_file(path) for path in sorted(folder.iterdir())}


def describe_file(path: Path) -> dict[str, Any]:
    """Size in bytes and hash of a file."""
    return {"size": path.stat().st_size, _CHECKSUM: _hash_of(path)}


def check_file(path: Path, expected: Mapping[str, Any], read: bool = True) -> None:
    """Verifies a file against its entry from :func:`describe`.

    Args:
        path: path of the file.
        expected: its size and hash.
        read: whether to verify the hash as well as the size.

    Raises:
        RunDirectoryError: the file is missing, not a regular file, or differs; the message says how.
    """
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise RunDirectoryError(f"{path} is not a regular file")
        if status.st_size != expected["size"]:
            raise RunDirectoryError(f"{path} has {status.st_size} bytes, expected {expected['size']}")
        if read and _hash_of(path) != expected[_CHECKSUM]:
            raise RunDirectoryError(
                f"{path} is damaged, was edited or belongs to another checkpoint: its checksum does not match"
            )
    except FileNotFoundError as error:
        raise RunDirectoryError(f"{path} is missing") from error
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be read: {error.strerror}") from error
