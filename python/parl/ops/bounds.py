"""Checks of settings, which dataclasses of settings call in ``__post_init__``."""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral
from typing import Any

from parl.errors import ConfigError

NO_IMAGES = "observations without images"
"""Reason why settings for images have no effect."""


def _qualified_name(config: Any, name: str) -> str:
    """The name of a setting, after that of the algorithm if ``config`` has one."""
    algorithm = getattr(config, "algorithm_name", "")
    return f"{algorithm}: {name}" if algorithm else name


def integer(name: str, value: Any, lowest: int) -> int:
    """``value`` as an int.

    Raises:
        ConfigError: it is not an integer of at least ``lowest``; names it.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < lowest:
        raise ConfigError(f"{name} = {value!r} is not an integer of at least {lowest}")
    return int(value)


def check_bounds(
    config: Any,
    *rows: tuple[str, float, float],
    infinite: Collection[str] = (),
) -> None:
    """Raises if a field is not finite or outside its bounds (name, lowest, highest).

    Args:
        config: has the fields; the message begins with its ``algorithm_name`` if it has one.
        rows: bounds, both inclusive.
        infinite: names of fields that may be infinite, such as limits.

    Raises:
        ConfigError: names the field, its value and the bounds.
    """
    for name, low, high in rows:
        value = getattr(config, name)
        if not low <= value <= high:
            raise ConfigError(f"{_qualified_name(config, name)} = {value} is outside {low} to {high}")
        if abs(value) == math.inf and name not in infinite:
            raise ConfigError(f"{_qualified_name(config, name)} = {value} is not finite")


def check_above_zero(config: Any, *names: str) -> None:
    """Raises if a field is not above 0.

    Args:
        config: has the fields.
        names: of the fields.

    Raises:
        ConfigError: names the field and its value.
    """
    for name in names:
        if not getattr(config, name) > 0:
            raise ConfigError(f"{_qualified_name(config, name)} = {getattr(config, name)} is not above 0")


def check_choices(config: Any, *rows: tuple[str, tuple[str, ...]]) -> None:
    """Raises if a field is not one of its choices.

    Args:
        config: as in :func:`check_bounds`.
        rows: name and choices.

    Raises:
        ConfigError: names the field, its value and the choices.
    """
    for name, choices in rows:
        value = getattr(config, name)
        if value not in choices:
            raise ConfigError(
                f"{_qualified_name(config, name)} = {value!r} is not one of {', '.join(choices)}"
            )


def check_hidden(config: Any) -> None:
    """Raises unless ``config.hidden``, the widths of layers, has one or more integers of at least 1.

    Raises:
        ConfigError: names the value.
    """
    whole = all(not isinstance(width, bool) and isinstance(width, Integral) for width in config.hidden)
    if not config.hidden or not whole or min(config.hidden) < 1:
        name = _qualified_name(config, "hidden")
        raise ConfigError(f"{name} = {config.hidden} needs one or more widths, integers of at least 1")
