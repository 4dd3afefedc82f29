"""Compares every game of parl with ale-py, frame by frame, for hours: `make test-games`.

usage: games.py [--games a,b,...] [--frames-per-pair N] [--frames N] [--jobs N] [--until HH:MM]
                [--record] [--fresh]

Runs: every game with every (mode, difficulty) pair; and every game with two action scripts, each with sticky
actions off and on, reset after each end and every 7,000 frames, with states saved and loaded in the middle.
Compared in each frame: RAM, picture, reward, lives, game over, frame numbers, and, where no states are
loaded, sound, which is not part of a state.

Results are kept in `target/test-games/`, one line per run. The same build of parl does not repeat finished
runs, so the script may be stopped and started again; `--until` stops it at that time (UTC). It prints a table
by game at the end, also if runs are missing; `--record` writes the figures to `benches/records`.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import ale_py
import emulators

from parl import _native

sys.path.append(str(Path(__file__).resolve().parents[3] / "benches"))
from record import Record, add_option

ROOT = Path(__file__).resolve().parents[3]
RESET_EVERY = 7000
DETOUR_EVERY = 4999
# Action sets of the scripts, and the probability that a frame draws a new action.
SCRIPTS = {"minimal": 0.2, "all": 0.04}


class Run(NamedTuple):
    """One comparison; `str` gives its name."""

    game: str
    frames: int
    script: str = "minimal"
    sticky: float = 0.0
    mode: int | None = None
    difficulty: int | None = None
    reset_every: int = 0
    detour_every: int = 0

    def __str__(self) -> str:
        default = self._field_defaults
        pairs = [(k, v) for k, v in self._asdict().items() if k not in default or v != default[k]]
        return " ".join(str(v) if k == "game" else f"{k}={v}" for k, v in pairs)

    @classmethod
    def parse(cls, words: list[str]) -> Run:
        """The inverse of `str`."""
        kinds = {"frames": int, "script": str, "sticky": float}
        pairs = [word.partition("=") for word in words[1:]]
        return cls(words[0], **{k: kinds.get(k, int)(v) for k, _, v in pairs})

    def setup(self) -> emulators.Setup:
        """Returns cartridge and settings."""
        setup = emulators.setup(self.game, mode=self.mode, difficulty=self.difficulty, sticky=self.sticky)
        return setup._replace(sound=not self.detour_every)

    def actions(self) -> bytes:
        """Returns one action code per frame."""
        row = rows()[self.game]
        codes = row.minimal_actions if self.script == "minimal" else list(range(18))
        return emulators.script(codes, self.frames, f"{self.game} {self.script}", SCRIPTS[self.script])


def rows() -> dict[str, _native.GameRow]:
    """Returns the rows of the table of games, by id."""
    return {row.id: row for row in _native.game_rows()}


def runs(games: list[str], pair_frames: int, long_frames: int) -> Iterator[Run]:
    """Yields all runs: the long ones, then the (mode, difficulty) pairs."""
    for game in games:
        for script in SCRIPTS:
            for sticky in (0.0, 0.25):
                yield Run(game, long_frames, script, sticky, None, None, RESET_EVERY, DETOUR_EVERY)
    for game in games:
        row = rows()[game]
        for mode in row.modes:
            for difficulty in row.difficulties:
                yield Run(game, pair_frames, mode=mode, difficulty=difficulty)


def play(run: Run) -> dict[str, Any]:
    """Plays one run and returns its result."""
    began = time.process_time()
    ale, ours, wrong = emulators.start(run.setup())
    frames, chain = 0, 0
    if wrong is None:
        wrong, frames, chain = emulators.compare(
            ale, ours, run.actions(), reset_every=run.reset_every, detour_every=run.detour_every
        )
    seconds = time.process_time() - began
    return {"run": str(run), "frames": frames, "chain": f"{chain:08x}", "wrong": wrong, "seconds": seconds}


def git(*arguments: str) -> str:
    """Returns the output of a git command."""
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True).stdout.strip()


def build() -> str:
    """Identifies the tested build by a hash of the extension module."""
    return hashlib.sha256(Path(_native.__file__).read_bytes()).hexdigest()[:12]


def machine() -> str:
    """Describes processor and system."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    name = names[0].partition(":")[2].strip() if names else platform.processor()
    return f"{name}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def record(done: dict[str, dict[str, Any]], wanted: list[Run]) -> str:
    """Returns the table as Markdown."""
    found = [done[str(run)] for run in wanted if str(run) in done]
    frames = sum(one["frames"] for one in found)
    wrong = [one for one in found if one["wrong"]]
    seconds = sum(one["seconds"] for one in found)
    dirty = " with changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    today = datetime.datetime.now(datetime.UTC).date()
    lines = [
        f"# Every game compared with ale-py {ale_py.__version__}, {today}",
        "",
        f"- Command: `make test-games` (`tests/atari/exactness/games.py {' '.join(sys.argv[1:])}`)",
        f"- Commit {git('rev-parse', '--short=12', 'HEAD')}{dirty}, extension module {build()}",
        f"- Machine: {machine()}; Python {platform.python_version()}",
        f"- {len(found):,} of {len(wanted):,} runs, {frames:,} frames compared, "
        f"**{len(wrong)} differences**; {seconds / 60:.0f} minutes of processor time for both emulators",
        "- In each frame: RAM, picture (palette indices), reward, lives, game over, both frame numbers; "
        "sound in the pairs",
        "",
        "*pairs*: (mode, difficulty) pairs, from loading. *long*: two action scripts (minimal actions, "
        "changed every 5 frames on average; all 18, every 25), each with sticky actions off and on, reset "
        f"every {RESET_EVERY:,} frames and after each end, saved and loaded every {DETOUR_EVERY:,} frames. "
        "*trace*: CRC-32 over all runs' chained hashes, for comparison with later builds.",
        "",
        "| game | pairs | long | frames | differences | trace |",
        "|---|---|---|---|---|---|",
    ]
    for game in dict.fromkeys(run.game for run in wanted):
        mine = [run for run in wanted if run.game == game]
        played = [done[str(run)] for run in mine if str(run) in done]
        long = [run for run in mine if run.detour_every]
        pairs = [run for run in mine if not run.detour_every]

        def count(of: list[Run]) -> str:
            have = sum(str(run) in done for run in of)
            return str(have) if have == len(of) else f"{have} of {len(of)}"

        trace = zlib.crc32("".join(one["chain"] for one in played).encode())
        bad = sum(bool(one["wrong"]) for one in played)
        total = sum(one["frames"] for one in played)
        lines.append(f"| {game} | {count(pairs)} | {count(long)} | {total:,} | {bad} | {trace:08x} |")
    if wrong:
        lines += ["", "Differences:", ""] + [f"- `{one['run']}`: {one['wrong']}" for one in wrong]
    return "\n".join(lines) + "\n"


