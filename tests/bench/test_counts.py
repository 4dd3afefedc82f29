"""`benches/counts.py` changes recorded counts only with a reason, which it stores with them."""

import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benches" / "counts.py"


@pytest.fixture
def counts(tmp_path, monkeypatch):
    """The script with a copy of its table, and counts that need no valgrind."""
    spec = importlib.util.spec_from_file_location("counts", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    table = module.ROOT / "benches" / "counts.toml"
    monkeypatch.setattr(module, "TABLE", tmp_path / "counts.toml")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    module.TABLE.write_text(table.read_text())
    monkeypatch.setattr(module, "build", lambda workloads: None)
    monkeypatch.setattr(module.shutil, "which", lambda name: name)
    return module


def run(counts, monkeypatch, figure, *words):
    monkeypatch.setattr(counts, "count", lambda name, workload: figure)
    monkeypatch.setattr(sys, "argv", ["counts.py", *words])
    return counts.main()


def recorded(counts, name):
    return tomllib.loads(counts.TABLE.read_text())["workload"][name]


def test_a_new_figure_is_recorded_with_its_reason(counts, monkeypatch, capsys):
    before = recorded(counts, "tree/append/B=64")["instructions"]
    assert run(counts, monkeypatch, 2 * before, "tree/append") == 1
    assert recorded(counts, "tree/append/B=64")["instructions"] == before
    assert run(counts, monkeypatch, 2 * before, "tree/append", "--accept", 'stores "twice"') == 0
    workload = recorded(counts, "tree/append/B=64")
    assert workload["instructions"] == round(2 * before, 2)
    assert workload["reason"] == f'{before} to {2 * before}: stores "twice"'
    # A figure that does not change keeps its reason.
    assert run(counts, monkeypatch, round(2 * before, 2), "tree/append", "--accept", "again") == 0
    assert recorded(counts, "tree/append/B=64")["reason"] == workload["reason"]
    capsys.readouterr()


@pytest.mark.parametrize("words", [["--accept"], ["--accept", " "]])
def test_no_figure_is_recorded_without_a_reason(counts, monkeypatch, capsys, words):
    before = counts.TABLE.read_text()
    with pytest.raises(SystemExit) as stopped:
        run(counts, monkeypatch, 1.0, *words)
    assert stopped.value.code == 2 and "--accept" in capsys.readouterr().err
    assert counts.TABLE.read_text() == before


def test_the_table_is_as_the_script_writes_it(counts):
    before = counts.TABLE.read_text()
    counts.write(tomllib.loads(before))
    assert counts.TABLE.read_text() == before
