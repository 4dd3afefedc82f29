"""Runs targets of the Makefile one after the other and prints their times: `run_tests.py STEP...`.

Also prints the times of the Python tests by folder and of the ten slowest tests, from the file that the step
`test-py` writes (`pytest --times`). Processor seconds include all processes of a step, on all cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIMES = ROOT / "target" / "tests" / "times.json"


def run(step: str) -> tuple[int, float, float]:
    """Runs a target of the Makefile; returns its exit status, processor seconds and wall seconds."""
    processor, began = sum(os.times()[2:4]), time.monotonic()
    status = subprocess.run(["make", "--no-print-directory", step], cwd=ROOT, check=False).returncode
    return status, sum(os.times()[2:4]) - processor, time.monotonic() - began


def table(title: str, rows: list[tuple[str, float, float]]) -> str:
    """Formats rows of name, processor seconds and wall seconds."""
    width = max(len(name) for name, *_ in [(title,), *rows])
    lines = [f"{name:{width}} {processor:12.1f} {wall:9.1f}" for name, processor, wall in rows]
    return "\n".join([f"{title:{width}}  processor s    wall s", *lines])


def folders_and_slowest(tests: dict[str, tuple[float, float]]) -> list[str]:
    """Tables of the times of the Python tests: by folder, and the ten with the most processor time."""
    folders: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for name, seconds in tests.items():
        folder = folders["/".join(name.split("/")[:2])]
        folder[:] = [sum(pair) for pair in zip(folder, seconds, strict=True)]
    by_processor = sorted(((name, *seconds) for name, seconds in folders.items()), key=lambda row: -row[1])
    slowest = sorted(((name, *seconds) for name, seconds in tests.items()), key=lambda row: -row[1])[:10]
    return [table("Python tests by folder", by_processor), table("slowest Python tests", slowest)]


def main(steps: list[str]) -> int:
    """Runs all steps, or stops after a failed build; returns the exit status of the first that failed."""
    TIMES.unlink(missing_ok=True)
    rows, status = [], 0
    for step in steps:
        code, *seconds = run(step)
        rows.append((step if code == 0 else f"{step} (failed)", *seconds))
        status = status or code
        if code and step in ("setup", "build"):
            break
    rows.append(("all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])))
    tables = [table("step", rows)]
    if TIMES.exists():
        tables[:0] = folders_and_slowest(json.loads(TIMES.read_text()))
    print("\n" + "\n\n".join(tables), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
