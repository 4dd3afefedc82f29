"""``parl bench``: measure frame rates and batching strategies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from parl.cli.arguments import UsageError, parse

_USAGE = """\
usage: parl bench atari|tradeoff [OPTIONS]

  atari     measure frames per second of Atari environments with random actions, with a policy, with training
  tradeoff  measure updates and steps per second, and the time to a score, for batching strategies of A2C

parl bench atari --help and parl bench tradeoff --help list the options.
"""


def bench_command(arguments: Sequence[str]) -> int:
    """Runs a benchmark and prints its lines. Returns the exit status."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(_USAGE, end="")
        return 0
    if not arguments or arguments[0] not in ("atari", "tradeoff"):
        raise UsageError(
            f"parl bench takes atari or tradeoff, got {' '.join(arguments)!r}; see parl bench --help"
        )
    from parl.bench import atari, tradeoff

    kinds: dict[str, tuple[type[Any], Callable[[Any], Iterator[str]]]] = {
        "atari": (atari.AtariOptions, atari.bench),
        "tradeoff": (tradeoff.TradeoffOptions, tradeoff.bench),
    }
    options, work = kinds[arguments[0]]
    for line in work(parse(options, f"parl bench {arguments[0]}", arguments[1:])):
        print(line, flush=True)
    return 0
