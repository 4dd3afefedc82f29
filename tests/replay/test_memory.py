"""Bytes per row, and calls that need more memory than is available."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from model import fields

import parl


@pytest.mark.parametrize(
    ("spec", "row_bytes"),
    [
        (fields(), 4 + 8 + 4 + 1 + 1),
        ({**fields(), "obs": ((8,), "float32")}, 32 + 8 + 4 + 1 + 1),
        ({**fields(), "obs": ((84, 84), "uint8")}, 84 * 84 + 8 + 4 + 1 + 1),
    ],
)
def test_a_row_takes_the_bytes_of_its_fields_and_sixteen_more(spec, row_bytes):
    buffer = parl.PrioritizedReplay(100_000, spec)
    assert buffer.nbytes / 100_000 <= 1.05 * (row_bytes + 16)


# The arguments are created first. The process may then allocate 2 MB more, and each call needs more.
LIMITED = """
    import resource
    import numpy as np
    import parl

    n, few = 1 << 21, 1 << 19
    numbers, reals, bytes_ = np.zeros(n, np.int64), np.ones(n, np.float32), np.zeros(n, np.uint8)
    tree = parl.SumTree(1 << 22)
    independent = parl.PrioritizedReplay(1 << 22, {"x": ((), "u1")})
    tree.update(np.arange(few), reals[:few])
    spec = {"x": ((), "uint8"), "reward": ((), "f4"), "terminated": ((), "bool")}
    replay = parl.PrioritizedReplay(few, spec, n_step=2)
    steps = {"x": bytes_, "reward": reals, "terminated": bytes_.view(bool)}
    tickets = replay.add(**{k: v[:few] for k, v in steps.items()}, env_id=numbers[:few])
    tickets = np.resize(tickets, n)
    big = parl.UniformReplay(64, {"x": ((1 << 22,), "uint8")}, compression="lz4")
    frames = np.zeros((8, 1 << 22), np.uint8)
    sequences = parl.SequenceReplay(64, spec, length=8)
    for _ in range(20):
        sequences.add(**{k: v[:1] for k, v in steps.items()})
    batches = {r: r.empty_batch(few) for r in (replay, sequences)}

    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (2 << 20), resource.RLIM_INFINITY))
    calls = {
        "update": lambda: tree.update(numbers, reals),
        "update one priority": lambda: tree.update(numbers, 1.0),
        "sample": lambda: tree.sample(n),
        "sample 2^32": lambda: tree.sample(1 << 32),
        "sample mixture 2^32": lambda: tree.sample_mixture(1 << 32, uniform=0.5),
        "sample distinct": lambda: tree.sample(few, mode="without_replacement"),
        "sample largest": lambda: tree.sample(few, mode="largest"),
        "sample eviction": lambda: tree.sample(few, mode="eviction"),
        "sample mixture": lambda: tree.sample_mixture(n, uniform=0.5),
        "find": lambda: tree.find(reals),
        "get": lambda: tree[numbers],
        "add": lambda: replay.add(**steps, env_id=numbers),
        "add to independent rows": lambda: independent.add(x=bytes_, priorities=reals),
        "add compressed": lambda: big.add(x=frames),
        "update priorities": lambda: replay.update_priorities(tickets, reals),
        "sample rows": lambda: replay.sample(n),
        "sample into": lambda: replay.sample(few, out=batches[replay]),
        "sample sequences into": lambda: sequences.sample(few, out=batches[sequences]),
        "evict": lambda: replay.evict(few - 1000),
        "end episodes": lambda: replay.end_episodes(numbers),
        "make": lambda: parl.PrioritizedReplay(n, spec),
    }
    for name, call in calls.items():
        try:
            call()
        except MemoryError:
            print("MemoryError")
        else:
            print(name, "did not run out of memory")
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert len(replay) == few and len(independent) == len(big) == 0
    replay.verify()
    replay.sample(32)
    tree.verify()
    print("whole")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="sets a memory limit as on Linux")
def test_calls_that_run_out_of_memory_raise_and_change_nothing():
    command = [sys.executable, "-c", textwrap.dedent(LIMITED)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    *outcomes, last = done.stdout.split("\n")[:-1]
    assert last == "whole" and len(outcomes) >= 20 and set(outcomes) == {"MemoryError"}, done.stdout
