"""``parl watch``: show the newest policy of a run in the terminal."""

from __future__ import annotations

import dataclasses
import importlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from parl.cli.arguments import UsageError, parse
from parl.cli.option_types import Flag, OptionalFloat
from parl.cli.runs import ask_for_trust
from parl.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class WatchOptions:
    """Show greedy episodes of a run's newest checkpoint in the terminal, while the run trains or later."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A run directory."""
    fps: OptionalFloat = None
    """Frames per second; default: real time."""
    trust: Flag = False
    """Load pickles of the run without asking. This runs the code in them: open only runs you trust."""


def watch_command(arguments: Sequence[str]) -> int:
    """Shows a run until q is pressed. Returns the exit status."""
    from parl.atari.terminal import Keys, raw_terminal, screen_of_terminal

    options = parse(WatchOptions, "parl watch", arguments)
    if options.fps is not None and not options.fps > 0:
        raise UsageError(f"parl watch: --fps is {options.fps}, expected more than 0")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("parl watch needs a terminal; `parl record RUN -o FILE` writes a video of a run")
    watch = importlib.import_module("parl.train.watch")
    importlib.import_module("torch").set_num_threads(1)
    ask_for_trust(lambda trust: next(watch.scenes(options.run, trust=trust)), options.trust)
    # `parl train --watch` ends this process, which then leaves the context below.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with raw_terminal(sys.stdin.fileno(), sys.stdout) as read:
        keys = Keys()

        def pressed() -> list[str]:
            keys.feed(read())
            return keys.pressed()

        try:
            watch.show(options.run, screen_of_terminal().draw, pressed, fps=options.fps, trust=True)
        finally:
            # The process ends by itself now; an exception while it does would be printed.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return 0
