"""`docs/glossary.md`: in alphabetical order, two lines each, every term once."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "glossary.md"
ENTRY = re.compile(r"^- \*\*(.+?)\*\*: (.+?)(?=^- |\Z)", re.M | re.S)


def entries():
    return ENTRY.findall(PAGE.read_text(encoding="utf-8"))


def test_terms_are_in_alphabetical_order():
    terms = [term.lower() for term, _ in entries()]
    assert len(terms) > 40
    assert terms == sorted(set(terms))


def test_an_entry_has_at_most_two_lines():
    long = [term for term, text in entries() if len(text.strip().splitlines()) > 2]
    assert long == []
