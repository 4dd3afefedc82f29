"""Summary of an `ncu` profile of `parl_step`: what its warps wait for, and how much code is hot.

    python benches/gpu/stalls.py source-GAME.csv.gz [--warps 1024]

The file is the page `source` of `ncu --section SourceCounters`, which `run.sh first` writes: one row for each
instruction of the machine code, with samples of the warps that were there.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from pathlib import Path

INSTRUCTION_BYTES, LINE_BYTES = 16, 128
# An instruction is hot if a warp executes it more often than this in a step.
HOT = 20


def read(path: Path) -> list[dict[str, str]]:
    """The rows of the table, which follows a line with the kernel's name."""
    with gzip.open(path, "rt", newline="") as file:
        next(file)
        return list(csv.DictReader(file))


def summary(rows: list[dict[str, str]], warps: int) -> list[str]:
    """The lines to print."""

    def total(column: str) -> int:
        return sum(int(row[column]) for row in rows)

    samples, executed = total("# Samples"), [int(row["Instructions Executed"]) / warps for row in rows]
    lines = [f"{sum(executed):,.0f} instructions of a warp, {samples:,} samples"]
    names = [name for name in rows[0] if name.startswith("stall_") and "Not Issued" not in name]
    for name in sorted(names, key=total, reverse=True):
        share = total(name) / samples
        if share >= 0.005:
            lines.append(f"{name.removeprefix('stall_'):20} {share:6.1%}")
    hot = [place for place, count in enumerate(executed) if count > HOT]
    of_line = {place * INSTRUCTION_BYTES // LINE_BYTES for place in hot}
    code, cached = len(hot) * INSTRUCTION_BYTES / 1024, len(of_line) * LINE_BYTES / 1024
    lines.append(f"hot code: {code:.0f} KiB in {cached:.0f} KiB of cache lines")
    lines.append(f"{total('L2 Theoretical Sectors Global') / 1e6:,.0f} million sectors of global memory")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--warps", type=int, default=1024, help="warps of the launch")
    given = parser.parse_args()
    print("\n".join(summary(read(given.file), given.warps)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
