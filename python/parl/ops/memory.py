"""Memory that a process frees and soon wants again."""

from __future__ import annotations

import ctypes
import functools
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # <malloc.h>
_MOST = 2**31 - 1
# What glibc before 2.35 takes at most.
_MOST_ONCE = 2**25


@functools.cache
def keep_freed_memory() -> bool:
    """Lets this process keep what it frees, for its next allocations; true where that is so from now on.

    Learning from pictures allocates and frees tens of megabytes for every operation. As it comes, glibc gives
    such pieces back to the system, which clears their pages anew each time: a fifth of all the time that
    PPO with the Nature CNN takes on a processor. What is kept comes to little more than the most that was in
    use at a time.

    Does nothing without glibc, or where the environment variable ``PARL_KEEP_MEMORY`` is 0.
    """
    if not sys.platform.startswith("linux") or os.environ.get("PARL_KEEP_MEMORY") == "0":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    trims = bool(mallopt(_TRIM_THRESHOLD, _MOST))
    return trims and any(mallopt(_MMAP_THRESHOLD, bound) for bound in (_MOST, _MOST_ONCE))
