"""Atari vector environments of parl, ale_py, EnvPool and Gymnasium (AsyncVectorEnv), in turns.

    python benches/python/atari_vector.py [--quick] [--record]

Rates are emulated frames, skipped ones included, per core-second (processor time of this process and of
worker processes) and per second of wall time. In each round every library runs for the same short time;
ratios are taken within a round, and their median and quartiles are printed. ``--record`` writes the figures
to ``benches/records/DATE-atari-vector.csv``. Sections:

    pipeline  10 games, 8 and 64 environments, 1 and 2 threads, beside the faster of ale_py and EnvPool
    threads   64 environments, parl with 2 threads compared with 1, wall-clock
    mixed     8 games in one batch of 64; the peers step 8 vector environments of 8, one after the other
    start     1,024 environments: construction and reset(seed=0), parl and ale_py
    memory    bytes per environment without its observation
    scaling   16 threads beside 1, on a machine with at least 16 cores
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from atari_peers import RIVALS, Ratios, Runner, in_turns

sys.path.append(str(Path(__file__).parents[1]))
from record import Record, add_option, machine, version_of

GAMES = (
    "pong", "breakout", "space_invaders", "seaquest", "ms_pacman", "qbert", "freeway", "enduro", "beam_rider",
    "montezuma_revenge",
)  # fmt: skip
MIXED = GAMES[:8]
SECTIONS = ("pipeline", "threads", "mixed", "start", "memory", "scaling")
# library: its name in the record, its package
NAMES = {
    "parl": ("parl", ""),
    "ale_py": ("ale-py", "ale-py"),
    "envpool": ("EnvPool", "envpool"),
    "gym_async": ("Gymnasium AsyncVectorEnv", "gymnasium"),
}
record = Record(None, "Atari vector environments beside ale-py, EnvPool and Gymnasium")


def named(library: str) -> dict[str, str]:
    """A library and its version, as columns of the record."""
    name, package = NAMES[library]
    return {"library": name, "version": version_of(package) if package else ""}


def rivals(libraries: list[str]) -> dict[str, str]:
    """The peers of a ratio, as columns of the record."""
    found = [named(name) for name in libraries if name in RIVALS]
    if len(found) == 1:
        return {"peer": found[0]["library"], "version": found[0]["version"]}
    return {
        "peer": "faster peer",
        "version": ", ".join(f"{one['library']} {one['version']}" for one in found),
    }


def verdict(value: float, bar: float) -> str:
    return f"bar {bar:g}: {'met' if value >= bar else 'MISSED'}"


def pipeline(
    games: list[str], envs: int, threads: int, libraries: list[str], args: argparse.Namespace
) -> None:
    record.print(f"{envs} environments, {threads} threads: 1,000 frames per core-second (per second)")
    core, wall, claim = [], [], f"atari-vector-{envs}-{threads}"
    for game in games:
        runners = {name: Runner(name, game, envs, threads) for name in libraries}
        rates = in_turns(runners, args.rounds, args.seconds)
        for runner in runners.values():
            runner.close()
        figures = "  ".join(
            f"{name} {statistics.median(c) / 1e3:7.1f} ({statistics.median(w) / 1e3:7.1f})"
            for name, (c, w) in rates.items()
        )
        per_core, per_wall = (
            Ratios(
                rates["parl"][kind],
                max((rates[name][kind] for name in libraries if name in RIVALS), key=statistics.median),
            )
            for kind in (0, 1)
        )
        record.print(f"  {game:18} {figures}  {per_core}  wall {per_wall}")
        about = {"rounds": args.rounds, "threads": threads, "conditions": f"{args.seconds:g} s a round"}
        for name, (c, w) in rates.items():
            thousands = ([rate / 1e3 for rate in c], [rate / 1e3 for rate in w])
            who = {"spread": "quartiles"} | named(name) | about
            record.add(claim, game, "frames per core-second", "1,000 frames/core-s", thousands[0], **who)
            record.add(claim, game, "frames per second", "1,000 frames/s", thousands[1], **who)
        for metric, ratio in (("speed ratio", per_core), ("wall-clock speed ratio", per_wall)):
            peer = {"spread": "quartiles"} | rivals(libraries) | about
            record.add(claim, game, metric, "x", ratio.sorted, **peer)
        core.append(per_core.median)
        wall.append(per_wall.median)
    median, worst = statistics.median(core), min(core)
    about = {"rounds": args.rounds, "threads": threads, "conditions": f"{args.seconds:g} s a round"}
    about |= rivals(libraries)
    record.add(claim, f"median of {len(games)} games", "speed ratio", "x", median, bar=">= 7", **about)
    record.add(claim, f"worst of {len(games)} games", "speed ratio", "x", worst, bar=">= 4.5", **about)
    middle = statistics.median(wall)
    record.add(claim, f"median of {len(games)} games", "wall-clock speed ratio", "x", middle, **about)
    record.print(
        f"  = per core-second: median x{median:.2f} ({verdict(median, 7)}), worst x{worst:.2f} "
        f"({verdict(worst, 4.5)}); wall-clock: median x{statistics.median(wall):.2f}"
    )
    if (envs, threads) == (64, 2):
        record.print(f"  = wall-clock, 64 environments, 2 threads: {verdict(statistics.median(wall), 5)}")
    record.print()


def own_threads(games: list[str], envs: int, threads: int, bar: float, args: argparse.Namespace) -> None:
    record.print(f"parl, {envs} environments, {threads} threads beside 1, wall-clock")
    ratios = []
    for game in games:
        runners = {n: Runner("parl", game, envs, n) for n in (1, threads)}
        rates = in_turns(runners, args.rounds, args.seconds)
        ratio = Ratios(rates[threads][1], rates[1][1])
        cost = Ratios(rates[threads][0], rates[1][0])
        record.print(f"  {game:18} {ratio}  per core-second {cost}")
        about = {"rounds": args.rounds, "threads": threads, "peer": "parl with 1 thread"}
        about |= {"conditions": f"{envs} environments", "spread": "quartiles"}
        record.add("atari-threads", game, "wall-clock speed ratio", "x", ratio.sorted, **about)
        record.add("atari-threads", game, "per core-second speed ratio", "x", cost.sorted, **about)
        ratios.append(ratio.median)
    about = {"rounds": args.rounds, "threads": threads, "peer": "parl with 1 thread", "bar": f">= {bar:g}"}
    about["conditions"] = f"{envs} environments"
    case, middle = f"median of {len(games)} games", statistics.median(ratios)
    record.add("atari-threads", case, "wall-clock speed ratio", "x", middle, **about)
    record.print(f"  = median x{statistics.median(ratios):.2f} ({verdict(statistics.median(ratios), bar)})")
    record.print()


def mixed(libraries: list[str], args: argparse.Namespace) -> None:
    record.print(
        f"{len(MIXED)} games, 64 environments, all actions, 1 thread: "
        "1,000 frames per core-second (per second)"
    )
    runners = {name: Runner(name, MIXED, 64, 1) for name in libraries}
    rates = in_turns(runners, 2 * args.rounds + 1, args.seconds)
    case, about = f"{len(MIXED)} games, all actions", {"rounds": 2 * args.rounds + 1, "threads": 1}
    for name, (core, wall) in rates.items():
        apart = f"{len(MIXED)} vector environments of 8, one after the other"
        who = {"spread": "quartiles", "conditions": "one batch of 64" if name == "parl" else apart}
        who |= named(name) | about
        for metric, unit, values in (
            ("frames per core-second", "1,000 frames/core-s", core),
            ("frames per second", "1,000 frames/s", wall),
        ):
            record.add("atari-mixed", case, metric, unit, [value / 1e3 for value in values], **who)
        record.print(
            f"  {name:18} {statistics.median(core) / 1e3:7.1f} ({statistics.median(wall) / 1e3:7.1f})"
        )
    best = max((rates[name][0] for name in libraries if name in RIVALS), key=statistics.median)
    ratio = Ratios(rates["parl"][0], best)
    peer = {"spread": "quartiles", "bar": ">= 4.5"} | rivals(libraries) | about
    record.add("atari-mixed", case, "speed ratio", "x", ratio.sorted, **peer)
    record.print(f"  = parl: one batch, the others: 8 of 8. {ratio} ({verdict(ratio.median, 4.5)})")
    record.print()
    for runner in runners.values():
        runner.close()


# Prints seconds of construction and seeded reset; a separate process, so that it can be ended after a limit.
STARTING = """
import importlib, sys, time
module, envs = sys.argv[1], int(sys.argv[2])
make = importlib.import_module(module).AtariVectorEnv
make("breakout", 1).close()
start = time.perf_counter()
env = make("breakout", envs)
env.reset(seed=0)
print(time.perf_counter() - start)
"""


def start_s(module: str, envs: int, limit_s: float) -> float | None:
    try:
        done = subprocess.run(
            [sys.executable, "-c", STARTING, module, str(envs)],
            capture_output=True, text=True, timeout=limit_s, check=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    return float(done.stdout.split()[-1])


def start(args: argparse.Namespace) -> None:
    record.print("construct and reset(seed=0), breakout, seconds")
    ours = statistics.median(start_s("parl", 1024, 60) or 60.0 for _ in range(3))
    record.print(f"  parl   {1024:5} {ours:8.3f}")
    sizes = (16, 64) if args.quick else (16, 64, 256, 1024)
    seconds = {}
    for envs in sizes:
        found = start_s("ale_py", envs, 900)
        record.print(f"  ale_py {envs:5} {'over 900' if found is None else f'{found:8.3f}'}")
        if found is not None:
            seconds[envs] = found
    metric, about = "construct and reset(seed=0)", {"conditions": "breakout"}
    record.add("atari-start", "1024 environments", metric, "s", ours, **about)
    for envs, found in seconds.items():
        record.add("atari-start", f"{envs} environments", metric, "s", found, **named("ale_py"), **about)
    largest = max(seconds)
    theirs = seconds[largest] * 1024 / largest
    about["conditions"] += f"; ale-py's time is that of {largest} environments in proportion"
    peer = {"peer": "ale-py", "version": version_of("ale-py"), "bar": ">= 100"}
    record.add("atari-start", "1024 environments", "speed ratio", "x", theirs / ours, **peer, **about)
    how = (
        "measured"
        if largest == 1024
        else f"{1024 // largest} times that of {largest}; it grows in proportion"
    )
    record.print(
        f"  = ale_py at 1,024 ({how}): {theirs:.1f} s, "
        f"parl is x{theirs / ours:.0f} ({verdict(theirs / ours, 100)})"
    )
    record.print()


# Prints bytes per environment, from the difference of two sizes, which cancels constant memory. The caller's
# array for the results is not counted, the environment's own observation (its stack) is subtracted, and free
# memory that the process still holds is returned to the system first.
GROWTH = """
import ctypes, gc, sys
import numpy as np
import parl
def resident():
    for line in open("/proc/self/smaps_rollup"):
        if line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
