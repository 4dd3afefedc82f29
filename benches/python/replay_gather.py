"""Sampling 84x84x4 frame stacks beside copying the same bytes with numpy.

``python benches/python/replay_gather.py [--record]``; also a part of ``make bench-replay``. A batch is
``obs`` and ``next_obs`` of 32 or 256 transitions, written into existing arrays. It is compared with two
copies of the same number of bytes:

* ``np.take``: the same frames, of 7,056 bytes each, from random positions in an array of the replay's size
  and layout into an existing array. numpy copies each with one memcpy and gets the indices beforehand. The
  bar is for this: at most 1.3 times its wall time.
* ``np.copyto``: contiguous bytes that were not accessed recently. The hardware prefetches them, which is
  impossible for random rows: a lower bound, not a peer.

``new arrays`` is sampling without ``out=``, so that each call allocates arrays. In each round all variants
run; prints medians and quartiles of the time per call in microseconds, as wall time and as processor time of
all threads, and of the ratios within each round.
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
from record import Record, add_option

BAR = 1.3
FRAME = (84, 84)
ENVS = 8


def filled(capacity: int, compression: str) -> parl.PrioritizedReplay:
    """A full replay of frames like a game's: a fixed background and moving boxes."""
    replay = parl.PrioritizedReplay(
        capacity,
        {
            "obs": (FRAME, "uint8"),
            "action": ((), "int64"),
            "reward": ((), "float32"),
            "terminated": ((), "bool"),
            "truncated": ((), "bool"),
        },
        num_envs=ENVS,
        frame_stack=4,
        autoreset="disabled",
        compression=compression,
    )
    frames = np.empty((ENVS, *FRAME), np.uint8)
    frames[:] = (np.arange(84) // 12 * 20)[:, None]
    for step in range(capacity // ENVS + 5):
        shown = frames.copy()
        for env in range(ENVS):
            at = (step + 9 * env) % 70
            shown[env, at : at + 9, 70 - at : 75 - at] = 200
        replay.add(
            obs=shown,
            action=np.full(ENVS, step),
            reward=np.zeros(ENVS, np.float32),
            terminated=np.full(ENVS, step % 500 == 499),
            truncated=np.zeros(ENVS, bool),
        )
    return replay


def timed(call: Callable[[], object], calls: int) -> tuple[float, float]:
    """Microseconds per call: wall time, and processor time of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        call()
    return 1e6 * (time.perf_counter() - wall) / calls, 1e6 * (time.process_time() - cpu) / calls


def quartiles(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f}..{high:.2f})" if middle < 10 else f"{middle:.0f} ({low:.0f}..{high:.0f})"


def add_to_record(
    record: Record,
    case: str,
    name: str,
    taken: list[tuple[float, float]],
    times: dict[str, list[tuple[float, float]]],
) -> None:
    """Adds the times of a variant, (wall, all threads) in microseconds per call, to the record."""
    own = {
        "frames": "frames",
        "lz4": "frames compressed by lz4",
        "frames, new arrays": "frames into new arrays",
    }
    library = f"parl, {own[name]}" if name in own else name
    about = {"library": library, "rounds": len(taken), "spread": "quartiles"}
    claim = "replay-gather"
    record.add(claim, case, "wall clock", "us", [wall for wall, _ in taken], **about)
    record.add(claim, case, "time of all threads", "us", [threads for _, threads in taken], **about)
    for metric, at, peer in (
        ("wall-clock time ratio", 0, "np.take"),
        ("threads' time ratio", 1, "np.take"),
        ("wall-clock time ratio", 0, "np.copyto"),
    ):
        if name != peer:
            ratios = [ours[at] / theirs[at] for ours, theirs in zip(taken, times[peer], strict=True)]
            bar = f"<= {BAR}" if (name, at, peer) == ("frames", 0, "np.take") else ""
            record.add(claim, case, metric, "x", ratios, peer=peer, bar=bar, **about)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--capacity", type=int, default=40_000)
    add_option(parser, "replay")
    arguments = parser.parse_args()
    record = Record(arguments.record, "The replay beside cpprb, TorchRL and Tianshou")
    replays = {"frames": filled(arguments.capacity, "none"), "lz4": filled(arguments.capacity, "lz4")}
    source = np.zeros((arguments.capacity // 4, 4, *FRAME), np.uint8)
    source[:, 0, 0, 0] = 1  # Written, so that the system allocates its pages.
    store = source.reshape(-1, *FRAME)
    rng = np.random.default_rng(0)
    # Offsets of the frames of a transition and of its next observation; rows of the environments alternate.
    ages = ENVS * np.array([-3, -2, -1, 0, -2, -1, 0, 1])
    lines = [
        "| batch | bytes | what | wall us | threads' us | wall / take | threads' / take | wall / copyto "
        "| bar | met |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    missed = False
    for batch in (32, 256):
        rows = 2 * batch
        target = np.empty((rows, 4, *FRAME), np.uint8)
        starts = iter(range(10**9))
        places = len(source) // rows

        def copy(rows=rows, target=target, starts=starts, places=places) -> None:
            at = next(starts) * 7 % places * rows
            np.copyto(target, source[at : at + rows])

        frame_numbers = [
            (rng.integers(3 * ENVS, len(store) - ENVS, batch)[:, None] + ages).reshape(-1) for _ in range(97)
        ]
        frames = target.reshape(-1, *FRAME)

        def take(frames=frames, frame_numbers=frame_numbers, starts=starts) -> None:
            store.take(frame_numbers[next(starts) % len(frame_numbers)], axis=0, out=frames, mode="clip")

        contenders: dict[str, Callable[[], object]] = {"np.take": take, "np.copyto": copy}
        for name, replay in replays.items():
            out = replay.empty_batch(batch)
            contenders[name] = lambda replay=replay, out=out, batch=batch: replay.sample(batch, out=out)
        contenders["frames, new arrays"] = lambda batch=batch: replays["frames"].sample(batch)
        calls = 4 if batch == 256 else 16
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
        for _ in range(arguments.rounds):
            for name, call in contenders.items():
                times[name].append(timed(call, calls))
        for name, taken in times.items():
            pairs = list(zip(taken, times["np.take"], strict=True))
            wall = [ours[0] / copied[0] for ours, copied in pairs]
            threads = [ours[1] / copied[1] for ours, copied in pairs]
            side = [ours[0] / copied[0] for ours, copied in zip(taken, times["np.copyto"], strict=True)]
            add_to_record(record, f"batch {batch}, {target.nbytes} bytes", name, taken, times)
            bar = met = ""
            if name == "frames":
                bar, is_met = f"<= {BAR}", statistics.median(wall) <= BAR
                met, missed = ("yes" if is_met else "NO"), missed or not is_met
            lines.append(
                f"| {batch} | {target.nbytes} | {name} | {quartiles([t[0] for t in taken])} "
                f"| {quartiles([t[1] for t in taken])} | {quartiles(wall)} | {quartiles(threads)} "
                f"| {quartiles(side)} "
                f"| {bar} | {met} |"
            )
    print("\n".join(lines))
    if arguments.record:
        print(f"recorded in {record.write()}", file=sys.stderr)
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
