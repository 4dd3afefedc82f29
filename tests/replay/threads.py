"""Several threads that use one replay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence


def run_threads(works: Sequence[Callable[[], object]], seconds: float) -> None:
    """Calls each function again and again in a thread of its own; raises the first error of one."""
    errors: list[BaseException] = []
    stop = threading.Event()

    def repeat(work: Callable[[], object]) -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as error:  # re-raised below
            errors.append(error)
            stop.set()

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
