"""Columns, writer and reader of the records ``benches/records/DATE-NAME.csv``.

Benchmarks write their figures to a record with ``--record``; ``benches/report.py`` generates the index, the
plots and ``docs/benchmarks.md`` from the records. A row is one figure: a median with its spread, what was
measured, and the conditions. ``DATE-NAME.md`` in the same folder has a title and at most ten lines of prose.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import datetime
import functools
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benches" / "records"
# Values of the commit column other than a commit of this history.
UNKNOWN_COMMIT = "not recorded"
LOST_COMMIT = "not in history"
SPREADS = ("", "quartiles", "range", "Wilson 95 %", "bootstrap 95 %")
NUMBERS = ("median", "low", "high")
COUNTS = ("rounds", "seeds", "steps", "threads")


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure; numbers are text, so that reading and writing keeps their digits."""

    claim: str  # key of a claim in benches/claims.toml
    case: str  # what differs between the rows of a claim: a game, a batch size, an environment
    library: str  # the measured library
    peer: str = ""  # for a ratio: the other library
    version: str = ""  # version of the library or peer that is not parl
    metric: str = ""  # such as "frames per core-second" or "speed ratio", parl's speed divided by the peer's
    unit: str = ""
    median: str = ""
    low: str = ""
    high: str = ""
    spread: str = ""  # meaning of low and high, one of SPREADS
    rounds: str = ""  # number of repetitions of the measurement
    seeds: str = ""  # number of seeds
    steps: str = ""  # environment steps, transitions
    threads: str = ""  # number of threads of each library
    bar: str = ""  # the value to reach, such as ">= 5"
    conditions: str = ""
    machine: str = ""
    commit: str = ""
    command: str = ""


COLUMNS = tuple(field.name for field in dataclasses.fields(Row))


def read(path: Path) -> list[Row]:
    """The rows of a record.

    Raises:
        ValueError: a column is missing or unknown, or a cell is invalid.
    """
    with path.open(newline="", encoding="utf-8") as file:
        table = csv.DictReader(file)
        if tuple(table.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path.name}: columns are {table.fieldnames}, expected {list(COLUMNS)}")
        rows = []
        for line, cells in enumerate(table, 2):
            if None in cells or None in cells.values():
                raise ValueError(f"{path.name}:{line}: not {len(COLUMNS)} cells")
            row = Row(**cells)
            for problem in problems(row):
                raise ValueError(f"{path.name}:{line}: {problem}")
            rows.append(row)
    if not rows:
        raise ValueError(f"{path.name}: no rows")
    return rows


def problems(row: Row) -> list[str]:
    """Messages about invalid cells of a row."""
    found = [
        f"{name} is empty"
        for name in ("claim", "case", "library", "metric", "unit", "median", "machine", "commit", "command")
        if not getattr(row, name)
    ]
    for name in (*NUMBERS, *COUNTS):
        text = getattr(row, name)
        try:
            float(text or 0)
        except ValueError:
            found.append(f"{name} is {text!r}, not a number")
    if row.spread not in SPREADS:
        found.append(f"spread is {row.spread!r}, expected one of {SPREADS}")
    if bool(row.low) != bool(row.high) or bool(row.low) != bool(row.spread):
        found.append("low, high and spread go together")
    if row.bar and row.bar.partition(" ")[0] not in (">=", "<="):
        found.append(f"bar is {row.bar!r}, expected >= or <= and a number")
    if row.metric.endswith("ratio") and not row.peer:
        found.append("a ratio names its peer")
    return found


def meets(row: Row) -> bool | None:
    """Whether the median meets the bar; None if the row has no bar."""
    if not row.bar:
        return None
    sign, _, number = row.bar.partition(" ")
    return float(row.median) >= float(number) if sign == ">=" else float(row.median) <= float(number)


def digits(value: float) -> str:
    """Formats a number with four significant digits, a whole number with all."""
    if float(value).is_integer():
        return str(int(value))
    text = f"{value:.4g}"
    return f"{float(text):.0f}" if "e+" in text else text


