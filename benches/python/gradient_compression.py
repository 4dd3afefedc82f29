"""What compressing gradients between two learners could save, on loopback and on slower networks.

    python benches/python/gradient_compression.py
    ... --sizes 1700000 --rounds 100

Two processes average gradients with gloo, as processes of torchrun do, in one thread each. For each way of
sending them the table has the least and the median wall time of an averaging, and the median processor time
of one process; an average of a single number shows what waiting for each other costs. ``fp16`` and ``bf16``
convert to 16 bits, sum in them, and convert back. ``top 1 %`` sends the largest hundredth of the gradients
and keeps the rest for the next update (error feedback), by an all-gather of indices and values.

The lines below compute the time of one averaging between two machines: bytes that a process sends over the
bandwidth, plus the median processor time of compression, measured here without a network. A learner's
gradients of random images show what rounding to 16 bits does to them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

sys.path.append(str(Path(__file__).parents[1]))
from gradient_average import LEARNERS, gloo_group
from parl.algos.dqn import DQN, default_config
from parl.types import EnvSpec

SHARE = 0.01
NETWORKS = {"1 Gbit/s": 1e9, "10 Gbit/s": 1e10}


class Averager:
    """The ways of averaging gradients of ``size`` numbers; ``group`` is a gloo group or None: no sending."""

    def __init__(self, group: Any, size: int) -> None:
        self._group = group
        self.gradients = torch.randn(size) * 1e-3
        self._buffer, self._error = torch.empty(size), torch.zeros(size)
        self._halves = {kind: torch.empty(size, dtype=kind) for kind in (torch.float16, torch.bfloat16)}
        self._kept = int(size * SHARE)

    def _sum(self, values: torch.Tensor) -> None:
        if self._group is not None:
            self._group.allreduce([values]).wait()

    def one_number(self) -> None:
        self._sum(torch.ones(1))

    def float32(self) -> None:
        self._buffer.copy_(self.gradients)
        self._sum(self._buffer)
        self.gradients.copy_(self._buffer.div_(LEARNERS))

    def _half(self, kind: torch.dtype) -> None:
        half = self._halves[kind]
        half.copy_(self.gradients.div_(LEARNERS))
        self._sum(half)
        self.gradients.copy_(half)

    def fp16(self) -> None:
        self._half(torch.float16)

    def bf16(self) -> None:
        self._half(torch.bfloat16)

    def top_share(self) -> None:
        self._error.add_(self.gradients)
        indices = self._error.abs().topk(self._kept, sorted=False).indices
        values = self._error[indices]
        self._error[indices] = 0.0
        mine = torch.stack([indices.to(torch.int32).view(torch.float32), values])
        parts = [mine.clone() for _ in range(LEARNERS)]
        if self._group is not None:
            self._group.allgather([parts], [mine]).wait()
        self.gradients.zero_()
        for places, found in parts:
            self.gradients.index_add_(0, places.view(torch.int32), found)
        self.gradients.div_(LEARNERS)


WAYS: dict[str, Callable[[Averager], None]] = {
    "one number": Averager.one_number,
    "float32": Averager.float32,
    "fp16": Averager.fp16,
    "bf16": Averager.bf16,
    "top 1 %": Averager.top_share,
}


def sent_bytes(way: str, size: int) -> float:
    """Bytes that each of two processes sends in one averaging."""
    if way == "top 1 %":
        return (LEARNERS - 1) * int(size * SHARE) * 8
    return size * (4 if way == "float32" else 2) * 2 * (LEARNERS - 1) / LEARNERS


def measure(averager: Averager, rounds: int) -> dict[str, tuple[float, float, float]]:
    """Least and median wall time and median processor time of each way, in seconds."""
    found: dict[str, tuple[float, float, float]] = {}
    for name, way in WAYS.items():
        walls, processor = [], []
        for _ in range(rounds):
            averager.one_number()  # both begin together
            wall, own = time.perf_counter(), time.process_time()
            way(averager)
            walls.append(time.perf_counter() - wall)
            processor.append(time.process_time() - own)
        found[name] = min(walls), statistics.median(walls), statistics.median(processor)
    return found


def learner(path: str, rank: int, sizes: list[int], rounds: int, out: Any) -> None:
    torch.set_num_threads(1)
    group = gloo_group(path, rank)
    for size in sizes:
        out.send(measure(Averager(group, size), rounds))


def rounding() -> None:
    """Prints what 16 bits do to the gradients of a DQN learner of images."""
    torch.set_num_threads(1)
    spec = EnvSpec((4, 84, 84), "uint8", (), "int64", 6, "next_step", frame_stack=4)
    made = DQN(default_config(spec), spec).make_learner(0, "cpu")
    rng = np.random.default_rng(0)

    def images() -> torch.Tensor:
        return torch.from_numpy(rng.integers(0, 255, (32, 4, 84, 84), np.uint8))

    for updates in (1, 100):
        for _ in range(updates):
            batch: Any = SimpleNamespace(
                obs=images(),
                next_obs=images(),
                action=torch.from_numpy(rng.integers(0, 6, 32)),
                reward=torch.from_numpy(rng.integers(-1, 2, 32).astype(np.float32)),
                discount=torch.full((32,), 0.97),
                weights=torch.ones(32),
                tickets=None,
            )
            made.compute(batch)
            if updates > 1:
                made.step()
        gradients = made.gradients
        for kind in (torch.float16, torch.bfloat16):
            half = gradients.to(kind).float()
            lost = ((half == 0) & (gradients != 0)).float().mean().item()
            error = (torch.linalg.vector_norm(half - gradients) / torch.linalg.vector_norm(gradients)).item()
            print(
                f"gradient of update {updates}, {len(gradients):,} numbers, largest "
                f"{gradients.abs().max().item():.1e}: {kind} has relative error {error:.1e} and makes "
                f"{100 * lost:.2f} % of the numbers 0"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 1_700_000])
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "store")  # through which the processes connect
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    others = [
        context.Process(target=learner, args=(path, rank, options.sizes, options.rounds, theirs), daemon=True)
        for rank in range(LEARNERS)
    ]
    for one in others:
        one.start()
    found: dict[int, list[Any]] = {}
    for _ in range(LEARNERS * len(options.sizes)):
        result = ours.recv()
        key = next(size for size in options.sizes if len(found.get(size, [])) < LEARNERS)
        found.setdefault(key, []).append(result)
    for one in others:
        one.join()
    folder.cleanup()
    print(f"load average {os.getloadavg()[0]:.0f}; milliseconds: least wall, median wall, processor time")
    torch.set_num_threads(1)
    for size in options.sizes:
        alone = measure(Averager(None, size), options.rounds)
        print(f"{size:,} gradients")
        for name in WAYS:
            least, middle, cpu = (
                1e3 * statistics.mean(part) for part in zip(*(r[name] for r in found[size]), strict=True)
            )
            own = 1e3 * alone[name][2]
            line = f"  {name:10} {least:8.3f} {middle:8.3f} {cpu:8.3f}; without sending {own:.3f}"
            if name != "one number":
                sent = sent_bytes(name, size)
                line += f"; sends {sent / 1e6:.2f} MB: " + ", ".join(
                    f"{own + 8e3 * sent / bits:.1f} at {network}" for network, bits in NETWORKS.items()
                )
            print(line)
    rounding()


if __name__ == "__main__":
    main()
