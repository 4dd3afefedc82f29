"""Threads and processes on one replay: no torn rows, no stale priorities, no blocking by killed processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from model import fields
from threads import run_threads

import parl

WIDTH = 64
PATTERN = {"tag": ((), "int64"), "body": ((WIDTH,), "int64")}


def patterned(first: int, count: int) -> dict[str, np.ndarray]:
    """Rows in which every number is the tag of the row, so that torn rows can be detected."""
    tags = np.arange(first, first + count)
    return {"tag": tags, "body": np.repeat(tags[:, None], WIDTH, axis=1)}


def check_rows(batch: parl.replay.Batch) -> None:
    torn = (batch.body != batch.tag[:, None]).any(axis=1)
    assert not torn.any(), f"torn rows: {batch.tag[torn]}"


@pytest.mark.parametrize("capacity", [8, 100, 3000])
def test_no_torn_row_and_no_stale_priority(capacity):
    """The tag of a row determines its priority, so that an update of the wrong row is detected."""
    buffer = parl.PrioritizedReplay(capacity, PATTERN, alpha=1.0, epsilon=0.0)
    next_tag = iter(range(0, 10**12, 7))
    lock = threading.Lock()

    def priority_of(tags):
        return (tags % 97 + 1).astype(np.float64)

    def add() -> None:
        with lock:
            first = next(next_tag)
        rows = patterned(first, 7)
        buffer.add(**rows, priorities=priority_of(rows["tag"]))

    def learn() -> None:
        try:
            batch = buffer.sample(32)
        except parl.errors.NotSampleableError:
            return  # One call fills nearly the whole smallest ring; meanwhile no other row exists.
        check_rows(batch)
        buffer.update_priorities(batch.tickets, priority_of(batch.tag))

    def check() -> None:
        try:
            batch = buffer.sample(64, beta=1.0)
        except parl.errors.NotSampleableError:
            return
        check_rows(batch)
        # Importance weights follow from the priority that was sampled: with beta 1, weight * priority is
        # the same for all rows.
        products = batch.weights * priority_of(batch.tag)
        np.testing.assert_allclose(products, products[0], rtol=1e-5)

    run_threads([add, add, learn, check], seconds=2)
    buffer.verify()
    counters = buffer.counters
    assert counters["added"] > 10 * capacity and counters["sampled"] > 100
    # When no thread runs, the total is the sum over the stored rows.
    held = buffer.sample(buffer.sampleable, mode="without_replacement")
    assert len(set(held.tag)) == min(capacity, counters["added"]) == buffer.sampleable
    assert buffer.total_priority == pytest.approx(priority_of(held.tag).sum(), rel=1e-9)


def test_windows_are_correct_while_environments_interleave():
    """obs counts up per environment, so the next observation of every window is known."""
    n_step, num_envs = 3, 4
    buffer = parl.PrioritizedReplay(
        200, fields(), n_step=n_step, gamma=1.0, num_envs=num_envs, autoreset="disabled"
    )
    clocks = [0] * num_envs

    def actor(env: int):
        def work() -> None:
            clock = clocks[env]
            clocks[env] += 1
            buffer.add(
                obs=[clock],
                action=[env],
                reward=[1.0],
                terminated=[clock % 11 == 10],
                truncated=[False],
                env_id=[env],
            )

        return work

    def learn() -> None:
        if buffer.sampleable == 0:
            return
        batch = buffer.sample(32)
        left = 11 - batch.obs % 11  # steps to the end of the episode, this one included
        steps = np.minimum(left, n_step)
        np.testing.assert_array_equal(batch.reward, steps)
        np.testing.assert_array_equal(batch.terminated, left <= n_step)
        on = ~batch.terminated
        np.testing.assert_array_equal(batch.next_obs[on], batch.obs[on] + n_step)

    run_threads([*[actor(env) for env in range(num_envs)], learn, learn], seconds=2)
    buffer.verify()


def test_two_threads_may_add_to_one_environment():
    buffer = parl.PrioritizedReplay(500, fields(), n_step=2, num_envs=1)
    row = {"obs": [0.0], "action": [0], "reward": [1.0], "terminated": [False], "truncated": [False]}
    run_threads([lambda: buffer.add(**row)] * 3, seconds=1)
    assert buffer.sampleable == 498
    buffer.verify()


def test_sample_releases_the_gil():
    """A pure-Python thread keeps running while another is inside long calls."""
    buffer = parl.UniformReplay(2000, {"x": ((50_000,), "uint8")})
    buffer.add(x=np.zeros((2000, 50_000), np.uint8))
    out = buffer.sample(1500)
    inside = False
    ticks = 0

    def sampler() -> None:
        nonlocal inside
        inside = True
        buffer.sample(1500, out=out)
        inside = False

    def ticker() -> None:
        nonlocal ticks
        ticks += inside
        time.sleep(0.0005)

    run_threads([sampler, ticker], seconds=2)
    assert ticks > 100, "the ticker thread ran while another thread was in sample"


ATTACHED = """
    import sys
    import numpy as np
    import parl
    name, first = sys.argv[1], int(sys.argv[2])
    buffer = parl.PrioritizedReplay.attach(name)
    print("ready", flush=True)
    tag = first
    while True:
        tags = np.arange(tag, tag + 5)
        buffer.add(tag=tags, body=np.repeat(tags[:, None], 64, axis=1), priorities=np.ones(5))
        batch = buffer.sample(16)
        assert (batch.body == batch.tag[:, None]).all()
        buffer.update_priorities(batch.tickets, np.ones(16))
        tag += 5
