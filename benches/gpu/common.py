"""Shared by the scripts of this folder: command line, description of the machine, records, resumable work."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import parl

TWENTY_GAMES = (
    "pong breakout space_invaders seaquest ms_pacman montezuma_revenge qbert freeway pitfall asteroids "
    "enduro beam_rider robotank solaris tutankham riverraid centipede hero battle_zone demon_attack"
).split()

# Environment variables that change how kernels are compiled and launched.
VARIABLES = ("PARL_CUDA_LANES", "PARL_CUDA_WARPS", "PARL_NVRTC_OPTIONS")


def arguments(given: list[str] | None = None, **defaults: Any) -> argparse.Namespace:
    """Parses the command line, which is the same for all scripts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer games and short runs")
    parser.add_argument("--games", nargs="*", help="ids of games; by default all that have ROMs")
    parser.add_argument("--part", default="1/1", help="part of the games; 2/4 is the second of four parts")
    parser.add_argument("--envs", type=int, default=defaults.get("envs", 256))
    parser.add_argument("--sizes", type=int, nargs="*", default=[256, 1024, 4096, 32_768])
    parser.add_argument("--grid", type=int, nargs="*", default=[], help="sizes for twenty games (speed.py)")
    parser.add_argument("--mixed", action="store_true", help="only one batch of all games (exactness.py)")
    parser.add_argument("--steps", type=int, default=defaults.get("steps", 2000))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=540, help="time limit for starting further work")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "records")
    sections = defaults.get("sections", ())
    parser.add_argument("--sections", nargs="*", choices=sections, default=list(sections))
    found = parser.parse_args(given)
    number, count = map(int, found.part.split("/"))
    if not 1 <= number <= count:
        parser.error(f"--part is {found.part}, expected 1/n to n/n")
    return found


def chosen(given: argparse.Namespace, folder: Path) -> list[str]:
    """Ids of the games of this run: those named, or those with a ROM in a folder; of these the given part."""
    ids = given.games or [game.id for game in parl.atari.games() if any(folder.glob(f"{game.id}.*"))]
    number, count = map(int, given.part.split("/"))
    ids = ids[number - 1 :: count]
    return ids[::10] if given.quick else ids


def _output_of(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return "unknown"
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stdout.strip() if run.returncode == 0 and run.stdout.strip() else "unknown"


def machine(device: str) -> dict[str, Any]:
    """Device, driver, versions and commit. `PARL_COMMIT` sets the commit outside of a repository."""
    import torch

    from parl import _native
    from parl.cuda import nvrtc_folders, ordinal

    found = torch.cuda.get_device_properties(device)
    here = str(Path(__file__).parent)
    query = "--query-gpu=driver_version,clocks.max.sm,power.limit"
    smi = _output_of("nvidia-smi", query, "--format=csv,noheader", f"--id={ordinal(device)}")
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": found.name,
        "multiprocessors": found.multi_processor_count,
        "memory_bytes": found.total_memory,
        "driver, clock, power": smi,
        "parl": metadata.version("parl-rl"),
        "torch": torch.__version__,
        "commit": os.environ.get("PARL_COMMIT")
        or _output_of("git", "-C", here, "rev-parse", "--short", "HEAD"),
        "cores": os.cpu_count(),
        "variables": {name: os.environ[name] for name in VARIABLES if os.environ.get(name)},
        **dict(_native.cuda_report(nvrtc_folders())),
    }


def place(device: str) -> Any:
    """torch's device for a CUDA device."""
    from parl.cuda import ordinal, torch_device

    return torch_device(ordinal(device))


