"""What parl raises. Every class of ours derives from :class:`ParlError` and from a fitting built-in one."""

from __future__ import annotations


class ParlError(Exception):
    """Base of all errors that parl itself defines."""


class ConfigError(ParlError, ValueError):
    """A setting is unknown, of the wrong type or out of its bounds; the message names it."""


class AtariError(ParlError, ValueError):
    """A ROM, setting, action, mode, difficulty or saved state does not fit the console; it is named."""


class CudaUnavailableError(ParlError, RuntimeError):
    """``device="cuda"`` was asked for and cannot be had; the message says why."""


class RunDirectoryError(ParlError, ValueError):
    """A run directory or checkpoint is incomplete, damaged or of another version."""


class UntrustedRunError(RunDirectoryError):
    """A run holds pickles, which run code when loaded, and the run was not declared as trusted."""


class WorkerError(ParlError, RuntimeError):
    """An actor or a learner failed or died; the message holds its own traceback or the signal."""


class NonFiniteError(ParlError, ValueError):
    """A reward, observation, loss or weight is NaN or infinite; the message says which, where and when."""


class NotSampleableError(ParlError, ValueError):
    """A replay or tree holds nothing that can be drawn (yet)."""


class InconsistentError(ParlError, RuntimeError):
    """A sum tree's node differs from the sum of its children; ``verify`` names it."""


class SharedMemoryError(ParlError, OSError):
    """Named shared memory does not exist, is another's, or holds something else; the message names it."""


class ReplayClosedError(ParlError, ValueError):
    """A replay was used after this process had closed it."""


class ReplayFileError(ParlError, ValueError):
    """A file is no replay, is truncated or damaged, or is newer than this version."""
