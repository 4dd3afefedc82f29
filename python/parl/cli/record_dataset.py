"""``parl record-dataset``: record a dataset of random play, of a run's policy, or of a person's play."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from parl.cli.arguments import UsageError, parse
from parl.cli.option_types import Flag
from parl.cli.runs import ask_for_trust
from parl.datasets.format import PART_SUFFIX

_SECONDS_BETWEEN_LINES = 5.0


@dataclasses.dataclass(frozen=True)
class RecordDatasetOptions:
    """Record a dataset: an Atari game's actions and seeds, from which observations are computed again."""

    what: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="GAME|RUN|PLAY")]
    """The id of a game, for random actions; a run directory, for its policy; or an .npz file of parl play
    --record."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """File to write."""
    steps: int = 1_000_000
    """Number of steps."""
    seed: int = 0
    """Seed of episodes and of random actions."""
    num_envs: int = 64
    """Number of environments that play at the same time."""
    env_options: tuple[str, ...] = ()
    """Options of the environments, such as repeat_action_probability=0.25 preset=machado."""
    checkpoint: str = "best"
    """Of a run: the checkpoint, best or last."""
    compress: Flag = False
    """Compress actions with zlib."""
    overwrite: Flag = False
    """Replace an existing file."""
    quiet: Flag = False
    """Print no progress."""
    trust: Flag = False
    """Load pickles of the run without asking. This runs the code in them: open only runs you trust."""


class _Progress:
    """Prints a line every few seconds."""

    def __init__(self) -> None:
        self._start = self._last = time.monotonic()

    def __call__(self, done: int, steps: int) -> None:
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            rate = done / (now - self._start)
            print(f"{done:,}/{steps:,} steps  {rate:,.0f} steps/s", file=sys.stderr, flush=True)


def record_dataset_command(arguments: Sequence[str]) -> int:
    """Records a dataset and prints its size. Returns the exit status."""
    from parl import datasets

    options: RecordDatasetOptions = parse(RecordDatasetOptions, "parl record-dataset", arguments)
    keywords = importlib.import_module("parl.train.config").keywords(options.env_options)
    is_run = any((Path(options.what) / name).is_file() for name in ("config.toml", "manifest.json"))
    if options.what.endswith(".npz"):
        for name in ("steps", "seed", "num_envs", "compress"):
            if getattr(options, name) != RecordDatasetOptions.__dataclass_fields__[name].default:
                raise UsageError(
                    f"parl record-dataset: --{name.replace('_', '-')} has no effect on {options.what}"
                )
        dataset = datasets.from_play(options.what, options.out, overwrite=options.overwrite, **keywords)
    else:
        dataset = _record(options, is_run, keywords)
    print(
        f"{dataset.path}: {dataset.num_episodes:,} episodes, {dataset.num_steps:,} steps of {dataset.game}, "
        f"{dataset.size_bytes:,} bytes"
    )
    return 0


def _record(options: RecordDatasetOptions, is_run: bool, keywords: dict[str, Any]) -> Any:
    """Records the steps of a game or a run."""
    from parl import datasets

    policy, game = _policy(options) if is_run else (None, options.what)
    try:
        return datasets.record(
            game,
            options.out,
            options.steps,
            seed=options.seed,
            policy=policy,
            num_envs=options.num_envs,
            compress=options.compress,
            overwrite=options.overwrite,
            progress=None if options.quiet else _Progress(),
            **keywords,
        )
    except KeyboardInterrupt:
        part = f"{options.out}{PART_SUFFIX}"
        raise KeyboardInterrupt(
            f"interrupted; parl dataset recover {part} keeps the episodes that have ended"
        ) from None


def _policy(options: RecordDatasetOptions) -> tuple[Any, str]:
    """The policy of a run, and the id of its game."""
    load = importlib.import_module("parl.train").load
    policy = ask_for_trust(lambda trust: load(options.what, options.checkpoint, trust=trust), options.trust)
    return policy, policy.env_maker.name
