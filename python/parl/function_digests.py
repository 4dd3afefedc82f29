"""Digests of functions, classes and instances without an import path, by which their runs are compared.

Two processes that define the same function get the same digest: it depends on code, defaults, closures and
the globals that the code names, not on files, lines and addresses.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import random
import sys
import types
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from parl.functions import PickledFunction, path_of

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
# Attributes of a class that Python sets.
_OF_CLASSES = {"__module__", "__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__"}


def digest_of(value: Any) -> str:
    """Eight hexadecimal digits that depend on a function, class or instance; random if it cannot be read."""
    if isinstance(value, PickledFunction):
        value = value.function
    seen = hashlib.sha256()
    try:
        for word in _words(value, set()):
            seen.update(word.encode(errors="surrogatepass") + b"\0")
    except Exception:  # a user's object may raise any error
        return uuid.uuid4().hex[:8]
    return seen.hexdigest()[:8]


def _words(value: Any, visited: set[int]) -> Iterator[str]:
    """Describes a value in words, depth first; one that was visited before only by its type."""
    kind = type(value)
    yield f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, _PLAIN):
        yield repr(value)
        return
    if isinstance(value, types.ModuleType):
        yield value.__name__
        return
    path = path_of(value) if callable(value) else None
    if path is not None or isinstance(value, types.BuiltinFunctionType):
        yield path or value.__qualname__
        return
    if id(value) in visited:
        return
    visited.add(id(value))
    for name, part in _parts(value):
        yield name
        if isinstance(part, set | frozenset):
            yield from sorted(" ".join(_words(item, visited)) for item in part)
        else:
            yield from _words(part, visited)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of what an object consists of."""
    if isinstance(value, types.FunctionType):
        yield "code", value.__code__
        yield "defaults", value.__defaults__
        yield "keywords", value.__kwdefaults__
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            # A function that refers to itself can have an empty cell.
            yield from [(name, cell.cell_contents)] if cell != types.CellType() else []
        for name in _names(value.__code__):
            if name in value.__globals__:
                yield name, value.__globals__[name]
    elif isinstance(value, types.CodeType):
        yield "instructions", value.co_code
        yield "names", value.co_names
        for constant in value.co_consts:
            yield "constant", constant
    elif isinstance(value, types.MethodType):
        yield "function", value.__func__
        yield "self", value.__self__
    elif isinstance(value, functools.partial):
        yield "function", value.func
        yield "arguments", value.args
        yield "keywords", value.keywords
    elif isinstance(value, type):
        yield "bases", value.__bases__
        yield from ((name, part) for name, part in vars(value).items() if name not in _OF_CLASSES)
    elif isinstance(value, staticmethod | classmethod):
        yield "function", value.__func__
    elif isinstance(value, property):
        yield "functions", (value.fget, value.fset, value.fdel)
    elif isinstance(value, np.ndarray):
        yield "shape", value.shape
        yield "content", value.tolist() if value.dtype.hasobject else value.tobytes()
    elif isinstance(value, Mapping):
        yield from ((repr(key) if isinstance(key, _PLAIN) else "key", item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        yield from (("item", item) for item in value)
    elif isinstance(value, _GENERATORS):
        return  # random, also where nothing else differs
    elif "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
        yield "shape", tuple(value.shape)
    else:
        yield "class", type(value)
        yield from getattr(value, "__dict__", {}).items()


def _names(code: types.CodeType) -> list[str]:
    """The names that code and the functions in it look up among the globals."""
    own = [one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    inner = [name for one in code.co_consts if isinstance(one, types.CodeType) for name in _names(one)]
    return list(dict.fromkeys([*own, *inner]))
