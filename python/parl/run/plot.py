"""Plots of learning curves: a metric over environment steps and over wall time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parl.errors import ConfigError, RunDirectoryError
from parl.run.directory import RunDirectory
from parl.run.listing import compared_keys
from parl.run.metrics import read_metrics

Numbers = np.ndarray[Any, np.dtype[np.float64]]

AXES = {"env_steps": "environment steps", "wall_time_s": "wall time, seconds"}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def curve(records: Sequence[dict[str, Any]], x: str, y: str) -> tuple[list[float], list[float]]:
    """Values of the records that have a number for both keys, in order.

    Args:
        records: records of a run's metrics.
        x: key of the horizontal axis.
        y: key of the vertical axis.

    Returns:
        The values of ``x`` and those of ``y``.
    """
    points = [
        (record[x], record[y])
        for record in records
        if _is_number(record.get(x)) and _is_number(record.get(y))
    ]
    return [float(point[0]) for point in points], [float(point[1]) for point in points]


def band(curves: Sequence[tuple[list[float], list[float]]], points: int = 200) -> list[Numbers]:
    """Median, minimum and maximum of several curves over the range of x that all of them cover.

    Args:
        curves: x (ascending) and y of each curve, which are interpolated linearly.
        points: number of equally spaced values of x.

    Returns:
        x, median, minimum and maximum, (points,) each; empty if the curves do not overlap.
    """
    first, last = max(xs[0] for xs, _ in curves), min(xs[-1] for xs, _ in curves)
    grid = np.linspace(first, last, points) if first <= last else np.zeros(0)
    values = np.stack([np.interp(grid, xs, ys) for xs, ys in curves])
    return [grid, np.median(values, axis=0), values.min(axis=0), values.max(axis=0)]


def groups(runs: Sequence[str | Path]) -> dict[str, list[Path]]:
    """Groups runs whose settings differ only in their seed and in those that do not change what they learn.

    Args:
        runs: run directories. A run that is among them more than once, as a link or a copy, counts once.

    Returns:
        Name of the group -> run directories.
    """

    def key_of(directory: RunDirectory, settings: dict[str, Any]) -> str:
        settings.pop("seed", None)
        return json.dumps(directory.config | {"run": settings}, sort_keys=True, default=str)

    found: dict[str, tuple[str, dict[str, Path]]] = {}
    opened = [*map(RunDirectory.open, runs)]
    for directory, key in zip(opened, compared_keys(opened, key_of), strict=True):
        seed = directory.config.get("run", {}).get("seed")
        name = directory.path.name.removesuffix(f"-{seed}")
        found.setdefault(key, (name, {}))[1].setdefault(directory.id, directory.path)
    named: dict[str, list[Path]] = {}
    for name, of_runs in found.values():
        members = [*of_runs.values()]
        first = members[0]
        label = next(one for one in (name, first.name, str(first)) if one not in named)
        named[label] = members
    return named


def _draw(axis: Any, name: str, curves: Sequence[tuple[list[float], list[float]]]) -> Any:
    """Draws a curve, or several with one legend entry as a band; returns the first line.

    Curves that have no range of x in common are drawn one by one, and single points as dots.
    """
    label = Path(name).name if len(curves) == 1 else f"{name} ({len(curves)} seeds)"
    if len(curves) > 1:
        places, middle, lowest, highest = band(curves)
        if len(places) and places[0] < places[-1]:
            (line,) = axis.plot(places, middle, label=label, linewidth=1.4)
            axis.fill_between(places, lowest, highest, color=line.get_color(), alpha=0.2, linewidth=0)
            return line
    (first,) = axis.plot(*curves[0], label=label, linewidth=1.4)
    lines = [first, *(axis.plot(*one, color=first.get_color(), linewidth=1.4)[0] for one in curves[1:])]
    for line in lines:
        line.set_marker("" if len(line.get_xdata()) > 1 else "o")
    return first


def _draw_evaluations(axis: Any, curves: Sequence[tuple[list[float], list[float]]], line: Any) -> None:
    """Draws evaluations as dots in the color of ``line``, with one legend entry for all of them."""
    label = f"{line.get_label()}, evaluations"
    for places, values in curves:
        if places:
            axis.plot(places, values, "o", color=line.get_color(), markersize=5, label=label)
            label = "_nolegend_"


def learning_curves(runs: Sequence[str | Path], y: str, bands: bool) -> Any:
    """The figure that :func:`plot_runs` writes; see there."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.subplots(1, len(AXES), sharey=True)
    lines = groups(runs) if bands else {str(run): [Path(run)] for run in runs}
    for name, members in lines.items():
        records = [read_metrics(run) for run in members]
        for axis, (x, label) in zip(axes, AXES.items(), strict=True):
            curves = [curve(one, x, y) for one in records]
            for run, one, (_, values) in zip(members, records, curves, strict=True):
                if not values:
                    numbers = {key for record in one for key, value in record.items() if _is_number(value)}
                    raise RunDirectoryError(
                        f"the metrics of {run} have no number for {y!r}, expected one of "
                        f"{', '.join(sorted(numbers - {*AXES}))}"
                    )
            line = _draw(axis, name, curves)
            if y == "episode_return":  # evaluations are returns too; no other quantity shares their axis
                _draw_evaluations(axis, [curve(one, x, "evaluation_return") for one in records], line)
            axis.set_xlabel(label)
            axis.grid(alpha=0.3)
    axes[0].set_ylabel(y.replace("_", " "))
    axes[0].legend(fontsize="small")
    return figure


def plot_runs(
    runs: Sequence[str | Path], out: str | Path, y: str = "episode_return", bands: bool = False
) -> Path:
    """Plots a metric of runs over environment steps (left) and wall time (right).

    Args:
        runs: run directories, one line each.
        out: file to write, of a type that matplotlib supports; its folder is created if missing.
        bands: whether runs that differ only in their seed are drawn as their median, in a band from minimum
            to maximum.
        y: key of the metric. With ``episode_return``, evaluations (``evaluation_return``) are drawn as dots.

    Returns:
        ``out``.

    Raises:
        ConfigError: ``runs`` is empty, matplotlib is not installed, or does not support the type of the file.
        FileNotFoundError: a run has no file of metrics.
        RunDirectoryError: a run has no value of ``y``.
    """
    if not runs:
        raise ConfigError("runs is empty, expected at least one run directory to plot")
    try:
        figure = learning_curves(runs, y, bands)
    except ImportError as error:
        raise ConfigError("plots need matplotlib: pip install 'parl-rl[plot]'") from error
    return save_figure(figure, out)


def save_figure(figure: Any, out: str | Path) -> Path:
    """Writes a figure into ``out``, whose ending names the type (none: PNG); returns ``out``.

    Raises:
        ConfigError: matplotlib does not support the type.
    """
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(out, format=out.suffix[1:].lower() or "png")
    except ValueError as error:
        raise ConfigError(f"{out}: {error}") from error
    return out
