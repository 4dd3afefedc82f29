"""Objects that a forked process inherits: they work, raise an error or are freed there; nothing hangs."""

from __future__ import annotations

import gc
import os
import signal
import traceback
from collections.abc import Callable

import numpy as np
import pytest

import parl

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def status_of_fork(work: Callable[[], object]) -> int:
    """Exit status of a forked process that calls ``work``; a signal ends it after 30 s."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("options", [{"num_threads": 3}, {"num_threads": 2, "batch_size": 2}], ids=str)
def test_freeing_inherited_environments_leaves_the_threads_of_new_ones(options: dict[str, int]) -> None:
    envs = [parl.AtariVectorEnv("pong", 4, **options)]
    envs[0].reset(seed=0)

    def work() -> None:
        new = parl.AtariVectorEnv("pong", 4, **options)
        new.reset(seed=0)
        envs.clear()  # Its threads had the ids that those of `new` have.
        gc.collect()
        new.step(np.zeros(new.batch_size, np.int64))
        new.close()

    assert status_of_fork(work) == 0
    envs[0].close()
