"""Reading command-line arguments, for every command with tyro."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from collections.abc import Collection, Sequence
from typing import Any, get_args, get_origin, get_type_hints

from parl.cli.errors import UsageError
from parl.errors import ParlError
from parl.run.config import suggestion

_OPTION = re.compile(r"--?[A-Za-z]")  # not a negative number

# The frame around a message of tyro, and words in it that say nothing: names of classes and of the command.
_FRAME = "╭╮╰╯│─ "
_NOISE = re.compile(r"^Error parsing (?=--)|^Error parsing \w+: |(?<=Missing) from parl [\w ]+(?=:)")


def parse(kind: Any, prog: str, arguments: Sequence[str]) -> Any:
    """Reads ``arguments`` into an instance of the dataclass ``kind``; integers may end in k, M or G.

    An option that takes several values, such as ``--env-options``, has those of all its repetitions.

    Raises:
        UsageError: an option is unknown, missing or has a wrong value; names it and what to write instead.
    """
    parsed, unknown = parse_known(kind, prog, arguments)
    _refuse_unknown(prog, unknown, _options_of(kind).keys())
    return parsed


def parse_known(kind: Any, prog: str, arguments: Sequence[str]) -> tuple[Any, list[str]]:
    """As :func:`parse`, and returns the arguments that are not options of ``kind``."""
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
            instance_from_str=lambda words: _signed_count(words[0], parse_count),
            is_instance=lambda value: isinstance(value, int),
            str_from_instance=lambda value: [str(value)],
        )

    several = {
        name
        for name, hint in _options_of(kind).items()
        if any(get_origin(one) is tuple for one in (hint, *get_args(hint)))  # also tuple | None
    }
    words = _without_repetitions(arguments, several)
    printed = io.StringIO()
    try:
        with registry, contextlib.redirect_stderr(printed):
            return tyro.cli(tyro.conf.OmitArgPrefixes[kind], prog=prog, args=words, return_unknown_args=True)
    except SystemExit as end:
        if not end.code:
            raise  # after --help
        raise UsageError(f"{prog}: {_first_message(printed.getvalue())}; {_hint(prog)}") from None
    except ParlError as error:
        raise UsageError(f"{prog}: {error}") from error


def _signed_count(word: str, parse_count: Any) -> int:
    return -parse_count(word[1:]) if word.startswith("-") else parse_count(word)


def _without_repetitions(arguments: Sequence[str], names: Collection[str]) -> list[str]:
    """``arguments`` in which each option of ``names`` is given once, with the values of all repetitions."""
    parts: list[list[str]] = [[]]  # options with their values
    earlier: dict[str, list[str]] = {}
    for word in arguments:
        if not _OPTION.match(word):
            parts[-1].append(word)
            continue
        option, sign, value = word.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if name in names:
            before = earlier.get(name, [])
            earlier[name] = [option, *before[1:], *([value] if sign else [])]
            before.clear()
            parts.append(earlier[name])
        else:
            parts.append([word])
    return [word for part in parts for word in part]


def _options_of(kind: Any) -> dict[str, Any]:
    """The options of a dataclass and their types, including those of groups, which are dataclasses too."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        found |= _options_of(hint) if dataclasses.is_dataclass(hint) else {name: hint}
    return found


def _refuse_unknown(prog: str, words: Sequence[str], names: Collection[str]) -> None:
    """Checks that no word is left over.

    Args:
        prog: the command, for the message.
        words: arguments that were not understood.
        names: names of the options that exist, with ``_`` in place of ``-``.

    Raises:
        UsageError: there is such a word; the message suggests an option.
    """
    if not words:
        return
    word = next((word for word in words if word.startswith("-")), words[0])
    if not word.startswith("--"):
        raise UsageError(f"{prog}: {word!r} is one argument too many; {_hint(prog)}")
    option = word.partition("=")[0]
    near = suggestion(option[2:].removeprefix("no-").replace("-", "_"), names)
    meant = "" if near is None else f": did you mean --{near.replace('_', '-')}?"
    raise UsageError(f"{prog}: there is no option {option}{meant or '; ' + _hint(prog)}")


def _hint(prog: str) -> str:
    return f"{prog} --help lists the options"


def _first_message(text: str) -> str:
    """The first message of tyro, without the frame around it, as one line."""
    lines = [line.strip(_FRAME) for line in text.splitlines()]
    message: list[str] = []
    for line in lines[1:]:
        if not line:
            break
        message.append(line)
    return _NOISE.sub("", " ".join(" ".join(message or lines).split()).rstrip("."))


def take_options(name: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The values of all ``--name VALUE`` or ``--name=VALUE``, and the arguments without them.

    Raises:
        UsageError: a value is missing.
    """
    rest: list[str] = []
    values: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == name:
            value = next(words, None)
            if value is None:
                raise UsageError(f"{name} needs a value")
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


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows of cells as a table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
