"""Updates of sum trees from Python, parl beside TorchRL: recently sampled leaves, random leaves, threads.

One call sets a batch of leaves. "drawn" leaves were read immediately before, so that their path is in the
cache, as after sampling in a training loop; "random" ones differ in each call. The libraries alternate, and a
figure is the median of 40 calls. With several threads, all update one tree for the duration of a round, and
the time is the wall time divided by the number of leaves that they set.

    python benches/python/tree_updates.py --record
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import parl

sys.path.append(str(Path(__file__).parents[1]))
from record import Record, add_option, version_of

LEAVES = 2**20
CALLS = 40
BARS = {256: ">= 2", 4096: ">= 3"}
Update = Callable[[int], None]


def trees() -> tuple[parl.SumTree, dict[str, object]]:
    """parl's tree and TorchRL's, with the same priorities."""
    from torchrl._torchrl import SumSegmentTreeFp32, SumSegmentTreeFp64

    priorities = np.random.default_rng(0).random(LEAVES).astype(np.float32) + np.float32(0.01)
    ours = parl.SumTree(LEAVES)
    ours.update(np.arange(LEAVES), priorities)
    theirs = {"TorchRL float32": SumSegmentTreeFp32(LEAVES), "TorchRL float64": SumSegmentTreeFp64(LEAVES)}
    for name, tree in theirs.items():
        tree.update(np.arange(LEAVES), priorities.astype("f4" if name.endswith("32") else "f8"))
    return ours, theirs


def one_thread(batch: int, drawn: bool, rounds: int) -> dict[str, list[float]]:
    """Nanoseconds per leaf of each library, one figure per round."""
    ours, theirs = trees()
    rng = np.random.default_rng(1)
    leaves = [rng.integers(0, LEAVES, batch) for _ in range(61)]
    values = [rng.random(batch).astype(np.float32) for _ in range(61)]
    wide = [one.astype(np.float64) for one in values]
    calls = {"parl": (ours, values)}
    calls |= {name: (tree, values if name.endswith("32") else wide) for name, tree in theirs.items()}
    out: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        for name, (tree, given) in calls.items():
            times = []
            for call in range(CALLS):
                at = (number * CALLS + call) % len(leaves)
                if drawn:
                    tree[leaves[at]]
                start = time.perf_counter()
                tree.update(leaves[at], given[at])
                times.append((time.perf_counter() - start) / batch * 1e9)
            out[name].append(statistics.median(times))
    return out


def several_threads(batch: int, threads: int, rounds: int, seconds: float = 0.2) -> list[float]:
    """Nanoseconds per leaf of parl with several threads on one tree, one figure per round."""
    tree, _ = trees()
    found = []
    for number in range(rounds):
        counts = [0] * threads
        stop = time.perf_counter() + seconds

        def update(thread: int, number: int = number, counts: list[int] = counts, stop: float = stop) -> None:
            rng = np.random.default_rng((number, thread))
            leaves = [rng.integers(0, LEAVES, batch) for _ in range(31)]
            values = rng.random(batch).astype(np.float32)
            while time.perf_counter() < stop:
                tree.update(leaves[counts[thread] % 31], values)
                counts[thread] += 1

        workers = [threading.Thread(target=update, args=(thread,)) for thread in range(threads)]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        found.append((time.perf_counter() - start) / (sum(counts) * batch) * 1e9)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=41)
    add_option(parser, "tree-updates")
    arguments = parser.parse_args()
    with Record(arguments.record, "Updates of sum trees from Python, beside TorchRL") as record:
        for batch, bar in BARS.items():
            for drawn in (True, False):
                case = f"update {batch} {'drawn' if drawn else 'random'} of 2^20 leaves"
                times = one_thread(batch, drawn, arguments.rounds)
                about = {"spread": "quartiles", "rounds": arguments.rounds, "threads": 1}
                for name, values in times.items():
                    version = "" if name == "parl" else version_of("torchrl")
                    given = {"library": name, "version": version, **about}
                    record.add("tree-python", case, "time per leaf", "ns", values, **given)
                    line = f"{case}, {name}: {statistics.median(values):.1f} ns"
                    if name != "parl":
                        ratios = [theirs / ours for theirs, ours in zip(values, times["parl"], strict=True)]
                        given = {"peer": name, "version": version, "bar": bar, **about}
                        record.add("tree-python", case, "speed ratio", "x", ratios, **given)
                        line += f", {statistics.median(ratios):.2f}x (bar {bar})"
                    print(line, flush=True)
            for threads in (1, 2):
                case = f"update {batch} random of 2^20 leaves"
                values = several_threads(batch, threads, 9)
                about = {"library": "parl", "spread": "quartiles", "rounds": 9, "threads": threads}
                about["conditions"] = "Python threads on one tree, wall time"
                record.add("tree-python", case, "time per leaf", "ns", values, **about)
                print(f"{case}, parl, {threads} threads: {statistics.median(values):.1f} ns", flush=True)


if __name__ == "__main__":
    main()
