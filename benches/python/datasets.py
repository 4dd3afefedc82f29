"""Replays of datasets: steps a second beside the plain vector environment, bytes a step, two equal replays.

    python benches/python/datasets.py [--steps 200k] [--rounds 9] [--record]
    python benches/python/datasets.py --sections twice --twice-steps 10M --games breakout

Sections:

    speed   replay and plain vector environment, in turns, for the same short time in each round: the share of
            the plain environment's steps a second. Both have the same settings, number of environments and
            threads; the plain one resets by itself and gets random actions that were drawn before.
    size    bytes a step before compression: random play, with hashes and checkpoints
    state   milliseconds of processor time to reach a random step of the longest episodes; one thread
    twice   regenerates a dataset twice, the second time in another order and number at once, and compares a
            hash of all observations, rewards and flags, sorted by episode and step
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import parl
from parl import datasets
from parl.run import parse_count

sys.path.append(str(Path(__file__).parents[1]))
from record import Record, add_option

GAMES = ("pong", "breakout", "seaquest", "montezuma_revenge")
VIEWS: dict[str, dict[str, Any]] = {
    "gray 84 x 84, 4 stacked": {},
    "RGB 84 x 84": {"grayscale": False, "stack_num": None},
    "memory": {"obs_type": "ram", "stack_num": None},
}
SECTIONS = ("speed", "size", "state", "twice")
BAR, STATE_BAR = ">= 0.8", "<= 5"


def plain_steps(game: str, args: argparse.Namespace, options: dict[str, Any]) -> Iterator[int]:
    """Steps a plain vector environment; yields the number of steps of its environments."""
    envs = parl.AtariVectorEnv(game, args.envs, **options, num_threads=args.threads)
    rng = np.random.default_rng(0)
    actions = rng.integers(envs.single_action_space.n, size=(997, args.envs))
    envs.reset(seed=0)
    for step in range(sys.maxsize):
        envs.step(actions[step % 997])
        yield args.envs


def replay_steps(dataset: datasets.Dataset, args: argparse.Namespace, view: dict[str, Any]) -> Iterator[int]:
    """Replays a dataset again and again; yields the number of rows."""
    while True:
        for rows in dataset.replay(batch_size=args.envs, num_threads=args.threads, **view):
            yield len(rows["step"])


def rate(steps: Iterator[int], seconds: float) -> float:
    """Steps a second over some time."""
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        done += next(steps)
    return done / (time.perf_counter() - start)


def speed(dataset: datasets.Dataset, args: argparse.Namespace, record: Record) -> None:
    shared = {"repeat_action_probability": 0.25}
    for name, view in VIEWS.items():
        sides = {
            "replay": replay_steps(dataset, args, view),
            "plain": plain_steps(dataset.game, args, shared | view),
        }
        for side in sides.values():  # Environments are made, and the first episodes begin.
            rate(side, args.seconds)
        rates: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(args.rounds):
            for side in sorted(sides, reverse=bool(number % 2)):
                rates[side].append(rate(sides[side], args.seconds))
        shares = [ours / plain for ours, plain in zip(rates["replay"], rates["plain"], strict=True)]
        case = f"{dataset.game}, {name}"
        record.print(
            f"{case}: replay {statistics.median(rates['replay']):,.0f} steps/s, plain "
            f"{statistics.median(rates['plain']):,.0f}, share {statistics.median(shares):.3f} "
            f"({min(shares):.3f} to {max(shares):.3f}), bar {BAR}"
        )
        about = {"rounds": args.rounds, "threads": args.threads, "steps": dataset.num_steps}
        conditions = f"{args.envs} environments, sticky actions 0.25, rounds of {args.seconds} s"
        about |= {"conditions": conditions, "peer": "parl.AtariVectorEnv"}
        record.add("datasets", case, "speed ratio", "x", shares, bar=BAR, **about)


def size(dataset: datasets.Dataset, record: Record) -> None:
    value = dataset.size_bytes / dataset.num_steps
    record.print(f"{dataset.game}: {value:.3f} bytes a step over {dataset.num_steps:,} steps, bar <= 1.05")
    record.add(
        "datasets", dataset.game, "size", "bytes a step", value, bar="<= 1.05", steps=dataset.num_steps
    )


def state(dataset: datasets.Dataset, args: argparse.Namespace, record: Record) -> None:
    longest = sorted(dataset.episodes, key=lambda episode: -episode.steps)[:5]
    rng = np.random.default_rng(0)
    times = []
    dataset.state_at(0, 0)  # Makes the console.
    for number in range(4 * args.rounds):
        episode = longest[number % len(longest)]
        step = int(rng.integers(episode.steps))
        start = time.process_time()
        dataset.state_at(episode.number, step)
        times.append(1e3 * (time.process_time() - start))
    steps = longest[0].steps
    spacing = statistics.median(dataset.read(episode.number).spacing for episode in longest)
    record.print(
        f"{dataset.game}: {statistics.median(times):.1f} ms to a random step ({min(times):.1f} to "
        f"{max(times):.1f}), bar {STATE_BAR}; longest episode {steps:,} steps, checkpoints every "
        f"{spacing:g} steps"
    )
    case = f"{dataset.game}, longest episode {steps} steps"
    record.add("datasets", case, "time to a random step", "ms", times, bar=STATE_BAR, rounds=len(times))


def observation_hash(dataset: datasets.Dataset, progress: str, **options: Any) -> int:
    """A hash of all rows of a replay that does not depend on their order."""
    factors = np.random.default_rng(0).integers(2**63, size=(1 << 16) + 5, dtype=np.uint64) | np.uint64(1)
    total, done, last = 0, 0, time.monotonic()
    for rows in dataset.replay(**options):
        count = len(rows["step"])
        pixels = np.ascontiguousarray(rows["observation"]).reshape(count, -1)
        words = pixels.view("<u8").astype(np.uint64, copy=False)
        hashes = (words * factors[: words.shape[1]]).sum(1, dtype=np.uint64)
        names = ("action", "reward", "terminated", "truncated", "episode", "step")
        for place, name in enumerate(names, 1):
            hashes = hashes * factors[-1] + rows[name].astype(np.int64).view(np.uint64) * factors[-place]
        # The product with an odd factor of the last column's sum makes equal rows of other places differ.
        total = (total + int((hashes * (hashes | np.uint64(1))).sum(dtype=np.uint64))) % 2**64
        done += count
        if time.monotonic() - last > 30:
            last = time.monotonic()
            print(f"{progress}: {done:,}/{dataset.num_steps:,} steps", file=sys.stderr, flush=True)
    return total


def twice(game: str, folder: Path, args: argparse.Namespace, record: Record) -> None:
    steps = args.twice_steps
    dataset = datasets.record(game, folder / "twice", steps, repeat_action_probability=0.25, overwrite=True)
    start = time.perf_counter()
    first = observation_hash(dataset, f"{game}, first time", batch_size=args.envs)
    order = np.random.default_rng(1).permutation(dataset.num_episodes).tolist()
    second = observation_hash(dataset, f"{game}, second time", batch_size=3 * args.envs, episodes=order)
    seconds = time.perf_counter() - start
    verdict = "equal" if first == second else "DIFFERENT"
    record.print(
        f"{game}: {steps:,} steps of stacked gray pictures regenerated twice, hashes {first:016x} and "
        f"{second:016x}: {verdict}; {2 * steps / seconds:,.0f} steps/s with hashing"
    )
    record.add(
        "datasets",
        f"{game}, regenerated twice",
        "equal hashes",
        "1 = equal",
        float(first == second),
        steps=steps,
    )
    if first != second:
        raise SystemExit("two replays differ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--games", default=",".join(GAMES))
    parser.add_argument("--steps", type=parse_count, default=200_000, help="steps of each dataset")
    parser.add_argument("--twice-steps", type=parse_count, default=1_000_000)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--threads", type=int, default=0, help="0: one per core")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0)
    add_option(parser, "datasets")
    args = parser.parse_args()
    sections = args.sections.split(",")
    if unknown := set(sections) - set(SECTIONS):
        parser.error(f"sections {sorted(unknown)} do not exist, expected some of {', '.join(SECTIONS)}")
    with tempfile.TemporaryDirectory() as name, Record(args.record, "Replays of datasets") as record:
        folder = Path(name)
        for game in args.games.split(","):
            if set(sections) & {"speed", "size", "state"}:
                path = folder / game
                dataset = datasets.record(game, path, args.steps, repeat_action_probability=0.25)
            if "speed" in sections:
                speed(dataset, args, record)
            if "size" in sections:
                size(dataset, record)
            if "state" in sections:
                state(dataset, args, record)
            if "twice" in sections:
                twice(game, folder, args, record)


if __name__ == "__main__":
    main()
