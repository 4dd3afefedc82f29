"""``parl resume``: continue a run from its last checkpoint."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from typing import Any

from parl.cli.arguments import parse
from parl.cli.option_types import Flag, OptionalFloat, OptionalInt
from parl.cli.runs import RunPath, ask_for_trust, interruptible, summarize


@dataclasses.dataclass(frozen=True)
class ResumeOptions:
    """Continue a run from its last checkpoint."""

    run: RunPath
    """The run directory."""
    total_steps: OptionalInt = None
    """New length of the run in transitions, counted from its start; default: unchanged."""
    stop_at_return: OptionalFloat = None
    """New mean evaluation return that ends the run; default: unchanged."""
    evaluation_episodes: OptionalInt = None
    """New number of episodes of each evaluation, 0 for none; default: unchanged."""
    callback: tuple[str, ...] = ()
    """Callbacks of this part of the run, each as MODULE:CLASS."""
    trust: Flag = False
    """Load pickles of the run without asking. This runs the code in them: open only runs you trust."""


def resume_command(arguments: Sequence[str]) -> int:
    """Continues a run. Returns the exit status."""
    options = parse(ResumeOptions, "parl resume", arguments)
    train = importlib.import_module("parl.train")
    names = ("total_steps", "stop_at_return", "evaluation_episodes")
    changed = {name: value for name in names if (value := getattr(options, name)) is not None}
    callbacks = [train.load_callback(name) for name in options.callback]

    def train_on(trust: bool) -> Any:
        return interruptible(lambda: train.resume(options.run, trust=trust, callbacks=callbacks, **changed))

    return summarize(ask_for_trust(train_on, options.trust))
