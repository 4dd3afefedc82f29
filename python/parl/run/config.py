"""Settings in TOML files, checks of their keys, and counts such as ``10M``."""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from parl.errors import ConfigError

_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
_COUNT = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?(?:e[0-9]+)?)([kmgb]?)", re.IGNORECASE)


def parse_count(value: int | float | str) -> int:
    """Converts a count such as ``10000``, ``"10_000"``, ``"10k"``, ``"2.5M"`` or ``"1e6"`` to an int.

    Raises:
        ConfigError: ``value`` is not a whole number in 0..2**63.
    """
    if isinstance(value, str):
        match = _COUNT.fullmatch(value.strip())
        if match is None:
            raise ConfigError(
                f"{value!r} is not a count, expected for example 50000, 50_000, 50k, 2.5M or 1e6"
            )
        number = float(match[1].replace("_", "")) * _SUFFIXES[match[2].lower()]
    else:
        number = value
    # A float that is not finite fails the comparison with its own floor, or overflows int().
    if not 0 <= number < 2**63 or number != int(number):
        raise ConfigError(f"{value!r} is not a whole number in 0..2**63")
    return int(number)


def check_keys(given: Collection[str], valid: Collection[str], where: str) -> None:
    """Checks that all keys are valid.

    Args:
        given: keys that are used.
        valid: keys that exist.
        where: what the keys belong to, for the message.

    Raises:
        ConfigError: a key is unknown; the message names it and the most similar valid key.
    """
    unknown = [key for key in given if key not in valid]
    if not unknown:
        return
    words: list[str] = []
    for key in unknown:
        near = difflib.get_close_matches(key, valid, n=1, cutoff=0.5)
        words.append(f"{key!r} (did you mean {near[0]!r}?)" if near else f"{key!r}")
    raise ConfigError(f"{where} has no setting {', '.join(words)}; settings are: {', '.join(sorted(valid))}")


def load_toml(path: str | Path) -> dict[str, Any]:
    """Reads the settings in a TOML file.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: the file is not valid TOML; the message names file, line and column.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def plain(value: Any) -> Any:
    """Converts a value to the types of TOML and JSON: dataclasses to tables, tuples to arrays, paths to text.

    Keys with the value None are left out: TOML has no null, and a missing key means the default.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | float | str):
        return value
    return str(value)


def dump_toml(settings: Mapping[str, Any]) -> str:
    """Formats settings as TOML, which :func:`load_toml` reads back; keys with the value None are left out."""
    import tomli_w

    return tomli_w.dumps(plain(settings))
