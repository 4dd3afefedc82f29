"""Workers report errors, end with their driver and leave no processes behind."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import pytest

from children import in_child
from parl.errors import WorkerError
from parl.runtime import workers
from parl.runtime.workers import Deadline, WorkerGroup, WorkerTimeoutError, choose_context


def _fail(connection, text):
    raise ValueError(text)


def _sleep(connection):
    time.sleep(600)


def _leave(connection):
    os._exit(7)


def _echo(connection):
    while (question := connection.recv()) != "end":
        connection.send(("answer", question))


def wait_for_failure(team):
    with pytest.raises(WorkerError) as raised:
        team.raise_failure(within_s=120.0)
    return str(raised.value)


@pytest.fixture(params=["fork", "forkserver"])
def team(request):
    context = multiprocessing.get_context(request.param)
    if request.param == "forkserver":
        context.set_forkserver_preload(["torch", "parl.runtime.workers"])
    team = WorkerGroup(context)
    yield team
    team.end(within_s=0.0)


@pytest.mark.parametrize("process", [True, False])
def test_a_failure_arrives_with_its_own_traceback(team, process):
    team.start("actor 3", _fail, ("the pole fell",), process)
    message = wait_for_failure(team)
    assert message.startswith("actor 3 failed:\nTraceback")
    assert "ValueError: the pole fell" in message
    assert "in _fail" in message


def test_a_killed_worker_is_reported(team):
    worker = team.start("learner 1", _sleep, (), True)
    team.check()
    os.kill(worker.runner.pid, signal.SIGKILL)
    assert wait_for_failure(team) == "learner 1 was killed by signal 9 (SIGKILL)"


def test_a_worker_that_exits_is_reported(team):
    team.start("actor 0", _leave, (), True)
    said = wait_for_failure(team)
    assert said == "actor 0 ended by itself, exit status 7; its traceback, if any, is on standard error"


@pytest.mark.parametrize("process", [True, False])
def test_questions_are_answered(team, process):
    worker = team.start("actor 0", _echo, (), process)
    for word in ("a", "b"):
        worker.send(word)
        assert worker.answer(120.0) == word
    worker.connection.send("end")
    worker.runner.join(120.0)
    assert not worker.runner.is_alive()


def test_end_kills_workers_that_do_not_stop(team):
    worker = team.start("actor 0", _sleep, (), True)
    pid = worker.runner.pid
    team.end(within_s=0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_interrupt_does_not_lose_a_worker_that_has_just_started():
    context = multiprocessing.get_context("fork")

    class Interrupted(context.Process):
        def start(self):
            super().start()
            signal.raise_signal(signal.SIGINT)

    group = WorkerGroup(SimpleNamespace(get_start_method=lambda: "fork", Process=Interrupted))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            group.start("actor 0", _sleep, (), True)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    (worker,) = group.workers
    assert worker.runner.is_alive()
    group.end(within_s=0.0)
    assert not worker.runner.is_alive()


def test_the_workers_of_a_group_that_is_lost_are_killed():
    group = [WorkerGroup(multiprocessing.get_context("fork"))]
    process = group[0].start("actor 0", _sleep, (), True).runner
    assert in_child(group.clear, seconds=60) == 0
    assert process.is_alive(), "a fork has a copy of the group"
    group.clear()
    gc.collect()
    process.join(60.0)
    assert process.exitcode == -signal.SIGKILL


def test_workers_die_with_the_driver(tmp_path):
    """The driver is killed and cannot send a message to its two workers; they end by themselves."""
    script = tmp_path / "driver.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing, sys, time
            from parl.runtime.workers import WorkerGroup

            def work(connection):
                connection.send(("ready", None))
                time.sleep(600)

            if __name__ == "__main__":
                team = WorkerGroup(multiprocessing.get_context(sys.argv[1]))
                workers = [team.start(f"w{i}", work, (), True) for i in range(2)]
                for worker in workers:
                    worker.answer(60)
                print(*(worker.runner.pid for worker in workers), flush=True)
                time.sleep(600)
            """
        )
    )
    for method in ("fork", "forkserver"):
        driver = subprocess.Popen([sys.executable, script, method], stdout=subprocess.PIPE, text=True)
        pids = [int(word) for word in driver.stdout.readline().split()]
        assert len(pids) == 2
        driver.kill()
        driver.wait()
        driver.stdout.close()
        deadline = time.monotonic() + 120
        while any(_runs(pid) for pid in pids):
            assert time.monotonic() < deadline, f"{method}: workers outlive their driver"
            time.sleep(0.02)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_processes_of_the_chosen_context_can_run_backward():
    import torch

    torch.ones(1, requires_grad=True).sum().backward()
    context = choose_context(True)
    process = context.Process(target=_differentiate)
    process.start()
    process.join(60)
    assert process.exitcode == 0


def _differentiate():
    import torch

    torch.ones(1, requires_grad=True).sum().backward()


def test_an_interrupt_shortens_the_wait_for_an_actor_that_hangs(monkeypatch):
    clock = SimpleNamespace(now=0.0, tick_s=0.0)

    def monotonic():
        clock.now += clock.tick_s
        return clock.now

    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=monotonic))
    team = WorkerGroup(multiprocessing.get_context())
    never, after, now = (threading.Event() for _ in range(3))
    now.set()
    names = ("hangs", "is slow", "answers")
    hung, slow, quick = (
        team.start(name, hang, (event,), process=False)
        for name, event in zip(names, (never, after, now), strict=True)
    )
    interrupt = False

    def interrupted():
        if interrupt:
            after.set()
        return interrupt

    deadline = Deadline(60.0, interrupted)
    others = []
    assert quick.state(deadline, others.append) == "state of answers" and others == ["rollout"]
    assert not deadline.is_cut_short
    interrupt = True
    assert slow.state(deadline) == "state of is slow"
    assert deadline.is_cut_short
    clock.tick_s = 1.0
    assert hung.state(deadline) == "hangs did not answer within 3 s of the interrupt"
    assert 3.0 <= clock.now < 10.0
    with pytest.raises(WorkerTimeoutError, match=r"hangs did not answer within 0\.1 s"):
        hung.state(Deadline(0.1, lambda: False))
    never.set()


def hang(connection, event):
    event.wait()
    connection.send(("part", ("rollout", "rollout")))
    connection.send(("part", ("state", f"state of {threading.current_thread().name}")))
