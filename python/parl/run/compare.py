"""Compares algorithms and settings over seeds: interquartile means of scores with bootstrap intervals.

The score of a run is the mean return of its last evaluation. Runs that differ only in their seed form a
group. Where an algorithm was run with the same settings on several Atari games, its human-normalized scores
are combined too, and the bootstrap resamples the runs of each game among themselves.

Source: Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parl.atari.catalogue import find_id
from parl.errors import ConfigError, RunDirectoryError
from parl.run.directory import RunDirectory
from parl.run.listing import compared_keys, compared_settings
from parl.run.metrics import read_metrics
from parl.run.plot import save_figure
from parl.run.scores import Numbers, bootstrap_interval, interquartile_mean
from parl.run.suites import REFERENCES, human_normalized


@dataclass(frozen=True)
class Group:
    """Runs of an algorithm with the same settings, and their scores.

    Attributes:
        env: environment of the runs, with its options; or "human-normalized, N games".
        name: the algorithm, and the settings in which the groups of this environment and algorithm differ.
        scores: the score of each run.
        iqm: interquartile mean of the scores.
        interval: ends of its 95 % interval; None for a single run in each environment.
    """

    env: str
    name: str
    scores: tuple[float, ...]
    iqm: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class _Settings:
    """Settings of a run in a form that can be compared."""

    env: str
    algorithm: str
    others: str

    @classmethod
    def of(cls, run: RunDirectory, settings: dict[str, Any]) -> _Settings:
        config = run.config
        algorithm = str(config["algorithm"])
        settings.pop("seed", None)
        words = [settings.pop("env"), *settings.pop("env_options", ())]
        others = {**settings, **config.get(algorithm, {})}
        return cls(" ".join(words), algorithm, json.dumps(others, sort_keys=True, default=str))

    def name(self, peers: Sequence[_Settings]) -> str:
        """The algorithm and the settings in which ``peers`` of the same algorithm differ."""
        mine = json.loads(self.others)
        tables = [json.loads(peer.others) for peer in peers if peer.algorithm == self.algorithm]
        differing = {key for table in tables for key in {*mine, *table} if table.get(key) != mine.get(key)}
        words = [f"{key}={_text(mine.get(key))}" for key in sorted(differing)]
        return " ".join([self.algorithm, *words])


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def score_of(run: RunDirectory) -> float:
    """Mean return of a run's last evaluation.

    Raises:
        RunDirectoryError: the run has no evaluation.
    """
    scores = [
        record["evaluation_return"] for record in read_metrics(run.path) if "evaluation_return" in record
    ]
    if not scores or scores[-1] is None:
        raise RunDirectoryError(
            f"{run.path} has no evaluation: train it to its end, with evaluation_episodes above 0"
        )
    return float(scores[-1])


def before_end(path: str | Path) -> str | None:
    """A sentence if the last evaluation of a run was before the run's end, so that others had more training.

    Args:
        path: a run directory with an evaluation.
    """
    run = RunDirectory.open(path)
    limits = compared_settings(run)
    last = next(one for one in reversed(read_metrics(run.path)) if "evaluation_return" in one)
    steps, total, goal = int(last["env_steps"]), int(limits["total_steps"]), limits.get("stop_at_return")
    if steps >= total or (goal is not None and float(last["evaluation_return"]) >= goal):
        return None
    return f"{path}: the last evaluation was after {steps:,} of {total:,} steps"


def compare_runs(runs: Sequence[str | Path]) -> list[Group]:
    """Groups runs by environment, algorithm and settings, the best group of each environment first.

    Args:
        runs: run directories. A run that is among them more than once, as a link or a copy, counts once.

    Raises:
        ConfigError: ``runs`` is empty.
        FileNotFoundError: there is no such folder.
        RunDirectoryError: a folder is not a run directory, or a run has no evaluation.
    """
    if not runs:
        raise ConfigError("runs is empty, expected at least one run directory to compare")
    scores: dict[_Settings, dict[str, float]] = {}
    opened = [*map(RunDirectory.open, dict.fromkeys(map(Path, runs)))]
    for run, settings in zip(opened, compared_keys(opened, _Settings.of), strict=True):
        scores.setdefault(settings, {})[run.id] = score_of(run)
    found = {settings: [*of_runs.values()] for settings, of_runs in scores.items()}
    groups: list[Group] = []
    for env in sorted({settings.env for settings in found}):
        peers = [settings for settings in found if settings.env == env]
        here = [_group(env, one.name(peers), [np.array(found[one])]) for one in peers]
        groups += sorted(here, key=lambda group: -group.iqm)
    return groups + sorted(_over_games(found), key=lambda group: -group.iqm)


def _over_games(found: Mapping[_Settings, list[float]]) -> list[Group]:
    """Human-normalized scores of settings, with those of the environment, that were run on several games."""
    games: dict[_Settings, dict[str, list[float]]] = {}
    for one, scores in found.items():
        env, _, options = one.env.partition(" ")
        game = find_id(env)
        if game in REFERENCES:
            settings = _Settings(options, one.algorithm, one.others)
            games.setdefault(settings, {}).setdefault(game, []).extend(scores)
    groups: list[Group] = []
    several = {one: played for one, played in games.items() if len(played) > 1}
    for one, played in several.items():
        peers = [peer for peer in several if peer.env == one.env]
        strata = [human_normalized(game, np.array(scores)) for game, scores in played.items()]
        env = f"human-normalized, {len(played)} games{' ' * bool(one.env)}{one.env}"
        groups.append(_group(env, one.name(peers), strata))
    return groups


def _group(env: str, name: str, strata: Sequence[Numbers]) -> Group:
    scores = np.concatenate(strata)
    repeated = any(len(values) > 1 for values in strata)
    interval = bootstrap_interval(strata, interquartile_mean) if repeated else None
    return Group(env, name, tuple(map(float, scores)), float(interquartile_mean(scores)), interval)


def plot_comparison(groups: Sequence[Group], out: str | Path) -> Path:
    """Draws the interquartile means and intervals of groups, one panel per environment.

    Args:
        groups: from :func:`compare_runs`.
        out: file to write, of a type that matplotlib supports; its folder is created if missing.

    Returns:
        ``out``.

    Raises:
        ConfigError: matplotlib is not installed, or it does not support the type of the file.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("plots need matplotlib: pip install 'parl-rl[plot]'") from error

    panels = {
        env: [group for group in groups if group.env == env]
        for env in dict.fromkeys(one.env for one in groups)
    }
    rows = [len(members) for members in panels.values()]
    figure = Figure(figsize=(8, 0.8 * len(panels) + 0.45 * sum(rows)), layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": rows})[:, 0]
    for axis, (env, members) in zip(axes, panels.items(), strict=True):
        for row, group in enumerate(members):
            low, high = group.interval or (group.iqm, group.iqm)
            axis.barh(row, high - low, left=low, height=0.6, alpha=0.4, color="tab:blue")
            axis.plot([group.iqm] * 2, [row - 0.3, row + 0.3], color="tab:blue")
        axis.set_yticks(range(len(members)), [f"{group.name} ({len(group.scores)})" for group in members])
        axis.set_ylim(len(members) - 0.5, -0.5)
        axis.set_title(env, fontsize="medium")
        axis.grid(alpha=0.3, axis="x")
        axis.use_sticky_edges = False  # a margin beside the bars
    axes[-1].set_xlabel("score: interquartile mean, 95 % interval")
    return save_figure(figure, out)
