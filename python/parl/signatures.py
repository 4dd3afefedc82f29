"""Signatures for ``help()``, editors and :func:`inspect.signature` where Python would show ``**options``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

_KEYWORD = inspect.Parameter.KEYWORD_ONLY
Defined = TypeVar("Defined", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=type[Any])


class Unset:
    """The default of a keyword whose value, if it is not given, depends on the other arguments."""

    def __repr__(self) -> str:
        return "<unset>"


UNSET = Unset()


def show_options(options: type) -> Callable[[Defined], Defined]:
    """Shows each key of the TypedDict ``options`` as a keyword instead of the function's ``**options``."""

    def decorate(function: Defined) -> Defined:
        kept = [one for one in inspect.signature(function).parameters.values() if one.kind != one.VAR_KEYWORD]
        names = {one.name for one in kept}
        keywords = [
            inspect.Parameter(name, _KEYWORD, default=UNSET, annotation=_text(annotation))
            for name, annotation in options.__annotations__.items()
            if name not in names
        ]
        returned = function.__annotations__.get("return", inspect.Signature.empty)
        vars(function)["__signature__"] = inspect.Signature([*kept, *keywords], return_annotation=returned)
        return function

    return decorate


def show_init(kind: Kind) -> Kind:
    """Sets the signature of a class that defines ``__new__`` to that of its ``__init__``."""
    kind.__signature__ = inspect.Signature(list(inspect.signature(kind.__init__).parameters.values())[1:])
    return kind


def _text(annotation: Any) -> Any:
    """The source text of an annotation that the TypedDict keeps as a forward reference."""
    return getattr(annotation, "__forward_arg__", annotation)
