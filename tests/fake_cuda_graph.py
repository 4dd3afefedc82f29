"""A stand-in for CUDA graphs on the processor."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class FakeCudaGraph(TorchDispatchMode):
    """As a CUDA graph: replays the recorded operations on the same memory; random generators go on."""

    def __init__(self):
        super().__init__()
        self.calls, self._fresh = [], True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, made))
        return made

    def replay(self):
        if self._fresh:  # recording has done it
            self._fresh = False
            return
        with torch.no_grad():
            self._run()

    def _run(self):
        for func, args, kwargs, made in self.calls:
            if func is torch.ops.aten.unsqueeze_.default:
                continue  # its tensor has that shape by now, as `value` below gets it
            again = func(*args, **kwargs)
            for to, value in zip(
                *(x if isinstance(x, tuple | list) else [x] for x in (made, again)), strict=True
            ):
                if isinstance(to, torch.Tensor) and to.data_ptr() != value.data_ptr() and to.numel():
                    to.copy_(value.reshape(to.shape))


class FakeCapture:
    """In place of torch.cuda.graph."""

    def __init__(self, graph):
        self._graph = graph

    def __enter__(self):
        self._graph.__enter__()

    def __exit__(self, *what):
        self._graph.__exit__(*what)
