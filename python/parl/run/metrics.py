"""Metrics of a run: a file of JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from parl.errors import RunDirectoryError
from parl.run.directory import RunDirectory


def _number(value: Any) -> Any:
    """Converts a value for JSON: numpy and torch scalars to numbers, numbers that are not finite to null."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _cut_partial_line(path: Path) -> None:
    """Removes an incomplete last line, which a killed run can leave."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        data = file.read()
        complete = data.rfind(b"\n") + 1
        if complete != len(data):
            file.truncate(complete)


class MetricsLog:
    """Appends records to ``metrics.jsonl``.

    Each record is flushed, so that a killed run loses at most the line being written.

    Args:
        run: the run directory.
    """

    def __init__(self, run: RunDirectory) -> None:
        _cut_partial_line(run.metrics)
        self._file = run.metrics.open("a", encoding="utf-8")

    def write(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Appends one record.

        Args:
            record: name -> number, text, list or None.

        Returns:
            The record as written: numbers of numpy and torch as those of Python, None in place of numbers
            that are not finite.
        """
        plain = {key: _number(value) for key, value in record.items()}
        self._file.write(json.dumps(plain) + "\n")
        self._file.flush()
        return plain

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        self._file.close()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Reads the records of a run's metrics, in order of ``env_steps``.

    Where the run was resumed from a checkpoint (a record with ``resumed``), earlier records with more steps
    than the checkpoint are left out; all of them where it started again because it had no checkpoint.

    Args:
        path: a ``metrics.jsonl`` or a run directory.

    Raises:
        FileNotFoundError: there is no such file.
        RunDirectoryError: the file has other content than records.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "metrics.jsonl"
    records: list[dict[str, Any]] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise RunDirectoryError(f"{path} is not a file of metrics: {error}") from error
    for line in lines:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue  # an incomplete last line, of a run that is in progress or was killed
        if not isinstance(record, dict):
            raise RunDirectoryError(f"{path} is not a file of metrics: it has the line {line[:40]!r}")
        steps = record.get("env_steps")
        if steps is not None and record.get("resumed"):
            while records and records[-1].get("env_steps", 0) > steps:
                records.pop()
        records.append(record)
    return records
