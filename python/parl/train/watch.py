"""Shows the newest policy of a run in the terminal, while the run trains or after its end."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parl import functions
from parl.errors import ConfigError
from parl.run import RunDirectory
from parl.run.listing import listed
from parl.train.callbacks import Callback, RunInfo
from parl.train.player import Player
from parl.train.saved_runs import load

if TYPE_CHECKING:
    from parl.train.policy import Policy
    from parl.train.trainer import Run
    from parl.types import Array

_SEED = 2_000_000
"""Seed of the first episode. Runs use no seeds below 2**23, and evaluations by hand begin with 1,000,000."""
_WAIT_S = 0.5
_SIZE = (210, 160, 3)


def scenes(path: Path, *, trust: bool = False) -> Iterator[tuple[Array, str, float]]:
    """Plays greedy episodes without end, each with the newest checkpoint of the run at its beginning.

    Args:
        path: the run directory. Before its first checkpoint the pictures are black.
        trust: load pickles of the run, see :func:`parl.resume`.

    Yields:
        A picture (H, W, 3) uint8, a line of text about it, and the number of seconds for which to show it.

    Raises:
        FileNotFoundError: there is no run, or it has ended without a checkpoint.
        ConfigError: the environment renders no pictures.
    """
    run = RunDirectory.open(path)
    policy: Policy | None = None
    player: Player | None = None
    try:
        for seed in itertools.count(_SEED):
            while (newest := _newest(run, policy, trust)) is None:
                yield np.zeros(_SIZE, np.uint8), "waiting for the first checkpoint", _WAIT_S
            policy = newest
            player = player or Player(policy.env_maker)
            at = f"episode {seed - _SEED + 1}, after {policy.env_steps:,} transitions"
            for picture in player.episode(policy, seed):
                yield picture, f"return {player.episode_return:g}, {at}", 1 / player.fps
    finally:
        if player is not None:
            player.close()


def _newest(run: RunDirectory, known: Policy | None, trust: bool) -> Policy | None:
    """The policy of the newest checkpoint, which may be the one already known; None if there is none yet."""
    try:
        is_known = known is not None and known.folder == run.checkpoints.last()
        return known if is_known else load(run.path, "last", trust=trust)
    except FileNotFoundError:
        # A run in progress has none yet, or has replaced it meanwhile.
        if known is None and listed(run.path).state != "running":
            raise
        return known


def show(
    path: Path,
    draw: Callable[[Array, str], None],
    pressed: Callable[[], list[str]],
    *,
    fps: float | None = None,
    trust: bool = False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Shows :func:`scenes` in real time until q is pressed.

    Args:
        path: the run directory.
        draw: shows a picture and a line of text.
        pressed: returns the keys pressed since its last call.
        fps: pictures per second; None for those of the environment.
        trust: load pickles of the run.
        clock: time in seconds.
        sleep: waits for a number of seconds.
    """
    due = clock()
    for picture, text, seconds in scenes(path, trust=trust):
        if {"q", "escape", "ctrl+c"}.intersection(pressed()):
            return
        draw(picture, f"{text}  (q closes the view)")
        due += seconds if fps is None else 1 / fps
        now = clock()
        if due > now:
            sleep(due - now)
        else:
            due = now


class Watch(Callback):
    """Shows a run in the terminal while it trains: a process of its own runs ``parl watch``.

    Raises:
        ConfigError: standard input or output is no terminal.
    """

    def __init__(self) -> None:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise ConfigError("--watch needs a terminal; `parl record RUN -o FILE` writes a video of a run")
        self._process: subprocess.Popen[bytes] | None = None

    def on_start(self, run: RunInfo) -> None:
        """Starts the process."""
        # The run's pickles were written by the process that trains.
        command = [sys.executable, "-m", "parl", "watch", str(run.path), "--trust"]
        command += [f"--import={module}" for module in functions.named_modules()]
        self._process = subprocess.Popen(command)

    def on_end(self, result: Run) -> None:
        """Ends the process."""
        self.close()

    def close(self) -> None:
        """Ends the process, which then restores the terminal."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None
