"""Sampling modes of a replay on a CUDA device other than by priority, and eviction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parl.replay.cuda import layout, structs
from parl.replay.cuda.structs import Kind

if TYPE_CHECKING:
    from torch import Tensor

    from parl.replay.cuda.replay import CudaReplay

DISTINCT = {"without_replacement": Kind.DISTINCT, "largest": Kind.LARGEST_FIRST}
MODES = (*DISTINCT, "uniform")


def kind_of(mode: str, uniform: float, newest: float) -> Kind | None:
    """The kind of a sampling mode; None for modes that sample by priority alone.

    Args:
        mode: as of :meth:`parl.PrioritizedReplay.sample`.
        uniform: share of the batch that is drawn uniformly.
        newest: share of the batch that is drawn from the newest rows.

    Raises:
        ValueError: a share is outside 0 to 1, or the mode cannot be combined with shares.
    """
    if not (0 <= uniform <= 1 and 0 <= newest <= 1 and uniform + newest <= 1):
        raise ValueError(
            f"uniform is {uniform} and newest {newest}, expected shares of at least 0 with a sum of at most 1"
        )
    if uniform or newest:
        if mode != "stratified":
            raise ValueError(f'mode is {mode!r}, expected "stratified" with shares of uniform or newest rows')
        return Kind.MIXTURE
    return Kind.UNIFORM if mode == "uniform" else DISTINCT.get(mode)


def top_rows(replay: CudaReplay, kind: Kind, count: int) -> tuple[Tensor, Tensor]:
    """Slots and keys of the ``count`` rows with the largest keys, (count,) int64 each; does not synchronize.

    Raises:
        ValueError: the replay has fewer slots.
    """
    cuda, slots = replay._cuda, replay._plan.slots
    if count > slots:
        raise ValueError(f"{count} distinct rows were requested, the replay has {slots} slots")
    keys = cuda.empty((slots,), "int64")
    call = structs.ReplayKeys(keys.data_ptr(), kind)
    replay._launch("keys", layout.blocks(slots), layout.THREADS, call)
    chosen = cuda.torch.topk(keys, count, sorted=True)
    return chosen.indices, chosen.values


def draw(
    replay: CudaReplay, kind: Kind, call: structs.ReplayDraw, uniform: float, newest: float, rows: int
) -> None:
    """Launches the kernels that sample a batch in one of these modes; does not synchronize.

    Args:
        replay: the replay to sample from.
        kind: the mode.
        call: addresses of the batch.
        uniform: share of the batch that is drawn uniformly.
        newest: share of the batch that is drawn from the newest rows.
        rows: number of rows that count as newest.
    """
    count = call.draws.count
    chosen: Any = None
    if kind in DISTINCT.values():
        chosen = top_rows(replay, kind, count)
    select = structs.ReplaySelect(
        draw=call,
        chosen=0 if chosen is None else chosen[0].data_ptr(),
        keys=0 if chosen is None else chosen[1].data_ptr(),
        uniform=uniform,
        newest=newest,
        newest_rows=min(max(rows, 1), replay.capacity),
        kind=kind,
    )
    if kind is Kind.MIXTURE:
        replay._launch("share", 1, 1024, select)
    blocks = -(-count // layout.DRAWS_PER_BLOCK)
    replay._launch("select", blocks, layout.SAMPLE_THREADS, select)


def evict(replay: CudaReplay, count: int) -> Tensor:
    """Removes ``count`` rows from sampling; returns the number removed as an int64 tensor ().

    Does not synchronize.
    """
    closed = replay._cuda.torch.zeros((), dtype=replay._cuda.torch.int64, device=replay._cuda.device)
    if count > 0:
        slots, keys = top_rows(replay, Kind.EVICTION, count)
        call = structs.ReplayEvict(slots.data_ptr(), keys.data_ptr(), closed.data_ptr(), count)
        replay._launch("evict", layout.blocks(count), layout.THREADS, call)
    return closed
