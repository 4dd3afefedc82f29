"""Runs tests of mutants: imports common modules once, then forks a process for each mutant.

Reads a job as a line of JSON from standard input (``tests``, ``timeout_s``, ``memory_bytes``), and answers
with a line: ``outcome`` and ``by``, the test that failed first. ``timeout_s`` is processor time. Tests that
neither use the processor nor are ready to run for ``IDLE_S`` are deadlocked, and are ended too.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time

import numpy  # noqa: F401
import psutil
import pytest
import torch  # noqa: F401

PR_SET_CHILD_SUBREAPER = 36
IDLE_S = 60.0
IDLE_SHARE = 0.02


def child(tests: list[str], folder: str, memory_bytes: int) -> int:
    """Runs the tests in this process, up to the first that fails."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ["TMPDIR"] = tempfile.tempdir = f"{folder}/tmp"
    os.mkdir(f"{folder}/tmp")
    # The folder of the mutated package comes first.
    sys.path.insert(0, os.environ["PYTHONPATH"].split(os.pathsep)[0])
    return pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", "--tb=line", *tests])


def end_children() -> None:
    """Kills all descendants of this process, also those that become its children when their parents end."""
    while children := psutil.Process().children(recursive=True):
        for process in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def processor_s() -> float:
    """Returns the processor time of all descendants, which does not depend on the load of the machine."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def queued_s() -> float:
    """Returns the time for which descendants were ready to run while other processes ran."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        # Per thread: time on the processor and in the run queue, in nanoseconds, and number of time slices.
        for path in glob.glob(f"/proc/{process.pid}/task/*/schedstat"):
            with contextlib.suppress(OSError), open(path) as figures:
                total += int(figures.read().split()[1])
    return total * 1e-9


def run(tests: list[str], timeout_s: float, memory_bytes: int) -> dict[str, str]:
    """Runs tests in a forked process, then ends all processes that they left running."""
    with tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as folder:
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                code = int(child(tests, folder, memory_bytes))
            finally:
                os._exit(code)
        status, parent = None, os.getppid()
        why, seen_s, seen_at = "", 0.0, time.monotonic()
        # If the process that sent the job ended, the answer is of no use.
        while status is None and not why and os.getppid() == parent:
            done, found = os.waitpid(pid, os.WNOHANG)
            if done:
                status = os.waitstatus_to_exitcode(found)
            elif (used_s := processor_s()) > timeout_s:
                why = f"no end after {timeout_s:.0f} s of processor time"
            elif time.monotonic() > seen_at + IDLE_S:
                active_s = used_s + queued_s()
                # The queue time of a process that ended is no longer counted.
                if 0 <= active_s - seen_s < IDLE_SHARE * IDLE_S:
                    why = f"idle for {IDLE_S:.0f} s"
                seen_s, seen_at = active_s, time.monotonic()
            else:
                time.sleep(0.2)
        end_children()
        log = ""
        if os.path.exists(f"{folder}/log"):
            with open(f"{folder}/log", errors="replace") as lines:
                log = lines.read()
        for name in os.listdir(folder):
            shutil.rmtree(f"{folder}/{name}", ignore_errors=True)
    if status is None:
        return {"outcome": "timeout", "by": why}
    if status == 0:
        return {"outcome": "survived", "by": ""}
    failed = re.search(r"^(?:FAILED|ERROR) (.*)$", log, re.M)
    by = failed[1][:200] if failed else f"exit status {status}: {log[-200:]}"
    return {"outcome": "killed", "by": by}


def main() -> None:
    """Serves jobs until standard input ends."""
    assert "parl" not in sys.modules, "each mutant must import the package itself"
    # Processes whose parents have ended become children of this one, which ends them.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        answers.write(json.dumps(run(**json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
