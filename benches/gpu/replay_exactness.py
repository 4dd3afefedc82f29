"""Compares sum tree and replay on a device with those of the CPU: sums, draws, batches, CUDA graphs."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Session, arguments, machine, place

import parl

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "replay"))
from device_cases import CASES, GOALS, SEQUENCES, Case, assert_same, compare, host

from tickets import same_tickets

MODES = ("stratified", "independent", "systematic", "split")


def trees(capacity: int, device: str) -> None:
    """Sums and draws after random updates, many of them to the same leaf."""
    cpu = parl.SumTree(capacity, fan_out=32, seed=5)
    tree = parl.SumTree(capacity, device=device, seed=5)
    rng = np.random.default_rng(capacity)
    for _ in range(20):
        indices = rng.integers(0, max(capacity // rng.choice([1, 16]), 1), 4096)
        priorities = rng.exponential(size=4096) * (rng.random(4096) > 0.2)
        cpu.update(indices, priorities)
        tree.update(indices, priorities)
    np.testing.assert_array_equal(host(tree[np.arange(capacity)]), cpu[np.arange(capacity)])
    assert (tree.total, tree.positive) == (cpu.total, cpu.positive)
    tree.verify()
    tree.check()
    for count in (1, 33, 256, 4096, 9000):
        for mode in MODES:
            options: dict[str, Any] = {"rank": 2, "learners": 3} if mode == "split" else {}
            for found, expected in zip(
                tree.sample(count, mode=mode, **options),
                cpu.sample(count, mode=mode, **options),
                strict=True,
            ):
                np.testing.assert_array_equal(host(found), expected)


def replays(cases: list[Case], alpha: float, device: str) -> None:
    """All kinds of windows and stacks. Powers of 0 and 1 are exact on both sides, so weights are equal."""
    for case in cases:
        case = dataclasses.replace(case, alpha=alpha)
        cpu, mine = case.pair(1, device)
        assert compare(cpu, mine, case, 1, exact=False) > 15


def powers(device: str) -> None:
    """``priority ** alpha`` to the last bit of single precision."""
    fields = {"x": ((), "int64")}
    priorities = np.random.default_rng(0).exponential(size=65_536).astype(np.float32)
    rows = {"x": np.arange(65_536), "priorities": priorities}
    cpu = parl.PrioritizedReplay(65_536, fields, fan_out=32)
    mine = parl.PrioritizedReplay(65_536, fields, device=device)
    cpu.add(**rows)
    mine.add(**rows)
    totals = (cpu.total_priority, mine.total_priority)
    assert abs(totals[0] - totals[1]) <= 2**-23 * totals[0], totals
    # Only the first mode: a systematic batch of the whole mass would draw some rows twice.
    for mode in MODES[:1]:
        batch = mine.sample(4096, mode=mode, beta=1.0)
        at = host(batch.x)
        expected = (priorities[at] + np.float32(1e-6)) ** np.float64(-0.6)
        np.testing.assert_allclose(host(batch.weights), expected / expected.max(), rtol=1e-4)


def choices(device: str, rows: int = 5000) -> None:
    """Other modes of sampling: "largest" equals the CPU; others draw distinct rows or give right weights."""
    priorities = np.random.default_rng(2).integers(1, 50, rows).astype(np.float64)
    options: dict[str, Any] = {"alpha": 1.0, "epsilon": 0.0}
    cpu = parl.PrioritizedReplay(rows, {"x": ((), "int64")}, fan_out=32, **options)
    mine = parl.PrioritizedReplay(rows, {"x": ((), "int64")}, device=device, **options)
    for replay in (cpu, mine):
        replay.add(x=np.arange(rows), priorities=priorities)
    for count in (1, 100, rows):
        np.testing.assert_array_equal(
            host(mine.sample(count, mode="largest").x), cpu.sample(count, mode="largest").x
        )
    distinct = host(mine.sample(rows // 2, mode="without_replacement").x)
    assert len(np.unique(distinct)) == rows // 2
    counts = np.zeros(rows)
    for _ in range(40):
        counts += np.bincount(host(mine.sample(rows, mode="uniform").x), minlength=rows)
    # The variance of a Poisson distribution equals its mean.
    assert 0.8 < counts.var() / counts.mean() < 1.2, counts.var() / counts.mean()
    batch = mine.sample(rows, uniform=0.3, newest=0.2, newest_rows=rows // 5, beta=1.0)
    x = host(batch.x)
    p = 0.5 * priorities / priorities.sum() + 0.3 / rows + (np.arange(rows) >= rows - rows // 5) / rows
    np.testing.assert_allclose(host(batch.weights), p[x].min() / p[x], rtol=1e-5)
    assert int(mine.evict(rows // 2)) == rows // 2
    assert mine.sampleable == rows - rows // 2
    mine.verify()
    mine.check()


def saved(device: str) -> None:
    """Files of each side load on the other, and the following draws are equal."""
    case = CASES[4]
    cpu, mine = case.pair(3, device)
    compare(cpu, mine, case, 3, calls=40, exact=False)
    with tempfile.TemporaryDirectory() as folder:
        mine.save(f"{folder}/device")
        cpu.save(f"{folder}/cpu")
        here = parl.PrioritizedReplay.load(f"{folder}/device")
        there = parl.PrioritizedReplay.load(f"{folder}/cpu", device=device)
    for a, b in ((cpu, here), (mine, there)):
        assert (len(a), a.counters, a.total_priority) == (len(b), b.counters, b.total_priority)
    assert_same(cpu, there, 40, "stratified", False)
    assert_same(here, mine, 40, "stratified", False)


def graphs(device: str, rounds: int = 300) -> None:
    """A captured and replayed step (add, sample, update) equals the same calls one by one."""
    envs, batch = 64, 256
    there = place(device)

    def made() -> Any:
        fields = {"obs": ((64,), "uint8"), "action": ((), "int64"), "reward": ((), "float32")}
        fields |= {"terminated": ((), "bool"), "truncated": ((), "bool")}
        return parl.PrioritizedReplay(
            10_000, fields, n_step=3, frame_stack=4, num_envs=envs, device=device, seed=3, alpha=1.0
        )

    def row(number: int) -> dict[str, torch.Tensor]:
        lanes = torch.arange(envs, device=there)
        return {
            "obs": ((lanes * 3 + number) % 251).to(torch.uint8)[:, None].expand(envs, 64).contiguous(),
            "action": lanes + number,
            "reward": ((lanes + number) % 7).float(),
            "terminated": lanes == number % 97,
            "truncated": lanes == number % 89,
        }

    def step(replay: Any) -> Any:
        replay.add(**rows)
        found = replay.sample(batch, beta=beta)
        replay.update_priorities(found.tickets, priorities)
        return found

    # The captured step reads these tensors; they are written before each replay.
    rows, beta = row(0), torch.tensor(0.5, dtype=torch.float64, device=there)
    priorities = torch.ones(batch, device=there)

    def give(number: int) -> None:
        for name, values in row(number).items():
            rows[name].copy_(values)
        beta.fill_(0.5 + 0.001 * number)
        priorities.copy_((torch.arange(batch, device=there) * 31 + number) % 17 + 0.5)

    captured, plain = made(), made()
    same_tickets(captured, plain)
    for number in range(5):
        give(number)
        for replay in (captured, plain):
            step(replay)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mine = step(captured)
    for number in range(5, 5 + rounds):
        give(number)
        graph.replay()
        for name, value in step(plain).items():
            assert torch.equal(mine[name], value), f"{name} in replay {number - 5}"
    captured.verify()
    captured.check()
    assert captured.counters == plain.counters


def main(command: list[str] | None = None) -> int:
    given = arguments(command)
    session = Session(given, "replay-exactness", machine(given.device))
    sizes = (1, 33, 5000, 2**20) if not given.quick else (1, 5000)
    runs: list[tuple[str, Callable[[], None]]] = [
        (f"tree of {size}", lambda size=size: trees(size, given.device)) for size in sizes
    ]
    runs += [
        (f"{kind}, alpha {alpha}", partial(replays, cases[:3] if given.quick else cases, alpha, given.device))
        for alpha in (0.0, 1.0)
        for kind, cases in (("replays", CASES), ("sequences", SEQUENCES), ("hindsight", GOALS))
    ]
    runs += [("choices", lambda: choices(given.device)), ("files", lambda: saved(given.device))]
    runs += [("powers", lambda: powers(given.device)), ("graphs", lambda: graphs(given.device))]

    def one(name: str, run: Callable[[], None]) -> bool:
        start, found = time.perf_counter(), None
        try:
            run()
        except AssertionError as error:
            found = str(error)[:2000]
        seconds = round(time.perf_counter() - start, 1)
        session.record.add("replay exactness", run=name, difference=found, seconds=seconds)
        return found is None

    equal = failed = 0
    for name, run in runs:
        before = session.earlier_finding("replay exactness", run=name, difference=None)
        found = True if before else session.piece(name, partial(one, name, run))
        equal += found is True
        failed += found is False
    session.record.add("equal", runs=len(runs), equal=equal, failed=failed, left=len(session.left))
    return session.status(failed)


if __name__ == "__main__":
    sys.exit(main())
