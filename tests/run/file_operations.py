"""Kills a process with SIGKILL right before its n-th file operation, without an external tool."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_EVENTS = {"open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.truncate"}


class FileOperations:
    """Counts operations of this process on files of ``folder``; kills it before operation number ``fatal``.

    An audit hook, which stays until the process ends, counts files opened, renamed, made and removed. A
    replacement of ``os.fsync`` counts its calls.
    """

    def __init__(self, folder: Path, fatal: int | None = None) -> None:
        self.count = 0
        self.is_on = True
        self._folder, self._fatal = str(folder), fatal
        fsync: Callable[[Any], None] = os.fsync

        def counted(descriptor: Any) -> None:
            self._count()
            fsync(descriptor)

        os.fsync = counted
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on or event not in _EVENTS:
            return
        path, rest = arguments[0], arguments[1:]
        in_folder = isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self._folder)
        # Folders are removed with names relative to an open folder.
        relative = event in ("os.rmdir", "os.remove") and rest[-1] not in (-1, None)
        if in_folder or relative:
            self._count()

    def _count(self) -> None:
        if not self.is_on:
            return
        self.count += 1
        if self.count == self._fatal:
            os.kill(os.getpid(), signal.SIGKILL)
