"""The code blocks of docs/adapters.md run unchanged, in this process, which has loaded the libraries."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"
BLOCKS = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(), re.M | re.S)


def test_every_library_has_a_block():
    text = "".join(BLOCKS)
    assert all(f"parl.adapters.{name}" in text for name in ("sb3", "torchrl", "tianshou", "cpprb"))


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_block_runs(code):
    exec(compile(code, str(PAGE), "exec"), {})
