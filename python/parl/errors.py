"""Exceptions of parl. Each class derives from :class:`ParlError` and from a built-in exception."""

from __future__ import annotations


class ParlError(Exception):
    """Base class of all exceptions that parl defines."""


class ConfigError(ParlError, ValueError):
    """A setting is unknown, of the wrong type or out of its bounds; the message names it."""


class AtariError(ParlError, ValueError):
    """A ROM, setting, action, mode, difficulty or saved state is invalid; the message names it."""


class CudaUnavailableError(ParlError, RuntimeError):
    """A CUDA device was requested and cannot be used; the message says why."""


class RunDirectoryError(ParlError, ValueError):
    """A run directory or checkpoint is incomplete, damaged or was written by another version."""


class UntrustedRunError(RunDirectoryError):
    """A run has pickles, or names modules, which run code when loaded, and was opened without ``trust``."""


class WorkerError(ParlError, RuntimeError):
    """An actor or a learner raised an exception or was killed; the message has the traceback or signal."""


class CallbackError(ParlError, RuntimeError):
    """A callback of a run raised an exception, which is the cause; the message names callback and hook."""


class NonFiniteError(ParlError, ValueError):
    """A reward, observation, loss or weight is NaN or infinite; the message names it and the step."""


class NotSampleableError(ParlError, ValueError):
    """A replay or tree has no rows that can be sampled, or fewer than requested."""


class InconsistentError(ParlError, RuntimeError):
    """A node of a sum tree differs from the sum of its children; the message names it."""


class SharedMemoryError(ParlError, OSError):
    """Shared memory does not exist, belongs to another user or has other contents; the message names it."""


class ReplayClosedError(ParlError, ValueError):
    """A replay was used after it had been closed."""


class ReplayFileError(ParlError, ValueError):
    """A file is not a replay, is truncated or damaged, or was written by a newer version."""


class DatasetError(ParlError, ValueError):
    """A file is not a dataset, is unfinished, damaged or newer, or does not replay as it was recorded."""