def keep(name: str, done: dict[str, dict[str, Any]], wanted: list[Run]) -> Record:
    """Returns a record with the figures of each game, and of all together."""
    record = Record(name, "Every game, mode and difficulty compared with ale-py, frame by frame")
    peer = {"peer": "ale-py", "version": ale_py.__version__}
    games: dict[str, list[Run]] = {}
    for run in wanted:
        games.setdefault(run.game, []).append(run)
    for game, mine in (games | {"all": wanted}).items():
        played = [done[str(run)] for run in mine if str(run) in done]
        long = sum(bool(run.detour_every) for run in mine)
        trace = zlib.crc32("".join(one["chain"] for one in played).encode())
        told = f"{len(mine) - long} pairs, {long} long runs, trace {trace:08x}"
        if game == "all":
            told = f"{len(games)} games, {len(played):,} of {len(mine):,} runs"
        frames, wrong = sum(one["frames"] for one in played), sum(bool(one["wrong"]) for one in played)
        record.add("atari-games", game, "frames compared", "frames", frames, conditions=told, **peer)
        record.add("atari-games", game, "differences", "runs", wrong, conditions=told, bar="<= 0", **peer)
    return record


def main() -> int:
    """Plays the runs that are not finished; returns 1 if any run differs or is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", default="")
    parser.add_argument("--frames-per-pair", type=int, default=1500)
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--until", default="")
    add_option(parser, "games")
    parser.add_argument("--fresh", action="store_true", help="delete the results of earlier runs")
    options = parser.parse_args()
    chosen = options.games.split(",") if options.games else emulators.games()
    wanted = list(runs(chosen, options.frames_per_pair, options.frames))
    kept = ROOT / "target" / "test-games" / f"{build()}.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        kept.unlink(missing_ok=True)
    lines = kept.read_text().splitlines() if kept.exists() else []
    done: dict[str, dict[str, Any]] = {one["run"]: one for one in map(json.loads, lines)}
    missing = [run for run in wanted if str(run) not in done]
    # One kind of run after the other, so that a script that is stopped early has covered all games.
    missing.sort(key=lambda run: (run.mode is None, run.script, run.sticky))
    print(f"{len(wanted)} runs, {len(wanted) - len(missing)} of them finished before: {kept}", flush=True)
    began = time.monotonic()
    with ProcessPoolExecutor(options.jobs) as pool, kept.open("a") as file:
        pending: set[Future[dict[str, Any]]] = set()
        rest = iter(missing)
        late = False
        while True:
            late = late or bool(
                options.until and f"{datetime.datetime.now(datetime.UTC):%H:%M}" >= options.until
            )
            while not late and len(pending) < 2 * options.jobs and (run := next(rest, None)):
                pending.add(pool.submit(play, run))
            if not pending:
                break
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            for one in (future.result() for future in finished):
                done[one["run"]] = one
                file.write(json.dumps(one) + "\n")
                file.flush()
                if one["wrong"]:
                    print(f"{one['run']}: {one['wrong']}", flush=True)
                if len(done) % 50 == 0:
                    frames = sum(one["frames"] for one in done.values())
                    print(
                        f"{len(done)} runs, {frames:,} frames, {time.monotonic() - began:.0f} s", flush=True
                    )
    text = record(done, wanted)
    print(text)
    if options.record:
        print(f"recorded in {keep(options.record, done, wanted).write()}")
    finished = all(str(run) in done for run in wanted)
    return int(not finished or any(done[str(run)]["wrong"] for run in wanted))


if __name__ == "__main__":
    sys.exit(main())
