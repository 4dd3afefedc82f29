"""The Python blocks of the README and of docs/ run as they stand, and so do the scripts in examples/."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(code, id=f"{page.name}:{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))
]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))


def _run(arguments, folder):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PARL_EXAMPLE_QUICK": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def test_there_are_examples():
    assert len(BLOCKS) >= 2
    assert len(SCRIPTS) >= 1


@pytest.mark.parametrize("code", BLOCKS)
def test_block_runs(code, tmp_path):
    (tmp_path / "block.py").write_text(code)
    _run(["block.py"], tmp_path)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_script_runs(script, tmp_path):
    _run([str(script)], tmp_path)
