"""Keeps memory that a process frees, for later allocations."""

from __future__ import annotations

import ctypes
import functools
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # <malloc.h>
_MAX_THRESHOLD = 2**31 - 1
# Largest threshold that glibc before 2.35 accepts.
_MAX_THRESHOLD_OLD_GLIBC = 2**25


@functools.cache
def keep_freed_memory() -> bool:
    """Makes this process keep freed memory for its next allocations; returns whether it does so from now on.

    Learning from images allocates and frees tens of megabytes for every operation, and learning distributions
    of returns half a megabyte. By default, glibc returns such blocks to the system, which clears their pages
    anew each time: a fifth of all the time that PPO with the Nature CNN takes on a CPU. The kept memory is
    little more than the peak of the memory in use.

    Does nothing without glibc, or where the environment variable ``PARL_KEEP_MEMORY`` is 0.
    """
    if not sys.platform.startswith("linux") or os.environ.get("PARL_KEEP_MEMORY") == "0":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    trims = bool(mallopt(_TRIM_THRESHOLD, _MAX_THRESHOLD))
    return trims and any(
        mallopt(_MMAP_THRESHOLD, bound) for bound in (_MAX_THRESHOLD, _MAX_THRESHOLD_OLD_GLIBC)
    )
