"""``parl bench``: measure frame rates and batching strategies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from parl.cli.arguments import parse
from parl.errors import ParlError


def bench_command(arguments: Sequence[str]) -> int:
    """Runs a benchmark and prints its lines. Returns the exit status."""
    from parl.bench import atari, tradeoff

    kinds: dict[str, tuple[type[Any], Callable[[Any], Iterator[str]]]] = {
        "atari": (atari.AtariOptions, atari.bench),
        "tradeoff": (tradeoff.TradeoffOptions, tradeoff.bench),
    }
    if not arguments or arguments[0] not in kinds:
        raise ParlError(f"parl bench takes one of {', '.join(kinds)}, got {' '.join(arguments)!r}")
    options, work = kinds[arguments[0]]
    for line in work(parse(options, f"parl bench {arguments[0]}", arguments[1:])):
        print(line, flush=True)
    return 0
