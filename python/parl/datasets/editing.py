"""Datasets made from other files: :func:`merge`, :func:`split`, :func:`recover`."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parl.datasets.checkpoints import STATE_VERSION
from parl.datasets.dataset import Dataset, load
from parl.datasets.format import (
    PART_SUFFIX,
    VERSION,
    Episode,
    Writer,
    decode_record,
    encode_record,
    read_header,
    scan_records,
)
from parl.errors import ConfigError, DatasetError

# Values of the header that datasets must share to be one.
_SHARED = ("game", "rom_md5", "actions", "interval", "env_options")


def merge(paths: Sequence[str | Path], path: str | Path, *, overwrite: bool = False) -> Dataset:
    """Writes the episodes of several datasets of a game into one, in the order given.

    Args:
        paths: the datasets, with equal games and settings.
        path: the new file.
        overwrite: whether an existing file is replaced.

    Raises:
        ConfigError: ``paths`` is empty.
        DatasetError: two datasets have other settings, or an episode is damaged.
        FileExistsError: the new file exists already.
    """
    parts = [load(one) for one in paths]
    if not parts:
        raise ConfigError("paths is empty, expected at least one dataset")
    first = parts[0]
    for other in parts[1:]:
        _check_same(first, other)
    header = {**first.header, "recorded": {"merged": [part.header.get("recorded") for part in parts]}}
    chosen = [(part, number) for part in parts for number in range(part.num_episodes)]
    return _write(path, header, chosen, overwrite)


def _check_same(first: Dataset, other: Dataset) -> None:
    for name in _SHARED:
        mine, theirs = first.header[name], other.header[name]
        if mine != theirs:
            if isinstance(mine, dict):
                name = next(key for key in (*mine, *theirs) if mine.get(key) != theirs.get(key))
                mine, theirs = mine.get(name), theirs.get(name)
            raise DatasetError(
                f"{other.path} has {name} = {theirs!r}, but {first.path} {mine!r}: they cannot be one dataset"
            )


def split(
    path: str | Path, paths: Sequence[str | Path], shares: Sequence[float], *, overwrite: bool = False
) -> list[Dataset]:
    """Writes the episodes of a dataset into several, each episode into one.

    Args:
        path: the dataset.
        paths: the new files.
        shares: share of the steps of each new file; they are divided by their sum. Episodes stay whole, in
            their order, so that shares are met up to an episode.
        overwrite: whether existing files are replaced.

    Raises:
        ConfigError: there is no share for each file, one is not above 0, or two of the files, that of the
            dataset included, are the same.
        DatasetError: the file is damaged, or has too few episodes.
        FileExistsError: a new file exists already.
    """
    if len(paths) != len(shares) or not paths:
        raise ConfigError(
            f"{len(paths)} files and {len(shares)} shares, expected as many of both, at least 1"
        )
    for share in shares:
        if not share > 0 or share == float("inf"):
            raise ConfigError(f"a share is {share}, expected a number above 0")
    files = [Path(one).resolve() for one in (path, *paths)]
    for file in files:
        if files.count(file) > 1:
            raise ConfigError(f"{file} is named twice: the dataset and the new files must be different files")
    dataset = load(path)
    ends = np.cumsum([episode.steps for episode in dataset.episodes])
    limits = np.cumsum(shares)[:-1] / sum(shares) * dataset.num_steps
    # The episode whose end is nearest to the limit is the last of its file.
    cuts = [int(np.abs(ends - limit).argmin()) + 1 for limit in limits]
    bounds = [0, *cuts, dataset.num_episodes]
    if any(high <= low for low, high in itertools.pairwise(bounds)):
        raise DatasetError(
            f"{path} has {dataset.num_episodes} episodes, with shares of {list(shares)} a file would be empty"
        )
    made: list[Dataset] = []
    for name, (low, high) in zip(paths, itertools.pairwise(bounds), strict=True):
        chosen = [(dataset, number) for number in range(low, high)]
        made.append(_write(name, dataset.header, chosen, overwrite))
    return made


def recover(part: str | Path, path: str | Path | None = None, *, overwrite: bool = False) -> Dataset:
    """Makes a dataset of the whole episodes in the file of a recording that was killed.

    Args:
        part: the file, whose name ends in ``.part``; it is not changed.
        path: the new file; None for the name without ``.part``.
        overwrite: whether an existing file is replaced.

    Raises:
        FileNotFoundError: there is no such file.
        DatasetError: the file has no whole episode, or its header is damaged.
        FileExistsError: the new file exists already.
    """
    part = Path(part)
    if path is None:
        if part.suffix != PART_SUFFIX:
            raise ConfigError(f"{part} does not end in {PART_SUFFIX}: give the path of the new file")
        path = part.with_suffix("")
    header, first, version = read_header(part)
    found: list[tuple[bytes, Episode]] = []
    for record in scan_records(part, first):
        try:
            episode = decode_record(record, len(header["actions"]), header["interval"], version)
        except ValueError:
            break  # The index follows the last record.
        found.append((_current(record, episode, header, version == VERSION), episode))
    if not found:
        raise DatasetError(f"{part} has no whole episode")
    # The new file is written beside its own temporary name, which may be that of `part`.
    path = Path(path)
    spare = path.with_name(path.name + ".recovered")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists already: choose another name, or overwrite it")
    writer = Writer(spare, header, overwrite=True)
    try:
        for record, episode in found:
            writer.add_record(record, episode)
        writer.finish().replace(path)
    finally:
        writer.close()
    return load(path)


def _write(
    path: str | Path, header: dict[str, Any], chosen: Sequence[tuple[Dataset, int]], overwrite: bool
) -> Dataset:
    """Writes episodes of datasets into a new file."""
    header = {**header, "states": header.get("states", STATE_VERSION)}
    writer = Writer(path, header, overwrite=overwrite)
    try:
        for dataset, number in chosen:
            record, episode = dataset.read_with_record(number)
            same = dataset.version == VERSION and dataset.header.get("states") == header["states"]
            writer.add_record(_current(record, episode, header, same), episode)
        return load(writer.finish())
    except BaseException:
        writer.discard()
        raise


def _current(record: bytes, episode: Episode, header: dict[str, Any], same: bool) -> bytes:
    """``record``, or without its checkpoints if they are of another version (``same`` is false)."""
    if same:
        return record
    without = dataclasses.replace(episode, spacing=0, checkpoints=b"")
    return encode_record(without, len(header["actions"]), True)
