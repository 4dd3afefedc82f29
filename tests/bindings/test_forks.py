"""Objects that a forked process inherits: they work, raise an error or are freed there; nothing hangs."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest

import parl
from children import in_child
from parl.atari import Console

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


@contextlib.contextmanager
def repeated(call: Callable[[], object]) -> Generator[None]:
    """Repeats ``call``, which takes milliseconds or more, in another thread for the length of the block."""
    begun, ends = threading.Event(), threading.Event()

    def work() -> None:
        while not ends.is_set():
            call()
            begun.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert begun.wait(60)
        time.sleep(0.02)  # It is in the middle of a call.
        yield
    finally:
        ends.set()
        thread.join(60)


@pytest.mark.parametrize("options", [{"num_threads": 3}, {"num_threads": 2, "batch_size": 2}], ids=str)
def test_freeing_inherited_environments_leaves_the_threads_of_new_ones(options: dict[str, Any]) -> None:
    envs = [parl.AtariVectorEnv("pong", 4, **options)]
    envs[0].reset(seed=0)

    def work() -> None:
        new = parl.AtariVectorEnv("pong", 4, **options)
        new.reset(seed=0)
        envs.clear()  # Its threads had the ids that those of `new` have.
        gc.collect()
        new.step(np.zeros(new.batch_size, np.int64))
        new.close()

    assert in_child(work, seconds=30) == 0
    envs[0].close()


def test_environments_that_a_thread_steps_during_a_fork_do_not_hang_in_the_child() -> None:
    envs = parl.AtariVectorEnv("pong", 4, num_threads=1, frameskip=1000)
    envs.reset(seed=0)

    def work() -> None:
        with pytest.raises(ValueError, match="was created in process"):
            envs.get_state()
        envs.close()

    with repeated(lambda: envs.step(np.zeros(4, np.int64))):
        assert in_child(work, seconds=30) == 0
    envs.close()


def test_a_console_works_in_a_fork_unless_a_thread_was_using_it() -> None:
    console = Console("pong", frame_skip=1000)
    console.act(0)
    frame = console.frame_number

    def use() -> None:
        assert console.frame_number == frame
        console.act(0)

    def play() -> None:
        if console.game_over:  # Then `act` would return at once.
            console.reset()
        console.act(0)

    def fail() -> None:
        for call in (lambda: console.lives, lambda: console.act(0), console.save):
            with pytest.raises(ValueError, match="another thread used this console while process"):
                call()

    assert in_child(use, seconds=30) == 0
    found: list[int] = []
    with repeated(play):
        # 1: the fork fell between two calls of the thread, where the console works.
        while 0 not in found and len(found) < 50:
            time.sleep(0.003)  # The thread is in a call of its own, not waiting for this one to let it run.
            found.append(in_child(fail, seconds=30))
    assert set(found) <= {0, 1} and 0 in found


def test_a_tree_that_a_thread_updates_during_a_fork_has_right_sums_in_the_child() -> None:
    tree = parl.SumTree(1 << 16)
    leaves, rng = np.arange(1 << 16), np.random.default_rng(0)

    def update() -> None:
        tree.update(leaves, rng.random(1 << 16))

    def work() -> None:
        tree.update([0], [1.0])
        tree.verify()

    with repeated(update):
        assert [in_child(work, seconds=30) for _ in range(20)] == [0] * 20
