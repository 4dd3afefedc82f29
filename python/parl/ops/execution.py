"""How a learner's losses are executed: in which precision, compiled or not, recorded as a CUDA graph or not.

None of it changes what is computed. bfloat16 is for the products of networks alone: weights, sums of losses,
targets and the optimizer stay float32 (Micikevicius et al., 2018, without their scaling of the loss, which
bfloat16's exponent makes needless).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from parl.errors import ConfigError
from parl.ops.batches import TENSORS, TensorBatch

Precision = Literal["float32", "bfloat16"]


class ExecutionConfig(Protocol):
    """The settings that matter here."""

    @property
    def precision(self) -> Precision:
        """Of the networks' products."""
        ...

    @property
    def channels_last(self) -> bool:
        """Of images."""
        ...

    @property
    def compile(self) -> bool:
        """Compile losses."""
        ...

    @property
    def cuda_graph(self) -> bool:
        """Record updates."""
        ...


class Executed(nn.Module):
    """A module that can compute its products in bfloat16, and leave out what compilers cannot read.

    Attributes:
        use_bf16: products in bfloat16.
        torch_only: only torch's own operations.
        channels_last: convolutions have the channels of a pixel side by side in memory.
    """

    use_bf16: bool = False
    torch_only: bool = False
    channels_last: bool = False


def prepare(config: ExecutionConfig, device: torch.device, *modules: nn.Module) -> None:
    """Sets the networks of a learner up as ``config`` wants it.

    Raises:
        ConfigError: ``cuda_graph`` without a CUDA device.
    """
    if config.cuda_graph and device.type != "cuda":
        raise ConfigError(f"cuda_graph = True records work of a GPU; it needs device = 'cuda', not {device}")
    for module in modules:
        for part in module.modules():
            if isinstance(part, Executed):
                part.use_bf16 = config.precision == "bfloat16"
                part.channels_last = config.channels_last
                part.torch_only = part.use_bf16 or config.compile or config.cuda_graph


def compiled(config: ExecutionConfig, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, compiled where ``config`` wants it; the first calls then take tens of seconds."""
    return torch.compile(function, dynamic=False) if config.compile else function


def autocast_bf16(device: torch.device) -> torch.autocast:
    """A context in which products are computed in bfloat16."""
    return torch.autocast(device.type, torch.bfloat16)


WARM_UP = 3
"""Calls before one is recorded: libraries choose their kernels and allocate in first calls."""


def beside(work: Callable[[], object]) -> None:
    """Does work on another stream, between what the current one has and what it gets, as recording does."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)


def recorded(work: Callable[[], Any], generators: Sequence[torch.Generator]) -> tuple[Any, Any]:
    """Work recorded as a CUDA graph, not done: the graph, and what ``work()`` gave.

    Args:
        work: reads and writes the same memory every time.
        generators: what it draws from.
    """
    graph: Any = torch.cuda.CUDAGraph()
    for generator in generators:
        if hasattr(graph, "register_generator_state"):
            graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        result = work()
    return graph, result


class Recorded:
    """Work that is the same every time: the first times as calls, from then on as one CUDA graph.

    Args:
        work: reads and writes the same memory every time.
        generators: what it draws from.
        as_graph: record it at all.
    """

    def __init__(
        self, work: Callable[[], Any], generators: Sequence[torch.Generator], as_graph: bool
    ) -> None:
        self._work, self._generators, self._as_graph = work, generators, as_graph
        self._graph: Any = None
        self._result: Any = None
        self._taken = 0

    def __call__(self) -> Any:
        """What ``work()`` gave; the same tensors every time once it is a graph. Does not wait."""
        if not self._as_graph:
            return self._work()
        if self._taken < WARM_UP:
            self._taken += 1
            beside(self._run)
            return self._result
        if self._graph is None:
            self._graph, self._result = recorded(self._work, self._generators)
        self._graph.replay()
        return self._result

    def _run(self) -> None:
        self._result = self._work()


class Captured:
    """Work of a GPU on a batch, recorded as a graph and replayed: one launch in place of hundreds.

    Args:
        work: from a batch, always of one shape, to tensors; reads and writes the same memory every time.
        generator: what ``work`` draws from.
    """

    def __init__(self, work: Callable[[TensorBatch], Any], generator: torch.Generator) -> None:
        self._work, self._generator = work, generator
        self._kinds: dict[Hashable, tuple[Recorded, TensorBatch]] = {}

    def __call__(self, batch: TensorBatch, kind: Hashable = None) -> Any:
        """What ``work(batch)`` gives; the same tensors every time once it is a graph.

        Args:
            batch: on the GPU.
            kind: of the work; one graph is recorded for each.
        """
        if kind not in self._kinds:
            inputs = TensorBatch(**{name: _cloned(getattr(batch, name)) for name in TENSORS}, tickets=None)
            self._kinds[kind] = Recorded(lambda: self._work(inputs), [self._generator], True), inputs
        work, inputs = self._kinds[kind]
        for to, value in zip(_leaves(inputs), _leaves(batch), strict=True):
            to.copy_(value, non_blocking=True)
        return work()


def _cloned(part: Any) -> Any:
    if isinstance(part, Mapping):
        return {name: _cloned(inner) for name, inner in part.items()}
    return part.clone()


def _leaves(batch: TensorBatch) -> Iterator[Tensor]:
    for name in TENSORS:
        part = getattr(batch, name)
        yield from part.values() if isinstance(part, Mapping) else (part,)
