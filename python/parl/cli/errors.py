"""Messages of errors that the user of a command can fix; the others keep their traceback."""

from __future__ import annotations

import os
import select
import sys

from parl.errors import ConfigError, ParlError
from parl.extras import install_command


class UsageError(ConfigError):
    """A command, an option or its value does not exist; the exit status is then 2."""


def message_of(error: Exception) -> str | None:
    """What happened and what to do, in a sentence; None for an error that its user cannot fix."""
    if isinstance(error, ParlError):
        return str(error)
    if isinstance(error, ImportError):
        return _import_message(error)
    if isinstance(error, MemoryError):
        return f"not enough memory{': ' * bool(str(error))}{error}"
    # Errors between processes of a run are not the user's.
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        if error.strerror is None or error.filename is None:
            return str(error)
        return f"{error.filename}: {error.strerror}"
    gymnasium, torch = sys.modules.get("gymnasium"), sys.modules.get("torch")
    if gymnasium is not None and isinstance(error, gymnasium.error.Error):
        return str(error)
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return f"{error} Fewer environments (--num-envs) or smaller batches need less memory"
    return None


def _import_message(error: ImportError) -> str | None:
    name = (error.name or "").partition(".")[0]
    if name == "parl":
        return None
    if command := install_command(error):
        return f"{name} cannot be imported ({error}): {command}"
    return f"{error}: install the package that has it; --traceback shows what imports it"


def close_broken_streams() -> bool:
    """Closes standard output and error if nothing reads them, as after ``| head``; returns whether so.

    Windows does not tell whether anything reads them.
    """
    if sys.platform == "win32":
        return False
    found = False
    for stream in (sys.stdout, sys.stderr):
        try:
            descriptor = stream.fileno()
        except (OSError, ValueError):  # not a file of the system
            continue
        poll = select.poll()
        poll.register(descriptor, 0)
        if any(events & select.POLLERR for _, events in poll.poll(0)):
            # Python flushes them at exit, which must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
            found = True
    return found
