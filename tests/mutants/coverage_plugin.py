"""A pytest plugin that records which test runs which line, and for how long each test runs.

``run.py`` loads it under ``coverage run``. Each test is a context, also in the processes it starts.
"""

import json
import os

import coverage
import pytest

_durations: dict[str, float] = {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    # Child processes read the settings file, which takes their context from the environment.
    os.environ["PARL_COVERAGE_CONTEXT"] = item.nodeid
    if os.environ.pop("COVERAGE_PROCESS_CONFIG", None):
        os.environ["COVERAGE_PROCESS_START"] = os.environ["PARL_COVERAGE_SETTINGS"]
    if measured := coverage.Coverage.current():
        measured.switch_context(item.nodeid)
    yield


def pytest_runtest_logreport(report):
    # A test that fails or is skipped without a mutant cannot detect a mutant.
    seconds = report.duration if report.passed else float("inf")
    _durations[report.nodeid] = _durations.get(report.nodeid, 0.0) + seconds


def pytest_sessionfinish():
    with open(os.environ["PARL_DURATIONS"], "w") as out:
        json.dump(_durations, out)
