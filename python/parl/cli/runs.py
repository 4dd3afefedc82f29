"""``parl runs``, and what commands on runs share: paths, summary, the question about pickles."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from parl.cli.arguments import UsageError, aligned, parse
from parl.cli.option_types import Flag
from parl.errors import ConfigError, RunDirectoryError, UntrustedRunError
from parl.run.progress import duration

# Exit status of a program ended by SIGINT, as shells give it.
INTERRUPTED = 130

RunPath = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
RunPaths = Annotated[
    tyro.conf.Positional[tuple[Path, ...]],
    tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="(required)"),
]
# Run directories, folders of checkpoints, or policies on the Hugging Face Hub.
SavedPolicies = Annotated[
    tyro.conf.Positional[tuple[str, ...]],
    tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="(required)"),
]

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class RunsOptions:
    """List the runs of a folder. The score is the mean return of the last evaluation."""

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="[FOLDER]")] = Path("runs")
    """Folder of run directories."""
    sort: Literal["name", "algorithm", "env", "score", "steps", "time", "state", "created"] = "name"
    """Column to sort by: numbers and dates from the largest down, text in alphabetical order."""
    json: Flag = False
    """Print a JSON array instead of a table."""


def runs_command(arguments: Sequence[str]) -> int:
    """Lists runs. Returns the exit status."""
    from parl.run.listing import list_runs

    options = parse(RunsOptions, "parl runs", arguments)
    found = list_runs(options.folder, options.sort)
    if options.json:
        print(json.dumps([one.record() for one in found], indent=2))
        return 0
    if not found:
        print(f"there are no runs in {options.folder}")
        return 0
    print(aligned([("run", "algorithm", "env", "score", "steps", "time", "state"), *map(_cells, found)]))
    return 0


def _cells(one: Any) -> tuple[str, ...]:
    return (
        one.name,
        one.algorithm,
        one.env,
        "-" if one.score is None else f"{one.score:.1f}",
        f"{one.steps:,}",
        "-" if one.time_s is None else duration(one.time_s),
        one.state,
    )


def some(runs: tuple[T, ...], prog: str) -> tuple[T, ...]:
    """The run directories of a command, at least one.

    Raises:
        UsageError: there is none.
    """
    if not runs:
        raise UsageError(f"{prog} needs at least one run directory")
    return runs


def interruptible(training: Callable[[], Any]) -> Any:
    """Calls ``training`` and returns its run, also if it was interrupted."""
    train = importlib.import_module("parl.train")
    try:
        return training()
    except train.TrainingInterrupted as error:
        return error.run


def summarize(run: Any) -> int:
    """Prints how a run ended and draws its learning curve; returns the exit status."""
    if run.stopped == "follower":
        return 0  # The first process of torchrun prints it.
    score = "" if run.evaluation_return is None else f", evaluation mean {run.evaluation_return:.1f}"
    print(
        f"{run.path}: {run.env_steps:,} transitions, {run.updates:,} updates, "
        f"{run.training_s:.1f} s of training{score}, ended by {run.stopped}"
    )
    if importlib.util.find_spec("matplotlib") is not None:
        from parl.run.plot import plot_runs

        try:
            drawn = plot_runs([run.path], curve_path(run.path))
        except RunDirectoryError:  # a run too short for a finished episode
            pass
        except (ConfigError, OSError) as error:
            print(f"no learning curve: {error}", file=sys.stderr)
        else:
            print(f"learning curve: {drawn}")
    return INTERRUPTED if run.stopped == "interrupted" else 0


def curve_path(run: Path) -> Path:
    """Where the learning curve of a run is drawn."""
    return run / "plots" / "learning-curve.png"


def ask_for_trust(action: Callable[[bool], Any], trust: bool) -> Any:
    """Calls ``action(trust)``. If the run has pickles and ``trust`` is false, asks the user at a terminal.

    Raises:
        UntrustedRunError: the run has pickles, and neither ``trust`` nor the user allows to load them.
    """
    try:
        return action(trust)
    except UntrustedRunError as error:
        if not sys.stdin.isatty():
            raise
        print(f"parl: {error}", file=sys.stderr)
        if input("Load it now? [y/N] ").strip().lower() not in ("y", "yes"):
            raise
        return action(True)
