"""``parl plot``: draw learning curves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from parl.cli.arguments import parse
from parl.cli.option_types import OptionalPath
from parl.cli.runs import RunPaths, curve_path, some


@dataclasses.dataclass(frozen=True)
class PlotOptions:
    """Draw learning curves of one or more runs against steps and wall time."""

    runs: RunPaths
    """Run directories."""
    out: OptionalPath = None
    """File to write (.png, .svg, .pdf); default: plots/learning-curve.png in the first run directory."""
    y: str = "episode_return"
    """Metric to draw, a key of metrics.jsonl."""
    bands: bool = True
    """Draw runs that differ only in their seed as their median, with a band from minimum to maximum."""


def plot_command(arguments: Sequence[str]) -> int:
    """Draws learning curves into a file. Returns the exit status."""
    from parl.run.plot import plot_runs

    options = parse(PlotOptions, "parl plot", arguments)
    runs = some(options.runs, "parl plot")
    out = options.out or curve_path(runs[0])
    print(plot_runs(runs, out, y=options.y, bands=options.bands))
    return 0
