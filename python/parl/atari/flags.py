"""Arguments that are True or False."""

from __future__ import annotations

from typing import Any

import numpy as np


def flag(name: str, value: Any) -> bool:
    """Checks that ``value`` is a bool, or 0 or 1, and returns it as a bool.

    Raises:
        TypeError: it is something else, such as text.
    """
    if isinstance(value, bool | np.bool_ | int) and value in (0, 1):
        return bool(value)
    raise TypeError(f"{name} is {value!r}, expected True or False")
