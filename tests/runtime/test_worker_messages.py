"""Workers as the driver sees them: messages, errors and ends, with fake processes."""

import multiprocessing
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
import torch

from parl.errors import NonFiniteError, WorkerError
from parl.runtime import workers
from parl.runtime.workers import Deadline, Worker, WorkerGroup, WorkerTimeoutError


class Runner:
    """A fake process with an exit status; None while it is unknown."""

    def __init__(self, exitcode=None, alive=False):
        self.exitcode, self.alive, self.joined, self.killed = exitcode, alive, [], False

    def join(self, seconds):
        self.joined.append(seconds)

    def is_alive(self):
        return self.alive

    def kill(self):
        self.killed, self.alive = True, False


@pytest.fixture
def pair():
    ours, theirs = multiprocessing.Pipe()
    yield Worker("actor 3", Runner(-9), ours), theirs
    ours.close()
    theirs.close()


def test_messages_arrive_and_answer_returns_the_reply(pair):
    worker, theirs = pair
    worker.send({"a": 1})
    worker.send_if_running("b")
    assert theirs.recv() == {"a": 1} and theirs.recv() == "b"
    theirs.send(("any kind", 5))
    assert worker.answer(1.0) == 5
    with pytest.raises(WorkerTimeoutError, match=r"^actor 3 did not answer within 0\.05 s$"):
        worker.answer(0.05)
    assert not worker.finished


def test_an_answer_that_has_arrived_is_returned_with_timeout_0(pair):
    worker, theirs = pair
    theirs.send(("batch", 6))
    assert worker.answer(0.0) == 6
    with pytest.raises(WorkerTimeoutError, match="within 0 s"):
        worker.answer(0.0)


def test_messages_before_the_state_are_passed_on(pair):
    worker, theirs = pair
    others = []
    for value in (("rollout", 1), ("rollout", 2), ("state", b"here")):
        theirs.send(("part", value))
    assert worker.state(Deadline(5.0, lambda: False), others.append) == b"here" and others == [1, 2]
    with pytest.raises(WorkerTimeoutError):
        worker.state(Deadline(0.01, lambda: False))
    theirs.send(("part", ("other", 3)))
    said = worker.state(Deadline(0.01, lambda: True))
    assert said == "actor 3 did not answer within 0.01 s of the interrupt"


@pytest.mark.parametrize("ask", ["answer", "check"])
def test_a_failure_is_raised_once(pair, ask):
    worker, theirs = pair
    worker.check()
    theirs.send(("error", "Traceback: the pole fell\n\n"))
    with pytest.raises(WorkerError, match=r"^actor 3 failed:\nTraceback: the pole fell$"):
        worker.answer(1.0) if ask == "answer" else worker.check()
    assert worker.finished
    theirs.close()
    worker.check()


def test_a_non_finite_error_names_the_worker(pair):
    worker, theirs = pair
    theirs.send(("error", NonFiniteError("a reward is NaN")))
    with pytest.raises(NonFiniteError, match=r"^actor 3: a reward is NaN$"):
        worker.check()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (-9, r"was killed by signal 9 \(SIGKILL\)"),
        (-1, r"was killed by signal 1 \(SIGHUP\)"),
        (0, "ended by itself, exit status 0"),
        (7, "ended by itself, exit status 7; its traceback, if any, is on standard error"),
        (None, "ended by itself, exit status None"),
    ],
)
def test_an_ended_worker_raises_an_error_with_its_exit_status(pair, code, said):
    worker, theirs = pair
    worker.runner.exitcode = code
    theirs.close()
    with pytest.raises(WorkerError, match=f"^actor 3 {said}$"):
        worker.check()
    assert worker.runner.joined == [1.0], "its exit status may come a moment later"
    worker.finished = False
    with pytest.raises(WorkerError, match=f"^actor 3 {said}$"):
        worker.answer(5.0)
    worker.finished = False
    with pytest.raises(WorkerError, match=f"^actor 3 {said}$"):
        worker.send("hello")
    worker.send_if_running("hello")


def test_threads_have_no_exit_status(pair):
    worker, theirs = pair
    worker.runner = threading.Thread(target=lambda: None)
    worker.runner.start()
    theirs.close()
    with pytest.raises(WorkerError, match="exit status None"):
        worker.check()


