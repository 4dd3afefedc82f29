"""Microseconds of the tree and the replay on a device, as calls and CUDA graphs, beside TorchRL's buffer.

Bars on an H200 at 2^20 leaves: a batch of 4,096 rows of 64 bytes drawn, weighed and gathered, and an update
of 4,096, each in at most 20 microseconds; frame stacks gathered at 60 % of the memory's bandwidth; ten times
TorchRL's rate.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from common import Record, arguments, machine

import parl

BATCH, REPEATS = 4096, 5
# With the two chunks that a ring has beyond its capacity these are 2^20 leaves.
ROWS = 2**20 - 2048
BAR_US, BAR_SHARE, BAR_TIMES = 20.0, 0.6, 10.0


def micros(call: Callable[[], Any], device: str, calls: int) -> dict[str, float]:
    """Median, least and most of some repeats, in microseconds a call."""
    found = []
    for _ in range(3):
        call()
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        start.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize(device)
        found.append(start.elapsed_time(end) * 1000 / calls)
    return {"median_us": statistics.median(found), "least_us": min(found), "most_us": max(found)}


def captured(call: Callable[[], Any], device: str) -> Callable[[], None]:
    """The call as a graph."""
    for _ in range(3):
        call()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def both(record: Record, what: str, call: Callable[[], Any], device: str, calls: int, **facts: Any) -> float:
    """Records a call one by one and as a graph; the graph's median."""
    record.add(what, how="calls", **facts, **micros(call, device, calls))
    as_graph = micros(captured(call, device), device, calls)
    record.add(what, how="graph", **facts, **as_graph)
    return as_graph["median_us"]


def filled(replay: Any, rows: int, make: Callable[[int], dict[str, Any]], piece: int) -> None:
    for start in range(0, rows, piece):
        count = min(piece, rows - start)
        replay.add(**make(count))
    replay.check()


def small_rows(record: Record, device: str, calls: int) -> tuple[float, float]:
    """Rows of 64 bytes: microseconds of a sample and of an update."""
    replay = parl.PrioritizedReplay(ROWS, {"row": ((16,), "float32")}, device=device)
    assert replay._memory.levels[0] == 2**20

    def make(count: int) -> dict[str, Any]:
        priorities = torch.rand(count, device=device) + 0.01
        return {"row": torch.rand((count, 16), device=device), "priorities": priorities}

    filled(replay, ROWS, make, 2**17)
    facts = {"leaves": 2**20, "batch": BATCH, "row_bytes": 64}
    out = replay.empty_batch(BATCH)
    sample = both(record, "sample", lambda: replay.sample(BATCH, out=out), device, calls, **facts)
    errors = torch.rand(BATCH, device=device)
    update = both(
        record, "update", lambda: replay.update_priorities(out.tickets, errors), device, calls, **facts
    )
    tree = parl.SumTree(2**20, device=device)
    tree.update(torch.arange(2**20), torch.rand(2**20) + 0.01)
    both(record, "tree sample", lambda: tree.sample(BATCH), device, calls, **facts)
    indices, priorities = tree.sample(BATCH)
    both(record, "tree update", lambda: tree.update(indices, priorities), device, calls, **facts)
    rows = make(1024)
    del rows["priorities"]
    both(record, "add", lambda: replay.add(**rows), device, calls, rows=1024, row_bytes=64)
    replay.verify()
    return sample, update


def bandwidth(device: str) -> dict[str, float]:
    """Bytes a second: what the device's clock and bus allow, and what a copy of 4 GiB reads and writes."""
    found = torch.cuda.get_device_properties(device)
    bus, clock = getattr(found, "memory_bus_width", 0), getattr(found, "memory_clock_rate", 0)
    size = 2**32
    a, b = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    took = micros(lambda: b.copy_(a), device, 5)["median_us"]
    return {"nominal": 2.0 * clock * 1000 * bus / 8, "copy": 2 * size / took * 1e6}


