"""Whether only a container still refers to one of its objects, whose memory can then be reused."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any


def _count(kept: Any, key: Any) -> int:
    return sys.getrefcount(kept[key])


# Measured, because versions of Python differ in which references of a call they count.
_UNSHARED = _count([object()], 0)


def is_unshared(kept: Sequence[Any] | Mapping[Any, Any], key: Any) -> bool:
    """Whether nothing but ``kept``, a list or dictionary, refers to ``kept[key]``."""
    return _count(kept, key) == _UNSHARED
