"""Learning curves of runs: return against environment steps and against wall time, as a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parl.errors import ConfigError, RunDirectoryError
from parl.run.metrics import read_metrics

AXES = {"env_steps": "environment steps", "wall_time_s": "wall time, seconds"}


def curve(records: Sequence[dict[str, Any]], x: str, y: str) -> tuple[list[float], list[float]]:
    """The points of the records that have both keys, in order."""
    points = [
        (record[x], record[y])
        for record in records
        if record.get(x) is not None and record.get(y) is not None
    ]
    return [float(point[0]) for point in points], [float(point[1]) for point in points]


def plot_runs(runs: Sequence[str | Path], out: str | Path, y: str = "episode_return") -> Path:
    """Draws ``y`` of each run against steps (left) and wall time (right).

    Args:
        runs: run directories, one line each.
        out: the PNG to write; its folder is made if missing.
        y: key of the metrics to draw. Evaluations (``evaluation_return``) are drawn as dots where present.

    Returns:
        ``out``.

    Raises:
        ConfigError: no run is given, or matplotlib is not installed.
        FileNotFoundError: a run has no metrics.
        RunDirectoryError: a run has no value under ``y``.
    """
    if not runs:
        raise ConfigError("no run to plot")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("plots need matplotlib: pip install 'parl-rl[plot]'") from error

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.subplots(1, len(AXES), sharey=True)
    for run in runs:
        records = read_metrics(run)
        for axis, (x, label) in zip(axes, AXES.items(), strict=True):
            places, values = curve(records, x, y)
            if not values:
                keys = sorted({key for record in records for key in record})
                raise RunDirectoryError(f"{run} has no {y!r} in its metrics; there are: {', '.join(keys)}")
            (line,) = axis.plot(places, values, label=Path(run).name, linewidth=1.4)
            axis.plot(*curve(records, x, "evaluation_return"), "o", color=line.get_color(), markersize=5)
            axis.set_xlabel(label)
            axis.grid(alpha=0.3)
    axes[0].set_ylabel(y.replace("_", " "))
    axes[0].legend(fontsize="small")
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(str(out))
    return out