@pytest.mark.parametrize("error", ["a traceback", NonFiniteError("loss = nan")])
def test_a_group_has_failed_once_one_of_its_workers_has(pair, error):
    worker, theirs = pair
    group = WorkerGroup(multiprocessing.get_context())
    group.workers.append(worker)
    assert not group.have_failed()
    theirs.send(("error", error))
    assert group.have_failed() and group.have_failed(), "also when its error has been raised before"


def echo(connection, word):
    connection.send(("said", word))
    connection.recv()


def test_a_group_starts_checks_and_ends_its_workers():
    group = WorkerGroup(multiprocessing.get_context())
    threads = torch.get_num_threads()
    made = [group.start(f"actor {number}", echo, (number,), process=False) for number in range(2)]
    assert group.workers == made and [worker.answer(20.0) for worker in made] == [0, 1]
    assert made[0].runner.name == "actor 0" and made[0].runner.daemon
    assert torch.get_num_threads() == threads, "threads share torch's settings with the driver"
    group.check()
    for worker in made:
        worker.send_if_running(None)
    group.end(within_s=20.0)
    assert not group.workers and all(worker.connection.closed for worker in made)
    assert not any(worker.runner.is_alive() for worker in made)


def test_a_worker_that_does_not_end_in_time_is_killed(monkeypatch):
    now = [10.0]
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=None))
    group = WorkerGroup(None)
    slow, quick, late = Runner(alive=True), Runner(), Runner()

    def joins(seconds):
        Runner.join(slow, seconds)
        now[0] += 1.5

    slow.join = joins
    for runner in (slow, quick, late):
        group.workers.append(Worker("actor", runner, SimpleNamespace(close=lambda: closed.append(1))))
    closed = []
    group.end(within_s=2.0)
    assert slow.joined == [2.0, 5.0] and quick.joined == late.joined == [0.5]
    assert slow.killed and not quick.killed and closed == [1] * 3


def test_failure_waits_for_an_error_of_a_worker(monkeypatch):
    now, checks = [10.0], []

    def sleep(seconds):
        assert seconds == 0.01
        now[0] += seconds

    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    group = WorkerGroup(None)
    group.workers.append(SimpleNamespace(check=lambda: checks.append(now[0]), runner=None))
    group.raise_failure(within_s=0.055)
    assert len(checks) == 6

    def fails():
        raise WorkerError("gone")

    group.workers.append(SimpleNamespace(check=fails, runner=None))
    with pytest.raises(WorkerError, match="gone"):
        group.raise_failure(within_s=0.055)


@pytest.mark.parametrize("error", [ValueError("the pole fell"), NonFiniteError("a reward is NaN")])
def test_a_failing_worker_sends_its_error(error):
    ours, theirs = multiprocessing.Pipe()

    def fails(connection, word):
        assert connection is theirs and word == "word"
        raise error

    workers._main(fails, theirs, None, 0, ("word",))
    kind, said = ours.recv()
    assert kind == "error" and theirs.closed
    if isinstance(error, NonFiniteError):
        assert str(said) == "a reward is NaN"
    else:
        assert said.startswith("Traceback") and "the pole fell" in said
    with pytest.raises(EOFError):
        ours.recv()


@pytest.mark.parametrize("hangup", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_worker_process_exits_with_status_1_after_a_failure(hangup, monkeypatch):
    ours, theirs = multiprocessing.Pipe()
    died, signals, forks = [], [], []
    monkeypatch.setattr(workers, "_die_with_parent", died.append)
    monkeypatch.setattr(workers.os, "register_at_fork", lambda after_in_child: forks.append(after_in_child))
    monkeypatch.setattr(workers.signal, "signal", lambda number, what: signals.append((number, what)))
    monkeypatch.setattr(workers.signal, "getsignal", {signal.SIGHUP: hangup}.get)

    def fails(connection):
        raise ValueError("the pole fell")

    threads = torch.get_num_threads()
    try:
        with pytest.raises(SystemExit) as ended:
            workers._main(fails, theirs, 77, 0, ())
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)
    assert ended.value.code == 1 and died == [77] and ours.recv()[0] == "error"
    (first, ignored), *handled = signals
    assert (first, ignored) == (signal.SIGINT, signal.SIG_IGN)
    under_nohup = hangup == signal.SIG_IGN
    assert [one for one, _ in handled] == [signal.SIGTERM, *([] if under_nohup else [signal.SIGHUP])]
    assert all(handler(number, None) is None for number, handler in handled)
    forks[0]()
    assert signals[-1] == (signal.SIGTERM, signal.SIG_DFL), "what a worker forks can be ended"


