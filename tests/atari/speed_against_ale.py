"""Frames per second of processor time, the console against ale-py's `act`, in turn, medians.

usage: speed_against_ale.py [--games a,b,...] [--rounds N] [--drawn 0..4] [--frames N]

`--drawn N`: pictures of N of every four frames are made and read as gray, by both; 0: nobody looks.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from against_ale import ROMS, TRACE, ale, games, script

# How often the console plays a script, so that its time is long beside that of loading.
REPEATS = 8

TWENTY = (
    "pong breakout space_invaders seaquest ms_pacman montezuma_revenge qbert freeway pitfall asteroids "
    "enduro beam_rider robotank solaris tutankham riverraid centipede hero battle_zone demon_attack"
).split()


def ale_microseconds(game: str, steps: bytes, drawn: int) -> float:
    """Processor time per frame of ale-py on a script, resets excluded."""
    interface = ale(game, 1, 0.0)
    interface.reset_game()
    height, width = interface.getScreenDims()
    gray = np.zeros((height, width), np.uint8)
    total = 0.0
    actions = steps[::2]
    for t, action in enumerate(actions):
        if interface.game_over():
            interface.reset_game()
        start = time.process_time_ns()
        interface.act(action)
        if t % 4 >= 4 - drawn:
            interface.getScreenGrayscale(gray)
        total += time.process_time_ns() - start
    return total / len(actions) / 1e3


def our_microseconds(game: str, steps: bytes, drawn: int) -> float:
    """Processor time per frame of the console on the same script, resets excluded."""
    with tempfile.NamedTemporaryFile(suffix=".script") as file:
        file.write(steps)
        file.flush()
        command = [TRACE, str(ROMS / f"{game}.bin"), game, "seed=1", f"draw={drawn}", "gray=1", file.name]
        few, many = (cpu_seconds([*command, f"speed={repeats}"]) for repeats in (1, 1 + REPEATS))
    return (many - few) * 1e6 / (REPEATS * len(steps) / 2)


def cpu_seconds(command: list[str]) -> float:
    """Processor time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Prints one line per game and the median."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", default="twenty", help="names, or `twenty`, or `all`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--drawn", type=int, default=0)
    parser.add_argument("--frames", type=int, default=1500)
    options = parser.parse_args()
    chosen = {"twenty": TWENTY, "all": games()}.get(options.games, options.games.split(","))
    ratios = {}
    for game in chosen:
        actions = [a.value for a in ale(game, 1, 0.0).getMinimalActionSet()]
        steps = script(actions, options.frames, 5, 0)
        ours, theirs = [], []
        for _ in range(options.rounds):
            theirs.append(ale_microseconds(game, steps, options.drawn))
            ours.append(our_microseconds(game, steps, options.drawn))
        mine, other = statistics.median(ours), statistics.median(theirs)
        ratios[game] = other / mine
        spread = [b / a for a, b in zip(ours, theirs, strict=True)]
        print(
            f"{game:18} {mine:7.2f} us  ale-py {other:7.2f} us  {other / mine:5.2f} x"
            f"  ({min(spread):.2f} to {max(spread):.2f})",
            flush=True,
        )
    worst = min(ratios, key=ratios.__getitem__)
    median = statistics.median(ratios.values())
    print(f"median of {len(ratios)} games {median:.2f} x, worst {worst} {ratios[worst]:.2f} x")


if __name__ == "__main__":
    sys.exit(main())
