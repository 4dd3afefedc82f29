"""Memory layouts of a plain sum tree: cache misses by cachegrind, and times, of draws and updates.

16 children a node, which are in one cache line, one child or half of them in another line, and a binary tree,
all with 32-bit sums. Draws choose
a leaf in proportion to its weight, updates write a random leaf and the sums above it. Misses are those of a
simulated first-level data cache and of a simulated last-level cache (``--cache``), per operation, after the
tree was filled. The layouts take turns in each round of the times.

    python benches/python/layouts.py --rounds 9 --record
    python benches/python/layouts.py --sizes 16 --rounds 1 --count 1000
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from record import ROOT, Record, add_option

LAYOUTS = {
    "aligned": "16 children in a line",
    "root-first": "15 children in a line, 1 in the next",
    "halves": "8 children in a line, 8 in the next",
    "binary": "binary tree",
}
OPERATIONS = ("draws", "updates")


def program():
    """Builds the example; returns its path."""
    subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--package", "sumtree", "--example", "layouts"],
        cwd=ROOT,
        check=True,
    )
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "examples" / "layouts"


def nanoseconds(path, layout, size, operation, count):
    """Runs the program; returns the time of an operation."""
    words = [str(path), layout, str(size), operation, str(count)]
    return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def misses(path, layout, size, operation, count, cache):
    """Misses of the first-level data cache and of the last-level cache in a run under cachegrind."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "valgrind",
            "--tool=cachegrind",
            "--cache-sim=yes",
            "--D1=32768,8,64",
            f"--LL={cache}",
            f"--cachegrind-out-file={folder}/out",
            *(str(path), layout, str(size), operation, str(count)),
        ]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    found = [re.search(rf"{name}\s+misses:\s+([\d,]+)", text) for name in ("D1 ", "LLd")]
    return [int(match[1].replace(",", "")) for match in found]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_option(parser, "layouts")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[16, 18, 20, 22, 24], help="log2 of the leaves"
    )
    parser.add_argument("--count", type=int, default=1_000_000, help="operations of a run")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--cache", default="4194304,16,64", help="last-level cache: bytes, ways, bytes of a line"
    )
    arguments = parser.parse_args()
    path = program()
    cache = f"last-level cache of {arguments.cache} (bytes, ways, bytes of a line)"
    with Record(arguments.record, "Memory layouts of a sum tree", cache) as record:
        record.print(f"{'leaves':>6} {'operation':<9} {'layout':<34} {'ns':>7} {'D1':>6} {'LL':>6}")
        for size in arguments.sizes:
            for operation in OPERATIONS:
                times = {layout: [] for layout in LAYOUTS}
                for _ in range(arguments.rounds):
                    for layout, found in times.items():
                        found.append(nanoseconds(path, layout, size, operation, arguments.count))
                for layout, name in LAYOUTS.items():
                    count = arguments.count // 10
                    filled = misses(path, layout, size, operation, 0, arguments.cache)
                    used = misses(path, layout, size, operation, count, arguments.cache)
                    first, last = ((b - a) / count for a, b in zip(filled, used, strict=True))
                    case = f"{operation} of 2^{size} leaves"
                    same = {"library": name, "threads": 1, "rounds": arguments.rounds}
                    for metric, unit, value in (
                        ("time", "ns", times[layout]),
                        ("first-level misses", "misses", first),
                        ("last-level misses", "misses", max(last, 0.0)),  # filling varies by a few
                    ):
                        record.add("layouts", case, metric, unit, value, **same)
                    if layout == "binary":
                        ratios = [a / b for a, b in zip(times["aligned"], times[layout], strict=True)]
                        same |= {"library": LAYOUTS["aligned"], "peer": name}
                        record.add("layouts", case, "time ratio", "x", ratios, **same)
                    middle = sorted(times[layout])[arguments.rounds // 2]
                    record.print(
                        f"{size:>6} {operation:<9} {name:<34} {middle:>7.1f} {first:>6.2f} {last:>6.2f}"
                    )


if __name__ == "__main__":
    main()
