"""Runs a script of `benches/gpu` on the fake driver: `run_on_fake_driver.py SCRIPT ...`.

Also accepts `-m parl ...` and `-c CODE`, so that it can be the `PYTHON` of `benches/gpu/run.sh`.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_driver
import torch
from torch.overrides import TorchFunctionMode

from captures import refusing
from fake_cuda_graph import FakeCudaGraph
from parl.algos.a2c import A2C
from parl.algos.dqn import DQN
from parl.algos.ppo import PPO
from parl.algos.pqn import PQN
from parl.ops import execution


class Event:
    """Replaces torch.cuda.Event, with the host's clock."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.time = time.perf_counter()

    def elapsed_time(self, other: Event) -> float:
        return 1000 * (other.time - self.time)


class Graph(FakeCudaGraph):
    """Replaces torch.cuda.CUDAGraph on the fake driver: keeps launches and torch's operations in their order.

    The driver captures the launches between two operations of torch as one part.
    """

    def begin(self) -> None:
        """Begins to record launches."""
        assert self._driver.cuStreamBeginCapture_v2(self._stream, 0) == 0

    def end(self) -> None:
        """Ends a part."""
        part = fake_driver.ctypes.c_void_p()
        status = self._driver.cuStreamEndCapture(self._stream, fake_driver.ctypes.byref(part))
        assert status == 0, f"the capture ended with error {status}"
        self.calls.append((self._launch, (part,), {}, None))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.end()
        made = super().__torch_dispatch__(func, types, args, kwargs)
        self.begin()
        return made

    @property
    def _driver(self) -> Any:
        driver = fake_driver.library()
        assert driver is not None
        return driver

    @property
    def _stream(self) -> Any:
        return fake_driver.ctypes.c_void_p(fake_driver.Graph.HANDLE)

    def _launch(self, part: Any) -> None:
        assert self._driver.cuGraphLaunch(part, fake_driver.ctypes.c_void_p(0)) == 0


@contextlib.contextmanager
def captured(graph: Graph, stream: None = None) -> Iterator[None]:
    """Replaces torch.cuda.graph; work that a real capture refuses raises an error."""
    fake_driver.Stream.handle = fake_driver.Graph.HANDLE
    graph.begin()
    try:
        with refusing(graph.generators), graph:
            yield
    finally:
        fake_driver.Stream.handle = 0
        graph.end()
    graph.undo()


def patch_torch(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """With the fake driver, replaces functions of torch.cuda that the scripts use; `put` sets attributes."""
    if fake_driver.library() is None:
        return

    def properties(device: Any) -> Any:
        assert str(device) in ("cuda", "cpu")
        return types.SimpleNamespace(name="The fake device", multi_processor_count=2, total_memory=1)

    def synchronize(device: Any = None) -> None:
        del device

    put(torch.cuda, "get_device_properties", properties)
    put(torch.cuda, "get_device_capability", lambda device: (9, 0))
    put(torch.cuda, "Event", Event)
    put(torch.cuda, "synchronize", synchronize)
    put(execution, "run_on_side_stream", lambda work, device: work())
    put(execution, "recording_stream", lambda device: None)
    put(torch.cuda, "CUDAGraph", Graph)
    put(torch.cuda, "graph", captured)


def place_learners(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """With the fake driver, places learners where tensors of the device are: on the CPU."""
    if fake_driver.library() is None:
        return
    for kind in (A2C, DQN, PPO, PQN):
        made: Any = kind.make_learner

        def placed(self: Any, seed: int, device: str, made: Any = made) -> Any:
            return made(self, seed, "cpu")

        put(kind, "make_learner", placed)


class OnTheProcessor(TorchFunctionMode):
    """Places tensors that a script puts on ``"cuda"`` in host memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {name: self._place(value) for name, value in (kwargs or {}).items()}
        return func(*map(self._place, args), **kwargs)

    @staticmethod
    def _place(value: Any) -> Any:
        on_device = isinstance(value, str | torch.device) and str(value).startswith("cuda")
        return torch.device("cpu") if on_device else value


def run(arguments: list[str]) -> None:
    if arguments[0] == "-c":
        exec(arguments[1], {"__name__": "__main__"})
    elif arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).parent)
        runpy.run_path(arguments[0], run_name="__main__")


def main() -> None:
    fake_driver.patch_torch()
    patch_torch()
    place_learners()
    place = OnTheProcessor() if fake_driver.library() else contextlib.nullcontext()
    with fake_driver.current_context(), place:
        run(sys.argv[1:])


if __name__ == "__main__":
    main()
