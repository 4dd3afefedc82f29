"""``parl report``: write a run's report, one HTML page."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import tyro

from parl.cli.arguments import parse
from parl.cli.option_types import OptionalPath
from parl.cli.runs import RunPath


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """Write one HTML page with the settings, curves and scores of a run, and the newest of its videos.

    The page refers to no other file. A video is included up to 8 MiB, from the folder videos of the run.
    """

    run: RunPath
    """The run directory."""
    out: Annotated[OptionalPath, tyro.conf.arg(aliases=["-o"])] = None
    """HTML file to write; default: report.html in the run directory."""


def report_command(arguments: Sequence[str]) -> int:
    """Writes the page and prints its path. Returns the exit status."""
    from parl.run.report import write_report

    options = parse(ReportOptions, "parl report", arguments)
    print(write_report(options.run, options.out))
    return 0
