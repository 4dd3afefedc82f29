"""Metrics of a run: a file of JSON lines, and TensorBoard event files if tensorboard is installed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import time
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
    """Appends records to ``metrics.jsonl`` and writes their numbers to TensorBoard.

    Each record is flushed, so that a killed run loses at most the line being written.

    Args:
        run: the run directory.
        tensorboard: whether to write event files; None if the package is installed.
    """

    def __init__(self, run: RunDirectory, tensorboard: bool | None = None) -> None:
        _cut_partial_line(run.metrics)
        self._file = run.metrics.open("a", encoding="utf-8")
        if tensorboard is None:
            tensorboard = importlib.util.find_spec("tensorboard") is not None
        self._events_folder = run.folder("tensorboard") if tensorboard else None
        self._events: Any = None
        self._pending: list[tuple[float, dict[str, Any]]] = []

    def write(self, record: Mapping[str, Any]) -> None:
        """Appends one record.

        Args:
            record: name -> number, text or None. Numbers that are not finite are written as null.
                ``env_steps`` is the step in TensorBoard.
        """
        plain = {key: _number(value) for key, value in record.items()}
        self._file.write(json.dumps(plain) + "\n")
        self._file.flush()
        if self._events_folder is not None:
            # Written in batches, because importing tensorboard takes longer than the start of a short run.
            self._pending.append((time.time(), plain))
            if len(self._pending) >= 64:
                self._write_events()

    def _write_events(self) -> None:
        if not self._pending or self._events_folder is None:
            return
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        # Imported by name: these modules create their classes at run time, so type checkers find none.
        event_pb2 = importlib.import_module("tensorboard.compat.proto.event_pb2")
        summary_pb2 = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        if self._events is None:
            self._events = EventFileWriter(str(self._events_folder))
        for wall_time, record in self._pending:
            step = int(record.get("env_steps") or 0)
            values = [
                summary_pb2.Summary.Value(tag=key, simple_value=float(value))
                for key, value in record.items()
                if isinstance(value, int | float) and key != "env_steps"
            ]
            event = event_pb2.Event(wall_time=wall_time, step=step, summary=summary_pb2.Summary(value=values))
            self._events.add_event(event)
        self._pending.clear()
        self._events.flush()

    def close(self) -> None:
        """Writes pending records and closes the files; a second call does nothing."""
        if self._file.closed:
            return
        self._file.close()
        self._write_events()
        if self._events is not None:
            self._events.close()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Reads the records of a run's metrics, in order of ``env_steps``.

    Where the run was resumed from a checkpoint (a record with ``resumed``), earlier records with more steps
    than the checkpoint are left out.

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
