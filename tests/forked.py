"""Runs Python programs in forks of a server process that has already imported what most of them import.

The imports take seconds. The server calls no function of torch, so its forks may start threads.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

# Modules that the server imports before it forks.
PRELOAD = [
    "gymnasium",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "torch",
    "torch._dynamo",  # which the first optimizer of torch imports
    "parl.algos.dqn",
    "parl.algos.ppo",
    "parl.cli.train",
    "parl.runtime.off_policy.setup",
    "parl.runtime.on_policy.setup",
    "parl.train",
]
# Seconds of processor time of all programs that have ended: one entry, which `poll` increases.
spent_s = [0.0]


@functools.cache
def _server() -> subprocess.Popen[bytes]:
    server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, bufsize=0)
    atexit.register(server.communicate)
    return server


class Program:
    """A running program in its own session, with an interface like that of :class:`subprocess.Popen`.

    A program without error ends like a process of :mod:`multiprocessing`: it waits for its threads and runs
    what is registered for the exit, but the interpreter does not destroy every module, which takes 0.7 s with
    those of torch. ``whole_exit`` makes it do so.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] = os.environ,
        whole_exit: bool = False,
    ) -> None:
        self.returncode: int | None = None
        self._place = Path(tempfile.mkdtemp())
        self._outputs = [self._place / name for name in ("stdout", "stderr")]
        answers = self._place / "answers"
        os.mkfifo(answers)
        files = [str(path) for path in (answers, *self._outputs)]
        job = [list(map(str, arguments)), str(folder), dict(environment), files, whole_exit]
        requests = _server().stdin
        assert requests is not None
        requests.write(json.dumps(job).encode() + b"\n")
        self._answers = answers.open("rb", buffering=0)
        self.pid = int(self._answers.readline())

    def poll(self, timeout_s: float = 0) -> int | None:
        """The exit status, or None while it runs."""
        if self.returncode is None and select.select([self._answers], [], [], timeout_s)[0]:
            status, seconds = self._answers.readline().split()
            self._answers.close()
            spent_s[0] += float(seconds)
            self.returncode = int(status)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Waits for the program to end and returns its standard output and standard error."""
        if self.poll(timeout) is None:
            raise TimeoutError(f"the program still runs after {timeout} s")
        out, err = (path.read_text() for path in self._outputs)
        shutil.rmtree(self._place)
        return out, err

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process of the program only."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills the process of the program only."""
        self.send_signal(signal.SIGKILL)


def run(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Runs `python ARGUMENTS` in a folder and returns its exit status and output.

    The first argument is a script or `-m`. Variables that only take effect when a process starts, such as
    ``LD_LIBRARY_PATH``, must not be in the environment.
    """
    program = Program(arguments, folder, environment)
    out, err = program.communicate()
    assert program.returncode is not None
    return subprocess.CompletedProcess(arguments, program.returncode, out, err)


def _program(arguments: list[str], folder: str, environment: dict[str, str], whole_exit: bool) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    try:
        if arguments[0] == "-m":
            sys.argv, sys.path[0] = arguments[1:], folder
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            script = Path(folder) / arguments[0]
            sys.argv, sys.path[0] = [*arguments], str(script.parent)
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    if not whole_exit:
        gc.collect()
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)


def _serve() -> None:
    for name in PRELOAD:
        importlib.import_module(name)
    # A collection in a fork need not look at, and so copy, the objects of these modules.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _start(*json.loads(line))
            return
    os._exit(0)


def _start(
    arguments: list[str], folder: str, environment: dict[str, str], files: list[str], whole_exit: bool
) -> None:
    """Runs the program in a child process; this process reports its id and, when it ends, its exit status."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, path in enumerate(files[1:], start=1):
            os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
        _program(arguments, folder, environment, whole_exit)
        return
    with open(files[0], "w", buffering=1) as answers:
        answers.write(f"{child}\n")
        _, status, used = os.wait4(child, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime}\n")
    os._exit(0)


if __name__ == "__main__":
    _serve()
