"""The replay beside its peers: tree, pairs of calls, adds, gathers, threads; each row with its bar.

``make bench-replay`` (``RECORD=1`` writes the figures to ``benches/records``). Rows with a peer compare calls
from Python. Rows named ``Rust`` measure the core alone, with the program ``measure``
(crates/sumtree/examples), and have no peer. In each round every library runs once, for some milliseconds, and
the ratio is taken within the round, so that other load affects all of them. Figures are medians of processor
time of the calling thread, with quartiles; rows with threads name their number. Peers: TorchRL's compiled
segment tree and Tianshou's numba tree, both called with numpy arrays, and cpprb, whose tree is available only
inside its replay. The fastest variant of each peer counts. Sampling in parl and TorchRL returns the
priorities of the leaves as well as their indices.
"""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import parl

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from record import Record, add_option, version_of

ROOT = pathlib.Path(__file__).parents[2]
POOL = 997
"""Number of batches of indices and priorities that updates cycle through."""

SECTIONS = ["tree", "pairs", "threads", "gather"]

Call = Callable[[], object]


class Measure:
    """The Rust program ``measure``, which runs a workload per line of its input."""

    def __init__(self, milliseconds: int, path: str | None = None) -> None:
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        command = [str(target / "release/examples/measure"), "serve", str(milliseconds)]
        environment = os.environ | ({"SUMTREE_PATH": path} if path else {})
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ns(self, workload: str) -> tuple[float, float]:
        """Nanoseconds per item: wall clock, processor time of one thread."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(workload + "\n")
        self.process.stdin.flush()
        wall, busy = self.process.stdout.readline().split()
        return float(wall), float(busy)

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


@dataclass
class Row:
    """One line of the table."""

    name: str
    unit: str
    ours: Callable[[], float]
    peers: dict[str, Callable[[], float]] = field(default_factory=dict)
    bar: float | None = None
    """Largest allowed ratio of parl's time to the fastest peer's."""
    note: str = ""
    ours_times: list[float] = field(default_factory=list)
    peer_times: dict[str, list[float]] = field(default_factory=dict)


def timer(call: Call, per: int, milliseconds: float) -> Callable[[], float]:
    """Nanoseconds of processor time per item of ``call``, which handles ``per`` items."""
    call()
    start = time.perf_counter_ns()
    call()
    repeats = max(1, int(milliseconds * 1e6 / max(1, time.perf_counter_ns() - start)))

    def run() -> float:
        for _ in range(1 + repeats // 3):
            call()  # Warms the caches after the previous library.
        start = time.thread_time_ns()
        for _ in range(repeats):
            call()
        return (time.thread_time_ns() - start) / repeats / per

    return run


def cycle(items: list[Any]) -> Callable[[], Any]:
    """A function that returns the items one after the other, cyclically."""
    state = {"next": 0}

    def step() -> Any:
        item = items[state["next"]]
        state["next"] = (state["next"] + 1) % len(items)
        return item

    return step


class TreePeers:
    """Trees of other libraries with the same priorities."""

    def __init__(self, leaves: int, ms: float) -> None:
        from tianshou.data import SegmentTree
        from torchrl._torchrl import SumSegmentTreeFp32, SumSegmentTreeFp64

        self.leaves, self.ms = leaves, ms
        self.rng = np.random.default_rng(0)
        priorities = self.rng.random(leaves) + 0.01
        every = np.arange(leaves)
        self.torchrl = {np.float32: SumSegmentTreeFp32(leaves), np.float64: SumSegmentTreeFp64(leaves)}
        for dtype, tree in self.torchrl.items():
            tree.update(every, priorities.astype(dtype))
        self.tianshou = SegmentTree(leaves)
        self.tianshou[every] = priorities

    def sample(self, batch: int) -> dict[str, Callable[[], float]]:
        rng, leaves = np.random.default_rng(1), self.leaves
        out: dict[str, Callable[[], float]] = {}
        for dtype, tree in self.torchrl.items():

            def torchrl(tree: Any = tree, dtype: Any = dtype) -> object:
                found = tree.scan_lower_bound(rng.random(batch, dtype) * tree.query(0, leaves))
                return found, tree[found]

            # The product of a float32 array and a Python number stays float32.
            out[f"torchrl {np.dtype(dtype).name}"] = timer(torchrl, batch, self.ms)
        tree = self.tianshou
        out["tianshou"] = timer(
            lambda: tree.get_prefix_sum_idx(rng.random(batch) * tree.reduce()), batch, self.ms
        )
        return out

    def update(self, batch: int) -> dict[str, Callable[[], float]]:
        rng, out = np.random.default_rng(2), {}
        at = [rng.integers(0, self.leaves, batch) for _ in range(POOL)]
        values = [rng.random(batch) + 0.01 for _ in range(POOL)]
        for dtype, tree in self.torchrl.items():
            feed = cycle([(i, v.astype(dtype)) for i, v in zip(at, values, strict=True)])
            out[f"torchrl {np.dtype(dtype).name}"] = timer(
                lambda tree=tree, feed=feed: tree.update(*feed()), batch, self.ms
            )
        feed = cycle(list(zip(at, values, strict=True)))

        def tianshou() -> None:
            i, v = feed()
            self.tianshou[i] = v

        out["tianshou"] = timer(tianshou, batch, self.ms)
        return out


def cpprb_buffer(rows: int, batch: int, fields: dict[str, Any]) -> Any:
    from cpprb import PrioritizedReplayBuffer

    buffer = PrioritizedReplayBuffer(
        rows, {name: {"shape": a.shape[1:] or 1, "dtype": a.dtype} for name, a in fields.items()}
    )
    columns = {name: a.reshape(len(a), *(a.shape[1:] or (1,))) for name, a in fields.items()}
    for _ in range(0, rows, len(next(iter(columns.values())))):
        buffer.add(**columns)
    return buffer


def tree_rows(ms: float) -> list[Row]:
    measure = Measure(int(ms))
    rows: list[Row] = []

    def ours(workload: str, measure: Measure = measure) -> Callable[[], float]:
        return lambda: measure.ns(workload)[1]

    rng = np.random.default_rng(0)
    small = cpprb_buffer(2**20, 4096, {"x": np.zeros(4096, np.float32)})
    for exponent in (20, 24):
        leaves = 2**exponent
        peers, tree = TreePeers(leaves, ms), parl.SumTree(leaves)
        tree.update(np.arange(leaves), rng.random(leaves) + 0.01)
        batches = ((32, 1 / 8), (256, 1 / 6), (4096, 1 / 4)) if exponent == 20 else ((256, None),)
        for batch, bar in batches:
            others = peers.sample(batch)
            if exponent == 20:
                others["cpprb"] = timer(lambda batch=batch: small.sample(batch, beta=0.4), batch, ms)
            call = timer(lambda tree=tree, batch=batch: tree.sample(batch), batch, ms)
            rows.append(Row(f"Python tree sample, 2^{exponent}, batch {batch}", "ns/item", call, others, bar))
        feed = cycle([(rng.integers(0, leaves, 256), rng.random(256) + 0.01) for _ in range(POOL)])
        call = timer(lambda tree=tree, feed=feed: tree.update(*feed()), 256, ms)
        others, bar = peers.update(256), None
        if exponent == 20:
            given = cycle(
                [
                    (rng.integers(0, leaves, 256).astype(np.uint64), rng.random(256, np.float32) + 0.01)
                    for _ in range(POOL)
                ]
            )
            others["cpprb"] = timer(lambda given=given: small.update_priorities(*given()), 256, ms)
            bar = 2 / 3
        rows.append(Row(f"Python tree update, 2^{exponent}, batch 256", "ns/item", call, others, bar))
    for exponent in (20, 24):
        for batch in (32, 256, 4096) if exponent == 20 else (256,):
            workload = ours(f"sample:{exponent}:{batch}")
            rows.append(Row(f"Rust tree sample, 2^{exponent}, batch {batch}", "ns/item", workload))
        for name, workload in (("lock-free", "update"), ("exclusive", "update-exclusive")):
            rows.append(
                Row(
                    f"Rust tree update {name}, 2^{exponent}, batch 256",
                    "ns/item",
                    ours(f"{workload}:{exponent}:256"),
                )
            )
    for path in ("avx2", "scalar"):
        slower = Measure(int(ms), path)
        for batch in (32, 256, 4096):
            rows.append(
                Row(
                    f"Rust tree sample {path}, 2^20, batch {batch}",
                    "ns/item",
                    ours(f"sample:20:{batch}", slower),
                )
            )
    rows.append(Row("Rust tree append run of 64, 2^20", "ns/item", ours("append:20:64")))
    rows.append(Row("Rust tree append run of 1,024, 2^20", "ns/item", ours("append:20:1024")))
    return rows


def transitions(rows: int) -> dict[str, np.ndarray]:
    """Small rows: observation and next observation of 4 floats each, action, reward, terminated."""
    rng = np.random.default_rng(3)
    return {
        "obs": rng.random((rows, 4), np.float32),
        "action": rng.integers(0, 4, rows),
        "reward": rng.random(rows, np.float32),
        "next_obs": rng.random((rows, 4), np.float32),
        "terminated": np.zeros(rows, np.bool_),
    }


def parl_replay(rows: int) -> parl.PrioritizedReplay:
    columns = transitions(4096)
    replay = parl.PrioritizedReplay(
        rows,
        {name: (a.shape[1:], a.dtype) for name, a in columns.items()},
        autoreset="same_step",
        num_envs=4096,
    )
    for _ in range(rows // 4096):
        replay.add(**columns)
    return replay


def tianshou_buffer(rows: int) -> Any:
    from tianshou.data import Batch, PrioritizedReplayBuffer

    buffer = PrioritizedReplayBuffer(rows, alpha=0.6, beta=0.4)
    columns = transitions(rows)
    buffer.set_batch(
        Batch(
            obs=columns["obs"],
            act=columns["action"],
            rew=columns["reward"].astype(np.float64),
            terminated=columns["terminated"],
            truncated=columns["terminated"].copy(),
            done=columns["terminated"].copy(),
            obs_next=columns["next_obs"],
            info=Batch(),
        )
    )
    buffer._size, buffer._index = rows, 0
    buffer.weight[np.arange(rows)] = np.random.default_rng(4).random(rows) + 0.01
    return buffer


def torchrl_buffer(rows: int, batch: int) -> Any:
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer

    buffer = TensorDictPrioritizedReplayBuffer(
        alpha=0.6, beta=0.4, storage=LazyTensorStorage(rows), batch_size=batch, priority_key="td_error"
    )
    columns = {name: torch.from_numpy(a) for name, a in transitions(2**16).items()}
    for _ in range(rows // 2**16):
        buffer.extend(TensorDict(columns, batch_size=[2**16]))
    return buffer


def pair_rows(ms: float) -> list[Row]:
    import torch
    from tensordict import TensorDict
    from tianshou.data import Batch

    rows = 2**20
    replay = parl_replay(rows)
    cpprb = cpprb_buffer(rows, 4096, transitions(4096))
    tianshou = tianshou_buffer(rows)
    torchrl = torchrl_buffer(rows, 32)
    out: list[Row] = []
    for batch, bar in ((32, 1 / 4), (1024, 1 / 2)):
        errors = cycle([np.random.default_rng(n).random(batch, np.float32) for n in range(POOL)])

        def ours(batch: int = batch, errors: Call = errors) -> None:
            drawn = replay.sample(batch, beta=0.4)
            replay.update_priorities(drawn.tickets, errors())

        def of_cpprb(batch: int = batch, errors: Call = errors) -> None:
            drawn = cpprb.sample(batch, beta=0.4)
            cpprb.update_priorities(drawn["indexes"], errors())

        def of_tianshou(batch: int = batch, errors: Call = errors) -> None:
            _, at = tianshou.sample(batch)
            tianshou.update_weight(at, errors())

        def of_torchrl(batch: int = batch, errors: Call = errors) -> None:
            drawn = torchrl.sample(batch)
            torchrl.update_priority(drawn["index"], torch.from_numpy(errors()))

        peers = {"cpprb": of_cpprb, "tianshou": of_tianshou, "torchrl": of_torchrl}
        out.append(
            Row(
                f"Python sample({batch}) + update({batch}), 2^20",
                "us/pair",
                timer(ours, 1000, ms),
                {name: timer(call, 1000, ms) for name, call in peers.items()},
                bar,
            )
        )
    for count in (1, 64):
        columns = transitions(count)
        numbers = {"obs": columns["obs"], "next_obs": columns["next_obs"]}
        numbers |= {name: columns[name].reshape(-1, 1) for name in ("action", "reward", "terminated")}
        rewards, ends = columns["reward"].astype(np.float64), columns["terminated"]
        steps = [
            Batch(
                obs=columns["obs"][n],
                act=columns["action"][n],
                rew=rewards[n],
                terminated=ends[n],
                truncated=ends[n],
                obs_next=columns["next_obs"][n],
                info={},
            )
            for n in range(count)
        ]
        many = TensorDict({name: torch.from_numpy(a) for name, a in columns.items()}, batch_size=[count])

        def of_tianshou_add(steps: list[Batch] = steps) -> None:
            for step in steps:  # Tianshou adds one step of one environment per call.
                tianshou.add(step)

        def of_torchrl_add(many: Any = many, count: int = count) -> None:
            torchrl.add(many[0]) if count == 1 else torchrl.extend(many)

        peers = {
            "cpprb": lambda numbers=numbers: cpprb.add(**numbers),
            "tianshou": of_tianshou_add,
            "torchrl": of_torchrl_add,
        }
        out.append(
            Row(
                f"Python add, {count} row{'s' if count > 1 else ''} a call",
                "us/call",
                timer(lambda columns=columns: replay.add(**columns), 1000, ms),
                {name: timer(call, 1000, ms) for name, call in peers.items()},
                1 / 2,
            )
        )
    return out


def thread_rows(ms: float, threads: list[int]) -> list[Row]:
    """Rows for the throughput of n threads and of one; ratios, and bars, are 1 / speed-up."""
    measure = Measure(int(ms) * 8)
    names = {
        "mixed-replay": "replay, 50 % sample and gather, 25 % update, 25 % append, rows of 64 bytes",
        "mixed-replay-apart": "replay, the same mix, each thread with a replay of its own",
        "mixed-tree": "tree alone, lock-free, the same mix",
        "mixed-tree-apart": "tree, the same mix, each thread with a tree of its own",
        "mixed-exclusive": "tree alone, exclusive writer, the same mix",
        "samples": "tree alone, samples",
        "updates": "tree alone, lock-free updates",
        "updates-exclusive": "tree alone, exclusive updates",
    }
    out: list[Row] = []
    for operation, text in names.items():
        for n in threads:
            for clock, at in (("wall clock", 0), ("processor time", 1)):
                # Processor time is less affected by other load, but the bar is for wall time.
                has_bar = operation == "mixed-replay" and at == 0

                def ours(operation: str = operation, n: int = n, at: int = at) -> float:
                    return measure.ns(f"{operation}:20:256:{n}")[at]

                def alone(operation: str = operation, at: int = at) -> float:
                    return measure.ns(f"{operation.removesuffix('-apart')}:20:256")[at]

                bar = {2: 1 / 1.6, 16: 1 / 8}.get(n) if has_bar else None
                name = f"{n} threads, {clock}: {text}"
                out.append(Row(name, "ns/item", ours, {"one thread": alone}, bar, "speed-up"))
    return out


def quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def measure_all(rows: list[Row], rounds: int) -> None:
    for _ in range(rounds):
        for row in rows:
            row.ours_times.append(row.ours())
            for name, peer in row.peers.items():
                row.peer_times.setdefault(name, []).append(peer())


def line(row: Row) -> str:
    low, middle, high = quartiles(row.ours_times)
    text = f"| {row.name} | {row.unit} | {middle:.2f} ({low:.2f}..{high:.2f}) "
    if not row.peers:
        return text + "| | | | |"
    name = min(row.peer_times, key=lambda name: statistics.median(row.peer_times[name]))
    p_low, p_middle, p_high = quartiles(row.peer_times[name])
    r_low, ratio, r_high = quartiles(
        [a / b for a, b in zip(row.ours_times, row.peer_times[name], strict=True)]
    )
    text += f"| {name} {p_middle:.2f} ({p_low:.2f}..{p_high:.2f}) "
    if row.note == "speed-up":
        text += f"| {1 / ratio:.2f}x ({1 / r_high:.2f}..{1 / r_low:.2f}) "
        bar = "" if row.bar is None else f">= {1 / row.bar:.1f}x"
    else:
        text += f"| {ratio:.3f} ({r_low:.3f}..{r_high:.3f}) "
        bar = "" if row.bar is None else f"<= {row.bar:.3f}"
    met = "" if row.bar is None else ("yes" if ratio <= row.bar else "NO")
    return text + f"| {bar} | {met} |"


def table(rows: list[Row]) -> list[str]:
    return [
        "| what | unit | parl (quartiles) | fastest peer (quartiles) | ratio (quartiles) | bar | met |",
        "|---|---|---|---|---|---|---|",
        *map(line, rows),
    ]


CLAIMS = {"tree": "tree-core", "pairs": "replay-python", "threads": "replay-threads"}
METRICS = {"ns/item": "time per item", "us/pair": "time per pair of calls", "us/call": "time per call"}
PEERS = {"torchrl": "TorchRL", "tianshou": "Tianshou", "cpprb": "cpprb"}


def add_to_record(record: Record, section: str, row: Row, rounds: int, load: str) -> None:
    """Adds a row to the record: parl's times, those of the fastest peer, and the ratio within rounds."""
    claim, unit = CLAIMS[section], row.unit[:2]
    about = {"rounds": rounds, "conditions": load, "spread": "quartiles"}
    if section == "threads":
        head, _, case = row.name.partition(": ")
        threads, clock = head.split(" threads, ")
        ratios = [b / a for a, b in zip(row.ours_times, row.peer_times["one thread"], strict=True)]
        record.add(claim, case, f"{clock} per item", unit, row.ours_times, threads=threads, **about)
        record.add(claim, case, f"{clock} per item", unit, row.peer_times["one thread"], threads=1, **about)
        bar = "" if row.bar is None else f">= {1 / row.bar:.1f}"
        peer = {"peer": "parl with 1 thread", "threads": threads, "bar": bar} | about
        record.add(claim, case, f"{clock.replace(' ', '-')} speed ratio", "x", ratios, **peer)
        return
    record.add(claim, row.name, METRICS[row.unit], unit, row.ours_times, threads=1, **about)
    if row.peers:
        name = min(row.peer_times, key=lambda name: statistics.median(row.peer_times[name]))
        package, _, kind = name.partition(" ")
        library = f"{PEERS[package]} {kind}".strip()
        about |= {"version": version_of(package), "threads": 1}
        ratios = [a / b for a, b in zip(row.ours_times, row.peer_times[name], strict=True)]
        record.add(claim, row.name, METRICS[row.unit], unit, row.peer_times[name], library=library, **about)
        bar = "" if row.bar is None else f"<= {row.bar:.3f}"
        record.add(claim, row.name, "time ratio", "x", ratios, peer=library, bar=bar, **about)


