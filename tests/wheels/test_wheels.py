"""The expected lines are those of this machine, and other lines are reported."""

import subprocess
import sys
from pathlib import Path

import pytest
from ale_py import roms

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import run  # noqa: E402

EXPECTED = run.read((HERE / "expected.txt").read_text().splitlines())


@pytest.mark.parametrize("path", ["", "scalar"])
def test_the_expected_lines_are_those_of_this_machine(monkeypatch, path):
    monkeypatch.setenv("ALE_ROMS_DIR", str(Path(roms.get_rom_path("pong")).parent))
    monkeypatch.setenv("SUMTREE_PATH", path) if path else monkeypatch.delenv("SUMTREE_PATH", raising=False)
    done = subprocess.run([sys.executable, HERE / "checks.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert set(run.read(lines)) == set(EXPECTED) - {"training"} and run.differences(EXPECTED, lines) == []


def test_other_lines_are_reported_and_skipped_ones_are_not():
    lines = ["tree: 0", f"replay: {EXPECTED['replay']}", "console pong: skipped (no ROM files)", "new: 1"]
    assert run.differences(EXPECTED, lines) == [
        f"tree is 0, expected {EXPECTED['tree']}",
        "new is 1, expected None",
    ]