def stacks(record: Record, device: str, calls: int, rows: int) -> float:
    """Stacks of four 84 x 84 frames and their next ones; the share of the memory's bandwidth."""
    fields = {"obs": ((84, 84), "uint8"), "action": ((), "int64"), "reward": ((), "float32")}
    fields |= {"terminated": ((), "bool"), "truncated": ((), "bool")}
    replay = parl.PrioritizedReplay(rows, fields, n_step=1, frame_stack=4, num_envs=256, device=device)
    frame = torch.randint(0, 255, (256, 84, 84), dtype=torch.uint8, device=device)
    off = torch.zeros(256, dtype=torch.bool, device=device)
    ended = torch.rand(256, device=device) < 0.001
    reward, action = torch.zeros(256, device=device), torch.zeros(256, dtype=torch.int64, device=device)
    filled(
        replay,
        rows,
        lambda count: {
            "obs": frame,
            "action": action,
            "reward": reward,
            "terminated": ended,
            "truncated": off,
        },
        256,
    )
    speeds = bandwidth(device)
    record.add("bandwidth", **speeds)
    share = 0.0
    for batch in (256, BATCH):
        out = replay.empty_batch(batch)
        took = both(record, "stacks", partial(replay.sample, batch, out=out), device, calls, batch=batch)
        # Written: two stacks. Read: five frames, because three of the eight are in both.
        moved = batch * (8 + 5) * 84 * 84
        reached = moved / took * 1e6
        share = reached / (speeds["nominal"] or speeds["copy"])
        record.add("stacks, bandwidth", batch=batch, bytes_per_second=reached, share=share)
    return share


def torchrl(record: Record, device: str, calls: int) -> dict[str, float] | None:
    """TorchRL's prioritized buffer with its storage on the device; None without TorchRL."""
    try:
        from tensordict import TensorDict
        from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer
    except ImportError as error:
        record.add("torchrl", missing=str(error))
        return None
    buffer = TensorDictPrioritizedReplayBuffer(
        alpha=0.6, beta=0.4, storage=LazyTensorStorage(2**20, device=device), batch_size=BATCH
    )
    for _ in range(8):
        rows = torch.rand((2**17, 16), device=device)
        buffer.extend(TensorDict({"row": rows}, batch_size=[2**17], device=device))
    tree = type(getattr(buffer.sampler, "_sum_tree", None)).__name__
    batch = buffer.sample()
    index, errors = batch["index"], torch.rand(BATCH, device=device) + 0.01
    found = {}
    for name, call in (
        ("sample", lambda: buffer.sample()),
        ("update", lambda: buffer.update_priority(index, errors)),
    ):
        took = micros(call, device, max(calls // 20, 3))
        record.add(f"torchrl {name}", tree=tree, leaves=2**20, batch=BATCH, row_bytes=64, **took)
        found[name] = took["median_us"]
    return found


def main() -> int:
    given = arguments()
    record = Record(given, "replay-speed", machine(given.device))
    calls = 100 if given.quick else 1000
    sample, update = small_rows(record, given.device, calls)
    share = stacks(record, given.device, max(calls // 10, 10), 2**16 if given.quick else 2**20)
    theirs = torchrl(record, given.device, calls)
    bars = {
        f"sample of {BATCH} <= {BAR_US} us": sample <= BAR_US,
        f"update of {BATCH} <= {BAR_US} us": update <= BAR_US,
        f"stacks at {BAR_SHARE:.0%} of the bandwidth": share >= BAR_SHARE,
    }
    if theirs is not None:
        times = {name: theirs[name] / mine for name, mine in (("sample", sample), ("update", update))}
        record.add("times torchrl", **times)
        bars[f"{BAR_TIMES:.0f} times TorchRL"] = min(times.values()) >= BAR_TIMES
    record.add("bars", **bars)
    return 0


if __name__ == "__main__":
    sys.exit(main())
