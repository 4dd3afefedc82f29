"""Outcomes of mutants: kept in a file, and compared with the list of accepted survivors."""

from __future__ import annotations

import json
import math
import pathlib
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        key: the key under which its outcome is kept.
        nth: which of the file's lines with the text `before` is changed, from 1. A line number would change
            with every edit above it.
    """

    key: str
    part: str
    file: str
    line: int
    nth: int
    operator: str
    before: str
    after: str
    source: str

    def describe(self) -> str:
        """Returns the place, the operator and the two lines."""
        return f"{self.file}:{self.line} [{self.operator}]\n  - {self.before}\n  + {self.after}"


def keyed(nth: int, *parts: object) -> str:
    """Joins the parts to a key. Equal changes of equal lines of a file differ in `nth`."""
    return "|".join(map(str, [*parts, nth] if nth > 1 else parts))


def nth_of_its_text(lines: Sequence[str], index: int) -> int:
    """Counts the lines up to and including this one that have its text."""
    text = lines[index].strip()
    return sum(line.strip() == text for line in lines[: index + 1])


@dataclass(frozen=True)
class Outcome:
    """``killed``, ``timeout`` (the tests did not end), ``survived`` or ``unviable``; with a note."""

    outcome: str
    note: str
    seconds: float


def wilson(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Returns the Wilson interval of a share, 95 % for the default `z`.

    Source: Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    if trials == 0:
        return 0.0, 1.0
    share = successes / trials
    center = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (center - spread) / scale), min(1.0, (center + spread) / scale)


class State:
    """Outcomes by key of the mutant, one line of JSON each, so that an interrupted run can continue."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        entries = [json.loads(line) for line in lines]
        self.outcomes = {entry.pop("key"): Outcome(**entry) for entry in entries}

    def add(self, key: str, outcome: Outcome) -> None:
        """Keeps an outcome."""
        self.outcomes[key] = outcome
        with self._path.open("a") as out:
            out.write(json.dumps({"key": key, **asdict(outcome)}) + "\n")


class Accepted:
    """`accepted.toml`: survivors that do not show a gap in the tests, and files left out, with reasons."""

    def __init__(self, path: pathlib.Path) -> None:
        table = tomllib.loads(path.read_text())
        self.excluded = {entry["file"]: entry["reason"] for entry in table.get("exclude", ())}
        survivors = table.get("survivor", ())
        self.survivors = {
            (e["file"], e["before"], e["after"], e.get("nth", 1)): e["reason"] for e in survivors
        }
        if not all(reason.strip() for reason in [*self.excluded.values(), *self.survivors.values()]):
            raise ValueError(f"{path}: every entry needs a reason")

    def reason(self, mutant: Mutant) -> str | None:
        """Returns why this change may survive, or None."""
        return self.survivors.get((mutant.file, mutant.before, mutant.after, mutant.nth))
