"""Generated cartridges on the console and on ale-py: RAM and numbers in each frame, and the picture.

usage: fuzz.py FIRST COUNT [--kinds tia,code,banks,bytes,waits] [--frames N] [--jobs N] [--until HH:MM]
               [--record]

Per seed one cartridge of each kind (`cartridges.py`): random TIA writes at random cycles; random
instructions; every bank-switching scheme in turn with its hotspots and RAM; random bytes; frames that stay
open. Each is played by ale-py under the rules of another game, and on two consoles: one whose picture is
looked at in every frame, one that is looked at now and then; their saved states are equal byte by byte.
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
import games
import sides

sys.path.append(str(Path(__file__).resolve().parents[3] / "benches"))
from record import Record, add_option

# Its rules ask for nothing but a byte of RAM.
RULES = "koolaid"
RESETS = (9, 17)


class Job(NamedTuple):
    """One cartridge."""

    kind: str
    seed: int
    frames: int


class Result(NamedTuple):
    """What came of it."""

    job: Job
    scheme: str
    frames: int
    wrong: str | None


def quiet() -> None:
    """ale-py writes about jammed processors; that is discarded."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def play(job: Job) -> Result:
    """Plays one up to the first difference."""
    generator = random.Random(job.seed)
    with tempfile.TemporaryDirectory() as name:
        rom = Path(name, f"{RULES}.bin")
        rom.write_bytes(cartridges.KINDS[job.kind](job.seed))
        setup = sides.Setup(rom, RULES)
        scheme = sides._native.Rom(rom.read_bytes(), "").cartridge
        ale, watched, glanced = sides.Ale(setup), sides.Parl(setup), sides.Parl(setup)
    for t in range(-1, job.frames):
        reward = mine = other = 0
        if t >= 0:
            action = generator.randrange(18)
            if t in RESETS or ale.interface.game_over():
                for side in (ale, watched, glanced):
                    side.reset()
            reward, mine, other = ale.act(action), watched.act(action), glanced.act(action)
        theirs = ale.frame(reward)
        wrong = watched.frame(mine).difference(theirs)
        look = generator.random() < 0.1
        wrong = wrong or glanced.frame(other, picture=look).difference(theirs)
        if not wrong and watched.console.save(generator=True) != glanced.console.save(generator=True):
            wrong = "saved states of the two consoles"
        if wrong:
            return Result(job, scheme, t + 1, f"frame {t}: {wrong}")
    return Result(job, scheme, job.frames + 1, None)


def record(results: list[Result]) -> str:
    """A table, as Markdown."""
    frames = sum(result.frames for result in results)
    wrong = [result for result in results if result.wrong]
    today = datetime.datetime.now(datetime.UTC).date()
    lines = [
        f"# Generated cartridges beside ale-py {games.ale_py.__version__}, {today}",
        "",
        f"- Command: `tests/atari/exactness/fuzz.py {' '.join(sys.argv[1:])}`",
        f"- Commit {games.git('rev-parse', '--short=12', 'HEAD')}, extension module {games.build()}",
        f"- Machine: {games.machine()}",
        f"- {len(results):,} cartridges, {frames:,} frames compared, **{len(wrong)} differences**",
        "- In each frame: RAM, reward, lives, game over, frame numbers; the picture on a console that is "
        "looked at in every frame, and on one that is looked at in one of ten",
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
    """The figures by kinds and schemes, and those of all together."""
    record = Record(name, "Generated cartridges beside ale-py, frame by frame")
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
    """Runs the comparison; 1 if anything differs."""
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
