"""The command ``parl``: one module per command, each option a field of a dataclass."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from parl.cli.errors import UsageError, close_broken_streams, message_of
from parl.errors import ParlError
from parl.functions import import_module, remember

_USAGE = """\
usage: parl COMMAND [OPTIONS]

  train ALGORITHM    train an agent (parl train dqn --env CartPole-v1); algorithms: {algorithms}
  resume RUN         continue a run from its last checkpoint
  tune ALGORITHM     search for the settings with the highest returns (parl tune ppo --env CartPole-v1)
  watch RUN          show a run's newest policy in the terminal, while it trains or later
  eval RUN           play greedy episodes on other seeds than training and print the scores;
                     --suite atari5 RUN... prints human-normalized scores of several games
  runs [FOLDER]      list the runs of a folder with their scores and states
  compare RUN...     compare algorithms and settings over seeds: interquartile means with intervals
  plot RUN...        draw learning curves against steps and wall time
  report RUN         write settings, curves, scores and video of a run into one HTML page
  bench atari        measure frames per second with a policy and with training, for several numbers of
                     environments, and draw a figure
  bench tradeoff     measure updates and steps per second, and the time to a score, for several batching
                     strategies of A2C, and draw a figure
  games [GAME...]    list the Atari games and whether their ROM files are installed
  play GAME          play an Atari game in a window or the terminal
  record RUN -o F    record an episode of a run's best checkpoint in an .mp4, .gif or .png file
  record GAME -o F   record an Atari game with random or scripted actions in such a file
  record-dataset GAME|RUN|PLAY -o F
                     record a dataset of random play, of a run's policy, or of a file of parl play --record
  dataset info|verify|merge|split|recover
                     describe, check, join and divide datasets
  doctor             print versions, hardware and ROM files of this machine; --env [preset] prints the
                     settings of the Atari presets, --sweep removes shared memory that dead processes left,
                     --compile [device] compiles the CUDA kernels into the kernel cache

parl COMMAND --help lists a command's options. --import MODULE imports a module of your own first, which can
register algorithms. --traceback, or PARL_TRACEBACK=1, shows where an error arose.
"""
_COMMANDS = (
    "train", "resume", "tune", "watch", "eval", "runs", "compare", "plot", "report", "bench", "games", "play",
    "record", "record-dataset", "dataset", "doctor",
)  # fmt: skip


def _command(name: str) -> Callable[[Sequence[str]], int]:
    """The function that runs a command."""
    module = name.replace("-", "_")
    return getattr(importlib.import_module(f"parl.cli.{module}"), f"{module}_command")


def _usage() -> str:
    from parl._algorithms import algorithm_names

    return _USAGE.format(algorithms=", ".join(algorithm_names()))


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
        remember(module)
    return rest


def _run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit status."""
    command = arguments[0] if arguments else "--help"
    if command in ("-h", "--help", "help"):
        print(_usage(), end="", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if command == "--version":
        import parl

        print(f"parl {parl.__version__}")
        return 0
    if command not in _COMMANDS:
        from parl.run.config import suggestion

        near = suggestion(command, _COMMANDS)
        meant = "" if near is None else f" (did you mean {near!r}?)"
        raise UsageError(f"there is no command {command!r}{meant}; parl --help lists the commands")
    return _command(command)(arguments[1:])


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; an error that its user can mend becomes one message on standard error.

    Args:
        arguments: the command line without the program's name; by default that of this process.

    Returns:
        The exit status: 0, 1 after an error, 2 for wrong usage, 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "torch" not in sys.modules:
        # Otherwise torch's idle threads spin, and beside other programs they slow down the busy one.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    traced = "--traceback" in words or os.environ.get("PARL_TRACEBACK", "0") not in ("", "0")
    try:
        try:
            status = _run(import_modules([word for word in words if word != "--traceback"]))
        except SystemExit as end:  # tyro's, after --help
            status = int(end.code or 0)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt as error:
        with contextlib.suppress(OSError):  # the terminal may be closed
            print(f"parl: {error}" if str(error) else "parl: interrupted", file=sys.stderr)
        return 130  # As shells report a program ended by SIGINT.
    except Exception as error:
        is_closed = isinstance(error, OSError) and error.errno == errno.EIO  # the terminal, see SIGHUP
        if (is_closed or isinstance(error, BrokenPipeError)) and close_broken_streams():
            return 130 if is_closed else 0
        message = message_of(error)
        if message is None:
            raise
        if traced:
            traceback.print_exc()
        # Wrong usage names the command itself.
        print(message if message.startswith("parl ") else f"parl: {message}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
