"""All methods of an object may be called by several threads at once; importing parl leaves the GIL off."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import threading

import numpy as np
import pytest

import parl


def hammer(*calls, rounds: int = 100) -> None:
    """Makes each call ``rounds`` times in a thread of its own; all threads start at the same time."""
    barrier, errors = threading.Barrier(len(calls)), []

    def work(call) -> None:
        try:
            barrier.wait(60)
            for n in range(rounds):
                call(n)
        except BaseException as error:  # re-raised below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this interpreter has a GIL")
def test_importing_parl_leaves_the_gil_off():
    # In a new process, since pytest's plugins may import extensions that enable the GIL in this one.
    code = "import sys, parl; parl.SumTree(4); sys.exit(sys._is_gil_enabled())"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


WRITE_DURING_UPDATE = """
import threading
import numpy as np, parl

tree = parl.SumTree(1000)
indices, priorities, ends = np.zeros(100_000, int), np.ones(100_000), threading.Event()

def write():
    while not ends.is_set():
        indices[-1] = 1 << 50
        indices[-1] = 0

thread = threading.Thread(target=write)
thread.start()
for _ in range(200):
    try:
        tree.update(indices, priorities)
    except IndexError:
        pass
ends.set()
thread.join()
tree.verify()
"""


def test_another_thread_may_write_to_the_indices_of_an_update():
    # In a new process, which an index that is used without a check would end.
    code = [sys.executable, "-P", "-c", WRITE_DURING_UPDATE]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_method_of_a_tree_may_be_called_at_once():
    tree = parl.SumTree(5000, seed=1)
    tree.update(np.arange(5000), 1.0)

    def update(n: int) -> None:
        rng = np.random.default_rng(n)
        tree.update(rng.integers(0, 5000, 64), rng.random(64) + 0.5)

    def draw(n: int) -> None:
        leaves, weights = tree.sample(64)
        assert (weights > 0).all() and (leaves < 5000).all()

    def write(n: int) -> None:
        tree[n % 5000] = 2.0
        assert tree[n % 5000] > 0 and len(tree) == 5000

    def look(n: int) -> None:
        assert 0 <= tree.rng_state < 2**64
        assert tree.total > 0 and tree.largest >= 1.0 and tree.histogram().sum() > 0
        tree.seed(n)

    hammer(update, update, draw, draw, write, look)
    tree.verify()


def test_every_method_of_a_replay_may_be_called_at_once(tmp_path):
    fields = {"tag": ((), "int64"), "body": ((16,), "int64"), "nested": {"half": ((), "float16")}}
    replay = parl.PrioritizedReplay(1000, fields, alpha=1.0, epsilon=0.0, seed=0)

    def add(n: int) -> None:
        tags = np.arange(n * 8, n * 8 + 8)
        replay.add(
            tag=tags,
            body=np.repeat(tags[:, None], 16, 1),
            nested={"half": np.zeros(8, np.float16)},
            priorities=tags % 7 + 1.0,
        )

    add(0)

    def learn(n: int) -> None:
        batch = replay.sample(32)
        assert (batch.body == batch.tag[:, None]).all()
        replay.update_priorities(batch.tickets, batch.tag % 7 + 1.0)

    def reuse(n: int) -> None:
        out = replay.empty_batch(16)
        batch = replay.sample(16, out=out)
        assert (batch.body == batch.tag[:, None]).all()

    def look(n: int) -> None:
        assert 0 < len(replay) <= 1000 and replay.stale_updates >= 0 and replay.nbytes > 0

    def save(n: int) -> None:
        if n % 30 == 0:
            replay.save(tmp_path / "replay")
            assert len(parl.PrioritizedReplay.load(tmp_path / "replay")) > 0

    hammer(add, add, learn, learn, reuse, look, save)


def test_several_threads_may_use_one_prefetch_iterator():
    replay = parl.UniformReplay(500, {"tag": ((), "int64")}, seed=0)
    replay.add(tag=np.arange(500))

    def draw(n: int) -> None:
        tags = next(batches).tag
        assert tags.shape == (8,) and 0 <= tags.min() and tags.max() < 500

    with replay.prefetch(8, depth=3, ordered=False) as batches:
        hammer(*[draw] * 4, rounds=50)
