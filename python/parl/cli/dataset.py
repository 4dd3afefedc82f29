"""``parl dataset``: describe, check, join and divide datasets."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from parl.cli.arguments import UsageError, aligned, parse
from parl.cli.option_types import Flag, OptionalPath

_USAGE = """\
usage: parl dataset info|verify|merge|split|recover [OPTIONS]

  info FILE              print game, settings, sizes and returns of a dataset
  verify FILE...         play every episode again and compare it with its hashes and checkpoints
  merge FILE... -o FILE  write the episodes of datasets with equal settings into one
  split FILE -o FILE... --shares SHARE...
                         write the episodes of a dataset into several, by their share of the steps
  recover FILE.part      make a dataset of the whole episodes of a recording that was killed

parl dataset COMMAND --help lists the options.
"""

_File = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
_Files = Annotated[
    tyro.conf.Positional[tuple[Path, ...]],
    tyro.conf.arg(metavar="FILE [FILE ...]", help_behavior_hint="(required)"),
]
_Out = Annotated[Path, tyro.conf.arg(aliases=["-o"])]


@dataclasses.dataclass(frozen=True)
class InfoOptions:
    """Print game, settings, sizes and returns of a dataset."""

    file: _File
    """The dataset."""
    episodes: Flag = False
    """Also print a row for each episode."""
    json: Flag = False
    """Print a JSON object."""


@dataclasses.dataclass(frozen=True)
class VerifyOptions:
    """Play every episode again and compare it with its hashes and checkpoints."""

    files: _Files
    """The datasets."""
    batch_size: int = 64
    """Number of episodes that are played at the same time."""


@dataclasses.dataclass(frozen=True)
class MergeOptions:
    """Write the episodes of datasets with equal games and settings into one."""

    files: _Files
    """The datasets, in the order of their episodes."""
    out: _Out
    """File to write."""
    overwrite: Flag = False
    """Replace an existing file."""


@dataclasses.dataclass(frozen=True)
class SplitOptions:
    """Write the episodes of a dataset into several files. Episodes stay whole."""

    file: _File
    """The dataset."""
    out: Annotated[tuple[Path, ...], tyro.conf.arg(aliases=["-o"])]
    """Files to write."""
    shares: tuple[float, ...]
    """Share of the steps of each file, such as 0.9 0.1."""
    overwrite: Flag = False
    """Replace existing files."""


@dataclasses.dataclass(frozen=True)
class RecoverOptions:
    """Make a dataset of the whole episodes of a recording that was killed."""

    file: _File
    """The file, whose name ends in .part."""
    out: Annotated[OptionalPath, tyro.conf.arg(aliases=["-o"])] = None
    """File to write; default: the name without .part."""
    overwrite: Flag = False
    """Replace an existing file."""


def _info(options: InfoOptions) -> None:
    from parl.datasets import load

    dataset = load(options.file)
    episodes = dataset.episodes
    returns = np.array([episode.episode_return for episode in episodes if episode.end != "cut"])
    lengths = np.array([episode.steps for episode in episodes])
    ends = {
        end: sum(episode.end == end for episode in episodes) for end in ("terminated", "truncated", "cut")
    }
    about: dict[str, Any] = {
        "game": dataset.game,
        "steps": dataset.num_steps,
        "episodes": dataset.num_episodes,
        **ends,
        "mean_return": float(returns.mean()) if len(returns) else None,
        "longest_episode": int(lengths.max(initial=0)),
        "size_bytes": dataset.size_bytes,
        "bytes_per_step": dataset.size_bytes / max(dataset.num_steps, 1),
        "recorded": dataset.header.get("recorded"),
        "parl": dataset.header.get("parl"),
        "env_options": dataset.header["env_options"],
    }
    if options.json:
        rows = {"episode_rows": [episode._asdict() for episode in episodes]} if options.episodes else {}
        print(json.dumps({**about, **rows}, indent=2))
        return
    settings = about.pop("env_options")
    print(aligned([(name, _text(value)) for name, value in {**about, **settings}.items()]))
    if options.episodes:
        head = ("episode", "steps", "return", "end")
        rows = [tuple(map(str, episode)) for episode in episodes]
        print(aligned([head, *((number, steps, total, end) for number, steps, total, end in rows)]))


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def _verify(options: VerifyOptions) -> None:
    from parl.datasets import load

    if not options.files:
        raise UsageError("parl dataset verify: name at least one dataset")
    for file in options.files:
        dataset = load(file)
        steps = dataset.verify(batch_size=options.batch_size)
        print(f"{file}: {dataset.num_episodes:,} episodes, {steps:,} steps are as they were recorded")


def _merge(options: MergeOptions) -> None:
    from parl.datasets import merge

    _print_written(merge(options.files, options.out, overwrite=options.overwrite))


def _split(options: SplitOptions) -> None:
    from parl.datasets import split

    for dataset in split(options.file, options.out, options.shares, overwrite=options.overwrite):
        _print_written(dataset)


def _recover(options: RecoverOptions) -> None:
    from parl.datasets import recover

    _print_written(recover(options.file, options.out, overwrite=options.overwrite))


def _print_written(dataset: Any) -> None:
    print(f"{dataset.path}: {dataset.num_episodes:,} episodes, {dataset.num_steps:,} steps")


_KINDS: dict[str, tuple[type[Any], Callable[[Any], None]]] = {
    "info": (InfoOptions, _info),
    "verify": (VerifyOptions, _verify),
    "merge": (MergeOptions, _merge),
    "split": (SplitOptions, _split),
    "recover": (RecoverOptions, _recover),
}


def dataset_command(arguments: Sequence[str]) -> int:
    """Runs a command on datasets. Returns the exit status."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(_USAGE, end="")
        return 0
    if not arguments or arguments[0] not in _KINDS:
        raise UsageError(
            f"parl dataset takes {', '.join(_KINDS)}, got {' '.join(arguments)!r}; see parl dataset --help"
        )
    kind, work = _KINDS[arguments[0]]
    work(parse(kind, f"parl dataset {arguments[0]}", arguments[1:]))
    return 0
