"""Reading command-line arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parl.errors import ParlError


def parse(kind: Any, prog: str, arguments: Sequence[str], default: Any = None) -> Any:
    """Reads ``arguments`` into an instance of the dataclass ``kind``; integers may end in k, M or G."""
    import tyro

    from parl.run import parse_count

    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def count(info: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        if info.type is not int:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=lambda words: parse_count(words[0]),
            is_instance=lambda value: isinstance(value, int),
            str_from_instance=lambda value: [str(value)],
        )

    options = {} if default is None else {"default": default}
    with registry:
        return tyro.cli(tyro.conf.OmitArgPrefixes[kind], prog=prog, args=list(arguments), **options)


def take_options(name: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The values of all ``--name VALUE`` or ``--name=VALUE``, and the arguments without them.

    Raises:
        ParlError: a value is missing.
    """
    rest: list[str] = []
    values: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == name:
            value = next(words, None)
            if value is None:
                raise ParlError(f"{name} needs a value")
            values.append(value)
        elif word.startswith(name + "="):
            values.append(word[len(name) + 1 :])
        else:
            rest.append(word)
    return values, rest


def take_option(name: str, arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The last value that :func:`take_options` finds, None without one, and the arguments without them."""
    values, rest = take_options(name, arguments)
    return values[-1] if values else None, rest
