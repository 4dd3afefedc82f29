"""parl.SumTree beside the sum trees of cpprb and TorchRL: 256 samples and updates at 2^20 leaves, one thread.

The peers come from PyPI (``pip install cpprb torchrl``). TorchRL's compiled ``SumSegmentTree`` is called with
float32 and float64, numpy and torch; the fastest variant of a tree counts. Sampling includes the random
numbers, the search, and the priorities of the leaves, which importance weights need; an update sets 256
random leaves, other ones in each call. All trees run in each round, so that other load affects all alike;
prints medians and quartiles in microseconds per call, and of the ratio within each round.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import parl

sys.path.append(str(Path(__file__).parents[1]))
from record import Record, add_option, version_of
from replay_bench import cycle

Calls = dict[str, Callable[[], object]]


def parl_calls(leaves: int, batch: int, priorities: np.ndarray, updates: list) -> tuple[Calls, Calls]:
    tree = parl.SumTree(leaves)
    tree.update(np.arange(leaves), priorities)
    feed = cycle(updates)
    return {"parl": lambda: tree.sample(batch)}, {"parl": lambda: tree.update(*feed())}


def torchrl_calls(leaves: int, batch: int, priorities: np.ndarray, updates: list) -> tuple[Calls, Calls]:
    import torch
    from torchrl._torchrl import SumSegmentTreeFp32, SumSegmentTreeFp64

    sample: Calls = {}
    update: Calls = {}
    for name, make, dtype in (
        ("f32", SumSegmentTreeFp32, np.float32),
        ("f64", SumSegmentTreeFp64, np.float64),
    ):
        tree = make(leaves)
        tree.update(np.arange(leaves), priorities.astype(dtype))
        rng = np.random.default_rng(0)
        generator = torch.Generator().manual_seed(0)
        torch_dtype = torch.float32 if name == "f32" else torch.float64

        def sample_numpy(tree=tree, rng=rng, dtype=dtype):
            total = tree.query(0, leaves)
            found = tree.scan_lower_bound((rng.random(batch, dtype) * total).astype(dtype))
            return found, tree[found]

        def sample_torch(tree=tree, generator=generator, torch_dtype=torch_dtype):
            total = tree.query(0, leaves)
            found = tree.scan_lower_bound(torch.rand(batch, dtype=torch_dtype, generator=generator) * total)
            return found, tree[found]

        as_numpy = cycle([(i, p.astype(dtype)) for i, p in updates])
        as_torch = cycle([(torch.from_numpy(i), torch.from_numpy(p.astype(dtype))) for i, p in updates])
        sample[f"torchrl {name} numpy"], sample[f"torchrl {name} torch"] = sample_numpy, sample_torch
        update[f"torchrl {name} numpy"] = lambda tree=tree, feed=as_numpy: tree.update(*feed())
        update[f"torchrl {name} torch"] = lambda tree=tree, feed=as_torch: tree.update(*feed())
    return sample, update


def cpprb_calls(leaves: int, batch: int, priorities: np.ndarray, updates: list) -> tuple[Calls, Calls]:
    """Calls of cpprb's replay, which contains its tree; rows of one number, so that the tree dominates."""
    from cpprb import PrioritizedReplayBuffer

    buffer = PrioritizedReplayBuffer(leaves, {"x": {"dtype": np.float32}}, alpha=1.0, eps=0.0)
    buffer.add(x=np.zeros(leaves, np.float32), priorities=priorities.astype(np.float32))
    # cpprb uses uint64 indices and float32 priorities, which it then does not copy.
    feed = cycle([(i.astype(np.uint64), p.astype(np.float32)) for i, p in updates])
    return (
        {"cpprb": lambda: buffer.sample(batch, beta=0.4)},
        {"cpprb": lambda: buffer.update_priorities(*feed())},
    )


def measure(calls: Calls, rounds: int, repeats: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(repeats):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            times[name].append((time.perf_counter() - start) / repeats * 1e6)
    return times


def quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--leaves", type=int, default=2**20)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--repeats", type=int, default=30, help="calls per round and tree")
    add_option(parser, "tree-peers")
    arguments = parser.parse_args()
    with Record(arguments.record, "The sum tree beside TorchRL's and cpprb's, from Python") as record:
        compare(arguments, record)


def add_to_record(record: Record, case: str, rounds: int, times: dict[str, list[float]]) -> None:
    """Adds an operation's times per call to the record."""
    for name, values in times.items():
        package, _, kind = name.partition(" ")
        kind = kind.replace("f32", "float32").replace("f64", "float64")
        library = f"{package.replace('torchrl', 'TorchRL')} {kind}".strip()
        version = "" if name == "parl" else version_of(package)
        about = {"spread": "quartiles", "version": version, "rounds": rounds, "threads": 1}
        record.add("tree-python", case, "time per call", "us", values, library=library, **about)
        if name != "parl":
            ratios = [theirs / ours for theirs, ours in zip(values, times["parl"], strict=True)]
            record.add("tree-python", case, "speed ratio", "x", ratios, peer=library, **about)


def compare(arguments: argparse.Namespace, record: Record) -> None:
    rng = np.random.default_rng(0)
    priorities = (rng.random(arguments.leaves) + 0.01).astype(np.float32)
    batch = arguments.batch
    updates = [
        (rng.integers(0, arguments.leaves, batch), (rng.random(batch) + 0.01).astype(np.float32))
        for _ in range(997)
    ]
    makers = [parl_calls, torchrl_calls, cpprb_calls]
    parts = [make(arguments.leaves, batch, priorities, updates) for make in makers]
    print(f"{arguments.leaves} leaves, batch {batch}, one thread, {arguments.rounds} rounds, us per call")
    for operation, index in (("sample", 0), ("update", 1)):
        calls: Calls = {}
        for part in parts:
            calls |= part[index]
        times = measure(calls, arguments.rounds, arguments.repeats)
        leaves = f"2^{arguments.leaves.bit_length() - 1}"
        add_to_record(
            record,
            f"{operation.replace('sample', 'draw')} {batch} of {leaves} leaves",
            arguments.rounds,
            times,
        )
        print(f"\n{operation:7} {'median':>9} {'quartiles':>19} {'ratio to parl':>15} {'quartiles':>15}")
        for name, values in sorted(times.items(), key=lambda item: statistics.median(item[1])):
            low, middle, high = quartiles(values)
            r_low, r_middle, r_high = quartiles([v / p for v, p in zip(values, times["parl"], strict=True)])
            spread = f"{low:.2f}..{high:.2f}"
            print(f"{name:20} {middle:9.2f} {spread:>19} {r_middle:12.2f} x   {r_low:.2f}..{r_high:.2f}")


if __name__ == "__main__":
    main()
