"""``parl tune``: search for the settings of an algorithm."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Sequence

from parl.cli.arguments import UsageError, parse_known, take_option
from parl.cli.option_types import Flag, OptionalPath
from parl.cli.settings import algorithm_in, environment_in, parse_settings

_USAGE = """\
usage: parl tune ALGORITHM [OPTIONS]

algorithms: {algorithms}

parl tune ALGORITHM --help lists the options.
"""


@dataclasses.dataclass(frozen=True)
class TuneOptions:
    """Search for the settings of an algorithm with which a run's last evaluation has the highest mean return.

    Further options are those of parl train: settings that are given are used for all trials, others are
    sampled. Processes with the same study share it, and a study can be continued.
    """

    trials: int = 50
    """Completed and pruned trials at which the search ends, in all processes together."""
    study: OptionalPath = None
    """SQLite file of the study; the best settings are written beside it; default: tune/ALGORITHM-ENV.db."""
    startup_trials: int = 10
    """Trials with random settings, none of which is pruned."""
    evaluations: int = 5
    """Evaluations of a trial, equally spaced; after each, trials below the median are pruned."""
    plot: Flag = False
    """Draw the search as PNG files, in a folder beside the study."""


def tune_command(arguments: Sequence[str]) -> int:
    """Searches for settings. Returns the exit status."""
    train = importlib.import_module("parl.train")
    name = algorithm_in(arguments, "parl tune", _USAGE)
    if name is None:
        return 0
    preset, rest = take_option("--preset", arguments[1:])
    options, rest = parse_known(TuneOptions, f"parl tune {name}", rest)
    for option, number in (("trials", options.trials), ("evaluations", options.evaluations)):
        if number < 1:
            raise UsageError(f"parl tune: --{option} is {number}, expected at least 1")
    search = importlib.import_module("parl.train.search")
    chosen = environment_in(rest, f"parl tune {name}")
    default = train.settings_for(name, **vars(chosen), preset=preset)
    settings = parse_settings(f"parl tune {name}", rest, *default, about="Settings of all trials.")
    values = {key: value for part in settings for key, value in vars(part).items()}
    words = {word[2:].partition("=")[0].replace("-", "_") for word in rest if word.startswith("--")}
    given = {key: value for key, value in values.items() if {key, f"no_{key}"} & words}
    try:
        found = search.tune(
            name,
            given.pop("env", None),
            preset=preset,
            trials=options.trials,
            study=options.study,
            startup_trials=options.startup_trials,
            evaluations=options.evaluations,
            **given,
        )
    except KeyboardInterrupt:
        print("interrupted; the same command continues the study", file=sys.stderr)
        raise
    best = found.study.best_trial
    print(f"best of {len(found.study.trials)} trials: trial {best.number}, mean return {best.value:.1f}")
    for key in best.params:
        print(f"  {key} = {found.best[key]}")
    print(f"settings: {found.config} (parl train {name} --config {found.config})")
    if options.plot:
        for path in search.plot_study(found.study, found.config.with_suffix("")):
            print(path)
    return 0