found = []
for envs in (1000, 5000):
    obs = np.ones((envs, 4, 84, 84), np.uint8)
    env = parl.AtariVectorEnv(sys.argv[1], envs, num_threads=1)
    env.reset(seed=0, out=obs)
    for _ in range(3):
        env.step(np.zeros(envs, np.int64), out=obs)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    found.append(resident() - obs.nbytes)
    env.close()
    del env, obs
print((found[1] - found[0]) / 4000 - 4 * 84 * 84)
"""


def memory() -> None:
    record.print(
        "bytes per environment without its observation (resident memory of 5,000 less that of 1,000)"
    )
    worst = 0.0
    for game in ("breakout", "pong", "seaquest"):
        done = subprocess.run(
            [sys.executable, "-c", GROWTH, game], capture_output=True, text=True, check=True, timeout=300
        )
        found = float(done.stdout)
        worst = max(worst, found)
        metric, about = "bytes per environment beyond its observation", {"bar": "<= 4096"}
        about["conditions"] = "resident memory of 5,000 environments less that of 1,000, per environment"
        record.add("atari-memory", game, metric, "bytes", found, **about)
        record.print(f"  {game:18} {found:8.0f}")
    record.print(f"  = at most {worst:.0f} (bar 4096: {'met' if worst <= 4096 else 'MISSED'})")
    record.print()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="under four minutes: fewer rounds and 64-environment games"
    )
    add_option(parser, "atari-vector")
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--games", default=",".join(GAMES))
    parser.add_argument("--envs", default="8,64")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--libraries", default="parl,ale_py,envpool,gym_async")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    args = parser.parse_args()
    args.rounds = args.rounds or (3 if args.quick else 5)
    args.seconds = args.seconds or (0.1 if args.quick else 0.3)
    libraries, games = args.libraries.split(","), args.games.split(",")
    sections = args.sections.split(",")
    unknown = set(sections) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown sections {sorted(unknown)}, expected some of {SECTIONS}")
    record.name = args.record
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    record.print(f"{machine()}, load averages {load}")
    record.print()
    began = time.perf_counter()
    in_process = [name for name in libraries if name != "gym_async"]
    if "pipeline" in sections:
        for envs in map(int, args.envs.split(",")):
            for threads in map(int, args.threads.split(",")):
                # The peers take longer to construct environments than to step them.
                some = games[:3] if args.quick and envs > 8 else games
                few = in_process if threads > 1 or (args.quick and envs > 8) else libraries
                pipeline(some, envs, threads, few, args)
    if "threads" in sections:
        own_threads(games, 64, 2, 1.8, args)
    if "mixed" in sections:
        mixed(in_process, args)
    if "start" in sections:
        start(args)
    if "memory" in sections:
        memory()
    if "scaling" in sections:
        if (os.cpu_count() or 1) >= 16:
            own_threads(games[:3] if args.quick else games, 256, 16, 14, args)
        else:
            record.print(f"scaling to 16 cores: not measured, this machine has {os.cpu_count()}")
            record.print()
    record.print(f"{time.perf_counter() - began:.0f} s; load average at the end {os.getloadavg()[0]:.2f}")
    if args.record:
        print(f"recorded in {record.write()}")


if __name__ == "__main__":
    main()
