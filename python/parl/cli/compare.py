"""``parl compare``: compare algorithms and settings over seeds."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

from parl.cli.arguments import aligned, parse
from parl.cli.option_types import OptionalPath
from parl.cli.runs import RunPaths, some


@dataclasses.dataclass(frozen=True)
class CompareOptions:
    """Compare algorithms and settings over seeds.

    Prints the interquartile mean of the runs' scores with a 95 % stratified bootstrap interval (Agarwal et
    al., 2021). The score of a run is the mean return of its last evaluation. Runs that were last evaluated
    before their end are named on standard error.
    """

    runs: RunPaths
    """Run directories. Those that differ only in their seed form a group."""
    plot: OptionalPath = None
    """Also draw means and intervals into this file (.png, .svg, .pdf)."""


def compare_command(arguments: Sequence[str]) -> int:
    """Prints a row for each group of runs. Returns the exit status."""
    from parl.run.compare import before_end, compare_runs, plot_comparison

    options = parse(CompareOptions, "parl compare", arguments)
    runs = some(options.runs, "parl compare")
    groups = compare_runs(runs)
    for sentence in filter(None, map(before_end, runs)):
        print(sentence, file=sys.stderr)
    rows = [("env", "algorithm", "runs", "IQM", "95 % interval", "lowest", "highest")]
    for group in groups:
        interval = "-" if group.interval is None else "{:.2f} to {:.2f}".format(*group.interval)
        ends = (f"{min(group.scores):.2f}", f"{max(group.scores):.2f}")
        rows.append((group.env, group.name, str(len(group.scores)), f"{group.iqm:.2f}", interval, *ends))
    print(aligned(rows))
    if options.plot is not None:
        print(plot_comparison(groups, options.plot))
    return 0