def gather_lines(arguments: argparse.Namespace) -> list[str]:
    """The table of ``replay_gather.py``: 84x84x4 stacks against memcpy."""
    script = ROOT / "benches/python/replay_gather.py"
    if not script.exists():
        return ["Gathers were not measured: replay_gather.py is missing."]
    words = [sys.executable, str(script), *(["--record", arguments.record] if arguments.record else [])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        return [f"replay_gather.py failed: {done.stderr.strip()[-300:]}"]
    return done.stdout.strip().splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--ms", type=float, default=3, help="milliseconds of one contender in one round")
    parser.add_argument("--only", choices=SECTIONS, action="append")
    add_option(parser, "replay")
    parser.add_argument("--strict", action="store_true", help="fail if a bar is missed")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    only = arguments.only or SECTIONS
    cores = len(os.sched_getaffinity(0))
    threads = [n for n in (2, 4, 8, 16) if n <= cores]
    makers: dict[str, Callable[[], list[Row]]] = {
        "tree": lambda: tree_rows(arguments.ms),
        "pairs": lambda: pair_rows(arguments.ms),
        "threads": lambda: thread_rows(arguments.ms, threads),
    }
    rows: list[Row] = []
    record = Record(arguments.record, "The replay beside cpprb, TorchRL and Tianshou")
    for name in only:
        before = os.getloadavg()[0]
        if name == "gather":
            lines = gather_lines(arguments)
        else:
            part = makers[name]()
            measure_all(part, arguments.rounds)
            lines, rows = table(part), rows + part
            load = f"load average {before:.1f} to {os.getloadavg()[0]:.1f}"
            for row in part:
                add_to_record(record, name, row, arguments.rounds, load)
        if name == "threads" and cores < 16:
            lines += ["", f"Scaling to 16 threads (bar 8x) was not measured: this machine has {cores} cores."]
        print("\n".join(lines), flush=True)
        at = datetime.datetime.now(datetime.UTC).strftime("%H:%M")
        how = "41 rounds" if name == "gather" else f"{arguments.rounds} rounds of {arguments.ms:g} ms"
        print(f"{how}, {at} UTC, load average {before:.1f} before and {os.getloadavg()[0]:.1f} after.")
    if arguments.record and record.rows:
        print(f"recorded in {record.write()}")
    missed = [row.name for row in rows if row.bar is not None and "| NO |" in line(row)]
    if missed:
        print("missed: " + "; ".join(missed))
    if arguments.strict and missed:
        sys.exit(1)


if __name__ == "__main__":
    main()