"""


def start_attached(name: str, first: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(ATTACHED), name, str(first)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def test_processes_share_a_replay_and_a_killed_one_blocks_no_other(name):
    with parl.PrioritizedReplay(50, PATTERN, shared=name, alpha=1.0) as buffer:
        assert os.stat(f"/dev/shm/{name}").st_mode & 0o777 == 0o600
        buffer.add(**patterned(0, 5))
        foreign = set()
        for round_number in range(6):
            process = start_attached(name, 10**6 * (round_number + 1))
            deadline, rounds = time.monotonic() + 120, 0
            while rounds < 2_000 or (round_number + 1 not in foreign and time.monotonic() < deadline):
                rounds += 1
                buffer.add(**patterned(round_number, 3))
                batch = buffer.sample(16)
                check_rows(batch)
                foreign |= set(batch.tag[batch.tag >= 10**6] // 10**6)
                buffer.update_priorities(batch.tickets, np.ones(16))
            assert process.poll() is None, "the other process failed"
            process.send_signal(signal.SIGKILL)
            # The process is not reaped yet: a zombie must not block other processes either.
            for i in range(400):
                buffer.add(**patterned(i, 3))
                check_rows(buffer.sample(8))
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        assert foreign == set(range(1, 7)), "rows of every other process were seen"
        buffer.verify()
        assert buffer.sampleable >= 40
        assert buffer.total_priority == pytest.approx(buffer.sampleable, rel=1e-4)
    assert not os.path.exists(f"/dev/shm/{name}")


def test_attach_open_and_pickle(name):
    with pytest.raises(parl.errors.SharedMemoryError, match=name):
        parl.PrioritizedReplay.attach(name)
    maker = parl.PrioritizedReplay(20, PATTERN, shared=name)
    maker.add(**patterned(0, 4))
    again = parl.PrioritizedReplay(20, PATTERN, shared=name)
    attached = parl.PrioritizedReplay.attach(name)
    pickled = pickle.loads(pickle.dumps(attached))
    assert [len(b) for b in (maker, again, attached, pickled)] == [4] * 4
    with pytest.raises(
        parl.errors.SharedMemoryError, match='exists with other settings: "capacity 20" there'
    ):
        parl.PrioritizedReplay(21, PATTERN, shared=name)
    with pytest.raises(parl.errors.SharedMemoryError, match=r'"gamma 0\.99" there, "gamma 0\.5" here'):
        parl.PrioritizedReplay(20, PATTERN, shared=name, gamma=0.5)
    attached.close()
    assert os.path.exists(f"/dev/shm/{name}")
    maker.close()  # The handle that created the name removes it.
    assert not os.path.exists(f"/dev/shm/{name}")
    assert len(pickled.sample(2).tag) == 2, "open handles keep the memory"
    del maker, again, pickled


def test_segments_of_killed_processes_are_replaced(name):
    code = (
        f"import os, parl; kept = parl.UniformReplay(9, {{'x': ((), 'int64')}}, shared={name!r}); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert os.path.exists(f"/dev/shm/{name}")
    with parl.PrioritizedReplay(20, PATTERN, shared=name) as buffer:
        assert len(buffer) == 0
        assert len(parl.PrioritizedReplay.attach(name)) == 0


def _unfinished(name: str) -> int:
    """Makes a file as a process does that begins to create a replay, and returns its descriptor."""
    file = os.open(f"/dev/shm/{name}", os.O_CREAT | os.O_RDWR, 0o600)
    os.ftruncate(file, 1 << 16)
    return file


def test_a_replay_whose_creator_was_killed_halfway_is_replaced(name):
    os.close(_unfinished(name))
    with pytest.raises(parl.errors.SharedMemoryError, match="No such file"):
        parl.PrioritizedReplay.attach(name)
    os.close(_unfinished(name))
    with contextlib.ExitStack() as stack:
        buffers = []
        openers = [
            threading.Thread(
                target=lambda: buffers.append(
                    stack.enter_context(parl.PrioritizedReplay(20, PATTERN, shared=name))
                )
            )
            for _ in range(4)
        ]
        for opener in openers:
            opener.start()
        for opener in openers:
            opener.join(60)
        buffers[0].add(**patterned(100, 5))
        assert [len(buffer) for buffer in buffers] == [5] * 4, "all have the same memory"


def test_opening_waits_while_another_process_creates_the_replay_until_ctrl_c(name):
    import fcntl

    file = _unfinished(name)
    fcntl.flock(file, fcntl.LOCK_EX)
    for call in (
        lambda: parl.PrioritizedReplay(20, PATTERN, shared=name),
        lambda: parl.PrioritizedReplay.attach(name),
    ):
        interrupt = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            call()
        interrupt.join()
    threading.Timer(0.5, os.close, [file]).start()  # Ends the lock, as the end of its process does.
    with parl.PrioritizedReplay(20, PATTERN, shared=name) as buffer:
        assert len(buffer) == 0


def test_shared_memory_that_is_no_replay_is_refused(name):
    with open(os.open(f"/dev/shm/{name}", os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
        file.write(b"\x01" * 4096)
    with pytest.raises(
        parl.errors.SharedMemoryError, match="holds no replay of this version: its first word"
    ):
        parl.PrioritizedReplay.attach(name)
    os.unlink(f"/dev/shm/{name}")


def _fork_child(buffer: parl.PrioritizedReplay) -> None:
    buffer.add(**patterned(100, 5))


def test_a_fork_uses_the_shared_replay_of_its_parent(name):
    with parl.PrioritizedReplay(50, PATTERN, shared=name) as buffer:
        child = multiprocessing.get_context("fork").Process(target=_fork_child, args=(buffer,))
        child.start()
        child.join(30)
        assert child.exitcode == 0
        assert os.path.exists(f"/dev/shm/{name}"), "the child's end does not remove the parent's memory"
        assert set(buffer.sample(32).tag) == set(range(100, 105))


@pytest.mark.parametrize(
    ("obstacle", "reason"),
    [
        ("link", "it is a symbolic link"),
        ("directory", "Is a directory"),
        ("writable", "it has mode 666, so other users can open it; expected 600"),
        ("empty", "it is empty: the process that created it"),
        ("no descriptors", "Too many open files"),
    ],
)
def test_errors_say_why_shared_memory_cannot_be_opened(name, obstacle, reason):
    import resource

    path = pathlib.Path("/dev/shm") / name
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        match obstacle:
            case "link":
                path.symlink_to("elsewhere")
            case "directory":
                path.mkdir()
            case "no descriptors":
                open_now = max(int(one) for one in os.listdir("/proc/self/fd"))
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(open_now, limits[0]), limits[1]))
                taken = []
                with contextlib.suppress(OSError):
                    while True:
                        taken.append(os.open("/dev/null", os.O_RDONLY))
            case _:
                path.write_bytes(b"" if obstacle == "empty" else b"x" * 4096)
                path.chmod(0o600 if obstacle == "empty" else 0o666)
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        with pytest.raises(parl.errors.SharedMemoryError) as caught:
            parl.PrioritizedReplay(20, PATTERN, shared=name)
        # The thread sleeps between attempts. It tries an empty file again for 20 ms, as its creator may have
        # just begun, and raises other errors at once.
        sleeps = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before
        assert sleeps < (50 if obstacle == "empty" else 3)
    finally:
        if obstacle == "no descriptors":
            for one in taken:
                os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
    assert reason in str(caught.value) and str(path) in str(caught.value)
