"""What parl raises. Every class of ours derives from :class:`ParlError` and from a fitting built-in one."""

from __future__ import annotations


class ParlError(Exception):
    """Base of all errors that parl itself defines."""


class ConfigError(ParlError, ValueError):
    """A setting is unknown, of the wrong type or out of its bounds; the message names it."""


class RunDirectoryError(ParlError, ValueError):
    """A run directory or checkpoint is incomplete, damaged or of another version."""


class WorkerError(ParlError, RuntimeError):
    """An actor or a learner failed or died; the message holds its own traceback or the signal."""