class Record:
    """A file with one line of JSON per finding, appended at once. Each run has a new file."""

    def __init__(self, given: argparse.Namespace, name: str, facts: dict[str, Any]) -> None:
        given.out.mkdir(parents=True, exist_ok=True)
        device = "-".join(str(facts["device"]).lower().replace(",", "").split())
        kind = "-quick" if given.quick else ""
        stem = f"{facts['date']}-gpu-{name}{kind}-{device}"
        taken = len(list(given.out.glob(f"{stem}*.jsonl")))
        self.path = given.out / (f"{stem}-{taken + 1}.jsonl" if taken else f"{stem}.jsonl")
        self.lines: list[dict[str, Any]] = []
        settings = {key: value for key, value in vars(given).items() if key != "out"}
        self.add("machine", **facts, arguments=settings)

    def add(self, what: str, **values: Any) -> None:
        self.lines.append({"what": what, **values})
        line = json.dumps(self.lines[-1])
        print(line, flush=True)
        with self.path.open("a") as file:
            file.write(line + "\n")


# Exit status of a script that reached its time limit with work left.
UNFINISHED = 3
# Arguments that do not change the findings.
_IRRELEVANT_ARGUMENTS = ("out", "seconds", "part", "games", "sections", "grid", "sizes")


class Session:
    """Runs the work of a script in pieces, over several calls. Pieces recorded in ``--out`` do not run again.

    Only records with the same commit, device, driver and arguments count.

    Args:
        given: the result of :func:`arguments`.
        name: name of the script.
        facts: the result of :func:`machine`.
    """

    def __init__(self, given: argparse.Namespace, name: str, facts: dict[str, Any]) -> None:
        self.earlier: list[dict[str, Any]] = []
        settings = {key: value for key, value in vars(given).items() if key not in _IRRELEVANT_ARGUMENTS}
        for path in sorted(given.out.glob(f"*-gpu-{name}*.jsonl")):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            first = lines[0] if lines else {}
            same = ("commit", "device", "driver, clock, power", "variables")
            alike = all(first.get(key) == facts.get(key) for key in same)
            before = {
                key: value
                for key, value in first.get("arguments", {}).items()
                if key not in _IRRELEVANT_ARGUMENTS
            }
            if alike and before == settings:
                self.earlier += lines[1:]
        self.record = Record(given, name, facts)
        self.end = time.monotonic() + given.seconds
        self._longest = 0.0
        self.left: list[str] = []
        self.failed = 0

    def earlier_finding(self, what: str, **values: Any) -> dict[str, Any] | None:
        """An earlier finding with these values, or None."""
        wanted = {"what": what, **values}
        for line in self.earlier:
            if all(key in line and line[key] == value for key, value in wanted.items()):
                return line
        return None

    def piece(self, name: str, work: Callable[[], Any]) -> Any:
        """Runs a piece of work. Returns its result, or None if there is no time for it or it fails.

        A failure is recorded. A piece does not start if the longest one so far would exceed ``--seconds``.
        """
        start = time.monotonic()
        if start + self._longest > self.end:
            self.left.append(name)
            return None
        try:
            found = work()
        except Exception as error:  # Other pieces may still succeed.
            self.failed += 1
            self.record.add("failed", piece=name, error=f"{type(error).__name__}: {error}"[:2000])
            return None
        self._longest = max(self._longest, time.monotonic() - start)
        return found

    def bars(self, bars: dict[str, tuple[float | None, float, float]]) -> None:
        """Records and prints each promised figure with the measured one.

        Args:
            bars: for each promise the measured value (None if not measured), the first bar, and the goal.
                Lower values are better if the promise contains "at most".
        """
        for what, (found, first, goal) in bars.items():
            less = "at most" in what
            meets = [found is not None and (found <= bar if less else found >= bar) for bar in (first, goal)]
            says = "goal" if meets[1] else "first bar" if meets[0] else "missed"
            says = "not measured" if found is None else says
            self.record.add("bar", promise=what, found=found, first_bar=first, goal=goal, meets=says)

    def status(self, failed: int) -> int:
        """Prints the number of pieces left, and returns the exit status of the script."""
        if self.left:
            print(
                f"{len(self.left)} pieces of work left (next: {self.left[0]}): run again with the same --out"
            )
        return 1 if failed or self.failed else UNFINISHED if self.left else 0
