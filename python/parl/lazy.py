"""Public names that packages import when they are first used, so that importing parl needs only numpy."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from parl.extras import install_command


def importer(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package that imports its names on first use (PEP 562).

    If a library is missing that an extra of parl installs, the error has the command.

    Args:
        package: name of the package.
        homes: for each name, the module that has it, or the module that it is.
    """

    def import_name(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(home)
            value = module if home == f"{package}.{name}" else getattr(module, name)
        except ModuleNotFoundError as error:
            if command := install_command(error):
                reason = f"{package}.{name} needs {error.name}: {command}"
                raise ModuleNotFoundError(reason, name=error.name) from error
            raise
        setattr(sys.modules[package], name, value)
        return value

    return import_name
