"""Execution of a learner's losses: precision, compilation and CUDA graphs.

None of these changes the algorithm. Only matrix products of networks use bfloat16, but not those of last
layers: weights, sums of losses, targets and the optimizer stay float32 (Micikevicius et al., 2018, without
loss scaling, which the exponent of bfloat16 makes unnecessary).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from parl.errors import ConfigError
from parl.ops.batches import TENSORS, TensorBatch

Precision = Literal["float32", "bfloat16"]


class ExecutionConfig(Protocol):
    """Settings of execution."""

    @property
    def precision(self) -> Precision:
        """Precision of the networks' matrix products."""
        ...

    @property
    def channels_last(self) -> bool:
        """Whether convolutions use the channels-last memory layout."""
        ...

    @property
    def compile(self) -> bool:
        """Whether losses are compiled."""
        ...

    @property
    def cuda_graph(self) -> bool:
        """Whether updates are recorded as CUDA graphs."""
        ...


class ExecutionModule(nn.Module):
    """A module that can compute products in bfloat16, and avoid operations that compilers cannot trace.

    Attributes:
        use_bf16: whether products are computed in bfloat16.
        torch_only: whether only torch's own operations are used.
        channels_last: whether convolutions store the channels of a pixel side by side.
    """

    use_bf16: bool = False
    torch_only: bool = False
    channels_last: bool = False


def prepare(config: ExecutionConfig, device: torch.device, *modules: nn.Module) -> None:
    """Applies ``config`` to the networks of a learner.

    Raises:
        ConfigError: ``cuda_graph`` is set, and the device is not a CUDA device.
    """
    if config.cuda_graph and device.type != "cuda":
        raise ConfigError(f"cuda_graph = True records GPU work; it needs device = 'cuda', not {device}")
    for module in modules:
        for part in module.modules():
            if isinstance(part, ExecutionModule):
                part.use_bf16 = config.precision == "bfloat16"
                part.channels_last = config.channels_last
                part.torch_only = part.use_bf16 or config.compile or config.cuda_graph


def compiled(config: ExecutionConfig, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``function``, compiled if ``config.compile``; the first calls then take tens of seconds."""
    return torch.compile(function, dynamic=False) if config.compile else function


def autocast_bf16(device: torch.device) -> torch.autocast:
    """Returns a context in which products are computed in bfloat16."""
    return torch.autocast(device.type, torch.bfloat16)


def in_float32(layer: nn.Module, x: Tensor) -> Tensor:
    """Returns ``layer(x)`` computed in float32, also within :func:`autocast_bf16`.

    For last layers: values and logits need more than the 8 significant bits of bfloat16.
    """
    if not torch.is_autocast_enabled(x.device.type):
        return layer(x)
    with torch.autocast(x.device.type, enabled=False):
        return layer(x.to(torch.float32))


WARM_UP = 3
"""Number of calls before recording: in first calls libraries choose kernels and allocate memory."""


@contextmanager
def fastest_convolutions() -> Generator[None]:
    """Lets cuDNN time its kernels for each new shape and keep the fastest, unless they must be deterministic.

    It does so outside of captures only, thus in the calls before.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark
    cudnn.benchmark = before or not cudnn.deterministic
    try:
        yield
    finally:
        cudnn.benchmark = before


def run_on_side_stream(work: Callable[[], object], device: torch.device) -> None:
    """Runs ``work`` on another stream, after the current stream's earlier and before its later work.

    Recording uses another stream too.
    """
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream(device).wait_stream(stream)


def recording_stream(device: torch.device) -> Any:
    """A stream on which to record a graph of a device's work.

    torch has one of its own, on the device that is the current one when it is first used. Work on another
    device would run at once instead of being recorded.
    """
    return torch.cuda.Stream(device)


def record_graph(work: Callable[[], Any], generators: Sequence[torch.Generator]) -> tuple[Any, Any]:
    """Records ``work`` as a CUDA graph without running it; returns the graph and the result of ``work()``.

    Args:
        work: reads and writes the same memory every time.
        generators: random generators that it uses, at least one, on the device of the work.
    """
    graph: Any = torch.cuda.CUDAGraph()
    for generator in generators:
        if hasattr(graph, "register_generator_state"):
            graph.register_generator_state(generator)
    with torch.cuda.graph(graph, stream=recording_stream(generators[0].device)):
        result = work()
    return graph, result


class GraphedCall:
    """Work that is the same every time: run in the first calls, then recorded and replayed as a CUDA graph.

    Args:
        work: reads and writes the same memory every time.
        generators: random generators that it uses, at least one, on the device of the work.
        as_graph: False: always run it, without a graph.
    """

    def __init__(
        self, work: Callable[[], Any], generators: Sequence[torch.Generator], as_graph: bool
    ) -> None:
        self._work, self._generators, self._as_graph = work, generators, as_graph
        self._graph: Any = None
        self._result: Any = None
        self._warm_up_calls = 0

    def __call__(self) -> Any:
        """Returns the result of ``work()``; as a graph, the same tensors every time. Does not synchronize."""
        if not self._as_graph:
            return self._work()
        if self._warm_up_calls < WARM_UP:
            self._warm_up_calls += 1
            with fastest_convolutions():
                run_on_side_stream(self._run, self._generators[0].device)
            return self._result
        if self._graph is None:
            with fastest_convolutions():
                self._graph, self._result = record_graph(self._work, self._generators)
        self._graph.replay()
        return self._result

    def _run(self) -> None:
        self._result = self._work()


class GraphedBatchCall:
    """GPU work on a batch, recorded as a CUDA graph and replayed: one launch instead of hundreds.

    Args:
        work: from a batch, always of one shape, to tensors; reads and writes the same memory every time.
        generator: random generator that ``work`` uses.
    """

    def __init__(self, work: Callable[[TensorBatch], Any], generator: torch.Generator) -> None:
        self._work, self._generator = work, generator
        self._graphed_calls: dict[Hashable, tuple[GraphedCall, TensorBatch]] = {}

    def __call__(self, batch: TensorBatch, kind: Hashable = None) -> Any:
        """Returns the result of ``work(batch)``; once it is a graph, the same tensors every time.

        Args:
            batch: on the GPU.
            kind: key of the work; one graph is recorded for each.
        """
        if kind not in self._graphed_calls:
            inputs = TensorBatch(**{name: _cloned(getattr(batch, name)) for name in TENSORS}, tickets=None)
            self._graphed_calls[kind] = (
                GraphedCall(lambda: self._work(inputs), [self._generator], True),
                inputs,
            )
        work, inputs = self._graphed_calls[kind]
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
