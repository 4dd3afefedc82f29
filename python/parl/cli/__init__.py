"""The command ``parl``: one module per command, each option a field of a dataclass."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence

from parl.errors import ParlError
from parl.functions import import_module

_USAGE = """\
usage: parl COMMAND [OPTIONS]

  train ALGORITHM    train an agent (parl train dqn --env CartPole-v1); algorithms: {algorithms}
  resume RUN         continue a run from its last checkpoint
  eval RUN           play greedy episodes on new seeds and print the scores; --suite atari5 RUN... prints
                     human-normalized scores of several games
  plot RUN...        draw learning curves against steps and wall time
  bench atari        measure frames per second with a policy and with training, for several numbers of
                     environments, and draw a figure
  bench tradeoff     measure updates and steps per second, and the time to a score, for several batching
                     strategies of A2C, and draw a figure
  games [GAME...]    list the Atari games and whether their ROM files are installed
  play GAME          play an Atari game in a window or the terminal
  record RUN -o F    record an episode of a run's best checkpoint in an .mp4, .gif or .png file
  record GAME -o F   record an Atari game with random or scripted actions in such a file
  doctor             print versions, hardware and ROM files of this machine; --env [preset] prints the
                     settings of the Atari presets, --sweep removes shared memory that dead processes left,
                     --compile [device] compiles the CUDA kernels into the kernel cache

parl COMMAND --help lists a command's options. --import MODULE imports a module of your own first, which can
register algorithms.
"""
_COMMANDS = ("train", "resume", "eval", "plot", "bench", "doctor", "games", "play", "record")


def _command(name: str) -> Callable[[Sequence[str]], int]:
    """The function that runs a command."""
    if name in ("games", "play"):
        from parl.atari import commands

        return lambda arguments: commands.run(name, arguments)
    return getattr(importlib.import_module(f"parl.cli.{name}"), f"{name}_command")


def _usage() -> str:
    algorithms = importlib.import_module("parl.train").algorithm_names()
    return _USAGE.format(algorithms=", ".join(algorithms))


def import_modules(arguments: Sequence[str]) -> list[str]:
    """Imports each ``--import MODULE`` among ``arguments``; returns the other ones.

    Raises:
        ParlError: there is no such module, or its name is missing.
    """
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        option, sign, name = word.partition("=")
        if option != "--import":
            rest.append(word)
            continue
        module = name if sign else next(words, "")
        if not module:
            raise ParlError("--import needs the name of a module")
        import_module(module, "--import")
    return rest


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns 0, 1 after an error, 2 for wrong usage, 130 after Ctrl-C (run saved)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    command = arguments[0] if arguments else "--help"
    if command in ("-h", "--help", "help"):
        print(_usage(), end="")
        return 0 if arguments else 2
    if command == "--version":
        import parl

        print(f"parl {parl.__version__}")
        return 0
    if command not in _COMMANDS:
        print(f"parl: there is no command {command!r}\n\n{_usage()}", end="", file=sys.stderr)
        return 2
    try:
        return _command(command)(import_modules(arguments[1:]))
    except (ParlError, FileNotFoundError) as error:
        print(f"parl: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130  # As shells report a program ended by SIGINT.
