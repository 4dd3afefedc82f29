"""Metrics of a run: always a file of JSON lines, and TensorBoard events where tensorboard is installed."""

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

from parl.run.directory import RunDirectory


def _number(value: Any) -> Any:
    """Plain JSON: numpy and torch scalars as numbers, values that are not finite as null."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _cut_partial_line(path: Path) -> None:
    """Removes what a killed run left of its last line, so that every line of the file is one JSON object."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        data = file.read()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            file.truncate(whole)


class MetricsLog:
    """Appends records to ``metrics.jsonl`` and mirrors their numbers to TensorBoard.

    Args:
        run: the run directory.
        tensorboard: write event files too; by default where the package is installed.

    Each record is flushed, so a killed run loses at most the line being written.
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
        """Appends one record; ``env_steps`` in it is TensorBoard's step.

        Values are numbers, text or None. A number that is not finite is kept as null.
        """
        plain = {key: _number(value) for key, value in record.items()}
        self._file.write(json.dumps(plain) + "\n")
        self._file.flush()
        if self._events_folder is not None:
            # In batches: loading tensorboard takes longer than the first steps of a short run.
            self._pending.append((time.time(), plain))
            if len(self._pending) >= 64:
                self._write_events()

    def _write_events(self) -> None:
        if not self._pending or self._events_folder is None:
            return
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        # Generated modules whose classes appear at run time: loaded by name, since type checkers see none.
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
        """Writes what is pending and closes the files; safe to call twice."""
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
    """The records of a ``metrics.jsonl``, or of a run directory, in order of ``env_steps``.

    Where a run was resumed from a checkpoint (a record with ``resumed``), what was written after that
    checkpoint before the resume is left out.

    Raises:
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "metrics.jsonl"
    records: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue  # the last line of a run that is being written, or was killed
        steps = record.get("env_steps")
        if steps is not None and record.get("resumed"):
            while records and records[-1].get("env_steps", 0) > steps:
                records.pop()
        records.append(record)
    return records
