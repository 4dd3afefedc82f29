"""Microseconds of sum tree and replay on a device, as calls and CUDA graphs, compared with TorchRL's buffer.

Bars on an H200 with 2^20 leaves: at most 20 microseconds to draw, weigh and gather a batch of 4,096 rows of
64 bytes, and for an update of 4,096 priorities; frame stacks gathered at 60 % of the memory bandwidth; ten
times TorchRL's rate.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from common import Record, Session, arguments, machine, place

import parl

BATCH, REPEATS = 4096, 5
# A ring has two chunks more than its capacity: 2^20 leaves in all.
ROWS = 2**20 - 2048
LEAVES, PIECE, COPIED_BYTES = 2**20, 2**17, 2**32
BAR_US, BAR_SHARE, BAR_TIMES = 20.0, 0.6, 10.0


def micros(call: Callable[[], Any], device: str, calls: int) -> dict[str, float]:
    """Median, minimum and maximum over the repeats, in microseconds per call."""
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
    """Captures the call as a CUDA graph. Returns a function that replays it."""
    for _ in range(3):
        call()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def both(record: Record, what: str, call: Callable[[], Any], device: str, calls: int, **facts: Any) -> float:
    """Records the times of a call, by itself and as a graph. Returns the graph's median in microseconds."""
    record.add(what, how="calls", **facts, **micros(call, device, calls))
    as_graph = micros(captured(call, device), device, calls)
    record.add(what, how="graph", **facts, **as_graph)
    return as_graph["median_us"]


def filled(replay: Any, rows: int, make: Callable[[int], dict[str, Any]], piece: int) -> None:
    for start in range(0, rows, piece):
        count = min(piece, rows - start)
        replay.add(**make(count))
    replay.check()


def small_rows(record: Record, device: str, calls: int) -> dict[str, float]:
    """Rows of 64 bytes: microseconds of a sample and of an update."""
    replay = parl.PrioritizedReplay(ROWS, {"row": ((16,), "float32")}, device=device)
    assert replay._memory.levels[0] == LEAVES

    def make(count: int) -> dict[str, Any]:
        priorities = torch.rand(count, device=place(device)) + 0.01
        return {"row": torch.rand((count, 16), device=place(device)), "priorities": priorities}

    filled(replay, ROWS, make, PIECE)
    facts = {"leaves": LEAVES, "batch": BATCH, "row_bytes": 64}
    out = replay.empty_batch(BATCH)
    sample = both(record, "sample", lambda: replay.sample(BATCH, out=out), device, calls, **facts)
    errors = torch.rand(BATCH, device=place(device))
    update = both(
        record, "update", lambda: replay.update_priorities(out.tickets, errors), device, calls, **facts
    )
    tree = parl.SumTree(LEAVES, device=device)
    tree.update(torch.arange(LEAVES), torch.rand(LEAVES) + 0.01)
    both(record, "tree sample", lambda: tree.sample(BATCH), device, calls, **facts)
    indices, priorities = tree.sample(BATCH)
    both(record, "tree update", lambda: tree.update(indices, priorities), device, calls, **facts)
    rows = make(1024)
    del rows["priorities"]
    both(record, "add", lambda: replay.add(**rows), device, calls, rows=1024, row_bytes=64)
    replay.verify()
    return {"sample": sample, "update": update}


def bandwidth(device: str) -> dict[str, float]:
    """Bytes per second: nominal (memory clock and bus width), and read and written by a copy of 4 GiB."""
    found = torch.cuda.get_device_properties(device)
    bus, clock = getattr(found, "memory_bus_width", 0), getattr(found, "memory_clock_rate", 0)
    size = COPIED_BYTES
    a, b = (torch.empty(size, dtype=torch.uint8, device=place(device)) for _ in range(2))
    took = micros(lambda: b.copy_(a), device, 5)["median_us"]
    return {"nominal": 2.0 * clock * 1000 * bus / 8, "copy": 2 * size / took * 1e6}


def stacks(record: Record, device: str, calls: int, rows: int) -> dict[str, float]:
    """Gathers stacks of four 84 x 84 frames and their next stacks. Returns the share of memory bandwidth."""
    fields = {"obs": ((84, 84), "uint8"), "action": ((), "int64"), "reward": ((), "float32")}
    fields |= {"terminated": ((), "bool"), "truncated": ((), "bool")}
    replay = parl.PrioritizedReplay(rows, fields, n_step=1, frame_stack=4, num_envs=256, device=device)
    frame = torch.randint(0, 255, (256, 84, 84), dtype=torch.uint8, device=place(device))
    off = torch.zeros(256, dtype=torch.bool, device=place(device))
    ended = torch.rand(256, device=place(device)) < 0.001
    reward, action = (
        torch.zeros(256, device=place(device)),
        torch.zeros(256, dtype=torch.int64, device=place(device)),
    )
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
    share, leaves = 0.0, replay._memory.levels[0]
    for batch in sorted({min(256, BATCH), BATCH}):
        out = replay.empty_batch(batch)
        facts = {"leaves": leaves, "batch": batch}
        took = both(record, "stacks", partial(replay.sample, batch, out=out), device, calls, **facts)
        # Two stacks are written and five frames are read: three frames are in both stacks.
        moved = batch * (8 + 5) * 84 * 84
        reached = moved / took * 1e6
        share = reached / (speeds["nominal"] or speeds["copy"])
        record.add("stacks, bandwidth", batch=batch, bytes_per_second=reached, share=share)
    return {"share": share}


