"""Compares the console with ale-py, frame by frame: RAM, picture, reward, lives, game over, frame numbers.

usage: against_ale.py [--frames N] [--games a,b,...] [--pairs] [--sticky P] [--draw all|none|N] [--seed S]
                      [--jobs N]

Runs `target/release/examples/trace` (`cargo build --release -p cule --example trace`; another place through
CULE_TRACE) and prints one line per difference: the first differing frame of each run.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import subprocess
import sys
import tempfile
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import ale_py

TRACE = os.environ.get("CULE_TRACE", "target/release/examples/trace")
SPEC = importlib.util.find_spec("ale_py")
ROMS = Path(SPEC.origin).parent / "roms" if SPEC and SPEC.origin else Path()
TWO_PLAYERS = {"combat", "joust", "maze_craze", "warlords"}


def games() -> list[str]:
    """All games that ale-py plays."""
    return sorted(p.stem for p in ROMS.glob("*.bin") if p.stem not in TWO_PLAYERS)


def ale(game: str, seed: int, sticky: float) -> ale_py.ALEInterface:
    """A loaded interface."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    interface = ale_py.ALEInterface()
    interface.setInt("random_seed", seed)
    interface.setFloat("repeat_action_probability", sticky)
    interface.loadROM(ROMS / f"{game}.bin")
    return interface


def script(actions: list[int], frames: int, seed: int, reset_every: int) -> bytes:
    """Actions held for some frames, with resets between."""
    rng = random.Random(seed)
    out = bytearray()
    action = 0
    for t in range(frames):
        if rng.random() < 0.2:
            action = rng.choice(actions)
        out += bytes([action, 1 if reset_every and t and t % reset_every == 0 else 0])
    return bytes(out)


def reference(interface: ale_py.ALEInterface, steps: bytes) -> list[str]:
    """The lines that `trace` would print; after a game over the script's frames do nothing."""
    lines = []

    def line(reward: int) -> None:
        ram = zlib.crc32(interface.getRAM().tobytes())
        screen = zlib.crc32(interface.getScreen().tobytes())
        lines.append(
            f"{reward} {interface.lives()} {int(interface.game_over(with_truncation=False))} "
            f"{interface.getFrameNumber()} {interface.getEpisodeFrameNumber()} {ram:08x} {screen:08x}"
        )

    line(0)
    interface.reset_game()
    line(0)
    for action, reset in zip(steps[::2], steps[1::2], strict=True):
        if reset:
            interface.reset_game()
        line(interface.act(action))
    return lines


def compare(job: tuple[str, int | None, int | None, int, int, float, str, int]) -> str | None:
    """One run; the first difference, or None."""
    game, mode, difficulty, frames, seed, sticky, draw, reset_every = job
    interface = ale(game, 1, sticky)
    settings = ["seed=1", f"sticky={sticky}", f"draw={draw}"]
    if mode is not None:
        interface.setMode(mode)
        settings.append(f"mode={mode}")
    if difficulty is not None:
        interface.setDifficulty(difficulty)
        settings.append(f"difficulty={difficulty}")
    actions = [a.value for a in interface.getMinimalActionSet()]
    steps = script(actions, frames, seed, reset_every)
    want = reference(interface, steps)
    with tempfile.NamedTemporaryFile(suffix=".script") as file:
        file.write(steps)
        file.flush()
        command = [TRACE, str(ROMS / f"{game}.bin"), game, *settings, file.name]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    name = f"{game} mode {mode} difficulty {difficulty}"
    if run.returncode:
        return f"{name}: exit {run.returncode}: {run.stderr.strip()[-200:]}"
    got = run.stdout.splitlines()
    if draw != "all":
        # A picture that was not asked for is not compared.
        drawn = 0 if draw == "none" else int(draw)
        seen = [t >= 2 and (t - 2) % 4 >= 4 - drawn for t in range(len(want))]
        got = [a if s else a.rsplit(" ", 1)[0] for a, s in zip(got, seen, strict=False)]
        want = [a if s else a.rsplit(" ", 1)[0] for a, s in zip(want, seen, strict=False)]
    if len(got) != len(want):
        return f"{name}: {len(got)} lines, expected {len(want)}"
    for t, (a, b) in enumerate(zip(got, want, strict=True)):
        if a != b:
            same = sum(x == y for x, y in zip(got, want, strict=True))
            return f"{name}: frame {t - 1}: got {a}, expected {b} ({same} of {len(want)} equal)"
    return None


def main() -> int:
    """Runs the comparison; the number of runs that differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--games", default="")
    parser.add_argument("--pairs", action="store_true", help="every mode and difficulty")
    parser.add_argument("--sticky", type=float, default=0.0)
    parser.add_argument("--draw", default="all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reset-every", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    chosen = options.games.split(",") if options.games else games()
    rest = (options.frames, options.seed, options.sticky, options.draw, options.reset_every)
    jobs = []
    for game in chosen:
        pairs: list[tuple[int | None, int | None]] = [(None, None)]
        if options.pairs:
            interface = ale(game, 1, 0.0)
            difficulties = interface.getAvailableDifficulties()
            pairs = [(m, d) for m in interface.getAvailableModes() for d in difficulties]
        jobs += [(game, mode, difficulty, *rest) for mode, difficulty in pairs]
    failures = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for difference in pool.map(compare, jobs):
            if difference:
                failures += 1
                print(difference, flush=True)
    print(f"{len(jobs)} runs of {options.frames} frames, {failures} differ")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
