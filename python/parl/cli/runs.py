"""Shared by commands on runs: summary, learning curve, and the question whether pickles are trusted."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parl.errors import RunDirectoryError, UntrustedRunError

# Exit status of a program ended by SIGINT, as shells give it.
INTERRUPTED = 130


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

        # A run too short for a finished episode has no curve.
        with contextlib.suppress(RunDirectoryError):
            print(f"learning curve: {plot_runs([run.path], curve_path(run.path))}")
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