@pytest.mark.parametrize(
    ("threads", "device", "cuda", "group", "platform", "works", "method"),
    [
        (1, "cpu", False, False, "linux", True, "fork"),
        (2, "cpu", False, False, "linux", True, "forkserver"),
        (1, "cuda", False, False, "linux", True, "forkserver"),
        (1, "cpu", True, False, "linux", True, "forkserver"),
        (1, "cpu", False, True, "linux", True, "forkserver"),
        (1, "cpu", False, False, "darwin", True, "forkserver"),
        (1, "cpu", False, False, "linux", False, "forkserver"),
        (1, "cpu", False, False, "win32", True, "spawn"),
    ],
)
def test_workers_are_forked_only_where_that_is_safe(
    monkeypatch, threads, device, cuda, group, platform, works, method
):
    preloaded = []

    class Contexts:
        @staticmethod
        def get_all_start_methods():
            return ["spawn"] if platform == "win32" else ["fork", "forkserver", "spawn"]

        @staticmethod
        def get_context(method=None):
            return SimpleNamespace(method=method, set_forkserver_preload=preloaded.append)

    monkeypatch.setattr(workers, "multiprocessing", Contexts)
    monkeypatch.setattr(workers, "_share_by_files_without_shm", lambda: None)
    monkeypatch.setattr(workers, "_torch_works_in_a_fork", lambda count: works and count == 1)
    monkeypatch.setattr(workers, "threading", SimpleNamespace(active_count=lambda: threads))
    monkeypatch.setattr(workers, "sys", SimpleNamespace(platform=platform))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: cuda)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: group)
    assert workers.choose_context(True, device).method == method
    if method == "fork":
        assert workers.choose_context(True, device, 2).method == "forkserver"
        preloaded.pop()
    assert len(preloaded) == (method == "forkserver")
    assert all("torch" in names for names in preloaded)
    assert workers.choose_context(False, device).method is None


FORKS = """
import torch
from parl.runtime.workers import _torch_works_in_a_fork as works

torch.set_num_threads(2)
print(works(1), works(2))
torch.ones(2**20).sum()
print(works(1), works(2))
"""


def test_a_fork_can_use_threads_of_torch_unless_its_parent_has():
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=240)
    assert done.stdout == "True True\nTrue False\n", done.stderr


def test_without_shared_memory_processes_use_files_and_warn_once(monkeypatch):
    from multiprocessing import heap

    places = SimpleNamespace(_dir_candidates=["/dev/shm"])
    monkeypatch.setattr(heap, "Arena", places)
    workers._share_by_files_without_shm()
    assert places._dir_candidates == ["/dev/shm"], "/dev/shm exists and is writable"
    monkeypatch.setattr(workers.os, "access", lambda path, mode: False)
    with pytest.warns(
        UserWarning, match="/dev/shm is missing or not writable: processes share memory by files"
    ):
        workers._share_by_files_without_shm()
    assert places._dir_candidates == []
    workers._share_by_files_without_shm()


def test_a_deadline_is_sooner_after_an_interrupt(monkeypatch):
    now, interrupted = [100.0], [False]
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=None))
    deadline = Deadline(60.0, lambda: interrupted[0])
    assert deadline.remaining_s() == 60.0 and str(deadline) == "60 s" and not deadline.is_cut_short
    now[0] += 10
    assert deadline.remaining_s() == 50.0
    interrupted[0] = True
    assert deadline.remaining_s() == 3.0 and deadline.is_cut_short
    assert str(deadline) == "3 s of the interrupt"
    now[0] += 2
    assert deadline.remaining_s() == 1.0
    now[0] += 2
    assert deadline.remaining_s() == 0.0
    short = Deadline(1.5, lambda: True)
    assert short.remaining_s() == 1.5 and str(short) == "1.5 s of the interrupt"
