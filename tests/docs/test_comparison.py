"""`docs/comparison.md`: each yes of parl names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "comparison.md"


def parl_cells(text):
    """Returns the last cell of each row of the table that has one."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [row.strip("|").split("|")[-1].strip() for row in rows[2:]]
    return [cell for cell in cells if cell]


def unproved(cells):
    """Returns the cells with a yes and without a comment that names an existing test."""
    found = []
    for cell in cells:
        named = re.search(r"<!-- (tests/[\w/]+\.py)::(test_\w+) -->", cell)
        if not cell.startswith("yes"):
            continue
        path = ROOT / named[1] if named else None
        if path is None or not path.exists() or f"def {named[2]}(" not in path.read_text(encoding="utf-8"):
            found.append(cell)
    return found


def test_a_yes_without_a_test_is_found():
    text = """
| feature | parl |
|---|---|
| a | yes |
| b | yes <!-- tests/docs/test_comparison.py::test_gone --> |
| c | yes <!-- tests/docs/test_comparison.py::test_each_yes_has_a_test --> |
| d | no |
"""
    cells = parl_cells(text)
    assert len(cells) == 4
    assert unproved(cells) == cells[:2]


def test_each_yes_has_a_test():
    cells = parl_cells(PAGE.read_text(encoding="utf-8"))
    assert len(cells) > 25
    assert unproved(cells) == []
