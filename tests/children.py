"""Work in forked processes."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable


def in_child(work: Callable[[], object], seconds: int = 0) -> int:
    """Runs ``work`` in a forked process and returns its exit status, negative if a signal ended it.

    SIGALRM ends the process after ``seconds``; 0: never.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if seconds:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(seconds)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
