"""A replacement of CUDA graphs that records and replays operations on the CPU."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from captures import refusing


class FakeCudaGraph(TorchDispatchMode):
    """Replays the recorded operations on the same memory, as a CUDA graph does. Random generators advance.

    Recording runs the operations, for their results' shapes; :meth:`undo` then restores what they changed.
    """

    def __init__(self):
        super().__init__()
        self.calls, self.generators, self._before = [], [], []

    def register_generator_state(self, generator):
        self.generators.append(generator)
        self._before.append((generator.set_state, generator.get_state()))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for number, one in enumerate(func._schema.arguments):
            if one.alias_info is not None and one.alias_info.is_write:
                changed = args[number] if number < len(args) else kwargs.get(one.name)
                for tensor in tree_leaves(changed):
                    self._before.append((tensor.detach().copy_, tensor.detach().clone()))
        made = func(*args, **kwargs)
        if "empty" in func._schema.name:
            made.zero_()  # operations on it must not fail, although nothing has written it yet
        self.calls.append((func, args, kwargs, made))
        return made

    def undo(self):
        """Restores all that recording has changed."""
        while self._before:
            restore, value = self._before.pop()
            restore(value)

    def replay(self):
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

    def __init__(self, graph, stream=None):
        self._graph = graph

    def __enter__(self):
        self._refusing = refusing(self._graph.generators)
        self._refusing.__enter__()
        self._graph.__enter__()

    def __exit__(self, *what):
        self._graph.__exit__(*what)
        self._refusing.__exit__(*what)
        self._graph.undo()
