"""Compares parl's console with ale-py on generated cartridges: RAM, numbers, picture and sound of each frame.

usage: fuzz.py FIRST COUNT [--kinds tia,code,banks,bytes,waits] [--frames N] [--jobs N] [--until HH:MM]
               [--record]

Each seed gives one cartridge of each kind (`cartridges.py`): random TIA writes at random cycles (tia); random
instructions (code); one bank-switching scheme after the other with its hotspots and RAM (banks); random bytes
(bytes); frames that stay open (waits). Each cartridge runs on ale-py with the rules of another game, and on
two consoles of parl: the picture of one, which makes sound, is read in every frame, that of the other in
about one frame of ten. The saved states of the two consoles must be equal byte by byte.
`fuzz.py 0 700 --frames 400` compares 1.4 million frames.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import cartridges
import emulators
import games

sys.path.append(str(Path(__file__).resolve().parents[3] / "benches"))
from record import Record, add_option

# The rules of this game read a single byte of RAM.
RULES = "koolaid"
RESETS = (9, 17)


class Job(NamedTuple):
    """One cartridge."""

    kind: str
    seed: int
    frames: int


class Result(NamedTuple):
    """Outcome of a job; ``wrong`` describes the first difference."""

    job: Job
    scheme: str
    frames: int
    wrong: str | None


def quiet() -> None:
    """Discards standard error, where ale-py reports jammed processors."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def play(job: Job) -> Result:
    """Runs one cartridge up to the first difference."""
    generator = random.Random(job.seed)
    with tempfile.TemporaryDirectory() as name:
        rom = Path(name, f"{RULES}.bin")
        rom.write_bytes(cartridges.KINDS[job.kind](job.seed))
        silent = emulators.Setup(rom, RULES)
        setup = silent._replace(sound=True)
        scheme = emulators._native.Rom(rom.read_bytes(), "").cartridge
        ale, always_read, seldom_read = emulators.Ale(setup), emulators.Parl(setup), emulators.Parl(silent)
    for t in range(-1, job.frames):
        reward = mine = other = 0
        if t >= 0:
            action = generator.randrange(18)
            if t in RESETS or ale.interface.game_over():
                for emulator in (ale, always_read, seldom_read):
                    emulator.reset()
            reward, mine, other = ale.act(action), always_read.act(action), seldom_read.act(action)
        theirs = ale.frame(reward)
        wrong = always_read.frame(mine).difference(theirs)
        read = generator.random() < 0.1
        wrong = wrong or seldom_read.frame(other, picture=read).difference(theirs)
        if not wrong and always_read.console.save(generator=True) != seldom_read.console.save(generator=True):
            wrong = "saved states of the two consoles"
        if wrong:
            return Result(job, scheme, t + 1, f"frame {t}: {wrong}")
    return Result(job, scheme, job.frames + 1, None)


def record(results: list[Result]) -> str:
    """Returns the results as Markdown."""
    frames = sum(result.frames for result in results)
    wrong = [result for result in results if result.wrong]
    today = datetime.datetime.now(datetime.UTC).date()
    lines = [
        f"# Generated cartridges compared with ale-py {games.ale_py.__version__}, {today}",
        "",
        f"- Command: `tests/atari/exactness/fuzz.py {' '.join(sys.argv[1:])}`",
        f"- Commit {games.git('rev-parse', '--short=12', 'HEAD')}, extension module {games.build()}",
        f"- Machine: {games.machine()}",
        f"- {len(results):,} cartridges, {frames:,} frames compared, **{len(wrong)} differences**",
        "- In each frame: RAM, reward, lives, game over, frame numbers; picture and sound of a console that "
        "is read in every frame, and the picture of one that is read in one frame of ten",
        "",
        "| kind | scheme | cartridges | frames | differences |",
        "|---|---|---|---|---|",
    ]
    groups = sorted({(result.job.kind, result.scheme) for result in results})
    for group in groups:
        mine = [result for result in results if (result.job.kind, result.scheme) == group]
        total = sum(result.frames for result in mine)
        bad = sum(bool(result.wrong) for result in mine)
        lines.append(f"| {group[0]} | {group[1]} | {len(mine)} | {total:,} | {bad} |")
    if wrong:
        lines += ["", "Differences:", ""]
        lines += [f"- {result.job.kind} {result.job.seed}: {result.wrong}" for result in wrong]
    return "\n".join(lines) + "\n"


def keep(name: str, results: list[Result]) -> Record:
    """Returns a record with the figures of each kind and scheme, and of all together."""
    record = Record(name, "Generated cartridges compared with ale-py, frame by frame")
    peer = {"peer": "ale-py", "version": games.ale_py.__version__}
    groups = {group: [one for one in results if (one.job.kind, one.scheme) == group] for group in
              sorted({(one.job.kind, one.scheme) for one in results})}  # fmt: skip
    for case, mine in ({", ".join(group): mine for group, mine in groups.items()} | {"all": results}).items():
        frames, wrong = sum(one.frames for one in mine), sum(bool(one.wrong) for one in mine)
        told = f"{len(mine):,} cartridges"
        record.add("atari-fuzz", case, "frames compared", "frames", frames, conditions=told, **peer)
        record.add("atari-fuzz", case, "differences", "frames", wrong, conditions=told, bar="<= 0", **peer)
    return record


def main() -> int:
    """Runs the comparison; returns 1 if anything differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--kinds", default=",".join(cartridges.KINDS))
    parser.add_argument("--frames", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--until", default="")
    add_option(parser, "fuzz")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    jobs = [Job(kind, seed, options.frames) for seed in seeds for kind in options.kinds.split(",")]
    results: list[Result] = []
    with ProcessPoolExecutor(options.jobs, initializer=quiet) as pool:
        for at in range(0, len(jobs), 8 * options.jobs):
            if options.until and f"{datetime.datetime.now(datetime.UTC):%H:%M}" >= options.until:
                break
            for result in pool.map(play, jobs[at : at + 8 * options.jobs]):
                results.append(result)
                if result.wrong:
                    print(
                        f"{result.job.kind} {result.job.seed} ({result.scheme}): {result.wrong}", flush=True
                    )
    text = record(results)
    print(text)
    if options.record:
        print(f"recorded in {keep(options.record, results).write()}")
    return int(any(result.wrong for result in results))


if __name__ == "__main__":
    sys.exit(main())
