"""Time of Go-Explore's exploration phase to scores of Montezuma's Revenge, by seed.

    python benches/python/exploration.py [--seeds 5] [--minutes 10] [--record]

Runs the rounds of `examples/go_explore.py`, with cells from the console's memory, until an archive has 2,500
points, and prints the seconds of wall time to the key of the first screen (100 points), to a second screen,
and to 2,500 points. Nothing of one seed is used by another. Without sticky actions, as in the exploration
phase of Go-Explore; the best way is replayed in an ordinary environment.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import parl

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[2] / "examples"))
import go_explore

from record import Record, add_option

GAME, GOAL = "montezuma_revenge", 2_500
RUNS, STEPS = 256, 100
MILESTONES = ("key", "second screen", f"{GOAL:,} points")


def explore(seed: int, minutes: float) -> tuple[dict[str, float], int]:
    """Explores until the goal is reached; returns the seconds to each milestone, and the steps."""
    envs = parl.AtariVectorEnv(GAME, **go_explore.RULES, **go_explore.OBSERVATIONS["memory"])
    cell_of, rng = go_explore.cell_function(GAME, "memory"), np.random.default_rng(seed)
    archive = go_explore.start(envs, cell_of)
    screen = list(go_explore.MEMORY[GAME]).index("screen")
    begin, found, steps = time.monotonic(), {}, 0
    while len(found) < len(MILESTONES) and time.monotonic() - begin < 60 * minutes:
        steps += go_explore.explore_round(envs, archive, cell_of, rng, RUNS, STEPS)
        points = archive.ways[archive.best(), 0]
        screens = len({cell[screen] for cell in archive.cells})
        for milestone, reached in zip(MILESTONES, (points >= 100, screens >= 2, points >= GOAL), strict=True):
            if reached:
                found.setdefault(milestone, time.monotonic() - begin)
    best = archive.best()
    replayed = go_explore.replayed_points(GAME, archive.actions_to(best))
    if replayed != archive.ways[best, 0]:
        raise RuntimeError(f"the replay has {replayed} points, the archive {archive.ways[best, 0]}")
    return found, steps


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0..N")
    parser.add_argument("--minutes", type=float, default=10.0, help="ends a run")
    add_option(parser, "exploration")
    options = parser.parse_args()
    conditions = f"2 threads, at most {options.minutes:g} minutes, {RUNS} runs of {STEPS} steps a round"
    with Record(options.record, "Go-Explore's exploration phase", conditions) as record:
        times: dict[str, list[float]] = {milestone: [] for milestone in MILESTONES}
        for seed in range(options.seeds):
            found, steps = explore(seed, options.minutes)
            line = ", ".join(f"{milestone} {seconds:.1f} s" for milestone, seconds in found.items())
            record.print(f"seed {seed}: {line}; {steps:,} steps")
            for milestone, seconds in found.items():
                times[milestone].append(seconds)
        for milestone, seconds in times.items():
            reached = f"{len(seconds)} of {options.seeds} seeds"
            record.print(f"{milestone}: {reached}, at most {max(seconds, default=float('nan')):.1f} s")
            if seconds:
                case = f"{milestone}, {reached}"
                record.add(
                    "exploration", case, "time to reach", "s", seconds, seeds=options.seeds, bar="<= 600"
                )


if __name__ == "__main__":
    main()
