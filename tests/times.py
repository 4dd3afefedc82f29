"""Plugins of pytest: `--times` writes the time of each test, `--minutes` limits the time of slow tests."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import forked

PROCESSOR = "processor_s"
MINUTES = 3  # of a slow test without `minutes=`


def processor_s() -> float:
    """Seconds of processor time of this process and of those of its children that have ended."""
    return sum(os.times()[:4]) + forked.spent_s[0]


class Times:
    """Writes processor and wall seconds of each test to a JSON file: ``pytest --times FILE``.

    The file has ``{test: [processor seconds, wall seconds]}``. Under xdist the workers measure, and the
    process that started them writes.
    """

    def __init__(self, path: Path | None) -> None:
        self.path, self.before = path, processor_s()
        self.tests: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Any:
        report = yield
        now = processor_s()
        report.user_properties.append((PROCESSOR, now - self.before))
        self.before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        times = self.tests[report.nodeid]
        # A report also holds the properties of earlier reports of the test: the last one is its own. The
        # report of a process that crashed has none.
        times[0] += [0.0, *(value for name, value in report.user_properties if name == PROCESSOR)][-1]
        times[1] += report.duration

    def pytest_sessionfinish(self) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.tests, indent=0))


class Budget:
    """Skips tests that could end after the limit, by the duration in ``pytest.mark.slow(minutes=...)``.

    The first test depends on the commit, so that every test runs at some commit.
    """

    def __init__(self, minutes: float, commit: str) -> None:
        self.end, self.first = time.monotonic() + 60 * minutes, int(commit or "0", 16)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        first = self.first % max(len(items), 1)
        items[:] = items[first:] + items[:first]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        minutes = max(
            (mark.kwargs.get("minutes", MINUTES) for mark in item.iter_markers("slow")), default=MINUTES
        )
        if time.monotonic() + 60 * minutes > self.end:
            pytest.skip(f"takes up to {minutes} min, more than are left of --minutes")
