"""Draws of a device's replay that are not by weight alone: which kernels they take, in what order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parl.replay.device import layout, structs
from parl.replay.device.structs import Kind

if TYPE_CHECKING:
    from torch import Tensor

    from parl.replay.device.replay import DeviceReplay

DISTINCT = {"without_replacement": Kind.DISTINCT, "largest": Kind.LARGEST_FIRST}
MODES = (*DISTINCT, "uniform")


def kind_of(mode: str, uniform: float, newest: float) -> Kind | None:
    """The kind of draws, None for those by weight.

    Raises:
        ValueError: shares outside 0..=1, or beside a mode that cannot be mixed.
    """
    if not (0 <= uniform <= 1 and 0 <= newest <= 1 and uniform + newest <= 1):
        raise ValueError(
            f"shares uniform {uniform} and newest {newest} are not at least 0 with a sum of at most 1"
        )
    if uniform or newest:
        if mode != "stratified":
            raise ValueError(
                f'mode {mode!r} cannot be mixed with uniform or newest rows, only "stratified" can'
            )
        return Kind.MIXTURE
    return Kind.UNIFORM if mode == "uniform" else DISTINCT.get(mode)


def best(replay: DeviceReplay, kind: Kind, count: int) -> tuple[Tensor, Tensor]:
    """Slots and keys of the ``count`` rows that come first, (count,) int64 each; does not wait.

    Raises:
        ValueError: there are fewer slots.
    """
    place, slots = replay._place, replay._plan.slots
    if count > slots:
        raise ValueError(f"{count} distinct rows were asked for, {slots} is the most there can be")
    keys = place.empty((slots,), "int64")
    call = structs.ReplayKeys(keys.data_ptr(), kind)
    replay._launch("keys", layout.blocks(slots), layout.THREADS, call)
    chosen = place.torch.topk(keys, count, sorted=True)
    return chosen.indices, chosen.values


def draw(
    replay: DeviceReplay, kind: Kind, call: structs.ReplayDraw, uniform: float, newest: float, rows: int
) -> None:
    """Draws what ``call`` asks for; does not wait."""
    count = call.draws.count
    chosen: Any = None
    if kind in DISTINCT.values():
        chosen = best(replay, kind, count)
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


def evict(replay: DeviceReplay, count: int) -> Tensor:
    """Takes rows out of circulation; how many, one int64; does not wait."""
    closed = replay._place.torch.zeros((), dtype=replay._place.torch.int64, device=replay._place.device)
    if count > 0:
        slots, keys = best(replay, Kind.EVICTION, count)
        call = structs.ReplayEvict(slots.data_ptr(), keys.data_ptr(), closed.data_ptr(), count)
        replay._launch("evict", layout.blocks(count), layout.THREADS, call)
    return closed
