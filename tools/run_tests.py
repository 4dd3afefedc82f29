"""Runs targets of the Makefile one after the other and prints their times: `run_tests.py STEP...`.

The targets of a step, joined by commas, run at the same time. Also prints the times of the Python tests by
folder and of the ten slowest tests, from the file that `test-py` writes (`pytest --times`). Processor seconds
include all processes of a target, on all cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
TIMES = ROOT / "target" / "tests" / "times.json"


def run_target(target: str, output: IO[bytes] | None = None) -> tuple[str, int, float, float]:
    """Runs a target of the Makefile; returns its name, exit status, processor seconds and wall seconds."""
    began = time.monotonic()
    command = ["make", "--no-print-directory", target]
    process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return target, process.returncode, used.ru_utime + used.ru_stime, time.monotonic() - began


def run(step: str) -> list[tuple[str, int, float, float]]:
    """Runs the targets of a step at the same time; prints what all but the last print when all have ended."""
    targets = step.split(",")
    with ExitStack() as files, ThreadPoolExecutor(len(targets)) as pool:
        outputs = [files.enter_context(tempfile.TemporaryFile()) for _ in targets[1:]]
        rows = list(pool.map(run_target, targets, [*outputs, None]))
        for output in outputs:
            output.seek(0)
            print(output.read().decode(errors="replace"), flush=True)
    return rows


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
    rows, status, began = [], 0, time.monotonic()
    for step in steps:
        for target, code, *seconds in run(step):
            rows.append((target if code == 0 else f"{target} (failed)", *seconds))
            status = status or code
        if status and step in ("setup", "build"):
            break
    rows.append(("all", sum(processor for _, processor, _ in rows), time.monotonic() - began))
    tables = [table("step", rows)]
    if TIMES.exists():
        tables[:0] = folders_and_slowest(json.loads(TIMES.read_text()))
    print("\n" + "\n\n".join(tables), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
