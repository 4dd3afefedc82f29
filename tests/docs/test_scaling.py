"""The table of docs/scaling.md equals what benches/scaling.py computes from the newest record."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scaling(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "benches")])
    return runpy.run_path(str(ROOT / "benches" / "scaling.py"))


def test_the_table_is_that_of_the_record(scaling):
    page = scaling["PAGE"].read_text(encoding="utf-8")
    assert scaling["updated"](page) == page


def test_each_run_has_one_first_limit_and_costs_name_their_command(scaling):
    found = scaling["limits"]()
    lines = scaling["table"]().splitlines()[2:]
    assert len(lines) == len(found) > 8
    assert sum("**" in line for line in lines) == len({one.run for one in found})
    for one, line in zip(found, lines, strict=True):
        assert one.row is not None and one.row.command.split()[2] in line and one.per_second > 0
