"""Parameters of which the quick tests take a part."""

from collections.abc import Iterable
from typing import Any

import pytest


def one_of(count: int, values: Iterable[Any]) -> list[Any]:
    """Every ``count``-th value, and the others marked as slow."""
    slow = pytest.mark.slow(minutes=0.1)
    return [pytest.param(value, marks=[slow] if at % count else []) for at, value in enumerate(values)]
