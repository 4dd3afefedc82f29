"""Minari's datasets both ways: :func:`to_minari`, :func:`from_minari`. Needs the extra ``minari``.

A dataset of Minari holds the observations themselves, one of parl what they are computed from. Seeds and
settings are in the metadata of Minari's file, so that a dataset that parl has written comes back the same.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from parl.atari.catalogue import game_id
from parl.datasets.dataset import Dataset, load
from parl.datasets.options import resolve
from parl.datasets.recording import log_episodes
from parl.errors import ConfigError, DatasetError
from parl.extras import install_command

_GAME, _OPTIONS = "parl_game", "parl_env_options"
# Episodes whose observations are in memory at the same time.
_AT_ONCE = 8


def to_minari(
    dataset: Dataset, dataset_id: str, *, metadata: Mapping[str, Any] | None = None, **options: Any
) -> Any:
    """Writes a dataset of Minari with the observations of a replay, into Minari's folder.

    Args:
        dataset: what is replayed.
        dataset_id: its name in Minari, such as ``"breakout/random-v0"``.
        metadata: further arguments of ``minari.create_dataset_from_buffers``, such as ``author`` and
            ``code_permalink``, without which Minari warns.
        **options: those of :meth:`Dataset.replay`.

    Returns:
        The ``minari.MinariDataset``.

    Raises:
        ModuleNotFoundError: Minari is not installed; ``pip install 'parl-rl[minari]'``.
        ConfigError: the episodes are lives, which Minari cannot hold; or as :meth:`Dataset.replay`.
        DatasetError: as :meth:`Dataset.replay`.
    """
    minari, buffer_class = _minari()
    policy = str(dataset.header["recorded"].get("policy", "unknown"))
    about = {
        "algorithm_name": policy,
        "description": f"{dataset.game}, {dataset.num_steps} steps, written by parl.datasets.to_minari",
        **(metadata or {}),
    }
    options.pop("batch_size", None)
    view = {name: value for name, value in options.items() if name not in ("verify", "episodes")}
    probe = dataset.make_envs(1, **view)
    spaces = (probe.single_observation_space, probe.single_action_space)
    shown = {name: value for name, value in probe.settings.items() if name in dataset.env_options}
    probe.close()
    if shown["life_loss"] == "continues":
        raise ConfigError(
            "life_loss is 'continues': the last observation of a life is not the first one of the next, and "
            "episodes of Minari hold only one of both"
        )
    numbers = options.pop("episodes", None)
    chosen = list(range(dataset.num_episodes)) if numbers is None else [int(number) for number in numbers]
    if not chosen:
        raise ConfigError("episodes is empty, expected at least one")
    made: Any = None
    for at in range(0, len(chosen), _AT_ONCE):
        part = chosen[at : at + _AT_ONCE]
        buffers = [
            buffer_class(
                id=at + place,
                seed=dataset.read(number).seed,
                observations=np.concatenate([columns["observation"], columns["next_observation"][-1:]]),
                actions=columns["action"],
                rewards=columns["reward"].tolist(),
                terminations=columns["terminated"].tolist(),
                truncations=columns["truncated"].tolist(),
                infos={},
            )
            for place, (number, columns) in enumerate(_whole_episodes(dataset, part, options))
        ]
        if made is None:
            made = minari.create_dataset_from_buffers(
                dataset_id,
                buffers,
                observation_space=spaces[0],
                action_space=spaces[1],
                jpeg_encoding=False,
                **about,
            )
        else:
            made.storage.update_episodes(buffers)
    made.storage.update_metadata({_GAME: dataset.game, _OPTIONS: json.dumps(shown)})
    return minari.load_dataset(dataset_id)


def _minari() -> tuple[Any, Any]:
    """The package, and its class of episodes to write."""
    try:
        package = importlib.import_module("minari")
        return package, importlib.import_module("minari.data_collector").EpisodeBuffer
    except ModuleNotFoundError as error:
        if command := install_command(error):
            raise ModuleNotFoundError(f"{error}: {command}", name=error.name) from error
        raise


def _whole_episodes(
    dataset: Dataset, numbers: list[int], options: Mapping[str, Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Replays some episodes; yields number and columns of each, in the order given."""
    rows_of: dict[int, list[dict[str, Any]]] = {number: [] for number in numbers}
    for rows in dataset.replay(episodes=numbers, batch_size=len(numbers), **options):
        for i, number in enumerate(rows["episode"].tolist()):
            rows_of[number].append({name: column[i] for name, column in rows.items()})
    for number in numbers:
        rows = rows_of.pop(number)
        yield number, {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def from_minari(
    source: Any,
    path: str | Path,
    *,
    game: str | None = None,
    seeds: list[int] | None = None,
    overwrite: bool = False,
    **env_options: Any,
) -> Dataset:
    """Makes a dataset of one of Minari, and proves that it replays to the same observations and rewards.

    Datasets that :func:`to_minari` wrote need no further arguments. For others give what they were recorded
    with: a replay that differs is an error.

    Args:
        source: a ``minari.MinariDataset``, or its id.
        path: the file.
        game: id of the game.
        seeds: of the reset of each episode.
        overwrite: whether an existing file is replaced.
        **env_options: keywords of :class:`parl.AtariVectorEnv`, and ``preset``.

    Raises:
        ModuleNotFoundError: Minari is not installed; ``pip install 'parl-rl[minari]'``.
        DatasetError: game or seeds are unknown, or the replay of an episode differs.
        FileExistsError: the file exists already.
    """
    minari, _ = _minari()
    found = minari.load_dataset(source) if isinstance(source, str) else source
    name = found.spec.dataset_id
    metadata = found.storage.metadata
    game = game or metadata.get(_GAME)
    if game is None:
        raise DatasetError(f"{name} has no name of a game: pass it, such as game='pong'")
    recorded = json.loads(metadata.get(_OPTIONS, "{}"))
    skip = recorded.get("frameskip")
    if isinstance(skip, list) and not isinstance(skip[0], list):
        recorded["frameskip"] = tuple(skip)  # the pair itself, in older files
    options = resolve(game_id(game), {**recorded, **env_options})
    indices = [int(number) for number in found.episode_indices]
    if seeds is None:
        seeds = [_seed_of(name, one) for one in found.storage.get_episode_metadata(indices)]
    if len(seeds) != len(indices):
        raise DatasetError(f"{name} has {len(indices)} episodes, but there are {len(seeds)} seeds")
    actions = [np.asarray(found[place].actions) for place in range(len(indices))]
    logs = list(zip(seeds, actions, strict=True))
    path = Path(path)
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists already: overwrite=True replaces it")
    # An earlier file stays until the new one is proven.
    unproven = path.with_name(f"{path.name}.unproven")
    try:
        dataset = log_episodes(unproven, game, options, logs, f"Minari: {name}", overwrite=True)
        for number, columns in _whole_batches(dataset):
            _compare(f"{name}: episode {number}", found[number], columns)
        os.replace(unproven, path)
    finally:
        unproven.unlink(missing_ok=True)
    return load(path)


def _whole_batches(dataset: Dataset) -> Iterator[tuple[int, dict[str, Any]]]:
    for at in range(0, dataset.num_episodes, _AT_ONCE):
        yield from _whole_episodes(dataset, list(range(at, min(at + _AT_ONCE, dataset.num_episodes))), {})


def _seed_of(name: str, metadata: Mapping[str, Any]) -> int:
    seed = metadata.get("seed")
    if seed is None or int(seed) < 0:
        raise DatasetError(f"{name} has no seeds of its episodes: pass seeds=[...]")
    return int(seed)


def _compare(what: str, theirs: Any, ours: dict[str, Any]) -> None:
    """Compares an episode of Minari with its replay."""
    observations = np.concatenate([ours["observation"], ours["next_observation"][-1:]])
    for name, mine, other in (
        ("observations", observations, theirs.observations),
        ("rewards", ours["reward"], theirs.rewards),
        ("terminations", ours["terminated"], theirs.terminations),
    ):
        other = np.asarray(other)
        if mine.shape != other.shape:
            raise DatasetError(f"{what} has {name} of shape {other.shape}, its replay of shape {mine.shape}")
        if not np.array_equal(mine, other):
            step = int(np.argwhere(mine != other)[0][0])
            raise DatasetError(
                f"{what} has other {name} than its replay, first at step {step}: give the game, seeds and "
                "settings with which it was recorded"
            )