def episodes(record: Record, device: str, calls: int) -> dict[str, float]:
    """Sequences of R2D2's length, and rows with hindsight goals: microseconds per batch."""
    flags = {"reward": ((), "float32"), "terminated": ((), "bool"), "truncated": ((), "bool")}
    # Each environment has enough steps for several sequences.
    rows = max(ROWS // 16, 512)
    envs = min(256, rows // 250)
    runs = parl.SequenceReplay(
        rows,
        {"obs": ((84, 84), "uint8"), "state": ((1024,), "float32"), **flags},
        length=80,
        overlap=40,
        burn_in=40,
        num_envs=envs,
        device=device,
    )
    goal = ((3,), "float32")
    fields = {
        "obs": {"observation": ((25,), "float32"), "achieved_goal": goal, "desired_goal": goal},
        **flags,
    }
    hindsight = parl.Hindsight(lambda achieved, desired, info: -(achieved - desired).norm(dim=1))
    goals = parl.PrioritizedReplay(rows, fields, num_envs=envs, hindsight=hindsight, device=device)
    off = torch.zeros(envs, dtype=torch.bool, device=place(device))
    zero = {"reward": torch.zeros(envs, device=place(device)), "terminated": off}
    frame = torch.zeros((envs, 84, 84), dtype=torch.uint8, device=place(device))
    state = torch.zeros((envs, 1024), device=place(device))
    obs = {
        name: torch.rand((envs, *shape), device=place(device)) for name, (shape, _) in fields["obs"].items()
    }
    for step in range(rows // envs):
        # Episodes of 50 steps, which end at different steps.
        ends = (torch.arange(envs, device=place(device)) + step) % 50 == 0
        runs.add(obs=frame, state=state, truncated=off, **zero)
        goals.add(obs=obs, truncated=ends, **zero)
    found = {}
    for name, replay, batch, facts in (
        ("sequences", runs, 64, {"length": 80, "frame_bytes": 7056}),
        ("goals", goals, 1024, {"episode": 50}),
    ):
        batch = min(batch, BATCH)
        out = replay.empty_batch(batch)
        found[name] = both(
            record, name, partial(replay.sample, batch, out=out), device, calls, batch=batch, **facts
        )
        replay.check()
    return found


def torchrl(record: Record, device: str, calls: int) -> dict[str, float]:
    """Measures TorchRL's prioritized buffer with its storage on the device; empty without TorchRL."""
    try:
        from tensordict import TensorDict
        from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer
    except ImportError as error:
        record.add("torchrl", missing=str(error))
        return {}
    buffer = TensorDictPrioritizedReplayBuffer(
        alpha=0.6, beta=0.4, storage=LazyTensorStorage(LEAVES, device=device), batch_size=BATCH
    )
    for _ in range(LEAVES // PIECE):
        rows = torch.rand((PIECE, 16), device=place(device))
        buffer.extend(TensorDict({"row": rows}, batch_size=[PIECE], device=device))
    tree = type(getattr(buffer.sampler, "_sum_tree", None)).__name__
    batch = buffer.sample()
    index, errors = batch["index"], torch.rand(BATCH, device=place(device)) + 0.01
    found = {}
    for name, call in (
        ("sample", lambda: buffer.sample()),
        ("update", lambda: buffer.update_priority(index, errors)),
    ):
        took = micros(call, device, max(calls // 20, 3))
        record.add(f"torchrl {name}", tree=tree, leaves=LEAVES, batch=BATCH, row_bytes=64, **took)
        found[f"torchrl {name}"] = took["median_us"]
    return found


def main(command: list[str] | None = None) -> int:
    given = arguments(command)
    session = Session(given, "replay-speed", machine(given.device))
    record, device = session.record, given.device
    calls = 100 if given.quick else 1000
    # One chunk of the leaves less, for the frames before the oldest row.
    rows = min(2**16, ROWS) if given.quick else ROWS - 1024
    pieces: list[tuple[str, Callable[[], dict[str, float]]]] = [
        ("rows of 64 bytes", lambda: small_rows(record, device, calls)),
        ("stacks", lambda: stacks(record, device, max(calls // 10, 10), rows)),
        ("sequences and goals", lambda: episodes(record, device, max(calls // 10, 10))),
        ("torchrl", lambda: torchrl(record, device, calls)),
    ]
    found: dict[str, float] = {}

    def one(name: str, work: Callable[[], dict[str, float]]) -> dict[str, float]:
        figures = work()
        record.add("piece", piece=name, figures=figures)
        return figures

    for name, work in pieces:
        before = session.earlier_finding("piece", piece=name)
        found |= before["figures"] if before else session.piece(name, partial(one, name, work)) or {}
    times = [
        found[f"torchrl {what}"] / found[what] for what in ("sample", "update") if f"torchrl {what}" in found
    ]
    session.bars(
        {
            f"microseconds to draw, weigh and gather {BATCH} rows of 64 bytes, at most": (
                found.get("sample"),
                BAR_US,
                BAR_US,
            ),
            f"microseconds to update {BATCH} priorities, at most": (found.get("update"), BAR_US, BAR_US),
            "share of the memory's bandwidth when stacks are gathered": (
                found.get("share"),
                BAR_SHARE,
                BAR_SHARE,
            ),
            "times TorchRL's buffer on the device, drawing and updating, the smaller": (
                min(times) if len(times) == 2 else None,
                BAR_TIMES,
                BAR_TIMES,
            ),
        }
    )
    return session.status(0)


if __name__ == "__main__":
    sys.exit(main())
