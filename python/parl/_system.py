"""What depends on the operating system: locks of files, folders on the disk, and whether a process exists.

Tests run on Linux. macOS has the same calls; Windows has counterparts here, which no test has run.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from pathlib import Path

if sys.platform == "win32":
    import ctypes
    import msvcrt

    # A byte far beyond the end of every file that is locked: on Windows locked bytes cannot be read.
    _LOCKED_BYTE = 1 << 30
    _SYNCHRONIZE = 0x00100000
    _ERROR_ACCESS_DENIED = 5

    def lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> None:
        """Locks an open file until :func:`unlock`, or until it is closed.

        Args:
            descriptor: the file.
            shared: whether other processes may also have a shared lock; on Windows every lock is exclusive.
            wait: whether to wait for other processes.

        Raises:
            BlockingIOError: another process has a lock; not with ``wait``.
            OSError: the file system has no locks.
        """
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        try:
            while True:
                os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
                try:
                    msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
                except OSError as error:
                    if wait:
                        continue  # LK_LOCK ends after ten attempts, one each second.
                    raise BlockingIOError(*error.args) from error
                return
        finally:
            os.lseek(descriptor, place, os.SEEK_SET)

    def unlock(descriptor: int) -> None:
        """Ends the lock of a file."""
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
        os.lseek(descriptor, place, os.SEEK_SET)

    @contextlib.contextmanager
    def locked_folder(folder: Path) -> Generator[None]:
        """Context in which no other process is in this context for the same folder."""
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
        try:
            lock(descriptor, wait=True)
            yield
        finally:
            os.close(descriptor)

    def sync_folder(folder: Path) -> None:
        """Writes the entries of a folder to the disk; does nothing on Windows, which opens no folders."""

    def sync_file(path: Path) -> None:
        """Writes a file to the disk."""
        descriptor = os.open(path, os.O_RDWR)  # Windows does not write back a file that is open for reading.
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def process_exists(pid: int) -> bool:
        """Whether a process has this id and has not ended; True if the system does not tell."""
        # Not os.kill: its signal 0 is Ctrl-C here.
        kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel32.OpenProcess.restype = ctypes.c_void_p
        handle = kernel32.OpenProcess(_SYNCHRONIZE, False, ctypes.c_uint32(pid))
        if not handle:
            return ctypes.get_last_error() == _ERROR_ACCESS_DENIED
        handle = ctypes.c_void_p(handle)
        ended = kernel32.WaitForSingleObject(handle, 0) == 0
        kernel32.CloseHandle(handle)
        return not ended

    class _MemoryStatus(ctypes.Structure):
        # Two 32-bit integers, then seven of 64 bits; the first of those is the memory of the machine.
        _fields_ = (("length", ctypes.c_uint32), ("load", ctypes.c_uint32), ("bytes", ctypes.c_uint64 * 7))

    def machine_bytes() -> int | None:
        """Bytes of memory that the machine has; None if the system does not tell."""
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        done = ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status))
        return int(status.bytes[0]) if done else None

else:
    import fcntl

    def lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> None:
        """Locks an open file until :func:`unlock`, or until it and its copies in forks are closed.

        Args:
            descriptor: the file.
            shared: whether other processes may also have a shared lock.
            wait: whether to wait for other processes.

        Raises:
            BlockingIOError: another process has a lock; not with ``wait``.
            OSError: the file system has no locks.
        """
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))

    def unlock(descriptor: int) -> None:
        """Ends the lock of a file, also for the copies of the descriptor in forks."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def locked_folder(folder: Path) -> Generator[None]:
        """Context in which no other process is in this context for the same folder."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            lock(descriptor, wait=True)
            yield
        finally:
            os.close(descriptor)

    def sync_folder(folder: Path) -> None:
        """Writes the entries of a folder to the disk."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_file(path: Path) -> None:
        """Writes a file to the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def process_exists(pid: int) -> bool:
        """Whether a process has this id.

        Raises:
            OverflowError: ``pid`` is larger than any id.
        """
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True

    def machine_bytes() -> int | None:
        """Bytes of memory that the machine has; None if the system does not tell."""
        try:
            found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError):
            return None
        return found if found > 0 else None


def usable_cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def write_atomically(path: Path, data: str | bytes) -> None:
    """Replaces a file atomically: readers, and a crash, see either the old or the new content."""
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
    sync_folder(path.parent)
