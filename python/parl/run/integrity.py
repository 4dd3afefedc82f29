"""Checksums of the files of a run: a damaged or foreign file is named before anything is read from it.

JSON files written here hold their own checksum. Every other file is listed, with its size and SHA-256, in a
JSON file that does: ``run.json`` lists the files of a run, ``manifest.json`` those of a checkpoint. A saved
replay has a checksum of its own, which loading it verifies; of it only the head and the end, where that
checksum is, are hashed here, so that gigabytes are not read twice.
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
"""The file of a checkpoint that verifies itself."""

_SEAL = "sha256"
_END_BYTES = 1 << 16


def sync_directory(folder: Path) -> None:
    """Waits until the names in ``folder`` are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: str | bytes) -> None:
    """Replaces ``path`` by ``data`` so that a reader or a crash sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def digest(data: bytes) -> str:
    """SHA-256 of ``data``, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def sealed(content: Mapping[str, Any]) -> str:
    """``content`` as JSON text with its own checksum."""
    plain = {key: value for key, value in content.items() if key != _SEAL}
    seal = digest(json.dumps(plain, sort_keys=True).encode())
    return json.dumps({**plain, _SEAL: seal}, indent=2) + "\n"


def unsealed(path: Path) -> dict[str, Any]:
    """The content of a file that :func:`sealed` made.

    Raises:
        FileNotFoundError: there is no such file.
        RunDirectoryError: it is damaged, was edited, or is of another version of parl.
    """
    data = path.read_bytes()
    try:
        found = json.loads(data.decode())
        if not isinstance(found, dict):
            raise ValueError("it holds no object")
        again = sealed(found).encode()
    except (ValueError, RecursionError) as error:
        raise RunDirectoryError(f"{path} is damaged: {error}") from error
    if _SEAL not in found:
        raise RunDirectoryError(
            f"{path} is of format {found.get('format', 1)!r}; this version of parl reads format {FORMAT}. "
            "Open the run with the version that wrote it, or train again"
        )
    if again != data:
        raise RunDirectoryError(f"{path} is damaged or was edited: its checksum does not match its content")
    if found.get("format") != FORMAT:
        raise RunDirectoryError(
            f"{path} is of format {found.get('format')!r}; this version of parl reads format {FORMAT}"
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
    """Name, size in bytes and hash of each file in ``folder``."""
    return {
        place.name: {"size": place.stat().st_size, _SEAL: _hash_of(place)}
        for place in sorted(folder.iterdir())
    }


def check_file(path: Path, wanted: Mapping[str, Any], read: bool = True) -> None:
    """Compares a file with what :func:`describe` said of it.

    Args:
        path: of the file.
        wanted: its size and hash.
        read: compare the hash as well as the size.

    Raises:
        RunDirectoryError: the file is missing, no regular file, or differs; the message says which and why.
    """
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise RunDirectoryError(f"{path} is no regular file")
        if status.st_size != wanted["size"]:
            raise RunDirectoryError(f"{path} has {status.st_size} bytes; {wanted['size']} were written")
        if read and _hash_of(path) != wanted[_SEAL]:
            raise RunDirectoryError(
                f"{path} is damaged, was edited or belongs to another checkpoint: its checksum does not match"
            )
    except FileNotFoundError as error:
        raise RunDirectoryError(f"{path} is missing") from error
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be read: {error.strerror}") from error
