"""Counts the instructions of the hot paths with callgrind, since timings vary on a busy machine.

``make counts`` (``python benches/counts.py``) builds the examples listed in ``benches/counts.toml``, runs
each workload under ``valgrind --tool=callgrind`` and prints the instructions per item and the change from the
recorded number. It fails if a workload takes more instructions than recorded, by more than its tolerance (5 %
by default). ``--accept "why it changed"`` records the new numbers, with the reason for each that changed; use
it for lower numbers too. An argument selects the workloads whose name contains it. Without valgrind the
command fails.

Counts are reproducible to the instruction on one machine and compiler. Other compilers and versions of the C
library can change them by a few percent; the file names those that it was recorded with. valgrind 3.19 does
not support AVX-512, so workloads select their instruction path by ``environment``.

A workload, ``[workload."tree/sample/avx2/B=256"]``::

    package = "sumtree"            # cargo package, and its example (or `binary = "name"`)
    example = "measure"
    arguments = ["count", "sample:20:256", "50"]
    environment = { SUMTREE_PATH = "avx2" }
    function = "counted"           # count only inside functions whose name contains this; default: everything
    items = 12800                  # number of items, which the count is divided by
    instructions = 395.25          # recorded instructions per item
    reason = "401.5 to 395.25: ..." # reason for the last change of the number
    tolerance = 0.05
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
TABLE = ROOT / "benches" / "counts.toml"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
TOLERANCE = 0.05
KEYS = {
    "package",
    "example",
    "binary",
    "arguments",
    "environment",
    "function",
    "items",
    "instructions",
    "reason",
    "tolerance",
}


def build(workloads: dict[str, dict[str, Any]]) -> None:
    """Builds every example and binary once, in release mode."""
    wanted: dict[str, set[str]] = {}
    for name, workload in workloads.items():
        unknown = workload.keys() - KEYS
        if unknown or ("example" in workload) == ("binary" in workload):
            raise SystemExit(f"{name}: unknown keys {sorted(unknown)}, or not one of example and binary")
        kind = "example" if "example" in workload else "bin"
        target = workload.get("example") or workload["binary"]
        wanted.setdefault(workload["package"], set()).add(f"--{kind}={target}")
    cargo = os.environ.get("CARGO", "cargo")
    for package, targets in sorted(wanted.items()):
        subprocess.run(
            [cargo, "build", "--quiet", "--release", "--package", package, *sorted(targets)],
            cwd=ROOT,
            check=True,
        )


def count(name: str, workload: dict[str, Any]) -> float:
    """Instructions per item of one workload."""
    program = TARGET / "release"
    program = (
        program / "examples" / workload["example"] if "example" in workload else program / workload["binary"]
    )
    command = ["valgrind", "--tool=callgrind", "--error-exitcode=0"]
    if function := workload.get("function"):
        command += ["--collect-atstart=no", f"--toggle-collect=*{function}*"]
    with tempfile.TemporaryDirectory() as folder:
        command += [f"--callgrind-out-file={folder}/out", str(program), *map(str, workload["arguments"])]
        environment = os.environ | workload.get("environment", {})
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{name}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    collected = re.search(r"Collected : (\d+)", done.stderr)
    if collected is None or int(collected[1]) == 0:
        raise SystemExit(f"{name}: nothing was counted; is there a function *{workload.get('function')}*?")
    return int(collected[1]) / workload["items"]


def accept(table: dict[str, Any], counted: dict[str, float], reason: str) -> None:
    """Records the counts, and for each that changes the old number and the reason."""
    for name, now in counted.items():
        workload = table["workload"][name]
        before, after = workload.get("instructions"), round(now, 2)
        if before != after:
            workload["instructions"] = after
            workload["reason"] = f"{'new' if before is None else before} to {after}: {reason}"
    table["recorded"] = compiler()
    write(table)


def write(table: dict[str, Any]) -> None:
    """Writes the table, sorted by name."""
    lines = [
        "# Instructions per item of the hot paths; written by `python benches/counts.py --accept REASON`.",
        f"recorded = {json.dumps(table['recorded'])}",
    ]
    for name, workload in sorted(table["workload"].items()):
        lines += ["", f"[workload.{json.dumps(name)}]"]
        for key, value in workload.items():
            if isinstance(value, dict):
                inside = ", ".join(f"{k} = {json.dumps(v)}" for k, v in value.items())
                lines.append(f"{key} = {{ {inside} }}")
            else:
                lines.append(f"{key} = {json.dumps(value)}")
    TABLE.write_text("\n".join(lines) + "\n")


def compiler() -> str:
    """Versions of compiler, C library and machine, which the counts depend on besides the source."""
    rustc = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return f"{rustc}, {' '.join(platform.libc_ver())}, {platform.machine()}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", default="", help="only workloads whose name contains this")
    parser.add_argument("--accept", metavar="REASON", help="record the counts and why they changed")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    if arguments.accept is not None and not arguments.accept.strip():
        parser.error("--accept needs a reason: what changed, and why the new counts are right")
    if shutil.which("valgrind") is None:
        print(
            "INSTRUCTION COUNTS WERE NOT CHECKED: valgrind is not installed (apt install valgrind)",
            file=sys.stderr,
        )
        return 3
    table = tomllib.loads(TABLE.read_text())
    workloads = {name: w for name, w in table["workload"].items() if arguments.name in name}
    if not workloads:
        raise SystemExit(f"no workload of {TABLE.name} contains {arguments.name!r}")
    build(workloads)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        counted = dict(zip(workloads, pool.map(count, workloads, workloads.values()), strict=True))
    worse = []
    print(f"{'instructions per item':44} {'recorded':>12} {'now':>12} {'change':>8}")
    for name, now in counted.items():
        before = workloads[name].get("instructions")
        tolerance = workloads[name].get("tolerance", TOLERANCE)
        change = "new" if before is None else f"{now / before - 1:+.1%}"
        is_worse = before is None or now > before * (1 + tolerance)
        if is_worse:
            worse.append(name)
        mark = f"  MORE than {tolerance:.0%}" if is_worse and before is not None else ""
        print(f"{name:44} {before or 0:12.2f} {now:12.2f} {change:>8}{mark}")
    if arguments.accept:
        accept(table, counted, arguments.accept)
        print(f"recorded in {TABLE.relative_to(ROOT)}")
        return 0
    if worse:
        print(f"more instructions than recorded ({table['recorded']}): {', '.join(worse)}", file=sys.stderr)
        print("if this is intended, record it: python benches/counts.py --accept REASON", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
