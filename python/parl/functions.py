"""A user's functions in settings: named by an import path, ``module:function``, or pickled if they have none.

Importing a module runs the code in it. A path that a user gives is imported; one that a run names only if its
module is already imported or the run is trusted, see :func:`check`.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from parl.errors import ConfigError, UntrustedRunError


class PickledFunction:
    """A function without an import path, such as a lambda; can be pickled.

    Attributes:
        function: the function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __repr__(self) -> str:
        return str(getattr(self.function, "__qualname__", self.function))

    def __deepcopy__(self, memo: Any) -> PickledFunction:
        return self  # dataclasses.asdict copies settings

    def __getstate__(self) -> bytes:
        import cloudpickle

        return cloudpickle.dumps(self.function)

    def __setstate__(self, state: bytes) -> None:
        import cloudpickle

        self.function = cloudpickle.loads(state)


# Environments, wrappers and modules that the user of this process named, see `check_environment`.
_NAMED: set[str] = set()


def remember(name: str) -> None:
    """Notes that the user of this process named a module, ``module:Class`` or a wrapper."""
    _NAMED.add(name)


def named_modules() -> list[str]:
    """The modules that the user of this process named, as with ``--import``, and that are imported."""
    return sorted(_NAMED & set(sys.modules))


def import_module(name: str, where: str) -> ModuleType:
    """Imports module ``name``; the current folder is searched last.

    Raises:
        ConfigError: there is no such module; the message starts with ``where``.
    """
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.append(folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{where}: {error}; it is searched for in the current folder, PYTHONPATH and installed packages"
        ) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {name!r} is not the name of a module") from error


def path_of(function: Callable[..., Any]) -> str | None:
    """Returns the import path of ``function``; None if importing it would not give the same object."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is function else None


def as_setting(name: str, value: Any) -> Any:
    """Returns a function in the form that settings keep: its import path, or :class:`PickledFunction`.

    Args:
        name: of the setting, for the message.
        value: a function, an import path, or None.

    Raises:
        ConfigError: it is neither.
    """
    if value is None or isinstance(value, PickledFunction):
        return value
    if isinstance(value, str):
        module, sign, function = value.partition(":")
        if not (sign and module and all(part.isidentifier() for part in function.split("."))):
            raise ConfigError(f"{name} = {value!r} is not of the form module:function")
        return value
    if not callable(value):
        raise ConfigError(f"{name} = {value!r} is neither a function nor its import path, module:function")
    return path_of(value) or PickledFunction(value)


def load(name: str, value: str | PickledFunction) -> Callable[..., Any]:
    """Returns the function that a setting names.

    Raises:
        ConfigError: there is no such module or function, or it cannot be called.
    """
    if isinstance(value, PickledFunction):
        return value.function
    module, _, path = value.partition(":")
    found: Any = import_module(module, f"{name} = {value!r}")
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{name} = {value!r}: module {module} has no {path}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"{name} = {value!r} is of type {type(found).__name__}, not a function")
    return found


def call(name: str, value: str | PickledFunction, **arguments: Any) -> Any:
    """Calls the function that a setting names with ``arguments``, by position.

    Raises:
        ConfigError: it does not take as many arguments.
    """
    function = load(name, value)
    try:
        inspect.signature(function).bind(*arguments.values())
    except ValueError:
        pass  # a function without a signature
    except TypeError as error:
        raise ConfigError(
            f"{name} = {value!r} is called with {len(arguments)} argument{'s' * (len(arguments) > 1)}, "
            f"{' and '.join(arguments)}: {error}"
        ) from error
    return function(*arguments.values())


def check(value: str, path: Path, trust: bool) -> None:
    """Checks that the module of an import path which a run names may be imported.

    Args:
        value: the import path.
        path: the file that names it, for the message.
        trust: whether the caller trusts the run.

    Raises:
        UntrustedRunError: the module is not imported yet, and the run is not trusted.
    """
    module = value.partition(":")[0]
    if not trust and module not in sys.modules:
        raise UntrustedRunError(
            f"{path} names {value}: importing {module} runs the code in it. Import it first, with "
            f"--import {module} on the command line; or open the run with --trust or trust=True"
        )


def check_environment(value: str, path: Path, trust: bool) -> None:
    """Checks that an environment or wrapper which a run names may be used.

    Its name says which class of which module to make, with which arguments, so it could run any code. A
    Gymnasium id is not checked: only its module is imported, and what is registered there is made.

    Args:
        value: ``module:Class``, ``module:Wrapper(argument=value)``, or an id, such as ``module:Name-v0``.
        path: the file that names it, for the message.
        trust: whether the caller trusts the run.

    Raises:
        UntrustedRunError: neither it nor its module was named in this process, and the run is not trusted.
    """
    module, colon, name = value.partition(":")
    if trust or not colon or not name.partition("(")[0].strip().isidentifier():
        return
    if value not in _NAMED and module not in _NAMED:
        raise UntrustedRunError(
            f"{path} names {value}: using it runs the code in {module}. Name the module yourself, with "
            f"--import {module} on the command line; or open the run with --trust or trust=True"
        )
