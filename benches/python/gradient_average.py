"""Averages of the gradients of two learners: parl's through shared memory, and torch's gloo over loopback.

    python benches/python/gradient_average.py
    ... --record                # writes the figures to benches/records/DATE-gradient-average.csv

Two processes with one thread of torch each average gradients, one average after the other, in turns by the
two ways. Wall time of an average, and processor time of both processes together.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).parents[1]))
from parl.runtime.gradient_allreduce import SharedAllReduce, SharedGradients
from record import Record, add_option, version_of

LEARNERS = 2
SIZES = (1_000, 20_000, 200_000, 1_700_000)
WARM_UP = 20


def gloo_group(path: str, rank: int) -> Any:
    """A group of gloo over loopback for ``LEARNERS`` processes, which connect through the file ``path``."""
    gloo: Any = dist.ProcessGroupGloo
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname="127.0.0.1")]
    options._timeout = timedelta(seconds=300)
    store: Any = getattr(dist, "FileStore")(path, LEARNERS)  # noqa: B009 - not exported
    return gloo(store, rank, LEARNERS, options)


class Gloo:
    """Averages by a group of gloo."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def average(self, gradients: torch.Tensor, present: bool) -> None:
        self._group.allreduce([gradients]).wait()
        gradients.div_(LEARNERS)


def learner(shared: SharedGradients | None, path: str, rank: int, size: int, averages: int, out: Any) -> None:
    """Sends the seconds of an average, and the processor seconds of this process for it."""
    torch.set_num_threads(1)
    peers = Gloo(gloo_group(path, rank)) if shared is None else SharedAllReduce(shared, rank)
    gradients = torch.full((size,), float(rank))
    for _ in range(WARM_UP):
        peers.average(gradients, True)
    assert (gradients == 0.5).all()
    started, used = time.perf_counter(), time.process_time()
    for _ in range(averages):
        peers.average(gradients, True)
    out.send(((time.perf_counter() - started) / averages, (time.process_time() - used) / averages))


def measure(way: str, size: int, averages: int) -> tuple[float, float]:
    """Seconds of an average, and processor seconds of both processes for it."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        shared = None if way == "gloo" else SharedGradients(context, size, LEARNERS)
        arguments = [(shared, f"{folder}/store", rank, size, averages, theirs) for rank in range(LEARNERS)]
        both = [context.Process(target=learner, args=one, daemon=True) for one in arguments]
        for one in both:
            one.start()
        found = [ours.recv() for _ in both]
        for one in both:
            one.join()
    return max(wall for wall, _ in found), sum(used for _, used in found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES), help="numbers of gradients")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--averages", type=int, default=300, help="averages of a round")
    add_option(parser, "gradient-average")
    arguments = parser.parse_args()
    version = version_of("torch")
    with Record(arguments.record, "Averages of the gradients of two learners") as record:
        record.print(f"{'gradients':>10} {'parl us':>9} {'gloo us':>9} {'ratio':>7}")
        for size in arguments.sizes:
            rounds = [
                [measure(way, size, arguments.averages) for way in ("parl", "gloo")]
                for _ in range(arguments.rounds)
            ]
            case, same = f"{size:,} gradients", {"rounds": len(rounds), "threads": 1, "spread": "quartiles"}
            for at, library in enumerate(("parl", "torch's gloo")):
                who = {"library": library, "version": version if at else "", **same}
                for metric, which in (("wall time", 0), ("processor time of both", 1)):
                    values = [1e6 * pair[at][which] for pair in rounds]
                    record.add("gradient-average", case, metric, "us", values, **who)
            ratios = [theirs[0] / ours[0] for ours, theirs in rounds]
            peer = {"peer": "torch's gloo", "version": version, **same}
            record.add("gradient-average", case, "speed ratio", "x", ratios, **peer)
            middle = sorted(rounds, key=lambda pair: pair[1][0] / pair[0][0])[len(rounds) // 2]
            record.print(
                f"{size:>10,} {1e6 * middle[0][0]:9.1f} {1e6 * middle[1][0]:9.1f}"
                f" {middle[1][0] / middle[0][0]:7.1f}"
            )


if __name__ == "__main__":
    main()
