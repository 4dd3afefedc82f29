"""Starts, monitors and stops worker processes and threads; none outlives the run.

A worker that fails sends its traceback and ends; the driver raises :class:`WorkerError` with it, or
:class:`NonFiniteError` if the worker raised that. The driver notices a killed worker by its exit. When the
driver ends, the kernel kills its workers.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Generator
from multiprocessing.connection import Connection
from typing import Any

from parl.errors import NonFiniteError, WorkerError
from parl.runtime.seeds import draw_seed, seed_modules

_PR_SET_PDEATHSIG = 1
# Seconds for which an interrupted run waits for the answer of a hanging worker, and then for its end.
INTERRUPTED_S = 3.0
INTERRUPTED_END_S = 1.0
# Seconds between two checks for an interrupt while waiting for an answer.
SLICE_S = 0.1
# Numbers that torch adds in several threads, and seconds within which a fork must have done so.
_PARALLEL_SIZE = 2**18
_FORK_TEST_S = 5.0
# Signals that end a run.
_SIGNALS = [signal.SIGINT, signal.SIGTERM, *([] if sys.platform == "win32" else [signal.SIGHUP])]
# Modules that a forkserver imports before it forks.
PRELOAD = ["numpy", "torch", "gymnasium", "parl.runtime.off_policy.asynchronous"]


@contextlib.contextmanager
def _signals_held() -> Generator[None]:
    """Context at whose end the handlers of SIGINT, SIGTERM and SIGHUP are called if these have arrived in it.

    A handler that raises could lose a process that has just been started. Processes that are forked in the
    context do not call the handlers. It has no effect outside of the main thread, which calls all handlers.
    """
    arrived: list[int] = []
    try:
        with contextlib.ExitStack() as held:
            if threading.current_thread() is threading.main_thread():
                for number in _SIGNALS:
                    handler = signal.getsignal(number)
                    if callable(handler):
                        signal.signal(number, lambda number, frame: arrived.append(number))
                        held.callback(signal.signal, number, handler)
            yield
    finally:
        for number in arrived:
            signal.raise_signal(number)


@_signals_held()
def _torch_works_in_a_fork(threads: int) -> bool:
    """Whether autograd, and operations in ``threads`` threads, work in a forked child.

    With some builds of torch autograd fails in the child if the parent has used it. Operations in several
    threads wait forever if the parent has made some, because a fork has none of the threads of OpenMP's pool.
    """
    import torch

    assert sys.platform != "win32"
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(threads)
            torch.zeros(_PARALLEL_SIZE if threads > 1 else 1, requires_grad=True).sum().backward()
            os._exit(0)
        except BaseException:
            os._exit(1)
    end = time.monotonic() + _FORK_TEST_S
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() >= end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return False
        time.sleep(0.001)
    return os.waitstatus_to_exitcode(ended[1]) == 0


def _share_by_files_without_shm() -> None:
    """Lets processes share memory by files where ``/dev/shm`` is missing or not writable; warns about it.

    The files are in the temporary directory, like those of the replay in this case, and are unlinked at once.
    """
    shm = "/dev/shm"
    if sys.platform != "linux" or os.access(shm, os.W_OK | os.X_OK):
        return
    from multiprocessing import heap

    arena: Any = heap.Arena
    if not arena._dir_candidates:
        return
    arena._dir_candidates = []
    warnings.warn(
        f"{shm} is missing or not writable: processes share memory by files in {tempfile.gettempdir()}, "
        "which costs writes to its disk",
        stacklevel=2,
    )


def choose_context(processes: bool, device: str = "cpu", threads: int = 1) -> Any:
    """Chooses the fastest safe way to start processes: ``fork`` where that is safe, else a ``forkserver``.

    A fork takes milliseconds, because torch is loaded; a forkserver first imports torch, which takes seconds.
    A fork is safe while this process has no other Python thread, no CUDA context and has not used autograd,
    nor several threads of torch if workers do. Windows has neither and gets ``spawn``, with which each
    process imports torch. Without ``processes`` the context only allocates shared memory: any is suitable.

    Args:
        processes: whether workers are processes.
        device: device of the run.
        threads: number of threads of torch's operations in a worker, at most.
    """
    import torch

    if not processes:
        return multiprocessing.get_context()
    _share_by_files_without_shm()
    quiet = threading.active_count() == 1 and device == "cpu" and not torch.cuda.is_initialized()
    quiet = quiet and sys.platform == "linux"
    # A process group has threads that threading does not count.
    quiet = quiet and not (torch.distributed.is_available() and torch.distributed.is_initialized())
    if quiet and _torch_works_in_a_fork(threads):
        return multiprocessing.get_context("fork")
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


def _die_with_parent(parent: int) -> None:
    if not parent:
        # The parent is the forkserver, which lives as long as its children, or this process was spawned: wait
        # for the driver.
        driver = multiprocessing.parent_process()
        assert driver is not None
        threading.Thread(target=lambda: (driver.join(), os._exit(1)), daemon=True).start()
        return
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # the parent ended before prctl


def _do_nothing(number: int, frame: object) -> None:
    """Handler of a signal without effect."""


def _end_on_sigterm() -> None:
    # In processes that a worker forks, such as those of a vector environment, which ends them by SIGTERM.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _main(
    target: Callable[..., None], connection: Connection, parent: int | None, seed: int, args: Any
) -> None:
    """Runs ``target(connection, *args)`` in a worker and reports how it failed.

    ``parent`` is None in a thread, the id of the process that forked this one, or 0 if it was started
    otherwise. A process seeds ``random`` and ``numpy.random`` with ``seed``: forks start with the same state
    of ``numpy.random``, so that environments in all workers would draw the same numbers.
    """
    if parent is not None:
        import torch

        _die_with_parent(parent)
        # Ctrl-C and a closed terminal signal all processes of the terminal, and SIGTERM often the whole group
        # of processes; only the driver handles them. A program that an environment starts would also ignore
        # SIG_IGN.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _do_nothing)
        # Under nohup it is SIG_IGN, also for the programs that an environment starts.
        if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, _do_nothing)
        os.register_at_fork(after_in_child=_end_on_sigterm)
        torch.set_num_threads(1)
        seed_modules(seed)
    try:
        target(connection, *args)
    except BaseException as error:
        # Its message names the value and its source, so that no traceback is needed.
        said = error if isinstance(error, NonFiniteError) else traceback.format_exc()
        with contextlib.suppress(OSError):
            connection.send(("error", said))
        if parent is not None:
            raise SystemExit(1) from None  # the driver shows the traceback, once
    finally:
        connection.close()


class WorkerTimeoutError(WorkerError):
    """A worker did not answer in time; it may still be running."""


class Deadline:
    """A common time limit for the answers of several workers.

    Args:
        seconds: the limit, from now on.
        interrupted: once it returns true, at most :data:`INTERRUPTED_S` seconds are left, so that a hanging
            environment does not delay the end of an interrupted run for longer.
    """

    def __init__(self, seconds: float, interrupted: Callable[[], bool]) -> None:
        self._seconds, self._end = seconds, time.monotonic() + seconds
        self._interrupted, self._was_interrupted = interrupted, False

    def remaining_s(self) -> float:
        """Seconds left, at least 0."""
        now = time.monotonic()
        if not self._was_interrupted and self._interrupted():
            self._was_interrupted, self._seconds = True, min(self._seconds, INTERRUPTED_S)
            self._end = min(self._end, now + INTERRUPTED_S)
        return max(0.0, self._end - now)

    @property
    def is_cut_short(self) -> bool:
        """Whether an interrupt has shortened the time."""
        return self._was_interrupted

    def __str__(self) -> str:
        return f"{self._seconds:g} s{' of the interrupt' if self._was_interrupted else ''}"


class Worker:
    """One worker and the driver's end of the pipe to it."""

    def __init__(self, name: str, runner: Any, connection: Any) -> None:
        self.name = name
        self.runner = runner
        self.connection = connection
        self.finished = False

    def send(self, message: Any) -> None:
        """Sends ``message``.

        Raises:
            WorkerError: the worker failed or died.
            NonFiniteError: the worker raised it.
        """
        try:
            self.connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            self.check()

    def send_if_running(self, message: Any) -> None:
        """Sends ``message`` unless the worker has ended."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def answer(self, timeout: Deadline | float) -> Any:
        """Waits for the worker's next message and returns it.

        Args:
            timeout: a deadline, or seconds to wait.

        Raises:
            WorkerTimeoutError: the worker sent nothing in that time.
            WorkerError: it failed or died.
        """
        if not isinstance(timeout, Deadline):
            timeout = Deadline(timeout, lambda: False)
        try:
            while not self.connection.poll(min(SLICE_S, timeout.remaining_s())):
                if not timeout.remaining_s():
                    raise WorkerTimeoutError(f"{self.name} did not answer within {timeout}")
            kind, value = self.connection.recv()
            if kind == "error":
                self._fail(value)
            return value
        except (EOFError, ConnectionResetError):
            self._fail(None)

    def state(self, timeout: Deadline, other: Callable[[Any], object] = lambda _: None) -> Any:
        """Waits for the actor's state, which was requested; after an interrupt, returns why there is none.

        Args:
            timeout: the deadline.
            other: called with each message that the worker sends before its state.

        Raises:
            WorkerTimeoutError: the worker sent nothing in that time, and the run was not interrupted.
            WorkerError: it failed or died.
        """
        try:
            while True:
                kind, value = self.answer(timeout)
                if kind == "state":
                    return value
                other(value)
        except WorkerTimeoutError as error:
            if not timeout.is_cut_short:
                raise
            return str(error)

    def check(self) -> None:
        """Raises WorkerError if the worker failed or died."""
        if self.finished:
            return
        try:
            if self.connection.poll():
                kind, value = self.connection.recv()
                if kind == "error":
                    self._fail(value)
        except (EOFError, ConnectionResetError):
            self._fail(None)

    def _fail(self, trace: str | NonFiniteError | None) -> None:
        self.finished = True
        if isinstance(trace, NonFiniteError):
            raise NonFiniteError(f"{self.name}: {trace}")
        if trace is not None:
            raise WorkerError(f"{self.name} failed:\n{trace.rstrip()}")
        self.runner.join(1.0)
        code = getattr(self.runner, "exitcode", None)
        if code is not None and code < 0:
            raise WorkerError(f"{self.name} was killed by signal {-code} ({signal.Signals(-code).name})")
        why = "; its traceback, if any, is on standard error" if code else ""
        raise WorkerError(f"{self.name} ended by itself, exit status {code}{why}")


def _kill(workers: list[Worker], parent: int) -> None:
    """Kills the processes of ``workers``, which nothing has ended, unless this is a fork of their parent."""
    if os.getpid() == parent:
        for worker in workers:
            if hasattr(worker.runner, "kill"):
                worker.runner.kill()


class WorkerGroup:
    """All workers of a run."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.workers: list[Worker] = []
        # An interrupt can lose the loop that has just been made, before anything could close it.
        weakref.finalize(self, _kill, self.workers, os.getpid())

    def start(self, name: str, target: Callable[..., None], args: tuple[Any, ...], process: bool) -> Worker:
        """Starts ``target(connection, *args)`` in a process (``args`` must pickle) or in a thread."""
        ours, theirs = multiprocessing.Pipe()
        with _signals_held():
            if process:
                parent = os.getpid() if self._context.get_start_method() == "fork" else 0
                runner = self._context.Process(
                    target=_main, args=(target, theirs, parent, draw_seed(), args), name=name, daemon=True
                )
                runner.start()
                theirs.close()
            else:
                runner = threading.Thread(
                    target=_main, args=(target, theirs, None, 0, args), name=name, daemon=True
                )
                runner.start()
            worker = Worker(name, runner, ours)
            self.workers.append(worker)
        return worker

    def check(self) -> None:
        """Raises WorkerError for the first worker that failed or died."""
        for worker in self.workers:
            worker.check()

    def have_failed(self) -> bool:
        """Whether a worker failed or died, or has ended without being told to."""
        try:
            self.check()
        except (WorkerError, NonFiniteError):
            return True
        return any(worker.finished for worker in self.workers)

    def raise_failure(self, within_s: float) -> None:
        """Raises WorkerError if a worker turns out to have failed within ``within_s``."""
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            self.check()
            time.sleep(0.01)

    def end(self, within_s: float) -> None:
        """Waits for workers that were told to stop, then ends the processes that have not.

        Threads cannot be killed; one that hangs in its environment ends with the process.
        """
        deadline = time.monotonic() + within_s
        for worker in self.workers:
            worker.runner.join(max(0.0, deadline - time.monotonic()))
        for worker in self.workers:
            if worker.runner.is_alive() and hasattr(worker.runner, "kill"):
                worker.runner.kill()
                worker.runner.join(5.0)
            worker.connection.close()
        self.workers.clear()
