"""A replacement of CUDA graphs that records and replays operations on the CPU."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from captures import refusing


class FakeCudaGraph(TorchDispatchMode):
    """Replays the recorded operations on the same memory, as a CUDA graph does. Random generators advance."""

    def __init__(self):
        super().__init__()
        self.calls, self.generators, self._fresh = [], [], True

    def register_generator_state(self, generator):
        self.generators.append(generator)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, made))
        return made

    def replay(self):
        if self._fresh:  # the recording has run the operations once
            self._fresh = False
            return
        with torch.no_grad():
            for call in self.calls:
                self.repeat(*call)

    def repeat(self, func, args, kwargs, made):
        if func is torch.ops.aten.unsqueeze_.default:
            return  # the recording has changed the tensor's shape in place
        again = func(*args, **kwargs)
        if made is None:
            return
        for to, value in zip(
            *(x if isinstance(x, tuple | list) else [x] for x in (made, again)), strict=True
        ):
            if isinstance(to, torch.Tensor) and to.data_ptr() != value.data_ptr() and to.numel():
                to.copy_(value.reshape(to.shape))


class FakeCapture:
    """Replaces torch.cuda.graph. Work that a real capture refuses raises an error."""

    def __init__(self, graph):
        self._graph = graph

    def __enter__(self):
        self._refusing = refusing(self._graph.generators)
        self._refusing.__enter__()
        self._graph.__enter__()

    def __exit__(self, *what):
        self._graph.__exit__(*what)
        self._refusing.__exit__(*what)