@functools.cache
def machine() -> str:
    """The processor's name, its cores, and whether it has AVX-512."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    wide = any(line.startswith("flags") and "avx512f" in line for line in lines)
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {'AVX-512' if wide else 'no AVX-512'}"


@functools.cache
def commit() -> str:
    """The commit of the working tree at the first call, followed by ``+`` if files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], capture_output=True, text=True, cwd=ROOT, check=False)
        return done.stdout.strip()

    head = git("rev-parse", "--short", "HEAD")
    if not head:
        return UNKNOWN_COMMIT
    return head + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def version_of(package: str) -> str:
    """The installed version of a package; empty if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def command() -> str:
    """The command that started this process, without ``--record`` and ``--finished``, of ``processes.py``."""
    program = Path(sys.argv[0]).resolve()
    name = str(program.relative_to(ROOT)) if program.is_relative_to(ROOT) else program.name
    words, skip = [], False
    for word in sys.argv[1:]:
        if word.partition("=")[0] in ("--record", "--finished"):
            skip = "=" not in word
        elif skip and not word.startswith("-"):
            skip = False
        else:
            words.append(word)
            skip = False
    return " ".join(["python", name, *words])


def add_option(parser: argparse.ArgumentParser, name: str) -> None:
    """Adds the option ``--record``, whose value is the name of the record."""
    parser.add_argument(
        "--record",
        nargs="?",
        const=name,
        metavar="NAME",
        help=f"write the figures to benches/records/DATE-NAME.csv (default NAME: {name})",
    )


class Record:
    """Prints the lines of a benchmark and collects its figures.

    As a context manager, it writes the figures when the context ends without an error.

    Args:
        name: name of the record, as in ``DATE-NAME.csv``; None writes nothing.
        title: title of the record, for the index.
        conditions: conditions of every row, such as "every library on one core".
    """

    def __init__(self, name: str | None, title: str = "", conditions: str = "") -> None:
        self.name, self.title, self.conditions = name, title, conditions
        self.rows: list[Row] = []

    def print(self, line: str = "") -> None:
        print(line, flush=True)

    def __enter__(self) -> Record:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self.name is not None:
            print(f"recorded in {self.write()}")

    def add(
        self,
        claim: str,
        case: str,
        metric: str,
        unit: str,
        values: float | Sequence[float],
        *,
        library: str = "parl",
        spread: str = "range",
        interval: tuple[float, float] | None = None,
        conditions: str = "",
        **columns: str | int | float,
    ) -> None:
        """Adds a row: the median of ``values``, and their quartiles or range if there are several.

        ``interval`` is the 95 % bootstrap interval of a single value.
        """
        found = [float(value) for value in ([values] if isinstance(values, (int, float)) else values)]
        low, high = "", ""
        if interval is not None:
            low, high = map(digits, interval)
            spread = "bootstrap 95 %"
        elif len(found) > 2 and spread == "quartiles":
            quarter, _, three = statistics.quantiles(found, n=4)
            low, high = digits(quarter), digits(three)
        elif len(found) > 1:
            # Quartiles of two values would lie outside of them.
            low, high, spread = digits(min(found)), digits(max(found)), "range"
        self.rows.append(
            Row(
                claim=claim,
                case=case,
                library=library,
                metric=metric,
                unit=unit,
                median=digits(statistics.median(found)),
                low=low,
                high=high,
                spread=spread if low else "",
                conditions="; ".join(filter(None, (self.conditions, conditions))),
                machine=machine(),
                commit=commit(),
                command=command(),
                **{name: str(value) for name, value in columns.items()},
            )
        )
        for problem in problems(self.rows[-1]):
            raise ValueError(f"{claim}, {case}: {problem}")

    def write(self, folder: Path | None = None) -> Path:
        """Writes today's record; replaces rows of the same command and claim."""
        path = (folder or FOLDER) / f"{datetime.datetime.now(datetime.UTC).date()}-{self.name}.csv"
        mine = {(row.command, row.claim) for row in self.rows}
        kept = [row for row in read(path) if (row.command, row.claim) not in mine] if path.exists() else []
        save(path, [*kept, *self.rows])
        page = path.with_suffix(".md")
        if not page.exists():
            page.write_text(f"# {self.title or self.name}\n", encoding="utf-8")
        return path


def save(path: Path, rows: Iterable[Row]) -> None:
    """Writes rows as a record."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        table.writerows(dataclasses.astuple(row) for row in rows)
